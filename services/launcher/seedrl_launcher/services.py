"""The processes of a run on this machine, on Unix sockets: how each is called, and the order in which they stop."""

from __future__ import annotations

import asyncio
import shutil
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from seedrl_core.address import Address
from seedrl_core.config import ActorConfig, BrokerConfig, LearnerConfig, Settings
from seedrl_core.errors import ConfigError
from seedrl_launcher.actor_fleet import ActorFleet
from seedrl_launcher.kept_process import KeptProcess
from seedrl_launcher.processes import Process

_ACTOR_GRACE_S = 5.0
_CHECKPOINT_GRACE_S = 30.0  # a learner that stops writes a checkpoint first


@dataclass(frozen=True)
class Addresses:
    """Where the services of a run listen: on Unix sockets, unless the settings name addresses of their own."""

    learner: str
    broker: str

    @classmethod
    def choose(cls, settings: Settings, sockets: Path) -> Addresses:
        """`sockets` is the directory for Unix sockets."""
        return cls(
            learner=_chosen(settings.learner.listen, LearnerConfig, f"unix:{sockets / 'learner.sock'}"),
            broker=_chosen(settings.broker.listen, BrokerConfig, f"unix:{sockets / 'broker.sock'}"),
        )


def learner_process(config_file: Path, addresses: Addresses, logs: Path, flags: Sequence[str] = ()) -> Process:
    """The learner; `flags` are further ones of its command."""
    command = [*_module("seedrl_learner", config_file), "--listen", addresses.learner, *flags]
    return Process("learner", command, logs / "learner.log")


def broker_process(config_file: Path, addresses: Addresses, logs: Path) -> Process:
    """The broker."""
    command = [*_module("seedrl_broker", config_file), "--listen", addresses.broker, "--learner", addresses.learner]
    return Process("broker", command, logs / "broker.log")


def actor_process(config_file: Path, addresses: Addresses, logs: Path, config: ActorConfig, index: int) -> Process:
    """Actor number `index`. ConfigError when actor.python is no interpreter."""
    python = sys.executable if config.python is None else str(config.python)
    if shutil.which(python) is None:
        raise ConfigError(f"actor.python: expected an interpreter that can be run, got {python}")
    command = [
        *_module("seedrl_actor", config_file, python),
        *("--broker", addresses.broker),
        *("--env-id", config.env_id),
        *("--num-envs", str(config.num_envs)),
        *("--actor-index", str(index)),
    ]
    if config.metrics_listen:  # each needs a port of its own; 0 is any
        first = Address.parse(config.metrics_listen)
        command += ["--set", f"actor.metrics_listen={replace(first, port=first.port and first.port + index)}"]
    return Process(f"actor-{index}", command, logs / f"actor-{index}.log")


class LocalServices:
    """One learner, one broker and the actors of a run: started together, kept alive, stopped in order."""

    def __init__(self, learner: KeptProcess, broker: KeptProcess, fleet: ActorFleet, learner_grace_s: float) -> None:
        """`learner_grace_s`: time the learner may take to finish in-flight work, seconds."""
        self._learner = learner
        self._broker = broker
        self._fleet = fleet
        self._learner_grace_s = learner_grace_s + _CHECKPOINT_GRACE_S

    async def run(self, stop: asyncio.Event) -> bool:
        """Runs until the learner or all actors have ended with success (True), or until `stop` is set (False).

        Whatever the reason, cancellation included, no process is left when it returns.

        Raises:
          ServiceFailed: learner or broker failed too often, or in a way that another start cannot help; or actors did
            (see `ActorFleet.run`), also when the run has gone on without one that was given up.
        """
        over = False
        try:
            over = await self._until_over(stop)
        finally:
            await self._stop_in_order(patience_s=_ACTOR_GRACE_S if over else 0.0)
        code = self._learner.process.exit_code
        if code not in (None, 0, -signal.SIGTERM):  # asked to stop, but failed at its last checkpoint, say
            raise self._learner.process.failure(code)
        if self._fleet.given_up is not None:
            raise self._fleet.given_up
        return over

    def kill(self) -> None:
        """Ends every process at once."""
        self._fleet.kill()
        self._broker.kill()
        self._learner.kill()

    async def _until_over(self, stop: asyncio.Event) -> bool:
        stopping = asyncio.create_task(stop.wait())
        # Learner and broker first, in the order of what is told when several fail at a time.
        services = [asyncio.create_task(service.run()) for service in (self._learner, self._broker, self._fleet)]
        try:
            await asyncio.wait((stopping, *services), return_when=asyncio.FIRST_COMPLETED)
            if stopping.done():
                return False
            next(service for service in services if service.done()).result()
            return True
        finally:
            for task in (stopping, *services):
                task.cancel()
            await asyncio.gather(stopping, *services, return_exceptions=True)

    async def _stop_in_order(self, patience_s: float) -> None:
        """Actors first, so that nothing is in flight when the learner writes its last checkpoint."""
        await self._fleet.stop(patience_s, _ACTOR_GRACE_S)
        await asyncio.gather(
            self._learner.stop(patience_s, self._learner_grace_s), self._broker.stop(0.0, self._learner_grace_s)
        )


def _module(name: str, config_file: Path, python: str = sys.executable) -> list[str]:
    return [python, "-m", name, "--config", str(config_file)]


def _chosen(listen: str, model: type[LearnerConfig] | type[BrokerConfig], socket: str) -> str:
    return socket if listen == model.model_fields["listen"].default else listen
