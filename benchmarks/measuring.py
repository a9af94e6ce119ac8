"""What the benchmarks share: service processes, environments that cost nothing, and how results are shown.

A figure is a ratio of two rates (or times) measured in turn within one run, so that a slow machine slows both.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import platform
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import processor_time
import structlog
from rich.console import Console
from rich.table import Table

from seedrl_client import Session
from seedrl_core.codec import FIRST
from seedrl_core.spec import EnvironmentSpec, TensorSpec

HERE = Path(__file__).parent
TRANSPORTS = ("tcp", "unix")
_START_S = 60.0
_STOP_S = 20.0


# Processes.


@dataclass(frozen=True)
class Service:
    """A process that serves, and where."""

    name: str
    address: str
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def cpu_s(self) -> float:
        """Processor seconds used so far, of user and kernel."""
        return processor_time.of_process(self.process.pid).seconds

    @property
    def resident_bytes(self) -> int:
        """Memory that is resident now."""
        return resident_bytes(self.process.pid)


def resident_bytes(pid: int) -> int:
    """Memory of a process that is resident now."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


class Services:
    """Starts processes that listen on one kind of transport, their files in one directory."""

    def __init__(self, directory: Path, transport: str) -> None:
        """`transport` is tcp (on loopback) or unix."""
        self._directory = directory
        self._transport = transport
        self._started: list[Service] = []

    def start(self, name: str, *command: str | Path) -> Service:
        """Runs `python COMMAND --listen ADDRESS` and waits until it accepts connections; its log is on disk."""
        address = self._address(name)
        log = self._directory / f"{name}.log"
        line = [sys.executable, *map(str, command), "--listen", address]
        with log.open("wb") as file:
            process = subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT)
        service = Service(name, address, process, log)
        self._started.append(service)
        _wait_until_listening(service)
        return service

    def start_echo(self, *flags: str) -> Service:
        """The raw single hop: a grpc.aio server that answers each tick at once."""
        return self.start(f"echo{''.join(flags)}-{self._transport}", HERE / "echo_server.py", *flags)

    def start_two_hops(self, echo: Service) -> Service:
        """A bare server before `echo` that hands every message on: what two hops cost without anything of ours."""
        flags = ("--keep-freed-memory", "--forward-to", echo.address)
        return self.start(f"two-hops-{self._transport}", HERE / "echo_server.py", *flags)

    def start_system(self, *settings: str) -> tuple[Service, Service]:
        """A broker and a learner without policy or training; `settings` are `section.key=value`.

        One batch is on its way at a time, as `seedrl train` has it without an accelerator.
        """
        flags = [word for setting in ("learner.inference_credits=1", *settings) for word in ("--set", setting)]
        run_dir = self._directory / f"run-{self._transport}"
        learner = self.start(f"learner-{self._transport}", HERE / "null_learner.py", "--run-dir", run_dir, *flags)
        broker = self.start(f"broker-{self._transport}", "-m", "seedrl_broker", "--learner", learner.address, *flags)
        return broker, learner

    def stop(self) -> None:
        """Ends what was started, the last first."""
        for service in reversed(self._started):
            service.process.terminate()
            try:
                service.process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                service.process.kill()

    def _address(self, name: str) -> str:
        if self._transport == "unix":
            return f"unix:{self._directory / name}.sock"
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            return f"127.0.0.1:{probe.getsockname()[1]}"


@contextmanager
def services(directory: Path, transport: str) -> Iterator[Services]:
    """Services on a transport, ended at the end."""
    started = Services(directory, transport)
    try:
        yield started
    finally:
        started.stop()


def _wait_until_listening(service: Service) -> None:
    path = service.address.removeprefix("unix:")
    is_unix = path != service.address
    target: Any = path if is_unix else (path.rpartition(":")[0], int(path.rpartition(":")[2]))
    deadline = time.monotonic() + _START_S
    while service.process.poll() is None and time.monotonic() < deadline:
        with socket.socket(socket.AF_UNIX if is_unix else socket.AF_INET) as probe:
            if probe.connect_ex(target) == 0:
                return
        time.sleep(0.05)
    sys.exit(f"{service.name} does not listen on {service.address}; its log:\n{service.log.read_text()[-2000:]}")


