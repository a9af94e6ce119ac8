"""A thread that makes calls for an event loop: results, errors, order, calls that nobody waits for, its end."""

from __future__ import annotations

import asyncio
import threading
import weakref

import pytest

from seedrl_core.errors import PeerLost
from seedrl_core.worker import Worker


async def test_calls_are_made_in_turn_in_one_other_thread() -> None:
    """Results come back in the order of the calls, from a thread that is not the event loop's."""
    worker = Worker("test")
    calls = [worker.call(lambda i=i: (i, threading.current_thread().name)) for i in range(5)]  # type: ignore[misc]
    assert await asyncio.gather(*calls) == [(i, "test") for i in range(5)]
    worker.stop()


async def test_it_is_idle_when_all_calls_are_answered() -> None:
    """Not before, and also when an answer was an error or nobody waited for it."""
    worker, may_go_on = Worker("test"), threading.Event()
    assert worker.is_idle
    forgotten = worker.call(may_go_on.wait)
    failing = worker.call(lambda: 1 / 0)
    forgotten.cancel()
    assert not worker.is_idle
    may_go_on.set()
    with pytest.raises(ZeroDivisionError):
        await failing
    assert worker.is_idle
    worker.stop()


async def test_an_error_is_raised_where_its_result_is_awaited() -> None:
    """Also one that is no Exception; the calls after it are made."""
    worker = Worker("test")

    def leave() -> None:
        raise SystemExit(3)

    left, after = worker.call(leave), worker.call(lambda: "made")
    with pytest.raises(SystemExit):
        await left
    assert await after == "made"
    worker.stop()


async def test_a_call_is_made_although_nobody_waits_for_it() -> None:
    """Cancelling the wait changes nothing in the thread."""
    worker, may_go_on, made = Worker("test"), threading.Event(), []
    worker.call(may_go_on.wait)
    forgotten = worker.call(lambda: made.append(1))
    forgotten.cancel()
    may_go_on.set()
    await worker.call(lambda: None)
    assert made == [1]
    worker.stop()


async def test_a_bug_in_a_call_that_nobody_waits_for_is_told() -> None:
    """By the event loop's exception handler, which logs it; an error that is expected is not."""
    told: list[BaseException] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["exception"]))
    worker, may_go_on = Worker("test"), threading.Event()

    def fail(error: BaseException) -> None:
        raise error

    worker.call(may_go_on.wait)
    for error in (bug := ZeroDivisionError("a bug"), PeerLost("gone")):
        worker.call(lambda error=error: fail(error)).cancel()  # type: ignore[misc]
    may_go_on.set()
    await worker.call(lambda: None)
    assert told == [bug]
    worker.stop()


async def test_it_ends_after_the_calls_it_has() -> None:
    """`stop` lets them be made, and the thread ends."""
    worker, made = Worker("test"), []
    worker.call(lambda: made.append(1))
    worker.stop()
    worker.thread.join(10)
    assert made == [1]
    assert not worker.thread.is_alive()


async def test_nothing_of_a_call_is_kept() -> None:
    """What a call used is freed when it is answered, not when the next one comes."""

    class Used:
        pass

    worker, used = Worker("test"), Used()
    gone = weakref.ref(used)
    settled = worker.call(lambda used=used: None)  # type: ignore[misc]
    del used
    await settled
    del settled
    await worker.call(lambda: None)
    assert gone() is None
    worker.stop()
