"""The learner's sessions: opens, closes and ticks of every broker's link, and the operator's controls. Knows no gRPC.

Session state is touched by the inference thread, to which coroutines hand work and await the answer; and by the event
loop while that thread has nothing to do.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

from seedrl_core import codec, logs
from seedrl_core.aio import tell_slow
from seedrl_core.errors import BadRequest, ExpectedError, Overloaded, SpecMismatch, words_of
from seedrl_core.shared_memory import PeerRegion
from seedrl_core.spec import EnvironmentSpec
from seedrl_core.worker import Worker
from seedrl_learner.batch_request import BatchRequest, SerializedTick
from seedrl_learner.run import Machinery, Run
from seedrl_learner.slots import Slots
from seedrl_proto.v1 import inference_pb2 as inference
from seedrl_proto.v1 import learner_pb2 as learner

_REMEMBERED_SESSIONS = 4096
_MOST_INFO_NAMES = 256
# Longest batch that the event loop makes itself.
_QUICK_BATCH_S = 0.02
_log = logs.get(__name__)


@dataclass
class LastReply:
    """The newest answered tick of a session and its answer, kept beyond the session's end."""

    sequence: int
    actions: bytes


@dataclass(eq=False)
class Session:
    """An open session; `last_reply` is None before its first tick."""

    session_id: bytes
    actor_id: str
    greedy: bool
    slots: Slots
    last_reply: LastReply | None
    region: PeerRegion | None  # memory that the client shares

    @property
    def num_envs(self) -> int:
        """Environments of the session."""
        return len(self.slots)


@dataclass(eq=False)
class Link:
    """One broker's stream and the sessions it carries, by the broker's numbers.

    Attributes:
      credits: requests with ticks that the broker may send before it has an answer.
    """

    peer: str
    credits: int = 1
    sessions: dict[int, Session] = field(default_factory=dict)

    def spend_credit(self) -> None:
        """A request with ticks came; Overloaded when the broker had no credit for it."""
        if not self.credits:
            raise Overloaded("expected requests with ticks within the link's credits, got one more (inference_credits)")
        self.credits -= 1


