"""One session of the client, as the steps of the check play with it: over several streams, one at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from seedrl_launcher.conformance.client import Ending
from seedrl_launcher.conformance.history import SessionHistory
from seedrl_launcher.conformance.rules import Findings
from seedrl_launcher.conformance.streams import ClientStream
from seedrl_launcher.conformance.timing import Timing
from seedrl_proto.v1 import inference_pb2 as inference

BUSY = "the learner has not answered for a while (seedrl check-client plays a busy learner)"
LEARNER_AWAY = "learner is not there: seedrl check-client plays a broker without one"
# Of the wait before an attempt: the least is half of 0.1 s, doubled at each, up to half of 3 s. Timers are not exact.
_FIRST_WAIT_S, _MOST_WAIT_S = 0.05, 1.5
_TOLERANCE = 0.9


class ClientLeft(Exception):
    """The client has left the session, or its stream has ended, without being made to."""


class SessionOver(Exception):
    """The session cannot go on: it was ended, or did not come back."""


class TestedSession:
    """The same environments over all their streams.

    Attributes:
      findings, timing: of the check.
      history: what it has sent.
    """

    def __init__(
        self, findings: Findings, timing: Timing, history: SessionHistory, ending: asyncio.Task[Ending] | None
    ) -> None:
        """`ending` is that of the client's process; None where it is somebody else's."""
        self.findings = findings
        self.timing = timing
        self.history = history
        self.over = False
        self._ending = ending
        self._streams: asyncio.Queue[ClientStream] = asyncio.Queue()
        self._stream: ClientStream
        self._lost_at = 0.0

    def hand_over(self, stream: ClientStream) -> None:
        """Takes in a stream, whose Hello is judged."""
        self._streams.put_nowait(stream)

    # What a broker says.

    async def begin(self) -> None:
        """Takes the first stream, and lets it wait for its Welcome."""
        self._stream = await self._streams.get()
        await self.wait(BUSY)
        await self.hold()
        await self.welcome()

    async def welcome(self, *, accept_memory: bool = True) -> None:
        """Answers the Hello."""
        await self._send(welcome=self.history.welcome(accept_memory=accept_memory))

    async def tick(self) -> None:
        """Takes the next tick, or the unanswered one again; ClientLeft when the client leaves instead."""
        message = await self._stream.receive()
        if message is not None and message.WhichOneof("kind") == "tick":
            self.history.take(message.tick)
            return
        if message is None and not self._stream.ended_here:
            self.findings.breach("S3", "goodbye before the client ends a stream", "the end of a stream without one")
        await self._part()
        raise ClientLeft

    async def answer(self, *, held: bool = False) -> None:
        """Answers the tick; if `held`, after a while in which nothing may come."""
        if held:
            await self.hold()
        self.history.check_memory()
        await self._send(actions=self.history.answer())

    async def answer_last(self) -> None:
        """Answers the tick and ends the stream, in order, so that the answer may or may not arrive."""
        await self._send(actions=self.history.answer(arrives=False))
        self.end()

    async def wait(self, reason: str) -> None:
        """Gives a sign of life."""
        await self._send(waiting=inference.Waiting(reason=reason, waited_s=1.0))

    async def drain(self, code: inference.Drain.Code) -> None:
        """Asks the client to leave."""
        await self._send(drain=inference.Drain(code=code, reason="seedrl check-client"))

    def end(self, status: int = 0, message: str = "seedrl check-client") -> None:
        """Ends the stream."""
        self._lost_at = self._stream.end(status, message)

    def cut(self) -> None:
        """Cuts the connection."""
        self._lost_at = self._stream.cut()

    # What a client must do.

    async def hold(self) -> None:
        """Waits, so that a client that does not can be caught at it."""
        await asyncio.sleep(self.timing.hold_s)

    async def stays_for(self, seconds: float) -> bool:
        """Whether the client keeps the stream for so long."""
        return not await _within(seconds, self._stream.closed.wait())

    async def leaves(self) -> None:
        """Judges whether the client leaves after a Drain, in time; then ends the stream."""
        grace_s = self.timing.drain_grace_s
        left = await _within(grace_s, self._stream.receive())
        self.findings.judge("D1", left, f"goodbye, or the end of the stream, within {grace_s:g} s", "neither")
        await self._part()
        self._lost_at = 0.0  # it was the client that ended it

    async def comes_back(self, rule: str, attempt: int = 0, within_s: float | None = None) -> None:
        """Judges whether the client opens a further stream, and whether it has waited as long as before that attempt.

        Raises:
          SessionOver: it does not.
        """
        within_s = within_s or self.timing.return_s
        before = self._stream
        stream = await self._next_stream(within_s)
        expected = f"a further stream of the session within {within_s:g} s"
        if not self.findings.judge(rule, stream is not None, expected, self._absence()):
            raise SessionOver
        assert stream is not None
        self._stream = stream
        if self._lost_at:
            least_s = min(_MOST_WAIT_S, _FIRST_WAIT_S * 2**attempt)
            waited_s = stream.opened_at - self._lost_at
            self.findings.judge(
                "R4",
                waited_s >= _TOLERANCE * least_s,
                f"at least {least_s:g} s before attempt {attempt + 1}",
                f"{waited_s:.3f} s",
            )
            self._lost_at = 0.0
        elif not before.ended_here:
            closed = await _within(self.timing.return_s, before.closed.wait())
            self.findings.judge(rule, closed, "the end of the stream before", "two streams of the session")

    async def stays_away(self, rule: str) -> None:
        """Judges whether the client opens no further stream of the session."""
        stream = await self._next_stream(self.timing.absence_s)
        self.over = True
        self.findings.judge(rule, stream is None, "no further stream of the session", "one")
        if stream is not None:
            stream.end(3, "the session is over")

    async def ends_with_success(self, rule: str) -> None:
        """Judges the exit of the client's process, if that is known."""
        if self._ending is None:
            return
        ended = await _within(self.timing.exit_s, asyncio.shield(self._ending))
        success, words = self._ending.result() if ended else (False, f"still running after {self.timing.exit_s:g} s")
        self.findings.judge(rule, success, "exit code 0", words)

    async def _part(self) -> None:
        """Ends a stream that the client has left; what it sends after its Goodbye is judged until then."""
        await _within(self.timing.hold_s, self._stream.closed.wait())
        self._stream.end()

    async def _next_stream(self, within_s: float) -> ClientStream | None:
        """The next stream of the session; None when none comes in time, or the client's process ends."""
        if not self._streams.empty():
            return self._streams.get_nowait()
        getting = asyncio.create_task(self._streams.get())
        waited_for: set[asyncio.Task[Any]] = {getting} | ({self._ending} if self._ending else set())
        try:
            await asyncio.wait(waited_for, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            getting.cancel()
        return getting.result() if getting.done() and not getting.cancelled() else None

    def _absence(self) -> str:
        return f"none; {self._ending.result().words}" if self._ending and self._ending.done() else "none"

    async def _send(self, **kind: Any) -> None:
        await self._stream.send(inference.ServerMessage(**kind))


async def _within(seconds: float, event: Coroutine[Any, Any, Any] | asyncio.Future[Any]) -> bool:
    """Whether something happens within so many seconds."""
    try:
        async with asyncio.timeout(seconds):
            await event
    except TimeoutError:
        return False
    return True
