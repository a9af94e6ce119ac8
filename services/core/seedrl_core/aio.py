"""Asyncio pieces that every service needs: the process's main function, signals, waits that say what they wait for."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import uvloop

from seedrl_core import logs
from seedrl_core.errors import ExpectedError

T = TypeVar("T")

SLOW_WAIT_S = 10.0
_log = logs.get(__name__)


async def tell_slow(awaitable: Awaitable[T], waiting_for: str, every_s: float = SLOW_WAIT_S) -> T:
    """Awaits, and logs what it waits for every `every_s` seconds until then. Cancellation passes through."""
    loop = asyncio.get_running_loop()
    started = loop.time()

    def tell() -> None:
        nonlocal handle
        _log.info("still_waiting", waiting_for=waiting_for, waited_s=round(loop.time() - started, 1))
        handle = loop.call_later(every_s, tell)

    handle = loop.call_later(every_s, tell)
    try:
        return await awaitable
    finally:
        handle.cancel()


def run_service(main: Callable[[asyncio.Event], Coroutine[Any, Any, int]]) -> int:
    """Runs `main(stop)` on uvloop and returns the process's exit code.

    The first SIGINT or SIGTERM sets `stop`, so that the service drains and returns; a second one ends the process at
    once. An ExpectedError is printed in one line (exit 1); any other error keeps its traceback.
    """

    async def supervised() -> int:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()

        def on_signal(number: int) -> None:
            if stop.is_set():
                os._exit(128 + number)
            _log.info("stopping", signal=signal.Signals(number).name)
            stop.set()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, on_signal, number)
        return await main(stop)

    try:
        return uvloop.run(supervised())
    except ExpectedError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except BaseExceptionGroup as group:
        expected, bugs = group.split(ExpectedError)
        if bugs is not None:
            raise
        assert expected is not None
        print(f"error: {first_leaf(expected)}", file=sys.stderr)
        return 1


def first_leaf(group: BaseException) -> BaseException:
    """The first error inside nested exception groups."""
    while isinstance(group, BaseExceptionGroup):
        group = group.exceptions[0]
    return group
