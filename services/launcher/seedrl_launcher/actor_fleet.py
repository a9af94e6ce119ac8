"""Keeps the actors of a run alive: one that dies is started again, with back-off and within a budget."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence

from seedrl_core.aio import first_leaf
from seedrl_core.errors import ServiceFailed
from seedrl_launcher.processes import Process

MAX_RESTARTS = 10
RESTART_WINDOW_S = 600.0
MAX_DELAY_S = 30.0
_NEEDS_A_PERSON = 2  # exit code of a service whose error another try cannot help


class RestartBudget:
    """At most `limit` restarts in any `window_s` seconds, each later one after a longer delay: 1, 2, 4, ... seconds."""

    def __init__(
        self, limit: int = MAX_RESTARTS, window_s: float = RESTART_WINDOW_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`clock` returns seconds."""
        self._limit = limit
        self._window_s = window_s
        self._clock = clock
        self._restarts: deque[float] = deque()

    def next_delay_s(self) -> float | None:
        """Spends one restart; the seconds to wait before it, or None when the budget is spent."""
        now = self._clock()
        while self._restarts and now - self._restarts[0] > self._window_s:
            self._restarts.popleft()
        if len(self._restarts) >= self._limit:
            return None
        self._restarts.append(now)
        return min(MAX_DELAY_S, 2.0 ** (len(self._restarts) - 1))


class ActorFleet:
    """The actors of one run."""

    def __init__(
        self,
        actors: Sequence[Process],
        has_begun: Callable[[], bool],
        tell: Callable[[str], None],
        make_budget: Callable[[], RestartBudget] = RestartBudget,
    ) -> None:
        """Of running actors.

        Args:
          actors: not started yet.
          has_begun: True once the run has made env steps; before, an actor's own failure ends the run at once.
          tell: gets one line for people about every restart.
          make_budget: one for each actor.
        """
        self._actors = actors
        self._has_begun = has_begun
        self._tell = tell
        self._make_budget = make_budget
        self._stopping = asyncio.Event()
        self.restarts = 0

    @property
    def alive(self) -> int:
        """Actors running now."""
        return sum(actor.alive for actor in self._actors)

    @property
    def size(self) -> int:
        """Actors that should run."""
        return len(self._actors)

    async def run(self) -> None:
        """Starts all, and returns when each has ended with success.

        Raises:
          ServiceFailed: one failed in a way that another start cannot help, or none is left and some have failed.
        """
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._keep_running(actor)) for actor in self._actors]
        except BaseExceptionGroup as failures:
            raise first_leaf(failures) from None
        failed = [failure for task in tasks if (failure := task.result()) is not None]
        if failed:
            raise failed[0]

    async def stop(self, patience_s: float, grace_s: float) -> None:
        """Ends all and restarts none: waits, then asks, then kills (see `Process.stop`)."""
        self._stopping.set()
        await asyncio.gather(*(actor.stop(patience_s, grace_s) for actor in self._actors))

    def kill(self) -> None:
        """Ends all at once."""
        self._stopping.set()
        for actor in self._actors:
            actor.kill()

    async def _keep_running(self, actor: Process) -> ServiceFailed | None:
        """None when the actor ended with success or was stopped, its first failure when the budget is spent."""
        budget = self._make_budget()
        first_failure: ServiceFailed | None = None
        while not self._stopping.is_set():
            actor.start()
            code = await actor.wait()
            if code == 0 or self._stopping.is_set():
                return None
            failure = actor.failure(code)
            first_failure = first_failure or failure
            if code == _NEEDS_A_PERSON or (code > 0 and not self._has_begun()):
                raise failure
            delay_s = budget.next_delay_s()
            if delay_s is None:
                self._tell(f"{actor.name} is given up: it failed too often. Its first failure: {first_failure}")
                return first_failure
            self.restarts += 1
            self._tell(f"{str(failure).splitlines()[0]}; it starts again in {delay_s:.0f} s")
            await self._pause(delay_s)
        return None

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            return
