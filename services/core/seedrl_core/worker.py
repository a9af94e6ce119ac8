"""A thread that makes calls for an event loop, one after the other."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from seedrl_core.errors import ExpectedError

T = TypeVar("T")


class Worker:
    """Belongs to the event loop that it is made in. The thread is a daemon: one that hangs does not keep the process.

    Does what a ThreadPoolExecutor of one thread does, in half the time: the hand-over is a good part of a small tick.
    """

    def __init__(self, name: str) -> None:
        """Starts the thread."""
        self.thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._calls: queue.SimpleQueue[tuple[Callable[[], Any], asyncio.Future[Any]] | None] = queue.SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self._unsettled = 0  # calls
        self.thread.start()

    @property
    def is_idle(self) -> bool:
        """True while no call is being made or waits: until the next one, what the thread owns is the event loop's."""
        return not self._unsettled

    def call(self, function: Callable[[], T]) -> asyncio.Future[T]:
        """Its result, or what it raises. A call is made in any case, also when nobody waits for it any more.

        A bug in such a call goes to the event loop's exception handler.
        """
        future: asyncio.Future[T] = self._loop.create_future()
        self._unsettled += 1
        self._calls.put((function, future))
        return future

    def stop(self) -> None:
        """Lets the thread end after the calls it has."""
        self._calls.put(None)

    def _work(self) -> None:
        while (item := self._calls.get()) is not None:
            function, future = item
            try:
                outcome, error = function(), None
            except BaseException as raised:
                outcome, error = None, raised
            try:
                self._loop.call_soon_threadsafe(self._settle, future, outcome, error)
            except RuntimeError:
                return  # the loop is closed: the process ends
            # Nothing of this call is kept until the next one comes.
            del item, function, future, outcome, error

    def _settle(self, future: asyncio.Future[Any], outcome: Any, error: BaseException | None) -> None:
        self._unsettled -= 1
        if future.cancelled():
            if error is not None and not isinstance(error, ExpectedError):
                told = {"message": "a call that nobody waits for any more has failed", "exception": error}
                self._loop.call_exception_handler(told)
        elif error is None:
            future.set_result(outcome)
        else:
            future.set_exception(error)
