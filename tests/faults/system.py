"""A whole system of real processes to do harm to: a learner, two brokers, an actor at each, and links that can fail.

    actor ──link── broker ──link──┐
                                  ├── learner
    other-actor ── other-broker ──┘

Faults strike the upper row; the lower one tells whether anybody else notices.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from faults.evidence import Evidence
from faults.levels import Level, processes_with
from faults.proxy import Proxy
from faults.supervised import Supervised
from grpclib.client import Channel
from ports import free_port

from seedrl_core.errors import PeerLost
from seedrl_launcher.status import connect, plain_values
from seedrl_proto.v1 import learner_pb2
from seedrl_proto.v1.learner_grpc import LearnerStub

NUM_ENVS, SESSIONS = 4, 2  # of each actor
# Numbers of the lives of each actor's environments; "third-actor" is started by those who need it.
LIVES = {"actor": range(128), "third-actor": range(128, 192), "other-actor": range(192, 256)}
DISK_MIB = 16
POLL_S = 0.1
PATIENCE_S = 60.0
_TESTS = Path(__file__).parent.parent
_MARKER = "SEEDRL_FAULT_RUN"
_CLOCK_SOURCE = Path(__file__).with_name("wall_clock.c")
_LEARNER_SETTINGS: Mapping[str, Any] = {
    "resume_or_start": True,
    "unroll_length": 5,
    "batch_unrolls": 4,
    "queue_unrolls": 8,
    "network.mlp_sizes": [8],
    "max_envs": 32,
    "checkpoint_every_s": 2.0,
    "keep_checkpoints": 2,
    "log_every_s": 1.0,
}


@dataclass(frozen=True)
class Mark:
    """A moment of the run: how long each diary was, and the policy version."""

    diaries: dict[int, int]
    policy_version: int


class System:
    """See the module.

    Attributes:
      services: by name.
      to_broker, to_learner: the upper row's links.
      evidence: what was written down so far.
      moves_clocks: the services' wall clocks can be moved.
      has_own_disk: the run's directory is a small disk of its own, which can be filled.
      actors: those whose environments are expected to be trained on, and the broker of each.
    """

    def __init__(self, directory: Path) -> None:
        """Nothing is started yet; all files go into `directory`."""
        self.directory = directory
        self.run_dir = directory / "run"
        self.evidence = Evidence(directory / "diaries", directory / "unrolls")
        self.services: dict[str, Supervised] = {}
        self._all: list[Supervised] = []
        self._marker = f"{_MARKER}={uuid.uuid4()}"
        self._ports = {name: free_port() for name in ("learner", "broker", "other-broker")}
        self.to_broker, self.to_learner = Proxy(self._ports["broker"]), Proxy(self._ports["learner"])
        self.actors = {"actor": "broker", "other-actor": "other-broker"}
        for path in (directory / "diaries", self.run_dir):
            path.mkdir()
        self.has_own_disk = _mounts(self.run_dir)
        self._clock = directory / "clock"
        self._clock.write_bytes(bytes(8))
        self._clock_library = directory / "wall_clock.so"
        self.moves_clocks = _compiles(self._clock_library)

    async def start(self) -> None:
        """Starts everything; waits until all environments are trained on, and all files are open that stay so."""
        link_to_broker, link_to_learner = await self.to_broker.start(), await self.to_learner.start()
        learner = ["--listen", self.address("learner"), "--run-dir", str(self.run_dir)]
        self._add("learner", "faults.recording_learner", learner + _assignments("learner", _LEARNER_SETTINGS))
        for name, link in (("broker", link_to_learner), ("other-broker", self.address("learner"))):
            self._add(name, "seedrl_broker", ["--listen", self.address(name), "--learner", link])
        self._link_to_broker = link_to_broker
        self.add_actor("actor")
        self.add_actor("other-actor", self.address("other-broker"), "--set", "actor.shared_memory=off")
        async with asyncio.TaskGroup() as group:
            for service in self.services.values():
                group.create_task(service.start())
        await self.until_recovered(Mark({}, -1))
        await self.until(self._missing_files)

    def add_actor(self, name: str, broker: str = "", *flags: str) -> Supervised:
        """An actor, in place of one of the same name; not started yet. `broker` is that of the upper row by default."""
        directory = json.dumps(str(self.directory / "diaries"))
        kwargs = f"{{directory = {directory}, lengths = [4, 1, 6], first_life = {LIVES[name].start}}}"
        command = ["--broker", broker or self._link_to_broker, "--num-envs", str(NUM_ENVS)]
        command += ["--env-id", "PacedDiary-v0", "--env-import", "faults.paced_environment"]
        command += ["--set", f"actor.env_kwargs={kwargs}", "--set", f"actor.sessions={SESSIONS}"]
        return self._add(name, "seedrl_actor", [*command, *flags])

    def address(self, name: str) -> str:
        """Where a server listens."""
        return f"127.0.0.1:{self._ports[name]}"

    def move_clocks(self, seconds: int) -> None:
        """Moves the wall clocks of all services to this offset from the true time."""
        with self._clock.open("r+b") as file:  # which all have mapped: it must never be shorter
            file.write(seconds.to_bytes(8, "little", signed=True))

    # What the system is like now.

    async def status(self, name: str = "learner") -> dict[str, Any]:
        """What a server says of itself; empty while it does not answer."""
        try:
            async with connect(self.address(name)) as client:
                return plain_values(await client.any_service())
        except PeerLost:
            return {}

    async def mark(self) -> Mark:
        """This moment."""
        self.evidence.refresh()
        status = await self.status()
        lengths = {number: len(life.lines) for number, life in self.evidence.lives.items()}
        return Mark(lengths, status.get("policy_version", -1))

    def lives_of(self, actor: str) -> list[int]:
        """The lives of an actor's environments so far."""
        return [life for life in self.evidence.lives if life in LIVES[actor]]

    async def until_recovered(self, mark: Mark) -> None:
        """Waits until, after `mark`, each environment was stepped and trained on and all sessions are there."""
        await self.until(lambda: self._missing(mark))

    async def until(self, missing: Callable[[], Awaitable[str]]) -> None:
        """Polls the processes until nothing is missing; AssertionError that says what is, and what services said."""
        deadline = asyncio.get_running_loop().time() + PATIENCE_S
        while what := await missing():
            if asyncio.get_running_loop().time() > deadline:
                said = "\n".join(f"{service.name}: {service.last_words}" for service in self.services.values())
                raise AssertionError(f"after {PATIENCE_S:.0f} s still missing: {what}\n{said}")
            await asyncio.sleep(POLL_S)

    def levels(self) -> dict[str, Level]:
        """What each service's process holds."""
        return {name: Level.of(service.pid) for name, service in self.services.items()}

    async def set_training(self, enabled: bool) -> None:
        """What an operator may do."""
        channel = Channel("127.0.0.1", self._ports["learner"])
        try:
            await LearnerStub(channel).SetTraining(learner_pb2.SetTrainingRequest(enabled=enabled), timeout=PATIENCE_S)
        finally:
            channel.close()

    async def _missing_files(self) -> str:
        wanted = ("tensorboard/*", "checkpoints/*/state.json")
        return ", ".join(pattern for pattern in wanted if not list(self.run_dir.glob(pattern)))

    async def _missing(self, mark: Mark) -> str:
        """What is not yet as it should be."""
        self.evidence.refresh()
        for actor in self.actors:
            lives = self.lives_of(actor)
            moved = sum(self.evidence.lives[life].trained_to >= mark.diaries.get(life, 0) for life in lives)
            if moved < NUM_ENVS:
                return f"unrolls of {NUM_ENVS - moved} environments of {actor}"
        statuses = {name: await self.status(name) for name in self._ports}
        brokers = list(self.actors.values())
        expected = {name: SESSIONS * brokers.count(name) for name in self._ports} | {"learner": SESSIONS * len(brokers)}
        sessions = {name: status.get("sessions", 0) for name, status in statuses.items()}
        if sessions != expected or statuses["learner"]["num_envs"] != NUM_ENVS * len(brokers):
            return f"sessions: {sessions}, expected {expected}"
        if statuses["learner"]["policy_version"] <= mark.policy_version:
            return "an update of the policy"
        return ""

    # How it ends.

    async def stop(self) -> None:
        """Ends all services in order, each with exit code 0; nothing is left."""
        for name in ("actor", "other-actor", "broker", "other-broker", "learner"):
            code = await self.services[name].stop()
            assert code == 0, f"{name} ended with code {code}: {self.services[name].last_words}"
        left = processes_with(self._marker)
        assert not left, f"processes left behind: {left}"

    async def abandon(self) -> None:
        """Kills everything, however it is."""
        for service in self._all:
            await service.abandon()
        self.to_broker.close()
        self.to_learner.close()
        self.evidence.close()
        if self.has_own_disk:
            subprocess.run(("umount", "--lazy", self.run_dir), check=True)

    def _add(self, name: str, module: str, flags: list[str]) -> Supervised:
        paths = (str(_TESTS), os.environ.get("PYTHONPATH", ""))
        environment = {"PYTHONPATH": os.pathsep.join(filter(None, paths)), **dict([self._marker.split("=")])}
        if self.moves_clocks:
            environment |= {"LD_PRELOAD": str(self._clock_library), "WALL_CLOCK_OFFSET": str(self._clock)}
        directory = self.directory / f"{len(self._all)}"
        directory.mkdir()
        service = self.services[name] = Supervised(name, module, flags, directory, environment)
        self._all.append(service)
        return service


@asynccontextmanager
async def running_system(directory: Path) -> AsyncIterator[System]:
    """A system that has begun to train; what is still there at the end is killed."""
    system = System(directory)
    try:
        await system.start()
        yield system
    finally:
        await system.abandon()


def _assignments(section: str, settings: Mapping[str, Any]) -> list[str]:
    values = {key: json.dumps(value) for key, value in settings.items()}
    return [word for key, value in values.items() for word in ("--set", f"{section}.{key}={value}")]


def _mounts(directory: Path) -> bool:
    """Puts a small disk there, where that is allowed."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        return False
    command = ("mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "tmpfs", directory)
    return subprocess.run(command, capture_output=True).returncode == 0


def _compiles(library: Path) -> bool:
    """Makes the library that moves wall clocks, where there is a C compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        return False
    command = [compiler, "-shared", "-fPIC", "-O2", "-o", str(library), str(_CLOCK_SOURCE)]
    return subprocess.run(command, capture_output=True).returncode == 0
