"""How many environment steps a second the data path carries: actor -> broker -> learner -> back, unrolls assembled.

Environments and policy cost nothing. Ours is compared with a raw echo in the same run: one hop to a grpc.aio server
that answers at once, with the same messages, once from our client and once from one on grpcio that makes its messages
beforehand. Two bare hops show how close to it a system with a broker could come. The broker does not wait for fuller
batches (max_delay_ms=0), which only pay where a policy costs something.

python benchmarks/data_path.py [--json] [--transport tcp] [--shape 4x64]
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import echo_server
import grpc
import measuring
import numpy as np
import uvloop
from measuring import Figure, NullEnvironments, Services

from seedrl_core import codec, wire
from seedrl_core.spec import EnvironmentSpec
from seedrl_proto.v1 import inference_pb2 as inference

GREY = measuring.image_spec(84, 84)
COLOUR = measuring.image_spec(72, 96, 3)
SMALL = measuring.vector_spec(1)  # a message about as small as one whose observation is in shared memory
SHAPES = ("4x64", "16x8")  # sessions x environments of each
GRPC_GOAL = 0.55
SHARED_GOAL = 2.5
COLOUR_GOAL_PER_S = 80_000
_COPY_BYTES = 256 << 20


class Bench:
    """Servers of one transport, and the rates measured of them, by name of the measurement."""

    def __init__(self, started: Services, options: argparse.Namespace) -> None:
        """Starts two echoes, one with our allocator setting, a bare hop before that one, and the system."""
        self.echo = started.start_echo()
        self.keeping_echo = started.start_echo("--keep-freed-memory")
        self.two_hops = started.start_two_hops(self.keeping_echo)
        self.system = started.start_system(f"broker.max_delay_ms={options.max_delay_ms}")
        self.options = options
        self.rates: dict[str, list[float]] = defaultdict(list)
        self.costs: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))

    async def measure(self, spec: EnvironmentSpec, shape: str) -> None:
        """What is shown of `spec`, in turn, again and again."""
        sessions, envs = map(int, shape.split("x"))
        broker = self.system[0]
        opened = {
            "echo": await measuring.open_all(self.echo.address, spec, sessions, envs),
            "shared memory": await measuring.open_all(broker.address, spec, sessions, envs),
        }
        if spec is GREY:
            opened |= {
                "keeping echo": await measuring.open_all(self.keeping_echo.address, spec, sessions, envs),
                "two hops": await measuring.open_all(self.two_hops.address, spec, sessions, envs),
                "two small hops": await measuring.open_all(self.two_hops.address, SMALL, sessions, envs),
                "gRPC": await measuring.open_all(broker.address, spec, sessions, envs, shared_memory="off"),
            }
        for _ in range(self.options.repetitions):
            for name, environments in opened.items():
                rate, costs_us = await measuring.rate_and_costs(environments, self.system, self.options.seconds)
                self.rates[name].append(rate)
                for process, cost_us in costs_us.items():
                    self.costs[name][process].append(cost_us)
            rate = await grpcio_steps_per_s(self.echo.address, opened["echo"], self.options.seconds)
            self.rates["grpcio echo"].append(rate)
        for environments in opened.values():
            await measuring.close_all(environments)

    def cost_of(self, name: str) -> str:
        """Processor time of an environment step by process, for people."""
        return ", ".join(f"{process} {statistics.median(us):.1f}" for process, us in self.costs[name].items())


def grey_figures(bench: Bench, name: str) -> tuple[list[Figure], dict[str, str]]:
    """The goals, and beside them the echo that has our allocator setting too."""
    unit, rates = "env steps/s", bench.rates
    shared, small = rates["shared memory"], rates["two small hops"]
    figures = [
        Figure(f"{name}, gRPC", unit, rates["gRPC"], "raw echo, same client", rates["echo"], GRPC_GOAL),
        Figure(f"{name}, gRPC", unit, rates["gRPC"], "the same, freed memory kept", rates["keeping echo"]),
        Figure(f"{name}, two bare hops", unit, rates["two hops"], "raw echo, same client", rates["echo"]),
        Figure(f"{name}, shared memory", unit, shared, "raw echo, grpcio", rates["grpcio echo"], SHARED_GOAL),
        Figure(f"{name}, two bare hops, small", unit, small, "raw echo, grpcio", rates["grpcio echo"]),
        Figure(f"{name}, shared memory", unit, shared, "gRPC", rates["gRPC"]),
    ]
    costs = {f"processor us a step, {name}, {kind}": bench.cost_of(kind) for kind in ("gRPC", "shared memory")}
    return figures, costs


def colour_figures(bench: Bench, name: str) -> tuple[list[Figure], dict[str, str]]:
    """72x96x3 observations have a goal that is a rate."""
    unit, rates = "env steps/s", bench.rates["shared memory"]
    goal = [float(COLOUR_GOAL_PER_S)] * len(rates)
    figures = [
        Figure(f"{name}, shared memory", unit, rates, "goal", goal, 1.0),
        Figure(f"{name}, shared memory", unit, rates, "raw echo, grpcio", bench.rates["grpcio echo"]),
    ]
    return figures, {f"processor us a step, {name}, shared memory": bench.cost_of("shared memory")}


async def grpcio_steps_per_s(address: str, like: Sequence[NullEnvironments], seconds: float) -> float:
    """The raw echo with a grpc.aio client that sends messages made beforehand: what gRPC itself can carry."""
    async with grpc.aio.insecure_channel(address, echo_server.CHANNEL_OPTIONS) as channel:
        method: Any = channel.stream_stream(echo_server.METHOD)
        started = time.perf_counter()
        counts = await asyncio.gather(
            *(_grpcio_session(method, environments, started + seconds) for environments in like)
        )
        steps = sum(count * environments.num_envs for count, environments in zip(counts, like, strict=True))
        return steps / (time.perf_counter() - started)


async def _grpcio_session(method: Any, environments: NullEnvironments, deadline: float) -> int:
    call = method()
    spec = codec.spec_to_proto(environments.session.spec)
    hello = inference.Hello(num_envs=environments.num_envs, spec=spec)
    await call.write(inference.ClientMessage(hello=hello).SerializeToString())
    await call.read()
    arrays = codec.TickArrays(0, environments.observation, environments.reward, environments.flags)
    tick = b"".join(wire.field(inference.ClientMessage.TICK_FIELD_NUMBER, *codec.encode_tick(arrays)))
    for count in itertools.count():
        if time.perf_counter() >= deadline:
            await call.done_writing()
            return count
        await call.write(tick)
        await call.read()
    raise AssertionError


def copy_gb_per_s() -> float:
    """Bytes that one core copies a second from memory to memory, in GB."""
    source, target = np.ones(_COPY_BYTES, np.uint8), np.ones(_COPY_BYTES, np.uint8)  # so that all pages are there
    began = time.perf_counter()
    np.copyto(target, source)
    return _COPY_BYTES / (time.perf_counter() - began) / 1e9


def main() -> None:
    """Parses the command line, starts the servers of each transport and kind of observation in turn."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--transport", choices=measuring.TRANSPORTS, help="default: both")
    parser.add_argument("--shape", help="sessions x environments of each (default: 4x64 and 16x8)")
    parser.add_argument("--max-delay-ms", type=float, default=0.0, help="of the broker (default: %(default)s)")
    options = measuring.parse_arguments(__doc__, parser)
    shapes = [options.shape] if options.shape else SHAPES
    runs = [(transport, GREY, shape) for transport in measuring.TRANSPORTS for shape in shapes]
    runs.append((measuring.TRANSPORTS[-1], COLOUR, shapes[0]))
    figures: list[Figure] = []
    notes: dict[str, str] = {
        "memory copy on one core": f"{copy_gb_per_s():.1f} GB/s",
        "copies of an observation through shared memory": (
            f"2, environment to region to unroll: {2 * GREY.row_bytes:,} bytes of 84x84, "
            f"{2 * COLOUR.row_bytes:,} of 72x96x3"
        ),
    }
    for transport, spec, shape in runs:
        if options.transport not in (None, transport):
            continue
        with tempfile.TemporaryDirectory() as directory, measuring.services(Path(directory), transport) as started:
            bench = Bench(started, options)
            uvloop.run(bench.measure(spec, shape))
        size = "x".join(map(str, spec.observation[0].shape))
        describe = grey_figures if spec is GREY else colour_figures
        new_figures, costs = describe(bench, f"{transport} {shape} of {size}")
        figures += new_figures
        notes |= costs
    measuring.show(figures, options.json, **notes)


if __name__ == "__main__":
    main()
