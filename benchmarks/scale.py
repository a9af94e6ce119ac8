"""What one broker carries: the cost of a tick as environments and sessions grow, and the memory of an idle session.

The rate of ticks is the same at each size, spread evenly over the sessions, so a cost that grows is due to their
number. The cost is processor time of all processes (client, broker, learner); the wait for actions stands beside it.

python benchmarks/scale.py [--json]
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import measuring
import uvloop
from measuring import Figure, NullEnvironments, Service

SPEC = measuring.vector_spec(4)
ENVS = 20  # of a session
SESSIONS = (5, 50, 500)
TICKS_PER_S = 400.0
FLAT_GOAL = 1.25
MEMORY_GOAL_KIB = 100.0
_SETTINGS = (
    f"learner.max_envs={SESSIONS[-1] * ENVS}",
    f"broker.max_sessions_per_host={SESSIONS[-1]}",
    f"broker.max_envs_per_host={SESSIONS[-1] * ENVS}",
)


@dataclass
class Costs:
    """By number of sessions, in microseconds a tick; memory in KiB a session, by service. One value a repetition."""

    processor_us: dict[int, list[float]] = field(default_factory=lambda: {sessions: [] for sessions in SESSIONS})
    wait_us: dict[int, list[float]] = field(default_factory=lambda: {sessions: [] for sessions in SESSIONS})
    memory_kib: dict[str, list[float]] = field(default_factory=lambda: {"broker": [], "learner": []})


async def measure(costs: Costs, broker: Service, learner: Service, seconds: float) -> None:
    """One repetition, on new processes: more and more sessions of the same system."""
    opened: list[NullEnvironments] = []
    for sessions in SESSIONS:
        resident = broker.resident_bytes, learner.resident_bytes
        new = sessions - len(opened)
        opened += await measuring.open_all(broker.address, SPEC, new, ENVS)
        if sessions == SESSIONS[-1]:
            for service, before in zip((broker, learner), resident, strict=True):
                costs.memory_kib[service.name.partition("-")[0]].append((service.resident_bytes - before) / 1024 / new)
        await tick_at(opened, seconds / 2)  # warms up
        used_s = _cpu_s(broker, learner)
        waits_s = await tick_at(opened, seconds)
        costs.processor_us[sessions].append(1e6 * (_cpu_s(broker, learner) - used_s) / len(waits_s))
        costs.wait_us[sessions].append(1e6 * statistics.median(waits_s))
    await measuring.close_all(opened)


async def tick_at(opened: Sequence[NullEnvironments], seconds: float) -> list[float]:
    """Ticks the sessions in turn at the steady rate, each once at a time; returns the waits in seconds."""
    waits_s: list[float] = []
    running: dict[int, asyncio.Task[None]] = {}
    late = 0

    async def tick(environments: NullEnvironments) -> None:
        asked = time.perf_counter()
        await environments.tick()
        waits_s.append(time.perf_counter() - asked)

    started = time.perf_counter()
    total = int(TICKS_PER_S * seconds)
    for count in range(total):
        await asyncio.sleep(started + count / TICKS_PER_S - time.perf_counter())
        index = count % len(opened)
        if index in running:
            late += not running[index].done()
            await running[index]
        running[index] = asyncio.create_task(tick(opened[index]))
    await asyncio.gather(*running.values())
    if late > total / 10:
        raise SystemExit(f"{TICKS_PER_S:g} ticks/s are too many for this machine: {late} of {total} came late")
    return waits_s


def _cpu_s(*services: Service) -> float:
    return time.process_time() + sum(service.cpu_s for service in services)


def figures_of(costs: Costs) -> list[Figure]:
    """Each size beside the smallest, and memory beside its limit."""
    smallest = SESSIONS[0]
    figures = []
    for quantity, values in (("processor time", costs.processor_us), ("wait", costs.wait_us)):
        for sessions in SESSIONS[1:]:
            name = f"{quantity} a tick, {sessions * ENVS} environments in {sessions} sessions"
            baseline = f"{smallest * ENVS} in {smallest}"
            figures.append(Figure(name, "us", values[sessions], baseline, values[smallest], FLAT_GOAL, at_most=True))
    for service, kib in costs.memory_kib.items():
        name = f"memory of an idle session, {service}"
        figures.append(Figure(name, "KiB", kib, "limit", [MEMORY_GOAL_KIB] * len(kib), 1.0, at_most=True))
    return figures


def main() -> None:
    """Parses the command line and repeats."""
    options = measuring.parse_arguments(__doc__)
    costs = Costs()
    for _ in range(options.repetitions):
        with tempfile.TemporaryDirectory() as directory, measuring.services(Path(directory), "tcp") as started:
            broker, learner = started.start_system(*_SETTINGS)
            uvloop.run(measure(costs, broker, learner, options.seconds))
    measuring.show(figures_of(costs), options.json, ticks_per_s=TICKS_PER_S)


if __name__ == "__main__":
    main()
