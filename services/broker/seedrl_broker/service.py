"""What the broker does for its clients and says to the learner: sessions over links that come and go. Knows no gRPC.

Everything here runs in one event loop and never waits, `next_request` aside, so that no state changes half way.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import time
from collections.abc import Callable, Iterator

from seedrl_broker.batcher import Batcher
from seedrl_broker.batching_metrics import BatchingMetrics
from seedrl_broker.limits import ENVELOPE_BYTES, Limits, check_room
from seedrl_broker.session import Session
from seedrl_core import logs, wire
from seedrl_core.codec import check_hello
from seedrl_core.config import BrokerConfig
from seedrl_core.errors import BadRequest, PeerLost, SeedrlError, error_from_status
from seedrl_core.wire import Buffer
from seedrl_proto.v1 import inference_pb2 as inference
from seedrl_proto.v1 import learner_pb2 as learner

_log = logs.get(__name__)


class BrokerService:
    """The sessions of all clients, and the one link to the learner.

    Back-pressure: the queue holds at most one tick a session and `max_sessions` sessions; a client whose tick is not
    answered cannot send another, so a slow learner slows the environments down and nothing piles up here.
    """

    def __init__(self, config: BrokerConfig, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` returns seconds."""
        self.metrics = BatchingMetrics(clock)
        self._config = config
        self._clock = clock
        self._batcher = Batcher(config.max_delay_ms / 1000)
        self._sessions: dict[int, Session] = {}
        self._by_id: dict[bytes, Session] = {}
        self._numbers = itertools.count(1)
        self._drain: inference.Drain | None = None
        # The link: None while there is none.
        self._link: learner.LinkWelcome | None = None
        self._link_lost_because = f"{config.learner}: not connected yet"
        self._limits = Limits(config.max_batch_rows)
        self._batch_ids: Iterator[int]
        self._opens: dict[int, Session] = {}  # said Hello, not sent yet
        self._closes: list[int] = []
        self._parked_until = math.inf
        self._work = asyncio.Event()

    @property
    def learner_ready(self) -> bool:
        """True while the learner is connected."""
        return self._link is not None

    @property
    def run_id(self) -> str:
        """The learner's run; empty while it is not connected."""
        return self._link.run_id if self._link else ""

    @property
    def num_sessions(self) -> int:
        """Open sessions."""
        return len(self._sessions)

    @property
    def num_envs(self) -> int:
        """Environments of all sessions."""
        return sum(session.rows for session in self._sessions.values())

    # The clients' side.

    def open(self, hello: inference.Hello, host: str = "") -> Session:
        """A new session of a client on `host`; an open one of the same session_id ends, since its client is back.

        The session is drained at once when the run is finished or this broker stops.

        Raises:
          BadRequest, SpecMismatch: the Hello has a field that is not allowed.
          Overloaded: there are max_sessions sessions, or the host has as many, or as many environments, as it may.
        """
        check_hello(hello)
        if (old := self._by_id.get(hello.session_id)) is not None:
            self.close(old, BadRequest("the session was opened again by another connection"))
        session = Session(next(self._numbers), hello, host, self._clock())
        if self._drain is not None:
            session.drain(self._drain)
            return session
        self._limits.check_session(hello)
        check_room(self._sessions.values(), session, self._config)
        self._sessions[session.number] = self._by_id[hello.session_id] = session
        if self._link is not None:
            self._opens[session.number] = session
        self._wake_if_due()
        _log.info("session_opened", **_names(session), num_envs=session.rows)
        return session

    def tick(self, session: Session, serialized: Buffer) -> None:
        """Takes in a client's tick, which waits here while there is no link; one after the session's end is dropped.

        Raises:
          BadRequest: the client's last message is unanswered, or the tick is too large.
        """
        if self._sessions.get(session.number) is not session:
            return
        self._limits.check_tick(serialized)
        session.ask(serialized, self._clock())
        if self._batcher.is_member(session.number):
            self._submit(session)

    def close(self, session: Session, error: SeedrlError | None = None) -> None:
        """Ends a session, with `error` if it did not part in order; does nothing when it has ended."""
        if self._sessions.get(session.number) is not session:
            return
        if self._link is not None and self._opens.pop(session.number, None) is None:
            self._closes.append(session.number)
        self._remove(session)
        session.end(error)
        self._wake_if_due()
        _log.info("session_closed", **_names(session), error=str(error) if error else None)

    def tell_waiting(self) -> None:
        """Sends a sign of life to each client that waits; to be called every waiting_interval_s."""
        now = self._clock()
        for session in self._sessions.values():
            if session.asked_at is None or now - session.asked_at < self._config.waiting_interval_s / 2:
                continue
            waited_s = now - session.asked_at
            session.tell_waiting(self.waits_for(waited_s), waited_s)

    def longest_wait_s(self) -> float:
        """How long the client has waited that waits longest, seconds."""
        now = self._clock()
        return max((now - s.asked_at for s in self._sessions.values() if s.asked_at is not None), default=0.0)

    def drain(self, drain: inference.Drain) -> None:
        """Parts with all clients, and at once with those that come later."""
        self._drain = drain
        for session in list(self._sessions.values()):
            session.drain(drain)
            self.close(session)

    # The learner's side.

    def link_opened(self, welcome: learner.LinkWelcome) -> None:
        """A learner is there: opens all sessions at it; their unanswered ticks follow its Welcomes.

        A finished run is over with this, as this learner is another one; a broker that stops keeps draining.
        """
        self._link = welcome
        self._batch_ids = itertools.count(1)
        self._limits = Limits(self._config.max_batch_rows).at(welcome)
        self._batcher.start(self._limits.max_rows, self._limits.max_bytes, welcome.credits)
        if self._drain is not None and self._drain.code == inference.Drain.FINISHED:
            self._drain = None
        self._opens = dict(self._sessions)
        for session in self._opens.copy().values():
            try:
                self._limits.check_session(session.hello, session.tick)
            except BadRequest as error:
                self.close(session, error)
        self._wake_if_due()

    def link_lost(self, reason: str) -> None:
        """The learner is gone, and has closed all sessions; they stay open here, and wait."""
        self._link = None
        self._link_lost_because = reason
        self._limits = Limits(self._config.max_batch_rows)
        self._batcher.stop()
        self._opens.clear()
        self._closes.clear()
        self.metrics.link_lost()

    async def next_request(self) -> bytes:
        """The serialized BatchRequest to send next; waits until there is something. Cancellation loses nothing."""
        while True:
            if self._opens or self._closes:
                return self._opens_and_closes().SerializeToString()
            due_at = self._batcher.due_at()
            now = self._clock()
            if due_at <= now:
                return self._batch(now)
            self._work.clear()
            self._parked_until = due_at
            try:
                async with asyncio.timeout(None if due_at == math.inf else due_at - now):
                    await self._work.wait()
            except TimeoutError:
                pass  # the oldest tick has waited long enough

    def receive(self, reply: learner.BatchReply) -> None:
        """Takes in what the learner says.

        Raises:
          PeerLost: the learner broke the contract or drains; the link is of no more use.
        """
        match reply.WhichOneof("kind"):
            case "replies":
                self._receive_replies(reply.replies)
            case "drain":
                if reply.drain.code == inference.Drain.FINISHED:
                    self.drain(reply.drain)
                raise PeerLost(f"the learner leaves: {reply.drain.reason}")
            case kind:
                raise PeerLost(f"expected replies or drain from the learner, got {kind}")

    def _receive_replies(self, replies: learner.Replies) -> None:
        batch_id = replies.batch_id
        for reply in replies.replies:
            session = self._sessions.get(reply.session)
            if session is not None:  # else it has left meanwhile
                self._receive_reply(session, reply, batch_id)
        if replies.returns_credit:
            try:
                unanswered = self._batcher.return_credit(batch_id)
            except KeyError:
                raise PeerLost(f"the learner returned the credit of batch {batch_id}, which is not in flight") from None
            if unanswered:
                raise PeerLost(f"the learner answered batch {batch_id} without its sessions {unanswered}")
            self.metrics.batch_answered(batch_id, self._clock())
        self._wake_if_due()

    def _receive_reply(self, session: Session, reply: learner.SessionReply, batch_id: int) -> None:
        match reply.WhichOneof("kind"):
            case "actions":
                if not self._batcher.answered(session.number, batch_id):
                    raise PeerLost(f"the learner answered a tick in batch {batch_id} that is not in it")
                session.answer(learner.OpaqueServerMessage(actions=reply.actions))
            case "welcome":
                self._welcome(session, reply.welcome)
            case "error":
                self._remove(session)
                session.end(error_from_status(reply.error.code, reply.error.message))
                _log.warning("session_refused", **_names(session), error=reply.error.message)
            case kind:
                raise PeerLost(f"expected welcome, actions or error for a session, got {kind}")

    def _welcome(self, session: Session, welcome: inference.Welcome) -> None:
        if self._batcher.is_member(session.number):
            raise PeerLost(f"the learner welcomed session {session.number} twice")
        self._batcher.join(session.number, session.rows)
        if not session.greeted:
            session.greeted = True
            session.answer(learner.OpaqueServerMessage(welcome=welcome))
        elif session.tick is not None:
            self._submit(session)

    def _submit(self, session: Session) -> None:
        assert session.tick is not None
        self._batcher.submit(session.number, len(session.tick) + ENVELOPE_BYTES, self._clock())
        self._wake_if_due()

    def _opens_and_closes(self) -> learner.BatchRequest:
        """Closes first, so that a client that came back finds its old session closed."""
        request = learner.BatchRequest(batch_id=next(self._batch_ids))
        for number in self._closes:
            request.requests.add(session=number, close=inference.Goodbye())
        self._closes.clear()
        num_bytes = request.ByteSize()
        for number, session in list(self._opens.items()):
            num_bytes += session.hello.ByteSize() + ENVELOPE_BYTES
            if num_bytes > self._limits.max_bytes and request.requests:
                break
            request.requests.add(session=number, open=session.hello)
            del self._opens[number]
        return request

    def _batch(self, now: float) -> bytes:
        """A BatchRequest with ticks, which are copied only here."""
        batch_id = next(self._batch_ids)
        ticks = self._batcher.take(batch_id)
        queue_wait_ms = self.metrics.batch_sent(batch_id, ticks, self._limits.max_rows, now)
        parts: list[Buffer] = [learner.BatchRequest(batch_id=batch_id, queue_wait_ms=queue_wait_ms).SerializeToString()]
        for tick in ticks:
            number = learner.SessionRequest(session=tick.session).SerializeToString()
            serialized = wire.field(learner.SessionRequest.TICK_FIELD_NUMBER, self._sessions[tick.session].tick)
            parts += wire.field(learner.BatchRequest.REQUESTS_FIELD_NUMBER, number, *serialized)
        return b"".join(parts)

    # Both sides.

    def _remove(self, session: Session) -> None:
        del self._sessions[session.number], self._by_id[session.hello.session_id]
        self._batcher.leave(session.number)

    def _wake_if_due(self) -> None:
        """Lets `next_request` look again when something is due earlier than it knows."""
        if self._opens or self._closes or self._batcher.due_at() < self._parked_until:
            self._work.set()

    def waits_for(self, waited_s: float) -> str:
        """What a client waits for that has waited `waited_s` seconds, for people."""
        if self._link is None:
            return f"learner is not there: {self._link_lost_because}"
        return f"the learner has not answered for {waited_s:.1f} s (busy, paused or its queue is full)"


def _names(session: Session) -> dict[str, str]:
    return logs.session_keys(session.hello.actor_id, session.hello.session_id)