# Training runs.


def train_command(
    env_id: str, env_steps: int, envs_per_actor: int, directory: Path, assignments: Sequence[str] = ()
) -> list[str]:
    """Trains with two actors, its run directory in `directory`; `assignments` are `section.key=value`."""
    command = [sys.executable, "-m", "seedrl_launcher", "train", env_id, "--json", "--env-steps", str(env_steps)]
    command += ["--actors", "2", "--envs-per-actor", str(envs_per_actor), "--run-dir", str(directory / "run")]
    return command + [word for assignment in assignments for word in ("--set", assignment)]


def train(env_id: str, env_steps: int, envs_per_actor: int, assignments: Sequence[str] = ()) -> float:
    """Environment steps a second of a whole training run, as its summary says."""
    with tempfile.TemporaryDirectory() as directory:
        command = train_command(env_id, env_steps, envs_per_actor, Path(directory), assignments)
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"training failed:\n{done.stderr[-2000:]}")
    return float(json.loads(done.stdout.splitlines()[-1])["env_steps_per_s"])


# Load.


def image_spec(*shape: int) -> EnvironmentSpec:
    """Environments with a uint8 image and four actions."""
    return _spec(TensorSpec("observation", np.dtype(np.uint8), shape, (0.0,), (255.0,)))


def vector_spec(size: int) -> EnvironmentSpec:
    """Environments with `size` float32 numbers and four actions."""
    return _spec(TensorSpec("observation", np.dtype(np.float32), (size,)))


def _spec(observation: TensorSpec) -> EnvironmentSpec:
    return EnvironmentSpec("Null-v0", (observation,), (TensorSpec("action", np.dtype(np.int64), (), (0.0,), (3.0,)),))


class NullEnvironments:
    """A session whose environments take no time: the same observation again and again, and no episode ever ends."""

    def __init__(self, address: str, spec: EnvironmentSpec, num_envs: int, **session: Any) -> None:
        """Connects with `open`; `session` are further arguments of seedrl_client.Session."""
        self.session = Session(address, spec, num_envs, actor_id="benchmark", peer_timeout_s=_START_S, **session)
        rng = np.random.default_rng(num_envs)
        self.num_envs = num_envs
        self.observation = tuple(
            rng.integers(0, 100, (num_envs, *leaf.shape)).astype(leaf.dtype) for leaf in spec.observation
        )
        self.reward = np.zeros(num_envs, np.float32)
        self.flags = np.full(num_envs, FIRST, np.uint8)

    async def open(self) -> None:
        """Waits for the Welcome and for the answer to the first tick."""
        await self.session.open()
        await self.tick()
        self.flags = np.zeros(self.num_envs, np.uint8)

    async def tick(self) -> None:
        """One step of all environments."""
        await self.session.tick(self.observation, self.reward, self.flags)

    async def tick_until(self, deadline: float) -> int:
        """Ticks until `deadline` (of perf_counter); returns how many."""
        count = 0
        while time.perf_counter() < deadline:
            await self.tick()
            count += 1
        return count


async def open_all(
    address: str, spec: EnvironmentSpec, num_sessions: int, num_envs: int, **session: Any
) -> list[NullEnvironments]:
    """`num_sessions` open sessions of `num_envs` environments each."""
    opened = [NullEnvironments(address, spec, num_envs, **session) for _ in range(num_sessions)]
    for environments in opened:
        await environments.open()
    return opened


async def close_all(opened: Sequence[NullEnvironments]) -> None:
    """Parts with the server."""
    await asyncio.gather(*(environments.session.aclose() for environments in opened))


async def steps_per_s(opened: Sequence[NullEnvironments], seconds: float) -> float:
    """Environment steps a second of all sessions together over a window."""
    started = time.perf_counter()
    counts = await asyncio.gather(*(environments.tick_until(started + seconds) for environments in opened))
    steps = sum(count * environments.num_envs for count, environments in zip(counts, opened, strict=True))
    return steps / (time.perf_counter() - started)


