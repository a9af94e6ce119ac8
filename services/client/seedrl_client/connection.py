"""One `Inference.Session` stream on a channel of its own. Here grpclib's errors are translated.

It neither reconnects nor knows what a message means.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from typing import Any, TypeVar

import grpclib.exceptions
import grpclib.stream
from grpclib.client import Channel, Stream
from grpclib.const import Status
from grpclib.encoding.base import CodecBase
from grpclib.utils import Wrapper

from seedrl_client.channel import CONNECTION_ERRORS, drop, open_channel, refusal
from seedrl_core.access import AccessConfig, Role
from seedrl_core.address import Address
from seedrl_core.errors import BadRequest, PeerLost, SeedrlError, error_from_status
from seedrl_proto.v1.inference_grpc import InferenceStub
from seedrl_proto.v1.inference_pb2 import ServerMessage

T = TypeVar("T")


class _Interruption(Wrapper):
    """Interrupts a waiting call when its stream ends, once.

    Grpclib's does so for every event that ends it, a reset and a GOAWAY say, by a cancellation each; when they come
    together the second one would pass for a cancellation from elsewhere.
    """

    def cancel(self, error: Exception) -> None:
        """See grpclib."""
        if self._error is None:
            super().cancel(error)


class _Codec(CodecBase):
    """Messages are serialized already when they are sent."""

    __content_subtype__ = "proto"

    def encode(self, message: bytes, message_type: Any) -> bytes:
        return message

    def decode(self, data: bytes, message_type: Any) -> Any:
        return message_type.FromString(data)


class Connection:
    """An open stream. Every call has a deadline, because grpclib's may wait for ever on a connection that drops."""

    def __init__(
        self, address: Address, access: AccessConfig, channel: Channel, stream: Stream[Any, ServerMessage]
    ) -> None:
        """Use `open`."""
        self._address = address
        self._access = access
        self._channel = channel
        self._stream = stream

    @classmethod
    async def open(cls, address: Address, access: AccessConfig, timeout_s: float) -> Connection:
        """Connects and opens the stream. A cancellation closes what was opened.

        Raises:
          ConfigError: a certificate or a token of `access` is not usable.
          AccessDenied: the server's certificate is not to be trusted, or it has none.
          PeerLost: nobody answers within `timeout_s`.
        """
        channel = open_channel(address, access, Role.ACTOR, _Codec())
        stream: Stream[Any, ServerMessage] = InferenceStub(channel).Session.open()
        connection = cls(address, access, channel, stream)
        try:
            await stream.__aenter__()
            stream._wrapper = _Interruption()
            await connection._call(stream.send_request(), timeout_s, "connecting")
        except BaseException:
            drop(channel)
            raise
        return connection

    async def send(self, message: bytes, timeout_s: float) -> None:
        """Sends one serialized ClientMessage. Waits, up to the deadline, while the peer's flow control has no room.

        When the connection is lost it says nothing: `receive` then returns what came before and tells why it ended.
        """
        with suppress(PeerLost):
            await self._call(self._stream.send_message(message), timeout_s, "sending")

    async def receive(self, timeout_s: float) -> ServerMessage:
        """The next message.

        Raises:
          PeerLost: the connection ended, or nothing came within `timeout_s`.
          SeedrlError: the one whose status the server ended the stream with.
        """
        try:
            message = await self._call(self._stream.recv_message(), timeout_s, "receiving")
        except PeerLost as lost:
            buffered = await self._buffered_message()
            if buffered is None:
                raise await self._reason_of_end(lost) from lost
            message = buffered
        if message is None:
            raise await self._reason_of_end(PeerLost(f"{self._address} ended the stream without a reason"))
        return message

    async def part(self, message: bytes, timeout_s: float) -> None:
        """Sends the last message and waits until the server has ended the stream; PeerLost when it does not."""
        await self._call(self._stream.send_message(message, end=True), timeout_s, "sending")
        async with asyncio.timeout(timeout_s):
            while await self._call(self._stream.recv_message(), timeout_s, "parting") is not None:
                pass

    def close(self) -> None:
        """Drops the connection at once."""
        drop(self._channel)

    async def _call(self, call: Awaitable[T], timeout_s: float, doing: str) -> T:
        """Awaits one call of grpclib and translates what it raises."""
        task = asyncio.current_task()
        assert task is not None
        cancels_before = task.cancelling()
        try:
            async with asyncio.timeout(timeout_s):
                return await call
        except TimeoutError as error:
            raise PeerLost(f"{self._address} was silent for {timeout_s:g} s while {doing}") from error
        except grpclib.exceptions.GRPCError as error:
            raise self._translate(error) from error
        except CONNECTION_ERRORS as error:
            _settle_cancellation(task, cancels_before)
            gone = PeerLost(f"{self._address} is gone: {error or type(error).__name__}")
            raise refusal(error, self._address, self._access, self._channel) or gone from error

    async def _buffered_message(self) -> ServerMessage | None:
        """A whole message that came before the end of the stream, which grpclib would throw away with it."""
        stream = self._stream._stream
        while not (stream.buffer._unacked.empty() and stream.buffer._acked_size == 0):
            try:
                async with asyncio.timeout(0):
                    return await grpclib.stream.recv_message(stream, self._stream._codec, ServerMessage)
            except AttributeError:
                continue  # the part was read, only its receipt could not be sent: the transport is gone
            except (TimeoutError, AssertionError):
                return None
        return None

    async def _reason_of_end(self, fallback: SeedrlError) -> SeedrlError:
        """The error in the status that the server ended the stream with; `fallback` when it gave none."""
        ended = grpclib.exceptions.StreamTerminatedError(str(fallback))
        try:
            await self._stream.__aexit__(type(ended), ended, None)
        except grpclib.exceptions.GRPCError as error:
            return self._translate(error)
        except CONNECTION_ERRORS:
            return fallback
        return fallback

    def _translate(self, error: grpclib.exceptions.GRPCError) -> SeedrlError:
        if error.status is Status.UNIMPLEMENTED:
            return BadRequest(f"{self._address} is not a broker")
        return error_from_status(error.status.value, error.message or error.status.name)


def _settle_cancellation(task: asyncio.Task[object], cancels_before: int) -> None:
    """Takes back the cancellation that grpclib interrupts a waiting call with; passes on one from elsewhere."""
    cancels = task.cancelling() - cancels_before
    if cancels > 0:
        task.uncancel()
    if cancels > 1:
        raise asyncio.CancelledError
