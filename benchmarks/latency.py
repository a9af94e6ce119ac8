"""How long an actor waits for its actions: one environment on an idle system, and 64 environments that keep it busy.

Environments and policy cost nothing. The idle system is compared with a raw echo in the same run: one hop to a grpc.aio
server that answers at once, with the same client and the same messages. Two bare hops are the least a broker costs.

python benchmarks/latency.py [--json] [--transport tcp]
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import measuring
import numpy as np
import uvloop
from measuring import Figure, NullEnvironments

IDLE_SPEC = measuring.vector_spec(16)
BUSY_SPEC = measuring.image_spec(84, 84)
BUSY_SESSIONS, BUSY_ENVS = 4, 16
P50_GOAL = 3.0
P99_GOAL = 4.0
BUSY_P99_GOAL = 3.0


async def waits_ms(opened: Sequence[NullEnvironments], seconds: float) -> list[float]:
    """Milliseconds of each tick of all sessions over a window."""
    deadline = time.perf_counter() + seconds

    async def collect(environments: NullEnvironments) -> list[float]:
        waits = []
        while (asked := time.perf_counter()) < deadline:
            await environments.tick()
            waits.append(1000 * (time.perf_counter() - asked))
        return waits

    return [wait for waits in await asyncio.gather(*map(collect, opened)) for wait in waits]


async def idle(transport: str, echo: str, two_hops: str, broker: str, options: argparse.Namespace) -> list[Figure]:
    """One environment, one tick after the other."""
    raw, limit, ours = [await measuring.open_all(address, IDLE_SPEC, 1, 1) for address in (echo, two_hops, broker)]
    p50, p99, raw_p50, limit_p50 = [], [], [], []
    for opened in (raw, limit, ours):
        await waits_ms(opened, options.seconds)  # warms up
    for _ in range(options.repetitions):
        raw_p50.append(_percentile(await waits_ms(raw, options.seconds), 50))
        limit_p50.append(_percentile(await waits_ms(limit, options.seconds), 50))
        waits = await waits_ms(ours, options.seconds)
        p50.append(_percentile(waits, 50))
        p99.append(_percentile(waits, 99))
    await measuring.close_all([*raw, *limit, *ours])
    return [
        Figure(f"{transport}, two bare hops, p50", "ms", limit_p50, "raw echo, p50", raw_p50),
        Figure(f"{transport}, 1 environment, p50", "ms", p50, "raw echo, p50", raw_p50, P50_GOAL, at_most=True),
        Figure(f"{transport}, 1 environment, p99", "ms", p99, "its p50", p50, P99_GOAL, at_most=True),
    ]


async def busy(transport: str, broker: str, options: argparse.Namespace) -> Figure:
    """All environments tick as fast as they get actions."""
    ours = await measuring.open_all(broker, BUSY_SPEC, BUSY_SESSIONS, BUSY_ENVS)
    await waits_ms(ours, options.seconds)  # warms up
    waits = [await waits_ms(ours, options.seconds) for _ in range(options.repetitions)]
    await measuring.close_all(ours)
    p50, p99 = ([_percentile(repetition, rank) for repetition in waits] for rank in (50, 99))
    name = f"{transport}, {BUSY_SESSIONS * BUSY_ENVS} environments busy, p99"
    return Figure(name, "ms", p99, "its p50", p50, BUSY_P99_GOAL, at_most=True)


def _percentile(values: list[float], rank: int) -> float:
    return float(np.percentile(values, rank))


def main() -> None:
    """Parses the command line; a learner knows one kind of environment, so idle and busy have one each."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--transport", choices=measuring.TRANSPORTS, help="default: both")
    options = measuring.parse_arguments(__doc__, parser)
    figures: list[Figure] = []
    for transport in [options.transport] if options.transport else measuring.TRANSPORTS:
        with tempfile.TemporaryDirectory() as directory:
            with measuring.services(Path(directory), transport) as started:
                echo, (broker, _) = started.start_echo(), started.start_system()
                two_hops = started.start_two_hops(echo)
                figures += uvloop.run(idle(transport, echo.address, two_hops.address, broker.address, options))
            with measuring.services(Path(directory), transport) as started:
                broker, _ = started.start_system()
                figures.append(uvloop.run(busy(transport, broker.address, options)))
    measuring.show(figures, options.json)


if __name__ == "__main__":
    main()
