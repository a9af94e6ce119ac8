"""How often an environment, or a process of environments, has been replaced, and when it may be replaced again."""

from __future__ import annotations

import time
from collections.abc import Callable

from seedrl_core import logs
from seedrl_core.errors import EnvironmentFailed

MAX_DELAY_S = 30.0
_log = logs.get(__name__)


class Restarts:
    """A budget with back-off: at once the first time, then after 1, 2, 4, ... 30 seconds."""

    def __init__(self, name: str, limit: int, clock: Callable[[], float] = time.monotonic) -> None:
        """`name` is for people; `limit` is how often in all; `clock` returns seconds."""
        self.name = name
        self.count = 0
        self._limit = limit
        self._clock = clock
        self._first_failure = ""
        self._due_at = 0.0

    @property
    def due_in_s(self) -> float:
        """Seconds to wait before it may be built again; 0 when it may."""
        return max(0.0, self._due_at - self._clock())

    def spend(self, failure: str, cause: BaseException | None = None) -> None:
        """Spends one on a failure. Raises EnvironmentFailed, with the first failure, when there is none left."""
        self._first_failure = self._first_failure or failure
        if self.count >= self._limit:
            raise EnvironmentFailed(
                f"{self.name} failed {self.count + 1} times, the first time with {self._first_failure}"
            ) from cause
        delay_s = min(MAX_DELAY_S, 2.0 ** (self.count - 1)) if self.count else 0.0
        self.count += 1
        self._due_at = self._clock() + delay_s
        _log.warning("environment_restarts", environment=self.name, error=failure, restarts=self.count, delay_s=delay_s)
