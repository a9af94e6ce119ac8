"""The actors of a run: each is kept alive by itself, and the run goes on while one is left."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from seedrl_core.aio import first_leaf
from seedrl_launcher.kept_process import GivenUp, KeptProcess


class ActorFleet:
    """The actors of one run.

    Attributes:
      given_up: why the first actor was given up, if one was.
    """

    def __init__(self, actors: Sequence[KeptProcess], tell: Callable[[str], None]) -> None:
        """Of actors that are not started yet; `tell` gets one line for people about each that is given up."""
        self._actors = actors
        self._tell = tell
        self.given_up: GivenUp | None = None

    @property
    def alive(self) -> int:
        """Actors running now."""
        return sum(actor.alive for actor in self._actors)

    @property
    def size(self) -> int:
        """Actors that should run."""
        return len(self._actors)

    @property
    def restarts(self) -> int:
        """Starts of all actors beyond their first."""
        return sum(actor.restarts for actor in self._actors)

    async def run(self) -> None:
        """Starts all, and returns when each has ended with success.

        Raises:
          ServiceFailed: one failed in a way that another start cannot help, or none is left and some were given up.
        """
        try:
            async with asyncio.TaskGroup() as group:
                for actor in self._actors:
                    group.create_task(self._keep_running(actor))
        except BaseExceptionGroup as failures:
            raise first_leaf(failures) from None
        if self.given_up is not None:
            raise self.given_up

    async def stop(self, patience_s: float, grace_s: float) -> None:
        """Ends all and restarts none: waits, then asks, then kills (see `Process.stop`)."""
        await asyncio.gather(*(actor.stop(patience_s, grace_s) for actor in self._actors))

    def kill(self) -> None:
        """Ends all at once."""
        for actor in self._actors:
            actor.kill()

    async def _keep_running(self, actor: KeptProcess) -> None:
        try:
            await actor.run()
        except GivenUp as failure:
            self.given_up = self.given_up or failure
            self._tell(str(failure))
