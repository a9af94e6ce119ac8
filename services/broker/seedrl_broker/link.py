"""The broker's connection to the learner: connects, comes back after a loss, and carries messages both ways."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import grpc

from seedrl_broker.service import BrokerService
from seedrl_core import logs
from seedrl_core.aio import first_leaf, raise_if_cancelled
from seedrl_core.errors import PeerLost
from seedrl_grpc.server import KEEPALIVE
from seedrl_proto.v1 import learner_pb2 as learner
from seedrl_proto.v1 import learner_pb2_grpc as learner_grpc
from seedrl_proto.v1 import spec_pb2

_INFER = "/seedrl_proto.v1.Learner/Infer"
_WELCOME_TIMEOUT_S = 10.0
_STATUS_TIMEOUT_S = 2.0
_RETRY_S = (0.2, 1.0)
_log = logs.get(__name__)

CHANNEL_OPTIONS: tuple[tuple[str, Any], ...] = (
    ("grpc.enable_http_proxy", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    *KEEPALIVE,
    # The learner says by LinkWelcome how large requests may be, and the broker made them.
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
)


class LearnerLink:
    """Keeps one `Learner.Infer` stream open for a service.

    A read has no deadline of its own, since a learner that trains or is paused may be silent for long; the channel's
    keep-alive ends it when the learner is cut off.
    """

    def __init__(
        self,
        service: BrokerService,
        channel: grpc.aio.Channel,
        address: str,
        on_change: Callable[[], Awaitable[None]],
    ) -> None:
        """`channel` leads to `address`, which is for messages; `on_change` is called when the link came or went."""
        self._service = service
        self._stub: Any = learner_grpc.LearnerStub(channel)  # type: ignore[no-untyped-call]
        # Requests are serialized already.
        self._infer: Any = channel.stream_stream(_INFER, response_deserializer=learner.BatchReply.FromString)
        self._address = address
        self._on_change = on_change

    async def run(self) -> None:
        """Connects again and again, at most a second apart, until it is cancelled."""
        while True:
            try:
                await self._serve()
            except PeerLost as error:
                _log.warning("learner_not_there", learner=self._address, reason=str(error))
                self._service.link_lost(f"{self._address}: {error}")
            raise_if_cancelled()
            await self._on_change()
            await asyncio.sleep(random.uniform(*_RETRY_S))

    async def spec(self) -> spec_pb2.EnvironmentSpec | None:
        """The environment spec that the learner knows; None while it knows none or does not answer."""
        if not self._service.learner_ready:
            return None
        try:
            status = await self._stub.Status(learner.StatusRequest(), timeout=_STATUS_TIMEOUT_S)
        except grpc.aio.AioRpcError:
            return None
        return status.spec if status.HasField("spec") else None

    async def _serve(self) -> None:
        """One stream, from LinkWelcome to its end, which is always a PeerLost."""
        call = self._infer(wait_for_ready=True)
        end: BaseException | None = None
        try:
            welcome = await self._welcome(call)
            logs.bind(run=welcome.run_id)
            _log.info("learner_connected", learner=self._address, credits=welcome.credits)
            self._service.link_opened(welcome)
            await self._on_change()
            async with asyncio.TaskGroup() as group:
                group.create_task(self._send(call))
                group.create_task(self._receive(call))
        except* (PeerLost, grpc.aio.AioRpcError) as group_error:
            end = first_leaf(group_error)
        finally:
            call.cancel()
        if isinstance(end, grpc.aio.AioRpcError):
            raise PeerLost(f"{end.code().name}: {end.details()}") from end
        if end is not None:
            raise end

    async def _welcome(self, call: Any) -> learner.LinkWelcome:
        try:
            async with asyncio.timeout(_WELCOME_TIMEOUT_S):
                reply = await call.read()
        except TimeoutError as error:
            raise PeerLost(f"no learner answers within {_WELCOME_TIMEOUT_S:.0f} s") from error
        if reply is not grpc.aio.EOF and reply.WhichOneof("kind") == "drain":
            self._service.receive(reply)  # raises PeerLost
        if reply is grpc.aio.EOF or reply.WhichOneof("kind") != "link_welcome":
            raise PeerLost("expected LinkWelcome first")
        welcome: learner.LinkWelcome = reply.link_welcome
        if not (welcome.credits and welcome.max_batch_rows and welcome.max_message_bytes):
            raise PeerLost("expected credits, max_batch_rows and max_message_bytes in LinkWelcome, got a zero")
        return welcome

    async def _send(self, call: Any) -> None:
        """Writes what the service has; waits while the transport's window is full."""
        while True:
            request = await self._service.next_request()
            try:
                await call.write(request)
            except asyncio.InvalidStateError:
                return  # the stream has ended; the receiving side says why

    async def _receive(self, call: Any) -> None:
        while (reply := await call.read()) is not grpc.aio.EOF:
            self._service.receive(reply)
        raise PeerLost("the learner ended the stream")
