"""The broker's sessions without gRPC and with a clock that is a number."""

from __future__ import annotations

import asyncio

import pytest

from seedrl_broker.service import BrokerService
from seedrl_broker.session import Session
from seedrl_core.config import load_settings
from seedrl_core.errors import BadRequest, PeerLost
from seedrl_proto.v1 import inference_pb2 as inference
from seedrl_proto.v1 import learner_pb2 as learner
from seedrl_proto.v1 import spec_pb2


def hello(number: int, num_envs: int, environment_id: str = "") -> inference.Hello:
    """A valid Hello, but for its spec."""
    return inference.Hello(
        protocol_version=1,
        session_id=bytes([number]) * 16,
        num_envs=num_envs,
        role=inference.ROLE_TRAIN,
        spec=spec_pb2.EnvironmentSpec(environment_id=environment_id),
    )


class World:
    """A service, its clock, and the learner's side of its link."""

    def __init__(self, **settings: object) -> None:
        self.now = 100.0
        keys = {"max_delay_ms": 1e6, "waiting_interval_s": 3.0, **settings}
        config = load_settings(None, {f"broker.{key}": value for key, value in keys.items()}).broker
        self.service = BrokerService(config, lambda: self.now)

    def connect(self, num_credits: int = 2, max_batch_rows: int = 64, max_message_bytes: int = 10_000) -> None:
        welcome = learner.LinkWelcome(
            credits=num_credits, max_batch_rows=max_batch_rows, max_message_bytes=max_message_bytes
        )
        self.service.link_opened(welcome)

    def open(self, number: int, num_envs: int = 2) -> Session:
        return self.service.open(hello(number, num_envs))

    async def request(self) -> learner.BatchRequest:
        async with asyncio.timeout(5):
            return learner.BatchRequest.FromString(await self.service.next_request())

    async def nothing_to_send(self) -> bool:
        """True when the link has nothing to send now."""
        waiting = asyncio.ensure_future(self.service.next_request())
        await asyncio.sleep(0)
        sent = waiting.done()
        waiting.cancel()
        return not sent

    async def welcome(self, *sessions: Session) -> None:
        """Lets the learner welcome sessions, and their clients read it."""
        request = await self.request()
        assert [item.session for item in request.requests] == [session.number for session in sessions]
        replies = [learner.SessionReply(session=s.number, welcome=inference.Welcome()) for s in sessions]
        self.reply(request, replies)
        for session in sessions:
            message = await session.next_message()
            assert message is not None and message.WhichOneof("kind") == "welcome"

    def answer(self, request: learner.BatchRequest) -> None:
        replies = [learner.SessionReply(session=item.session, actions=item.tick) for item in request.requests]
        self.reply(request, replies, returns_credit=True)

    def reply(
        self, request: learner.BatchRequest, replies: list[learner.SessionReply], returns_credit: bool = False
    ) -> None:
        message = learner.Replies(batch_id=request.batch_id, replies=replies, returns_credit=returns_credit)
        self.service.receive(learner.BatchReply(replies=message))


async def test_a_client_that_sends_without_reading_is_refused():
    """An answer that nobody takes counts as outstanding, so that nothing piles up for a client that never reads."""
    world = World()
    world.connect()
    session = world.open(1)
    await world.welcome(session)
    world.service.tick(session, b"0")
    world.answer(await world.request())
    with pytest.raises(BadRequest, match="one unanswered message"):
        world.service.tick(session, b"1")


async def test_signs_of_life_go_to_those_who_wait():
    """Only a client that is owed an answer for a while hears of it, and one that does not read hears of it once."""
    world = World()
    world.connect()
    waiting, computing = world.open(1), world.open(2)
    await world.welcome(waiting, computing)
    world.service.tick(waiting, b"0")
    world.service.tell_waiting()  # too early
    world.now += 12.0
    world.service.tell_waiting()
    world.service.tell_waiting()
    assert world.service.longest_wait_s() == 12.0
    message = await waiting.next_message()
    assert message is not None
    assert message.waiting == inference.Waiting(
        reason="the learner has not answered for 12.0 s (busy, paused or its queue is full)", waited_s=12.0
    )
    for session in (waiting, computing):
        session.end()
        assert await session.next_message() is None


async def test_a_session_that_leaves_before_its_open_was_sent_is_never_opened():
    """Comings and goings while the link is busy cancel each other, so what is to be sent stays bounded."""
    world = World()
    world.connect()
    for number in range(1, 100):
        world.service.close(world.open(number))
    assert await world.nothing_to_send()
    stays = world.open(1)
    await world.welcome(stays)


async def test_opens_are_split_over_requests_that_the_learner_takes():
    """Many large Hellos after a new link do not make one message that is too large for it."""
    world = World()
    sessions = []
    for number in range(1, 6):
        sessions.append(world.service.open(hello(number, 1, environment_id="a" * 3000)))
    world.connect(max_message_bytes=10_000)
    opened: list[int] = []
    while len(opened) < len(sessions):
        request = await world.request()
        assert request.ByteSize() <= 10_000
        opened += [item.session for item in request.requests]
    assert opened == [session.number for session in sessions]


async def test_a_session_too_large_for_a_new_learner_ends_and_others_go_on():
    """Limits may shrink with a new link; the error says so."""
    world = World()
    large, small = world.open(1, num_envs=65), world.open(2)
    world.connect(max_batch_rows=64)
    with pytest.raises(BadRequest, match="num_envs: expected at most 64"):
        await large.next_message()
    await world.welcome(small)


async def test_a_tick_waits_for_its_session_to_be_welcome_again():
    """Over a new link an unanswered tick follows the Welcome, which its client does not see a second time."""
    world = World()
    world.connect()
    session = world.open(1)
    await world.welcome(session)
    world.service.tick(session, b"7")
    await world.request()
    world.service.link_lost("killed")
    world.connect()
    request = await world.request()
    assert request.batch_id == 1 and request.requests[0].WhichOneof("kind") == "open"
    assert await world.nothing_to_send()
    world.reply(request, [learner.SessionReply(session=session.number, welcome=inference.Welcome())])
    request = await world.request()
    assert [item.tick for item in request.requests] == [b"7"]
    world.answer(request)
    message = await session.next_message()
    assert message is not None and message.actions == b"7"


async def test_a_forgotten_tick_ends_the_link():
    """A credit that comes back without all answers would stall a client: the link is given up instead."""
    world = World()
    world.connect()
    session = world.open(1)
    await world.welcome(session)
    world.service.tick(session, b"0")
    with pytest.raises(PeerLost, match="without its sessions"):
        world.reply(await world.request(), [], returns_credit=True)


async def test_the_metrics_tell_rows_fill_and_times():
    """Means are of the window, waits are weighted by ticks, rates are by time."""
    world = World(max_batch_rows=8)
    world.connect()
    first, second = world.open(1, num_envs=2), world.open(2, num_envs=4)
    await world.welcome(first, second)
    world.service.tick(first, b"0")
    world.now += 0.004
    world.service.tick(second, b"0")
    request = await world.request()
    world.now += 0.016
    world.answer(request)
    world.now += 0.980
    assert world.service.metrics.close_window() == {
        "batch_rows": 6,
        "batch_fill": 0.75,
        "queue_wait_ms": pytest.approx(2.0),
        "queue_wait_max_ms": pytest.approx(4.0),
        "learner_round_trip_ms": pytest.approx(16.0),
        "batches_per_s": pytest.approx(1.0),
        "rows_per_s": pytest.approx(6.0),
    }
