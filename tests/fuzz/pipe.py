"""A broker and a learner in one event loop, with queues in place of gRPC, for messages as bytes.

Everything is the real thing, servicers and the broker's link to the learner too, but for the transport and for the
policy, which always takes the lowest action so that a million messages take minutes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import numpy as np
from fuzz.mutations import MAX_MESSAGE_BYTES

from seedrl_broker.link import LearnerLink
from seedrl_broker.service import BrokerService
from seedrl_broker.servicer import InferenceServicer, _parse
from seedrl_core.access import NO_CREDENTIALS
from seedrl_core.address import Address
from seedrl_core.config import load_settings
from seedrl_core.spec import Array, EnvironmentSpec
from seedrl_learner.batch_request import BatchRequest
from seedrl_learner.reporter import Reporter
from seedrl_learner.run import Machinery, Run
from seedrl_learner.service import LearnerService
from seedrl_learner.servicer import LearnerServicer
from seedrl_learner.slots import Slots
from seedrl_proto.v1 import learner_pb2 as learner

MAX_SESSIONS = 32
DEADLINE_S = 60.0


class Aborted(Exception):
    """What ends a coroutine that has aborted its call."""


class Stream:
    """One bidirectional call: what the client sends as bytes, and what the server writes or ends it with.

    Attributes:
      status: the code and the details that the server ended the call with; None while it goes on.
    """

    def __init__(self, parse: Callable[[bytes], Any]) -> None:
        """`parse` is the server's deserializer."""
        self.status: tuple[grpc.StatusCode, str] | None = None
        self._parse = parse
        self._requests: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._replies: asyncio.Queue[Any] = asyncio.Queue()

    # The client's side.

    def send(self, message: bytes) -> None:
        """One message."""
        self._requests.put_nowait(message)

    def finish(self) -> None:
        """No more messages."""
        self._requests.put_nowait(None)

    async def receive(self) -> Any:
        """The next reply; None when the call has ended, see `status`."""
        async with asyncio.timeout(DEADLINE_S):
            return await self._replies.get()

    def replies(self) -> list[Any]:
        """Those that are there already."""
        return [self._replies.get_nowait() for _ in range(self._replies.qsize())]

    # The server's side, as grpc.aio has it.

    async def serve(self, method: Callable[[Any, Any], Any]) -> None:
        """Runs the server's method for this call."""
        try:
            await method(None, self)
            self.status = self.status or (grpc.StatusCode.OK, "")
        except Aborted:
            pass
        finally:
            self._replies.put_nowait(None)

    async def read(self) -> Any:
        request = await self._requests.get()
        return grpc.aio.EOF if request is None else self._parse(request)

    async def write(self, message: Any) -> None:
        self._replies.put_nowait(message)

    async def abort(self, code: grpc.StatusCode, details: str) -> None:
        self.status = (code, details)
        raise Aborted

    def done(self) -> bool:
        return self.status is not None

    def peer(self) -> str:
        return "fuzz"


class _LinkCall:
    """The broker's end of its call to the learner, as grpc.aio has it."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    async def read(self) -> Any:
        reply = await self._stream._replies.get()
        return grpc.aio.EOF if reply is None else reply

    async def write(self, request: bytes) -> None:
        self._stream.send(request)

    def cancel(self) -> None:
        self._stream.finish()


class QuickRun(Run):
    """A run that always takes the lowest action, and forgets what could be trained on."""

    def build(self, spec: EnvironmentSpec) -> Machinery:
        if self.machinery is not None:
            return super().build(spec)
        machinery = super().build(spec)
        layout = machinery.store.layout

        def act(slots: Slots) -> tuple[Array, list[Array], list[Array], list[Array]]:
            while (rows := machinery.queue.take(1, 0.0)) is not None:
                machinery.store.release(rows)
            action = [np.full((len(slots), *leaf.shape), (leaf.low or (0,))[0], leaf.dtype) for leaf in layout.action]
            behaviour = [np.zeros((len(slots), *leaf.shape), leaf.dtype) for leaf in layout.behaviour]
            return machinery.store.newest(slots).first, action, behaviour, []

        machinery.inference._act = act  # type: ignore[method-assign]
        return machinery


class Pipe:
    """See the module.

    Attributes:
      service, broker: the learner's and the broker's logic, to look at.
    """

    def __init__(self, directory: Path, group: asyncio.TaskGroup) -> None:
        """Use `open_pipe`."""
        settings = load_settings(
            None,
            {
                "learner.run_dir": str(directory / "run"),
                "learner.network.mlp_sizes": [2],
                "learner.unroll_length": 4,
                "learner.batch_unrolls": 2,
                "learner.queue_unrolls": 64,
                "learner.max_envs": 256,
                "learner.max_message_bytes": MAX_MESSAGE_BYTES,
                "broker.max_sessions": MAX_SESSIONS,
                "broker.max_delay_ms": 0.0,
                "broker.drain_grace_s": 0.1,
            },
        )
        self._group = group
        self._calls: set[asyncio.Task[None]] = set()
        self.service = LearnerService(QuickRun(settings.learner))
        self._learner = LearnerServicer(self.service, Reporter(self.service.run), lambda: None)
        self.broker = BrokerService(settings.broker)
        nowhere = Address.parse("unix:learner")
        link = LearnerLink(self.broker, self, nowhere, NO_CREDENTIALS, self._on_change)  # type: ignore[arg-type]
        self._servicer = InferenceServicer(settings.broker, self.broker, link)
        self._link_task = group.create_task(link.run())

    def stream_stream(self, *_: Any, **__: Any) -> Any:
        """The broker's call of `Learner.Infer`."""

        def call(**_: Any) -> _LinkCall:
            return _LinkCall(self.link())

        return call

    def unary_unary(self, *_: Any, **__: Any) -> Any:
        """Nothing of that kind is called here."""

    def connect(self) -> Stream:
        """A client's call of `Inference.Session`."""
        stream = Stream(_parse)
        self._serve(stream, self._servicer.session)
        return stream

    def link(self) -> Stream:
        """A broker's call of `Learner.Infer`."""
        stream = Stream(BatchRequest.parse)
        self._serve(stream, self._learner.Infer)
        return stream

    @property
    def failure(self) -> BaseException | None:
        """A bug that broker or learner has met with: a real process would have ended with it."""
        for streams in (self._servicer.streams, self._learner.streams):
            if streams.failure.done():
                return streams.failure.exception()
        return None

    def close(self) -> None:
        """Ends everything."""
        for task in (self._link_task, *self._calls):
            task.cancel()
        self.service.stop_waiting()
        self.service.close()

    def _serve(self, stream: Stream, method: Callable[[Any, Any], Any]) -> None:
        task = self._group.create_task(stream.serve(method))
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)

    async def _on_change(self) -> None:
        """The link came or went."""


@asynccontextmanager
async def open_pipe(directory: Path) -> AsyncIterator[Pipe]:
    """A pipe whose link is open."""
    async with asyncio.TaskGroup() as group:
        pipe = Pipe(directory, group)
        try:
            while not pipe.broker.learner_ready:
                await asyncio.sleep(0)
            yield pipe
        finally:
            pipe.close()


def batch_of(*requests: learner.SessionRequest, batch_id: int = 1) -> bytes:
    """A broker's message."""
    return learner.BatchRequest(batch_id=batch_id, requests=requests).SerializeToString()