async def rate_and_costs(
    opened: Sequence[NullEnvironments], system: tuple[Service, Service], seconds: float
) -> tuple[float, dict[str, float]]:
    """Environment steps a second, and processor microseconds of one in each process, of a broker and a learner."""

    def used_s() -> dict[str, float]:
        broker, learner = system
        return {"client": time.process_time(), "broker": broker.cpu_s, "learner": learner.cpu_s}

    before_s, began = used_s(), time.perf_counter()
    rate = await steps_per_s(opened, seconds)
    steps = rate * (time.perf_counter() - began)
    return rate, {process: 1e6 * (now_s - before_s[process]) / steps for process, now_s in used_s().items()}


# Results.


@dataclass(frozen=True)
class Figure:
    """Repetitions of one measurement beside what it is compared with; `goal` is of the median ratio."""

    name: str
    unit: str
    ours: list[float]
    baseline_name: str
    baseline: list[float]
    goal: float | None = None
    at_most: bool = False

    @property
    def ratios(self) -> list[float]:
        """Ours to the baseline, repetition by repetition."""
        return [ours / baseline for ours, baseline in zip(self.ours, self.baseline, strict=True)]

    @property
    def ratio(self) -> float:
        """The median repetition's."""
        return statistics.median(self.ratios)

    @property
    def is_met(self) -> bool:
        """True also where there is no goal."""
        return self.goal is None or (self.ratio <= self.goal if self.at_most else self.ratio >= self.goal)

    @property
    def goal_text(self) -> str:
        """For people."""
        if self.goal is None:
            return ""
        return f"{'<=' if self.at_most else '>='} {self.goal:g} {'met' if self.is_met else 'missed'}"


def parse_arguments(
    description: str | None, parser: argparse.ArgumentParser | None = None, *, repeats: bool = True
) -> argparse.Namespace:
    """The options of every benchmark that `repeats` its measurements, or else --json alone, with those of `parser`."""
    parser = parser or argparse.ArgumentParser()
    parser.description = description
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output instead of a table")
    if repeats:
        parser.add_argument("--repetitions", type=int, default=3, help="of each measurement (default: %(default)s)")
        parser.add_argument("--seconds", type=float, default=2.0, help="of one measurement (default: %(default)s)")
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    return parser.parse_args()


def show(figures: Sequence[Figure], as_json: bool, **notes: Any) -> None:
    """Prints figures and notes as a table or as JSON, with the machine that they are of."""
    if as_json:
        rows = [asdict(figure) | {"ratios": figure.ratios, "ratio": figure.ratio} for figure in figures]
        print(json.dumps({"command": sys.argv, "machine": machine(), "figures": rows, "notes": notes}))
        return
    table = Table(caption=", ".join(f"{name} {value}" for name, value in machine().items()), caption_justify="left")
    for column in ("measurement", "ours", "compared with", "", "ratio", "repetitions", "goal"):
        table.add_column(column, justify="left" if column in ("measurement", "compared with", "goal") else "right")
    for figure in figures:
        table.add_row(
            figure.name,
            _quantity(figure.ours, figure.unit),
            figure.baseline_name,
            _quantity(figure.baseline, figure.unit),
            f"{figure.ratio:.2f}",
            " ".join(f"{ratio:.2f}" for ratio in figure.ratios),
            figure.goal_text,
        )
    console = Console(width=None if sys.stdout.isatty() else 150)
    console.print(table)
    for name, value in notes.items():
        console.print(f"{name}: {value}", highlight=False)


def machine() -> dict[str, Any]:
    """What the figures depend on."""
    git = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=HERE, capture_output=True, text=True)
    cpuinfo = Path("/proc/cpuinfo").read_text().splitlines()
    return {
        "commit": git.stdout.strip() or "unknown",
        "cpu": next((line.partition(": ")[2] for line in cpuinfo if line.startswith("model name")), "unknown"),
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
    }


def _quantity(values: Sequence[float], unit: str) -> str:
    value = statistics.median(values)
    return f"{value:,.0f} {unit}" if value >= 1000 else f"{value:.3g} {unit}"
