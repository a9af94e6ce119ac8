"""Whether anything grows: a system at full speed for long, with sessions that come and go at random.

A learner that trains, a broker, a real actor that stays, and in this process sessions of a few environments that cost
nothing, each for some seconds; four in five part in order, the others just drop their connection. What grows shows in
resident memory, in open descriptors or in the time that an answer takes: the last quarter of the time is compared with
the first one after the warm-up.

python benchmarks/soak.py [--minutes 30] [--sessions 1000] [--json] [--plot FILE.png]
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

import measuring
import numpy as np
import uvloop
from measuring import Figure, NullEnvironments, Services

from seedrl_actor.gym_vector import GymVector
from seedrl_core.config import ActorConfig
from seedrl_core.spec import EnvironmentSpec

ENV_ID = "CartPole-v1"
ACTOR_ENVS = 8
LANES = 16  # sessions at a time, besides the actor's
MOST_ENVS = 8  # of a session
DROPPED_SHARE = 0.2
WARM_UP_SHARE = 1 / 3
SAMPLES = 120
FLAT_GOAL, LATENCY_GOAL = 1.03, 1.25
_FIRST_S = 10.0  # in which everything is opened once: metrics are written every 5 s
_SETTLE_S = 3.0
_SETTINGS = ("learner.network.mlp_sizes=[16, 16]", "learner.checkpoint_every_s=60")


@dataclass(frozen=True)
class Sample:
    """The system at some moment, and since the last one.

    Attributes:
      seconds: since the start.
      sessions: opened so far.
      resident_mib, descriptors: of each process.
      p99_ms: of the waits for actions.
      ticks_per_s: of the sessions in this process.
    """

    seconds: float
    sessions: int
    resident_mib: dict[str, float]
    descriptors: dict[str, int]
    p99_ms: float
    ticks_per_s: float


@dataclass
class Load:
    """The sessions that come and go."""

    address: str
    spec: EnvironmentSpec
    rng: random.Random
    opened: int = 0
    closed: int = 0
    waits_s: list[float] = field(default_factory=list)

    async def lane(self, ends_at: float, num_sessions: int) -> None:
        """One session after the other until `ends_at` (of perf_counter); all lanes together come to `num_sessions`."""
        while (remaining_s := ends_at - time.perf_counter()) > 0:
            left = max(LANES, num_sessions - self.opened)
            await self._live(min(remaining_s, remaining_s * LANES / left * self.rng.uniform(0.2, 1.8)))

    async def _live(self, seconds: float) -> None:
        self.opened += 1
        environments = NullEnvironments(self.address, self.spec, self.rng.randint(1, MOST_ENVS))
        await environments.open()
        ends_at = time.perf_counter() + seconds
        while (asked := time.perf_counter()) < ends_at:
            await environments.tick()
            self.waits_s.append(time.perf_counter() - asked)
        if self.rng.random() < DROPPED_SHARE:
            environments.session._drop()
        else:
            await environments.session.aclose()
        self.closed += 1


class Soak:
    """One run.

    Attributes:
      samples: in order.
      before, after: descriptors of each process while no session of this process is open.
    """

    def __init__(self, load: Load, processes: dict[str, int]) -> None:
        """`processes`: name -> number of those that must not grow."""
        self.samples: list[Sample] = []
        self.before: dict[str, int] = {}
        self.after: dict[str, int] = {}
        self._load = load
        self._processes = processes

    async def run(self, seconds: float, num_sessions: int) -> None:
        """Opens and closes sessions for that long, sampling."""
        await self._lanes(time.perf_counter() + _FIRST_S, 2 * LANES)
        self.before = await self._settled()
        started = time.perf_counter()
        sampling = asyncio.create_task(self._sample(started, seconds / SAMPLES))
        await self._lanes(started + seconds, num_sessions)
        sampling.cancel()
        with suppress(asyncio.CancelledError):
            await sampling
        self.after = await self._settled()

    async def _lanes(self, ends_at: float, num_sessions: int) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(LANES):
                group.create_task(self._load.lane(ends_at, num_sessions))

    async def _sample(self, started: float, every_s: float) -> None:
        for number in itertools.count(1):
            self._load.waits_s.clear()
            began = time.perf_counter()
            await asyncio.sleep(started + number * every_s - began)
            waits_s, elapsed_s = self._load.waits_s, time.perf_counter() - began
            if waits_s:
                self.samples.append(
                    Sample(
                        seconds=time.perf_counter() - started,
                        sessions=self._load.opened,
                        resident_mib={
                            name: measuring.resident_bytes(pid) / (1 << 20) for name, pid in self._processes.items()
                        },
                        descriptors=self._descriptors(),
                        p99_ms=1000.0 * float(np.quantile(waits_s, 0.99)),
                        ticks_per_s=len(waits_s) / elapsed_s,
                    )
                )

    async def _settled(self) -> dict[str, int]:
        """The fewest descriptors of each within some seconds: files are open for moments, too."""
        counts = []
        for _ in range(int(10 * _SETTLE_S)):
            await asyncio.sleep(0.1)
            counts.append(self._descriptors())
        return {name: min(count[name] for count in counts) for name in self._processes}

    def _descriptors(self) -> dict[str, int]:
        return {name: len(os.listdir(f"/proc/{pid}/fd")) for name, pid in self._processes.items()}


def figures_of(soak: Soak) -> list[Figure]:
    """The last quarter beside the first one after the warm-up; descriptors beside those before."""
    warm = soak.samples[int(len(soak.samples) * WARM_UP_SHARE) :]
    quarter = max(1, len(warm) // 4)

    def compare(name: str, unit: str, value: Callable[[Sample], float], goal: float | None) -> Figure:
        first, last = ([statistics.median(map(value, part))] for part in (warm[:quarter], warm[-quarter:]))
        return Figure(name, unit, last, "first quarter", first, goal, at_most=goal is not None)

    figures = [
        compare(f"memory of {name}", "MiB", lambda sample, name=name: sample.resident_mib[name], FLAT_GOAL)  # type: ignore[misc]
        for name in soak.before
    ]
    for name, count in soak.before.items():
        figures.append(Figure(f"descriptors of {name}", "", [soak.after[name]], "before", [count], 1.0, at_most=True))
    figures.append(compare("wait for actions, p99", "ms", lambda sample: sample.p99_ms, LATENCY_GOAL))
    figures.append(compare("speed", "ticks/s", lambda sample: sample.ticks_per_s, None))
    return figures


def plot(samples: Sequence[Sample], file: Path) -> None:
    """Memory beside its first value after the warm-up, descriptors, waits and speed over time."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    minutes = [sample.seconds / 60 for sample in samples]
    figure, (memory, descriptors, waits, speed) = plt.subplots(4, 1, sharex=True, figsize=(9, 10))
    begin = int(len(samples) * WARM_UP_SHARE)
    for name in samples[0].resident_mib:
        base = samples[begin].resident_mib[name]
        memory.plot(minutes, [sample.resident_mib[name] / base for sample in samples], label=f"{name}, {base:.0f} MiB")
        descriptors.plot(minutes, [sample.descriptors[name] for sample in samples], label=name)
    waits.plot(minutes, [sample.p99_ms for sample in samples])
    speed.plot(minutes, [sample.ticks_per_s for sample in samples])
    memory.axhline(FLAT_GOAL, color="grey", linestyle=":")
    for axes, label in ((memory, "memory, relative"), (descriptors, "descriptors"), (waits, "p99 wait, ms")):
        axes.set_ylabel(label)
        axes.axvline(minutes[begin], color="grey", linewidth=0.5)
    for axes in (memory, descriptors):
        axes.legend(loc="upper left", fontsize="small")
    speed.set_ylabel("ticks/s")
    speed.set_xlabel("minutes")
    figure.tight_layout()
    figure.savefig(file, dpi=120)