class LearnerService:
    """What the learner does for its brokers."""

    def __init__(self, run: Run) -> None:
        """Serves `run`."""
        self.run = run
        self.num_sessions = 0
        self.num_envs = 0
        self.built = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        if run.machinery is not None:
            self._announce(run.machinery)
        with run.metrics.busy("inference/blocked_share"):
            pass  # a share of 0 is in sight from the start
        self._worker = Worker("inference")
        self._last_batch_s = math.inf
        self._open_links: dict[bytes, tuple[Link, int]] = {}
        self._last_replies: OrderedDict[bytes, LastReply] = OrderedDict()
        self._info_names: set[str] = set()
        self._room = asyncio.Event()
        self._admission = asyncio.Lock()

    async def answer(self, link: Link, request: BatchRequest) -> AsyncIterator[learner.Replies]:
        """Yields the replies to a request: opens at once, ticks when there is room for the unrolls they may finish.

        Back-pressure: waits while the queue of unrolls is full; the broker's credit stays spent meanwhile. Cancellation
        leaves ticks that have already been taken in, so that a repeated one is still answered once.
        """
        ticks = request.ticks
        if request.others:
            replies = await self._worker.call(lambda: self._open_and_close(link, request.others))
            yield learner.Replies(batch_id=request.batch_id, replies=replies)
        if ticks:
            self.run.metrics.observe("inference/queue_wait_ms", request.queue_wait_ms)
            if all(self._is_greedy(link, item.session) for item in ticks):
                replies = await self._answer_ticks(link, ticks)
            else:
                async with self._admission:
                    await self._wait_for_room()
                    replies = await self._answer_ticks(link, ticks)
            yield learner.Replies(batch_id=request.batch_id, replies=replies, returns_credit=True)

    def disconnect(self, link: Link) -> asyncio.Future[None]:
        """Closes all sessions of a link that ended; happens whether or not the result is awaited."""
        return self._worker.call(lambda: self._close_all(link))

    def stop_waiting(self) -> None:
        """Lets ticks through that wait for room, since training has ended."""
        if self.run.machinery is not None:
            self.run.machinery.queue.close()

    def close(self) -> None:
        """Ends the inference thread after the work it has."""
        self._worker.stop()
        self._worker.thread.join()

    @staticmethod
    def _is_greedy(link: Link, number: int) -> bool:
        session = link.sessions.get(number)
        return session is not None and session.greedy

    async def _wait_for_room(self) -> None:
        machinery = self.run.machinery
        if machinery is None or self.run.serves_only:
            return
        while not machinery.takes_ticks:
            self._room.clear()
            if machinery.takes_ticks:
                return
            with self.run.metrics.busy("inference/blocked_share"):
                await tell_slow(
                    self._room.wait(), "room in the queue of unrolls: training is paused or slower than actors"
                )

    async def _answer_ticks(self, link: Link, ticks: Sequence[SerializedTick]) -> list[learner.SessionReply]:
        """In the inference thread, so that the event loop is free to take in what comes next.

        A broker with one credit sends nothing meanwhile. Then the event loop makes a batch itself, as long as batches
        are quick: to wake a thread and be woken by it is a good part of a small tick.
        """
        one_credit = self.run.config.inference_credits == 1
        if one_credit and self._last_batch_s < _QUICK_BATCH_S and self._worker.is_idle:
            return self._tick(link, ticks)
        return await self._worker.call(lambda: self._tick(link, ticks))

    def _announce(self, machinery: Machinery) -> None:
        machinery.queue.notify_room(lambda: self._loop.call_soon_threadsafe(self._room.set))
        self._loop.call_soon_threadsafe(self.built.set)

    # Below: the inference thread, or the event loop in its place.

    def _open_and_close(self, link: Link, items: Sequence[learner.SessionRequest]) -> list[learner.SessionReply]:
        replies = []
        for item in items:
            if item.WhichOneof("kind") == "open":
                replies.append(self._open(link, item.session, item.open))
            elif item.session in link.sessions:
                self._close(link, item.session)
        return replies

    def _open(self, link: Link, number: int, hello: inference.Hello) -> learner.SessionReply:
        try:
            codec.check_hello(hello)
            spec = codec.spec_from_proto(hello.spec)
            greedy = hello.role == inference.ROLE_EVAL
            if self.run.serves_only and not greedy:
                raise SpecMismatch("this learner only serves: expected role ROLE_EVAL, got ROLE_TRAIN")
            if number in link.sessions:
                raise BadRequest(f"session {number} is open already")
            self._check_bytes(hello.num_envs, spec)
            known = self.run.machinery is not None
            machinery = self.run.build(spec)
            if not known:
                self._announce(machinery)
            if hello.session_id in self._open_links:
                self._close(*self._open_links[hello.session_id])
            self._check_deterministic()
            slots = machinery.inference.open(hello.num_envs, greedy=greedy, explain=hello.explain)
        except ExpectedError as error:
            return _error_reply(number, error)
        last_reply = self._last_replies.pop(hello.session_id, None)
        region = self._map_region(hello)
        link.sessions[number] = Session(hello.session_id, hello.actor_id, greedy, slots, last_reply, region)
        self._open_links[hello.session_id] = (link, number)
        self._count(1, hello.num_envs)
        _log.info("session_opened", **logs.session_keys(hello.actor_id, hello.session_id), num_envs=hello.num_envs)
        welcome = inference.Welcome(
            run_id=self.run.run_id,
            policy_version=self.run.progress.policy_version,
            shared_memory=region is not None,
        )
        return learner.SessionReply(session=number, welcome=welcome)

    def _check_deterministic(self) -> None:
        """Raises BadRequest where a session would be the second of a run that needs a fixed order of ticks."""
        if self.run.serves_only or not self.run.config.deterministic:
            return
        if self.num_sessions:
            raise BadRequest("learner.deterministic: expected one actor with actor.sessions=1, got a second session")
        if self.run.progress.env_steps > self.run.first_env_steps:
            _log.warning("not_reproducible", reason="the session was opened again in the middle of the run")

    def _check_bytes(self, num_envs: int, spec: EnvironmentSpec) -> None:
        """What could never be sent is refused before anything is made for it."""
        allowed, got = self.run.config.max_message_bytes, num_envs * spec.row_bytes
        if got > allowed:
            raise BadRequest(
                f"spec: expected an observation of at most {allowed} bytes (max_message_bytes), got {got} for "
                f"{num_envs} environments"
            )

    def _map_region(self, hello: inference.Hello) -> PeerRegion | None:
        """The memory that a client offers; None when there is none, it is not wanted, or it is of another host."""
        if self.run.config.shared_memory == "off" or not hello.HasField("shared_memory"):
            return None
        offer = hello.shared_memory
        try:
            return PeerRegion(hello.session_id, offer.pid, offer.fd, offer.num_bytes, self.run.config.max_message_bytes)
        except BadRequest as error:
            _log.info("no_shared_memory", **logs.session_keys(hello.actor_id, hello.session_id), reason=str(error))
            return None

    def _close(self, link: Link, number: int) -> None:
        session = link.sessions.pop(number)
        assert self.run.machinery is not None
        self.run.machinery.inference.close(session.slots)
        del self._open_links[session.session_id]
        if session.last_reply is not None:
            self._last_replies[session.session_id] = session.last_reply
            while len(self._last_replies) > _REMEMBERED_SESSIONS:
                self._last_replies.popitem(last=False)
        self._count(-1, -session.num_envs)
        _log.info("session_closed", **logs.session_keys(session.actor_id, session.session_id))

    def _close_all(self, link: Link) -> None:
        for number in list(link.sessions):
            self._close(link, number)

    def _count(self, sessions: int, envs: int) -> None:
        self.num_sessions += sessions
        self.num_envs += envs

    def _tick(self, link: Link, items: Sequence[SerializedTick]) -> list[learner.SessionReply]:
        """Answers each tick: with new actions, with the last ones if it is a repeated tick, or with an error.

        Raises:
          Overloaded: they are of more environments than one request may have.
        """
        self._check_rows(link, items)
        replies: list[learner.SessionReply] = []
        new: list[tuple[int, Session, codec.TickArrays]] = []
        seen: set[int] = set()
        for item in items:
            try:
                session = link.sessions.get(item.session)
                if session is None:
                    raise BadRequest("the session is not open")
                if item.session in seen:
                    raise BadRequest("expected one tick of a session in a request, got two")
                seen.add(item.session)
                tick = self._decode(session, item.tick)
            except ExpectedError as error:
                new = [entry for entry in new if entry[0] != item.session]
                if item.session in link.sessions:
                    self._close(link, item.session)
                replies.append(_error_reply(item.session, error))
                continue
            if session.last_reply is not None and tick.sequence == session.last_reply.sequence:
                replies.append(learner.SessionReply(session=item.session, actions=session.last_reply.actions))
            else:
                new.append((item.session, session, tick))
        if new:
            replies.extend(self._infer(new))
        return replies

    def _check_rows(self, link: Link, items: Sequence[SerializedTick]) -> None:
        allowed = self.run.config.max_batch_rows
        sessions = (link.sessions.get(item.session) for item in items)
        if (rows := sum(session.num_envs for session in sessions if session)) > allowed:
            raise Overloaded(f"expected at most {allowed} environments in a request (max_batch_rows), got {rows}")

    def _decode(self, session: Session, serialized: memoryview) -> codec.TickArrays:
        assert self.run.machinery is not None
        tick = codec.decode_tick(serialized, self.run.machinery.spec, session.num_envs, session.region)
        last = session.last_reply
        if last is not None and tick.sequence not in (last.sequence, last.sequence + 1):
            raise BadRequest(
                f"tick.sequence: expected {last.sequence + 1} (or {last.sequence} again), got {tick.sequence}"
            )
        return tick

    def _infer(self, ticks: Sequence[tuple[int, Session, codec.TickArrays]]) -> list[learner.SessionReply]:
        assert self.run.machinery is not None
        metrics = self.run.metrics
        version = self.run.progress.policy_version
        began = time.perf_counter()
        with metrics.busy("learner/busy_share"):
            answers = self.run.machinery.inference.run([(session.slots, tick) for _, session, tick in ticks])
        self._last_batch_s = time.perf_counter() - began
        metrics.observe("inference/batch_rows", sum(session.num_envs for _, session, _ in ticks))
        replies = []
        for (number, session, tick), answer in zip(ticks, answers, strict=True):
            actions = codec.encode_actions(tick.sequence, answer.action, version, answer.explanation)
            encoded = actions.SerializeToString()
            session.last_reply = LastReply(tick.sequence, encoded)
            replies.append(learner.SessionReply(session=number, actions=encoded))
            self._record(session, tick)
        return replies

    def _record(self, session: Session, tick: codec.TickArrays) -> None:
        metrics = self.run.metrics
        metrics.observe("environment/step_ms", tick.env_ms)
        group = "evaluation" if session.greedy else "episode"
        for episode in tick.episodes:
            if not session.greedy:
                self.run.progress.add_episode(episode.episode_return)
            metrics.observe(f"{group}/return", episode.episode_return)
            metrics.observe(f"{group}/length_steps", episode.length)
            for name, value in episode.info.items():
                if self._is_known_info(name):
                    metrics.observe(f"{group}/info/{name}", value)

    def _is_known_info(self, name: str) -> bool:
        """Each name is a metric for the rest of the run, so there is a limit to them; those beyond it are left out."""
        if name not in self._info_names and len(self._info_names) < _MOST_INFO_NAMES:
            self._info_names.add(name)
            if len(self._info_names) == _MOST_INFO_NAMES:
                _log.warning("episode_info_full", names=_MOST_INFO_NAMES)
        return name in self._info_names


def _error_reply(number: int, error: ExpectedError) -> learner.SessionReply:
    return learner.SessionReply(session=number, error=learner.SessionError(code=error.status, message=words_of(error)))
