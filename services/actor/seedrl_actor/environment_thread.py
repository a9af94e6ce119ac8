"""Runs a session's environments in a thread of their own, so that the event loop stays free, and watches over it."""

from __future__ import annotations

import asyncio
import sys
import time
import traceback
from collections.abc import Callable
from typing import TypeVar

from seedrl_actor.environments import Step, VectorEnvironment
from seedrl_core import logs
from seedrl_core.spec import Array, EnvironmentSpec
from seedrl_core.worker import Worker

T = TypeVar("T")

_CLOSE_S = 2.0
_log = logs.get(__name__)


class EnvironmentThread:
    """An async face of a `VectorEnvironment`: the same calls, one at a time.

    The thread is a daemon: an environment that hangs does not keep the process from ending. Cancelling a call leaves
    the thread at work; only `close` may follow.
    """

    def __init__(self, make: Callable[[], VectorEnvironment], timeout_s: float, name: str) -> None:
        """Starts the thread.

        Args:
          make: builds the environments, in the thread.
          timeout_s: a call that takes longer is logged with the thread's stack, again and again.
          name: of the thread.
        """
        self._make = make
        self._timeout_s = timeout_s
        self._environment: VectorEnvironment | None = None
        self._loop = asyncio.get_running_loop()
        self._worker = Worker(name)

    async def build(self) -> EnvironmentSpec:
        """Builds the environments and returns their spec. Raises what `make` raises."""

        def build() -> EnvironmentSpec:
            self._environment = self._make()
            return self._environment.spec

        return await self._call(build)

    async def reset(self) -> tuple[Step, float]:
        """The first step and the milliseconds it took."""
        return await self._call(lambda: _timed(self._built.reset))

    async def step(self, action: tuple[Array, ...]) -> tuple[Step, float]:
        """The next step and the milliseconds it took. Raises EnvironmentFailed as the environments do."""
        return await self._call(lambda: _timed(lambda: self._built.step(action)))

    async def close(self) -> None:
        """Closes the environments and ends the thread; gives up on one that hangs, after 2 s.

        Those that are still being built are closed when they are.
        """
        try:
            async with asyncio.timeout(_CLOSE_S):
                await self._call(self._close_built)
        except TimeoutError:
            _log.warning("environment_abandoned", environment=self._busy_with)
        finally:
            self._worker.stop()

    @property
    def _built(self) -> VectorEnvironment:
        assert self._environment is not None, "build comes first"
        return self._environment

    def _close_built(self) -> None:
        if self._environment is not None:
            self._environment.close()

    @property
    def _busy_with(self) -> str:
        return self._environment.busy_with if self._environment else self._worker.thread.name

    async def _call(self, call: Callable[[], T]) -> T:
        future = self._worker.call(call)
        self._watch(self._loop.time())
        try:
            return await future
        finally:
            self._watchdog.cancel()

    def _watch(self, started: float) -> None:
        self._watchdog = self._loop.call_later(self._timeout_s, self._tell_hang, started)

    def _tell_hang(self, started: float) -> None:
        self._watch(started)
        elapsed_s = self._loop.time() - started
        frame = sys._current_frames().get(self._worker.thread.ident or 0)
        stack = "".join(traceback.format_stack(frame)) if frame else ""
        _log.warning("environment_hangs", environment=self._busy_with, elapsed_s=round(elapsed_s, 1), stack=stack)


def _timed(call: Callable[[], Step]) -> tuple[Step, float]:
    started = time.perf_counter()
    step = call()
    return step, 1000.0 * (time.perf_counter() - started)
