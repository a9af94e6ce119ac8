"""The broker's connection to the learner: connects, comes back after a loss, and carries messages both ways."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import grpc

from seedrl_broker.service import BrokerService
from seedrl_core import logs
from seedrl_core.access import AccessConfig, Role, metadata_of
from seedrl_core.address import Address
from seedrl_core.aio import raise_if_cancelled
from seedrl_core.errors import AccessDenied, Overloaded, PeerLost, SeedrlError, error_from_status
from seedrl_grpc.credentials import channel_credentials, channel_options, explained
from seedrl_grpc.server import KEEPALIVE
from seedrl_proto.v1 import learner_pb2 as learner
from seedrl_proto.v1 import learner_pb2_grpc as learner_grpc
from seedrl_proto.v1 import spec_pb2

_INFER = "/seedrl_proto.v1.Learner/Infer"
_WELCOME_TIMEOUT_S = 10.0
_STATUS_TIMEOUT_S = 2.0
_RETRY_S = (0.2, 1.0)
_RETRY_REFUSED_S = (5.0, 10.0)
_log = logs.get(__name__)

_CHANNEL_OPTIONS: tuple[tuple[str, Any], ...] = (
    ("grpc.enable_http_proxy", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    *KEEPALIVE,
    # The learner says by LinkWelcome how large requests may be, and the broker made them.
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
)


def open_channel(address: Address, access: AccessConfig) -> grpc.aio.Channel:
    """A channel to the learner, by TLS where `access` says so; ConfigError when a certificate or key is not usable."""
    credentials = channel_credentials(address, access)
    options = (*_CHANNEL_OPTIONS, *channel_options(access))
    if credentials is None:
        return grpc.aio.insecure_channel(str(address), options)
    return grpc.aio.secure_channel(str(address), credentials, options)


class LearnerLink:
    """Keeps one `Learner.Infer` stream open for a service.

    A read has no deadline of its own, since a learner that trains or is paused may be silent for long; the channel's
    keep-alive ends it when the learner is cut off.
    """

    def __init__(
        self,
        service: BrokerService,
        channel: grpc.aio.Channel,
        address: Address,
        access: AccessConfig,
        on_change: Callable[[], Awaitable[None]],
    ) -> None:
        """Of a broker.

        Args:
          service: what the link serves.
          channel: leads to the learner.
          address: of the learner.
          access: has the broker's token, if any.
          on_change: is called when the link came or went.

        Raises:
          ConfigError: there is no usable token, or it would go over a network unencrypted.
        """
        self._service = service
        self._stub: Any = learner_grpc.LearnerStub(channel)  # type: ignore[no-untyped-call]
        # Requests are serialized already.
        self._infer: Any = channel.stream_stream(_INFER, response_deserializer=learner.BatchReply.FromString)
        self._address = address
        self._access = access
        self._metadata = metadata_of(Role.BROKER, address, access)
        self._on_change = on_change

    async def run(self) -> None:
        """Connects again and again, at most a second apart, until it is cancelled; more slowly where it is refused."""
        while True:
            pause_s = _RETRY_S
            try:
                await self._serve()
            except (PeerLost, AccessDenied, Overloaded) as error:
                _log.warning("learner_not_there", learner=str(self._address), reason=str(error))
                self._service.link_lost(f"{self._address}: {error}")
                if not isinstance(error, PeerLost):
                    pause_s = _RETRY_REFUSED_S
            raise_if_cancelled()
            await self._on_change()
            await asyncio.sleep(random.uniform(*pause_s))

    async def spec(self) -> spec_pb2.EnvironmentSpec | None:
        """The environment spec that the learner knows; None while it knows none or does not answer."""
        if not self._service.learner_ready:
            return None
        try:
            status = await self._status()
        except grpc.aio.AioRpcError:
            return None
        return status.spec if status.HasField("spec") else None

    async def _status(self) -> learner.StatusReply:
        reply: learner.StatusReply = await self._stub.Status(
            learner.StatusRequest(), timeout=_STATUS_TIMEOUT_S, metadata=self._metadata
        )
        return reply

    async def _serve(self) -> None:
        """One stream, from LinkWelcome to its end, which is always a PeerLost, an AccessDenied or an Overloaded."""
        call = self._infer(wait_for_ready=True, metadata=self._metadata)
        try:
            welcome = await self._welcome(call)
            logs.bind(run=welcome.run_id)
            _log.info("learner_connected", learner=str(self._address), credits=welcome.credits)
            self._service.link_opened(welcome)
            await self._on_change()
            await self._talk(call)
        except grpc.aio.AioRpcError as error:
            raise _translated(error) from error
        finally:
            call.cancel()

    async def _talk(self, call: Any) -> None:
        """Both directions until one ends with an error.

        Not a TaskGroup, which forgets a cancellation that comes in the same instant as its task's error: a broker that
        is stopped together with its learner would go on.
        """
        directions = [asyncio.create_task(self._send(call)), asyncio.create_task(self._receive(call))]
        try:
            await asyncio.gather(*directions)
        finally:
            for direction in directions:
                direction.cancel()
            await asyncio.wait(directions)

    async def _welcome(self, call: Any) -> learner.LinkWelcome:
        try:
            async with asyncio.timeout(_WELCOME_TIMEOUT_S):
                reply = await call.read()
        except TimeoutError as error:
            raise PeerLost(f"no learner answers within {_WELCOME_TIMEOUT_S:.0f} s: {await self._silence()}") from error
        if reply is not grpc.aio.EOF and reply.WhichOneof("kind") == "drain":
            self._service.receive(reply)  # raises PeerLost
        if reply is grpc.aio.EOF or reply.WhichOneof("kind") != "link_welcome":
            raise PeerLost("expected LinkWelcome first")
        welcome: learner.LinkWelcome = reply.link_welcome
        if not (welcome.credits and welcome.max_batch_rows and welcome.max_message_bytes):
            raise PeerLost("expected credits, max_batch_rows and max_message_bytes in LinkWelcome, got a zero")
        return welcome

    async def _silence(self) -> str:
        """Why no stream has begun: what the channel says to a call that does not wait until it is connected."""
        try:
            await self._status()
        except grpc.aio.AioRpcError as error:
            return f"{error.code().name}: {explained(error.details() or '', self._address, self._access)}"
        return "it is there, but sends no LinkWelcome"

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


def _translated(error: grpc.aio.AioRpcError) -> SeedrlError:
    """A refusal of this broker as such; everything else is a lost learner."""
    details = error.details() or ""
    translated = error_from_status(error.code().value[0], details)
    if isinstance(translated, AccessDenied | Overloaded):
        return translated
    return PeerLost(f"{error.code().name}: {details}")