def start_actor(broker: str, directory: Path) -> subprocess.Popen[bytes]:
    """An actor of the same environments that stays until it is ended."""
    command = [sys.executable, "-m", "seedrl_actor", "--broker", broker, "--env-id", ENV_ID]
    with (directory / "actor.log").open("wb") as log:
        return subprocess.Popen([*command, "--num-envs", str(ACTOR_ENVS)], stdout=log, stderr=subprocess.STDOUT)


def soak_for(seconds: float, num_sessions: int, seed: int, directory: Path, services: Services) -> tuple[Soak, Load]:
    """Starts everything, soaks, and ends everything."""
    learner = services.start("learner", "-m", "seedrl_learner", "--run-dir", directory / "run", *_flags())
    broker = services.start("broker", "-m", "seedrl_broker", "--learner", learner.address)
    spec = GymVector(ActorConfig(env_id=ENV_ID), 0, 1).spec
    load = Load(broker.address, spec, random.Random(seed))
    actor = start_actor(broker.address, directory)
    processes = {"learner": learner.process, "broker": broker.process, "actor": actor}
    try:
        pids = {name: process.pid for name, process in processes.items()} | {"the client": os.getpid()}
        soak = Soak(load, pids)
        uvloop.run(soak.run(seconds, num_sessions))
        if ended := [name for name, process in processes.items() if process.poll() is not None]:
            sys.exit(f"ended before the end: {', '.join(ended)}; see the logs in {directory}")
    finally:
        actor.terminate()
        actor.wait()
    return soak, load


def _flags() -> list[str]:
    return [word for setting in _SETTINGS for word in ("--set", setting)]


def main() -> None:
    """Parses the command line; exit code 1 when something grows."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=30.0, help="(default: %(default)s)")
    parser.add_argument("--sessions", type=int, default=1000, help="opened and closed in all (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of what comes and goes (default: %(default)s)")
    parser.add_argument("--plot", type=Path, help="picture of all of it over time")
    options = measuring.parse_arguments(__doc__, parser, repeats=False)
    with tempfile.TemporaryDirectory() as name, measuring.services(Path(name), "tcp") as services:
        soak, load = soak_for(60.0 * options.minutes, options.sessions, options.seed, Path(name), services)
    figures = figures_of(soak)
    notes = {"samples": [asdict(sample) for sample in soak.samples]} if options.json else {}
    measuring.show(figures, options.json, minutes=options.minutes, sessions_closed=load.closed, **notes)
    if options.plot is not None:
        plot(soak.samples, options.plot)
    sys.exit(not all(figure.is_met for figure in figures))


if __name__ == "__main__":
    main()
