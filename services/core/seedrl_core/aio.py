"""Asyncio pieces that every service needs: the process's main function, signals, waits that say what they wait for."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import uvloop

from seedrl_core import logs, supervisor
from seedrl_core.allocator import keep_freed_memory
from seedrl_core.errors import ExpectedError

T = TypeVar("T")

SLOW_WAIT_S = 10.0
# Environment variable: number of the process whose end ends this one too.
PARENT_PID = "SEEDRL_PARENT_PID"
_PARENT_CHECK_S = 1.0
_log = logs.get(__name__)


async def tell_slow(awaitable: Awaitable[T], waiting_for: str, every_s: float = SLOW_WAIT_S) -> T:
    """Awaits, and logs what it waits for every `every_s` seconds until then. Cancellation passes through."""
    loop = asyncio.get_running_loop()
    started = loop.time()
    timer: asyncio.TimerHandle | None = None

    def arm() -> None:
        nonlocal timer
        timer = loop.call_later(every_s, tell)

    def tell() -> None:
        _log.info("still_waiting", waiting_for=waiting_for, waited_s=round(loop.time() - started, 1))
        arm()

    arm()
    try:
        return await awaitable
    finally:
        if timer is not None:
            timer.cancel()


def run_service(
    main: Callable[[asyncio.Event], Coroutine[Any, Any, int]], abandon: Callable[[], None] = lambda: None
) -> int:
    """Runs `main(stop)` on uvloop and returns the process's exit code.

    The first SIGINT or SIGTERM sets `stop`, so that the service drains and returns; a second one ends the process at
    once, after `abandon()`. So does the end of the process named by SEEDRL_PARENT_PID set `stop`. A supervisor's
    watchdog hears of the event loop; `main` tells it READY=1. An ExpectedError is
    printed in one line (exit code of its class); any other error keeps its traceback.
    """

    async def supervised() -> int:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()

        def on_signal(number: int) -> None:
            if stop.is_set():
                abandon()
                os._exit(128 + number)
            _log.info("stopping", signal=signal.Signals(number).name)
            supervisor.notify("STOPPING=1")
            stop.set()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, on_signal, number)
        watches = [
            asyncio.create_task(_stop_without_parent(stop)),
            asyncio.create_task(supervisor.keep_watchdog_quiet()),
        ]
        try:
            return await main(stop)
        finally:
            for watch in watches:
                watch.cancel()

    keep_freed_memory()
    try:
        return uvloop.run(supervised())
    except ExpectedError as error:
        return _report(error)
    except BaseExceptionGroup as group:
        expected, bugs = group.split(ExpectedError)
        if bugs is not None:
            raise
        assert expected is not None
        return _report(first_leaf(expected))


async def _stop_without_parent(stop: asyncio.Event) -> None:
    """Sets `stop` once the process that started this one, if it asked for that, is gone (killed, say)."""
    parent = os.environ.get(PARENT_PID)
    if parent is None:
        return
    while os.getppid() == int(parent):  # noqa: ASYNC110 - the kernel sets no asyncio.Event
        await asyncio.sleep(_PARENT_CHECK_S)
    _log.warning("stopping", reason="the process that started this one is gone")
    stop.set()


def _report(error: BaseException) -> int:
    print(f"error: {error}", file=sys.stderr)
    return error.exit_code if isinstance(error, ExpectedError) else 1


def raise_if_cancelled() -> None:
    """Raises CancelledError where the current task was cancelled and did not notice.

    Before Python 3.13 a TaskGroup drops the cancellation when one of its tasks fails at the same moment. A loop that
    bears with such failures would go on for ever.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def first_leaf(group: BaseException) -> BaseException:
    """The first error inside nested exception groups."""
    while isinstance(group, BaseExceptionGroup):
        group = group.exceptions[0]
    return group
