"""A learner for tests of the broker: a real gRPC server that checks every message and answers as it is told to."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc

from seedrl_core.access import NO_CREDENTIALS, AccessConfig
from seedrl_core.address import Address
from seedrl_core.codec import check_hello
from seedrl_grpc.credentials import server_credentials
from seedrl_proto.v1 import inference_pb2 as inference
from seedrl_proto.v1 import learner_pb2 as learner
from seedrl_proto.v1 import learner_pb2_grpc as learner_grpc
from seedrl_proto.v1 import spec_pb2

RUN_ID = "fake-run"


@dataclass
class FakeLink:
    """One broker's stream: the sessions it opened and the credits it has left."""

    context: Any
    credits: int
    batch_id: int = 0
    sessions: dict[int, inference.Hello] = field(default_factory=dict)
    outbox: asyncio.Queue[learner.BatchReply | None] = field(default_factory=asyncio.Queue)


class FakeLearner(learner_grpc.LearnerServicer):
    """Answers each tick with its own sequence number as the action, at once or, while `holding`, on `release`.

    Attributes:
      violations: what a broker did against the contract; a test ends with none.
      batches: for each request with ticks, the (session_id, sequence) in it.
      opened, closed: session_id of every open and close, in order.
      refuse_open, refuse_tick: the error that answers the next ones, if any.
    """

    def __init__(
        self, num_credits: int = 2, max_batch_rows: int = 64, spec: spec_pb2.EnvironmentSpec | None = None
    ) -> None:
        self.welcome = learner.LinkWelcome(
            credits=num_credits, run_id=RUN_ID, max_batch_rows=max_batch_rows, max_message_bytes=1 << 20
        )
        self.greeting: learner.BatchReply | None = None  # in place of LinkWelcome
        self.spec = spec
        self.holding = False
        self.refuse_open: learner.SessionError | None = None
        self.refuse_tick: learner.SessionError | None = None
        self.violations: list[str] = []
        self.batches: list[list[tuple[bytes, int]]] = []
        self.opened: list[bytes] = []
        self.closed: list[bytes] = []
        self.links: list[FakeLink] = []
        self._held: deque[tuple[FakeLink, learner.BatchRequest]] = deque()
        self._changed = asyncio.Condition()

    async def until(self, condition: Any) -> None:
        """Waits until `condition()` holds; it is looked at after every message."""
        async with asyncio.timeout(10), self._changed:
            await self._changed.wait_for(condition)

    def release(self) -> None:
        """Answers everything that was held, and holds no more."""
        self.holding = False
        while self._held:
            self._answer(*self._held.popleft())

    def send(self, reply: learner.BatchReply | None) -> None:
        """Writes a message of the test's to every link; None ends the link."""
        for link in self.links:
            link.outbox.put_nowait(reply)

    async def Status(self, request: learner.StatusRequest, context: Any) -> learner.StatusReply:
        return learner.StatusReply(run_id=RUN_ID, spec=self.spec)

    async def Infer(self, _: Any, context: Any) -> None:
        link = FakeLink(context, self.welcome.credits)
        self.links.append(link)
        try:
            await context.write(self.greeting or learner.BatchReply(link_welcome=self.welcome))
            async with asyncio.TaskGroup() as group:
                reading = group.create_task(self._read(link))
                while (reply := await link.outbox.get()) is not None:
                    await context.write(reply)
                reading.cancel()
        finally:
            self.links.remove(link)
            self._held = deque(item for item in self._held if item[0] is not link)

    async def _read(self, link: FakeLink) -> None:
        while (request := await link.context.read()) is not grpc.aio.EOF:
            self._take(link, request)
            async with self._changed:
                self._changed.notify_all()
        link.outbox.put_nowait(None)

    def _take(self, link: FakeLink, request: learner.BatchRequest) -> None:
        self._expect(request.batch_id == link.batch_id + 1, f"batch_id {request.batch_id} after {link.batch_id}")
        link.batch_id = request.batch_id
        kinds = {item.WhichOneof("kind") for item in request.requests}
        self._expect(bool(kinds) and (kinds == {"tick"} or "tick" not in kinds), f"a request of {kinds}")
        if "tick" in kinds:
            self._take_ticks(link, request)
        else:
            self._open_and_close(link, request)

    def _open_and_close(self, link: FakeLink, request: learner.BatchRequest) -> None:
        replies = []
        for item in request.requests:
            if item.WhichOneof("kind") == "close":
                self._expect(item.session in link.sessions or bool(self.refuse_tick), f"close of {item.session}")
                if (hello := link.sessions.pop(item.session, None)) is not None:
                    self.closed.append(hello.session_id)
                continue
            check_hello(item.open)
            ids = [hello.session_id for hello in link.sessions.values()]
            self._expect(item.session not in link.sessions, f"number {item.session} opened twice")
            self._expect(item.open.session_id not in ids, "a session_id opened twice")
            self.opened.append(item.open.session_id)
            if self.refuse_open is not None:
                replies.append(learner.SessionReply(session=item.session, error=self.refuse_open))
                continue
            link.sessions[item.session] = item.open
            welcome = inference.Welcome(run_id=RUN_ID, policy_version=1)
            replies.append(learner.SessionReply(session=item.session, welcome=welcome))
        reply = learner.Replies(batch_id=request.batch_id, replies=replies)
        link.outbox.put_nowait(learner.BatchReply(replies=reply))

    def _take_ticks(self, link: FakeLink, request: learner.BatchRequest) -> None:
        numbers = [item.session for item in request.requests]
        known = [number for number in numbers if number in link.sessions]
        rows = sum(link.sessions[number].num_envs for number in known)
        self._expect(len(set(numbers)) == len(numbers), "two ticks of a session in a request")
        self._expect(known == numbers, "a tick of a session that is not open")
        self._expect(rows <= self.welcome.max_batch_rows, f"{rows} rows in a request")
        self._expect(link.credits > 0, "a request with ticks without a credit")
        link.credits -= 1
        self.batches.append(
            [
                (link.sessions[item.session].session_id, inference.Tick.FromString(item.tick).sequence)
                for item in request.requests
            ]
        )
        if self.holding:
            self._held.append((link, request))
        else:
            self._answer(link, request)

    def _answer(self, link: FakeLink, request: learner.BatchRequest) -> None:
        replies = [self._reply(link, item) for item in request.requests]
        link.credits += 1
        reply = learner.Replies(batch_id=request.batch_id, replies=replies, returns_credit=True)
        link.outbox.put_nowait(learner.BatchReply(replies=reply))

    def _reply(self, link: FakeLink, item: learner.SessionRequest) -> learner.SessionReply:
        if self.refuse_tick is not None:
            link.sessions.pop(item.session, None)
            return learner.SessionReply(session=item.session, error=self.refuse_tick)
        sequence = inference.Tick.FromString(item.tick).sequence
        actions = inference.Actions(sequence=sequence, action=[str(sequence).encode()], policy_version=1)
        return learner.SessionReply(session=item.session, actions=actions.SerializeToString())

    def _expect(self, holds: bool, violation: str) -> None:
        if not holds:
            self.violations.append(violation)


@asynccontextmanager
async def learner_at(
    address: str, fake: FakeLearner, access: AccessConfig = NO_CREDENTIALS
) -> AsyncIterator[FakeLearner]:
    """Serves `fake` at `address`, by TLS where `access` has a certificate; at the end its links are cut off."""
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    learner_grpc.add_LearnerServicer_to_server(fake, server)  # type: ignore[no-untyped-call]
    credentials = server_credentials(Address.parse(address), access)
    if credentials is None:
        server.add_insecure_port(address)
    else:
        server.add_secure_port(address, credentials)
    await server.start()
    try:
        yield fake
    finally:
        await server.stop(None)
    assert not fake.violations, fake.violations
