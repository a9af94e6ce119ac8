"""Keeps one process of a run alive: when it dies it is started again, with back-off and within a budget."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable

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


class GivenUp(ServiceFailed):
    """A process has failed so often that its budget is spent; the message tells its first failure."""


class KeptProcess:
    """One process of a run, from its first start to its last end."""

    def __init__(
        self,
        process: Process,
        has_begun: Callable[[], bool],
        tell: Callable[[str], None],
        budget: RestartBudget,
        *,
        may_end: bool = True,
    ) -> None:
        """Of a process that is not started yet.

        Args:
          process: what is started, and started again.
          has_begun: True once the run has made env steps; before, the process's own failure is no use to try again.
          tell: gets one line for people about every restart.
          budget: its own.
          may_end: exit code 0 is its wanted end; else it is a failure like any other.
        """
        self.process = process
        self.restarts = 0
        self._has_begun = has_begun
        self._tell = tell
        self._budget = budget
        self._may_end = may_end
        self._first_failure: ServiceFailed | None = None
        self._stopping = asyncio.Event()

    @property
    def alive(self) -> bool:
        """True while it runs, False also while it waits for its next start."""
        return self.process.alive

    async def run(self) -> None:
        """Starts it, and returns when it has ended as it should, or was stopped. Cancellation leaves it running.

        Raises:
          GivenUp: the budget is spent.
          ServiceFailed: it failed in a way that another start cannot help.
        """
        while not self._stopping.is_set():
            self.process.start()
            code = await self.process.wait()
            if self._stopping.is_set() or (code == 0 and self._may_end):
                return
            await self._pause(self._delay_s(self.process.failure(code), code))

    async def stop(self, patience_s: float, grace_s: float) -> None:
        """Ends it and restarts it no more: waits, then asks, then kills (see `Process.stop`)."""
        self._stopping.set()
        await self.process.stop(patience_s, grace_s)

    def kill(self) -> None:
        """Ends it at once."""
        self._stopping.set()
        self.process.kill()

    def _delay_s(self, failure: ServiceFailed, code: int) -> float:
        """Spends one restart and tells about it; the seconds to wait before it. Raises as `run` does."""
        first = self._first_failure = self._first_failure or failure
        if code == _NEEDS_A_PERSON or (code >= 0 and not self._has_begun()):
            raise failure
        delay_s = self._budget.next_delay_s()
        if delay_s is None:
            often = f"{self.process.name} is given up: it failed {self.restarts + 1} times. Its first failure: "
            raise GivenUp(f"{often if self.restarts else ''}{first}", first.exit_code)
        self.restarts += 1
        self._tell(f"{str(failure).splitlines()[0]}; it starts again in {delay_s:.0f} s")
        return delay_s

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            return
