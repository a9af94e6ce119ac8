"""What the check does to a session, step by step, to see what the client makes of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from seedrl_launcher.conformance.session import BUSY, LEARNER_AWAY, ClientLeft, TestedSession
from seedrl_proto.v1 import inference_pb2 as inference

_HELD_TICKS = 5
_STEADY_TICKS = 300
_REFUSED_ATTEMPTS = 5
_OK, _UNKNOWN, _INVALID_ARGUMENT, _EXHAUSTED, _PRECONDITION, _ABORTED = 0, 2, 3, 8, 9, 10
_OUT_OF_RANGE, _UNIMPLEMENTED, _INTERNAL, _UNAVAILABLE, _UNAUTHENTICATED = 11, 12, 13, 14, 16


@dataclass(frozen=True)
class Step:
    """One thing that happens to a session which has been welcomed.

    Attributes:
      name: for people.
      act: does it, and judges what comes of it.
      ends_client: the session is over then, and the client should end.
    """

    name: str
    act: Callable[[TestedSession], Awaitable[None]]
    ends_client: bool = False


async def _steady(session: TestedSession) -> None:
    """Plays for a while, at first with answers that take long; a client that leaves meanwhile may do so."""
    with suppress(ClientLeft):
        for number in range(_STEADY_TICKS):
            await session.tick()
            if number < _HELD_TICKS:
                await session.wait(BUSY)
            await session.answer(held=number < _HELD_TICKS)


async def _resume(session: TestedSession, *, accept_memory: bool = True) -> None:
    """Welcomes the session back and answers its tick, which must be the one that was not answered."""
    await session.hold()
    await session.welcome(accept_memory=accept_memory)
    await session.tick()
    await session.answer()


async def _cut(session: TestedSession) -> None:
    """The connection is cut before the answer, and the broker is not ready for the first attempts."""
    await session.tick()
    session.cut()
    for attempt in range(_REFUSED_ATTEMPTS):
        await session.comes_back("R1", attempt)
        session.end(_UNAVAILABLE)
    await session.comes_back("R1", _REFUSED_ATTEMPTS)
    await _resume(session)


async def _ended(session: TestedSession) -> None:
    """The stream ends before the answer, with any status that says nothing, or with none."""
    for status in (_OK, _UNAVAILABLE, _UNKNOWN, _ABORTED):
        await session.tick()
        session.end(status)
        await session.comes_back("R2")
        await _resume(session)


async def _ended_between(session: TestedSession) -> None:
    """The stream ends right after an answer."""
    await session.tick()
    await session.answer_last()
    await session.comes_back("R2")
    await _resume(session)


async def _full(session: TestedSession) -> None:
    """The learner is full when the client comes back."""
    await session.tick()
    session.end(_UNAVAILABLE)
    await session.comes_back("R2")
    session.end(_EXHAUSTED)
    await session.comes_back("E2")
    await _resume(session)


async def _restarting(session: TestedSession) -> None:
    """The broker restarts."""
    await session.tick()
    await session.drain(inference.Drain.RESTARTING)
    await session.leaves()
    await session.comes_back("D3")
    await _resume(session)


async def _other_memory(session: TestedSession) -> None:
    """The learner is replaced by one that accepts no shared memory, and that by one which does."""
    if not session.history.offers_memory:
        return
    for accept in (False, True):
        await session.tick()
        session.end(_UNAVAILABLE)
        await session.comes_back("R2")
        await _resume(session, accept_memory=accept)
        await session.tick()
        await session.answer(held=True)


async def _patience(session: TestedSession) -> None:
    """The learner is busy, then away, for longer than silence may last."""
    timing = session.timing
    await session.tick()
    waits = int(timing.silence_s / timing.waiting_interval_s) + 2
    for number in range(waits):
        await session.wait(BUSY if number < waits // 2 else LEARNER_AWAY)
        stays = await session.stays_for(timing.waiting_interval_s)
        waited_s = (number + 1) * timing.waiting_interval_s
        if not session.findings.judge("W1", stays, "a connection that is kept", f"its end within {waited_s:g} s"):
            await session.comes_back("R1")
            await _resume(session)
            return
    await session.answer()


async def _silence(session: TestedSession) -> None:
    """Nothing comes for so long that the connection counts as dead."""
    await session.tick()
    await session.comes_back("R3", within_s=session.timing.silence_s + session.timing.return_s)
    await _resume(session)


async def _refused(rule: str, status: int, session: TestedSession) -> None:
    """A tick ends the stream for good."""
    await session.tick()
    session.end(status)
    await session.stays_away(rule)
    if status == _OUT_OF_RANGE:
        await session.ends_with_success(rule)


async def _refused_hello(rule: str, status: int, session: TestedSession) -> None:
    """A Hello ends the stream for good, here that of a client that comes back."""
    await session.tick()
    session.end(_UNAVAILABLE)
    await session.comes_back("R2")
    session.end(status)
    await session.stays_away(rule)


async def _finished(session: TestedSession) -> None:
    """Training is complete."""
    await session.tick()
    await session.drain(inference.Drain.FINISHED)
    await session.leaves()
    await session.stays_away("D2")
    await session.ends_with_success("D2")


async def _finished_and_gone(session: TestedSession) -> None:
    """Training is complete, and the stream ends before the client has had time to read so."""
    await session.tick()
    await session.drain(inference.Drain.FINISHED)
    session.end(_UNAVAILABLE)
    await session.stays_away("D4")
    await session.ends_with_success("D4")


STEPS: Sequence[Step] = (
    Step("plays for a while", _steady),
    Step("the connection is cut", _cut),
    Step("the stream ends without a Drain", _ended),
    Step("the stream ends after an answer", _ended_between),
    Step("the learner is full", _full),
    Step("the broker restarts", _restarting),
    Step("the learner declines shared memory", _other_memory),
    Step("the answer takes long", _patience),
    Step("nothing comes", _silence),
    Step("INVALID_ARGUMENT after a tick", partial(_refused, "E1", _INVALID_ARGUMENT), ends_client=True),
    Step("FAILED_PRECONDITION after Hello", partial(_refused_hello, "E1", _PRECONDITION), ends_client=True),
    Step("UNIMPLEMENTED after Hello", partial(_refused_hello, "E1", _UNIMPLEMENTED), ends_client=True),
    Step("UNAUTHENTICATED after Hello", partial(_refused_hello, "E1", _UNAUTHENTICATED), ends_client=True),
    Step("INTERNAL after a tick", partial(_refused, "E1", _INTERNAL), ends_client=True),
    Step("RESOURCE_EXHAUSTED after a tick", partial(_refused, "E3", _EXHAUSTED), ends_client=True),
    Step("OUT_OF_RANGE after a tick", partial(_refused, "E4", _OUT_OF_RANGE), ends_client=True),
    Step("the run is finished", _finished, ends_client=True),
    Step("the run is finished, and the stream ends", _finished_and_gone, ends_client=True),
)
