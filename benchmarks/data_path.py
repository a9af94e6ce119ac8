"""How many environment steps a second the data path carries: actor -> broker -> learner -> back, unrolls assembled.

Environments and policy cost nothing. Ours is compared with a raw echo in the same run: one hop to a grpc.aio server
that answers at once, with the same messages.

python benchmarks/data_path.py [--json] [--transport tcp] [--shape 4x64]
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import echo_server
import grpc
import measuring
import uvloop
from measuring import Figure, NullEnvironments, Service

from seedrl_core import codec, wire
from seedrl_proto.v1 import inference_pb2 as inference

SPEC = measuring.image_spec(84, 84)
SHAPES = ("4x64", "16x8")  # sessions x environments of each
GOAL = 0.55


async def measure(
    transport: str, shape: str, echo: Service, system: Sequence[Service], options: argparse.Namespace
) -> tuple[list[Figure], dict[str, str]]:
    """Figures of one shape over one transport, and where the processor time of a step goes."""
    num_sessions, num_envs = map(int, shape.split("x"))
    raw = await measuring.open_all(echo.address, SPEC, num_sessions, num_envs)
    ours = await measuring.open_all(system[0].address, SPEC, num_sessions, num_envs)
    rates: dict[str, list[float]] = {"raw": [], "ours": [], "grpcio": []}
    costs: list[dict[str, float]] = []
    for _ in range(options.repetitions):
        rates["raw"].append(await measuring.steps_per_s(raw, options.seconds))
        rates["grpcio"].append(await grpcio_steps_per_s(echo.address, raw, options.seconds))
        before = _cpu_s(system)
        rates["ours"].append(await measuring.steps_per_s(ours, options.seconds))
        steps = rates["ours"][-1] * options.seconds
        costs.append({name: 1e6 * (after - before[name]) / steps for name, after in _cpu_s(system).items()})
    await measuring.close_all([*raw, *ours])
    name = f"{transport} {shape}"
    figure = Figure(name, "env steps/s", rates["ours"], "raw echo, same client", rates["raw"], GOAL)
    grpcio = Figure(name, "env steps/s", rates["ours"], "raw echo, grpcio client", rates["grpcio"])
    spent = ", ".join(f"{name} {sum(cost[name] for cost in costs) / len(costs):.1f}" for name in costs[0])
    return [figure, grpcio], {f"processor us a step, {name}": spent}


def _cpu_s(services: Sequence[Service]) -> dict[str, float]:
    return {"client": time.process_time()} | {service.name: service.cpu_s for service in services}


async def grpcio_steps_per_s(address: str, like: Sequence[NullEnvironments], seconds: float) -> float:
    """The raw echo with a grpc.aio client that sends messages made beforehand: what gRPC itself can carry."""
    async with grpc.aio.insecure_channel(address, echo_server.CHANNEL_OPTIONS) as channel:
        method: Any = channel.stream_stream(echo_server.METHOD)
        deadline = time.perf_counter() + seconds
        started = time.perf_counter()
        counts = await asyncio.gather(*(_grpcio_session(method, environments, deadline) for environments in like))
        steps = sum(count * environments.num_envs for count, environments in zip(counts, like, strict=True))
        return steps / (time.perf_counter() - started)


async def _grpcio_session(method: Any, environments: NullEnvironments, deadline: float) -> int:
    call = method()
    hello = inference.Hello(num_envs=environments.num_envs, spec=codec.spec_to_proto(SPEC))
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


def main() -> None:
    """Parses the command line, starts the services of each transport in turn."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--transport", choices=measuring.TRANSPORTS, help="default: both")
    parser.add_argument("--shape", help="sessions x environments of each (default: 4x64 and 16x8)")
    options = measuring.parse_arguments(__doc__, parser)
    figures: list[Figure] = []
    notes: dict[str, str] = {}
    for transport in [options.transport] if options.transport else measuring.TRANSPORTS:
        with tempfile.TemporaryDirectory() as directory, measuring.services(Path(directory), transport) as started:
            echo, system = started.start_echo(), started.start_system()
            for shape in [options.shape] if options.shape else SHAPES:
                new_figures, new_notes = uvloop.run(measure(transport, shape, echo, system, options))
                figures += new_figures
                notes |= new_notes
    measuring.show(figures, options.json, **notes)


if __name__ == "__main__":
    main()
