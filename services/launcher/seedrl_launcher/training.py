"""A training run on this machine, from its settings to its summary."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from seedrl_core.config import Settings
from seedrl_core.errors import PeerLost
from seedrl_launcher.actor_fleet import ActorFleet
from seedrl_launcher.display import Display, Snapshot
from seedrl_launcher.kept_process import KeptProcess, RestartBudget
from seedrl_launcher.processes import Process
from seedrl_launcher.run_directory import RunDirectory
from seedrl_launcher.services import Addresses, LocalServices, actor_process, broker_process, learner_process
from seedrl_launcher.status import StatusClient, connect
from seedrl_proto.v1 import learner_pb2 as learner

INTERRUPTED = 130
_POLL_S = 1.0


class Training:
    """One training run: the services and what is known of them."""

    def __init__(
        self,
        settings: Settings,
        run: RunDirectory,
        addresses: Addresses,
        display: Display,
        *,
        num_actors: int,
    ) -> None:
        """The run's resolved settings must be in its directory already; nothing is started yet."""
        config_file, logs = run.config_file, run.logs

        def kept(process: Process, *, may_end: bool = True) -> KeptProcess:
            return KeptProcess(process, lambda: self._has_begun, display.tell, RestartBudget(), may_end=may_end)

        actors = [actor_process(config_file, addresses, logs, settings.actor, index) for index in range(num_actors)]
        # Started again, the learner goes on from its newest checkpoint; a new run's directory has none at first.
        flags = ["--run-dir", str(run.path), "--set", "learner.resume_or_start=true"]
        self._fleet = ActorFleet([kept(actor) for actor in actors], display.tell)
        self._services = LocalServices(
            kept(learner_process(config_file, addresses, logs, flags)),
            kept(broker_process(config_file, addresses, logs), may_end=False),
            self._fleet,
            settings.learner.drain_grace_s,
        )
        self._address = addresses.learner
        self._access = settings.access
        self._display = display
        self._has_begun = False
        self._first_env_steps: int | None = None
        self._status: learner.StatusReply | None = None

    async def run(self, stop: asyncio.Event) -> int:
        """Trains to the end, or until `stop` is set; returns the exit code. No process is left behind.

        Raises:
          ServiceFailed: a service failed that the run cannot go on without.
        """
        with self._display:
            async with connect(self._address, self._access) as client, asyncio.TaskGroup() as group:
                watching = group.create_task(self._watch(client))
                try:
                    complete = await self._services.run(stop)
                finally:
                    watching.cancel()
        return 0 if complete else INTERRUPTED

    def kill(self) -> None:
        """Ends every process at once, and gives the terminal back."""
        self._services.kill()
        self._display.__exit__(None, None, None)

    async def _watch(self, client: StatusClient) -> None:
        """Shows the run about once a second, until cancelled."""
        while True:
            with suppress(PeerLost):  # not up yet, or gone: its process's end is what tells
                self._learn(await client.learner())
            fleet = self._fleet
            self._display.show(Snapshot(self._status, fleet.alive, fleet.size, fleet.restarts))
            await asyncio.sleep(_POLL_S)

    def _learn(self, status: learner.StatusReply) -> None:
        if self._first_env_steps is None:
            self._first_env_steps = status.env_steps
        self._has_begun |= status.env_steps > self._first_env_steps
        self._status = status
