"""The check's own broker: a grpclib server, and each stream that the client opens on it.

The only module of the check that knows grpclib. It judges what any message of a stream may be (S1 to S4), and no more.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from google.protobuf.message import DecodeError
from grpclib.const import Status
from grpclib.exceptions import GRPCError, ProtocolError, StreamTerminatedError
from grpclib.server import Server, Stream

from seedrl_core import codec
from seedrl_core.address import Address
from seedrl_core.errors import AddressInUse
from seedrl_launcher.conformance.rules import Findings
from seedrl_proto.v1 import inference_pb2 as inference
from seedrl_proto.v1.inference_grpc import InferenceBase

MAX_MESSAGE_BYTES = 64 << 20
_Stream = Stream[inference.ClientMessage, inference.ServerMessage]
# A client that sends without reading fills this and then its flow-control window.
_INBOX_MESSAGES = 8
# What grpclib raises for a message that is cut off, compressed, or none of the method.
_NO_MESSAGE = (AssertionError, NotImplementedError, DecodeError)
# What it, or uvloop under it, raises on a connection that is gone.
_GONE = (OSError, StreamTerminatedError, ProtocolError, AttributeError, RuntimeError)


class ClientStream:
    """One stream of the client, from its Hello to its end.

    Attributes:
      opened_at: when its Hello came, seconds of the monotonic clock; 0 before.
      parted: the client has said Goodbye.
      ended_here: it was this side that ended it.
      closed: set when nothing more can be sent or received.
    """

    def __init__(self, stream: _Stream, findings: Findings) -> None:
        """Nothing is read before `serve`."""
        self.opened_at = 0.0
        self.parted = False
        self.ended_here = False
        self.closed = asyncio.Event()
        self._stream = stream
        self._findings = findings
        self._inbox: asyncio.Queue[inference.ClientMessage | None] = asyncio.Queue(_INBOX_MESSAGES)
        self._owes_answer = False
        self._end: asyncio.Future[tuple[Status, str]] = asyncio.get_running_loop().create_future()

    @property
    def quiet(self) -> bool:
        """Nothing has come that is not received."""
        return self._inbox.empty()

    async def receive(self) -> inference.ClientMessage | None:
        """The next tick or Goodbye; None when the client sends no more. Waits without a deadline."""
        if self.closed.is_set() and self._inbox.empty():
            return None
        return await self._inbox.get()

    async def send(self, message: inference.ServerMessage) -> None:
        """Sends; to a client that is gone, nothing."""
        if message.WhichOneof("kind") in ("welcome", "actions"):
            self._owes_answer = False
        if self.closed.is_set():
            return
        with suppress(*_GONE):
            await self._stream.send_message(message)

    def end(self, status: int = 0, message: str = "") -> float:
        """Ends the stream with a gRPC status; returns when, in seconds of the monotonic clock."""
        self.ended_here = self.ended_here or not self.closed.is_set()
        if not self._end.done():
            self._end.set_result((Status(status), message))
        return time.monotonic()

    def cut(self) -> float:
        """Cuts the connection under it; returns when."""
        self.ended_here = True
        transport: Any = self._stream._stream._transport
        transport.abort()
        return time.monotonic()

    async def serve(self, on_hello: OnHello) -> None:
        """Reads until the client or this side ends the stream; hands itself to `on_hello` with the first message.

        Raises:
          GRPCError: the status to end it with.
        """
        reading = asyncio.create_task(self._read_all(on_hello))
        try:
            await asyncio.wait((reading, self._end), return_when=asyncio.FIRST_COMPLETED)
            if reading.done():
                reading.result()
                await self._end
        finally:
            reading.cancel()
            self.closed.set()
            with suppress(asyncio.QueueFull):  # else whoever receives need not be woken
                self._inbox.put_nowait(None)
        status, message = self._end.result()
        if status is not Status.OK:
            raise GRPCError(status, message)

    async def _read_all(self, on_hello: OnHello) -> None:
        """Waits while the inbox is full."""
        while (message := await self._read()) is not None:
            kind = message.WhichOneof("kind")
            if not self._may_come(kind):
                self.end(Status.INVALID_ARGUMENT.value, f"a message out of place: {kind}")
                return
            self._owes_answer = kind in ("hello", "tick")
            if kind == "hello":
                self.opened_at = time.monotonic()
                on_hello(self, message.hello)
            else:
                await self._inbox.put(message)
        if self.parted:
            self._findings.keep("S3")
        if not self.opened_at:
            self.end()
        await self._inbox.put(None)

    async def _read(self) -> inference.ClientMessage | None:
        try:
            message = await self._stream.recv_message()
        except _NO_MESSAGE as error:
            self._findings.breach("S4", "an uncompressed ClientMessage", str(error) or "a message that is cut off")
            self.end(Status.INVALID_ARGUMENT.value, "expected a ClientMessage")
            return None
        if message is not None:
            size = message.ByteSize()
            self._findings.judge("S4", size <= MAX_MESSAGE_BYTES, f"at most {MAX_MESSAGE_BYTES} bytes", f"{size} bytes")
        return message

    def _may_come(self, kind: str | None) -> bool:
        """Judges whether a kind of message is in its place; False where a broker cannot go on with it."""
        if kind is None:
            self._findings.breach("S4", "hello, tick or goodbye", "an empty message")
            return False
        if self.parted:
            self._findings.breach("S3", "nothing after goodbye", kind)
            return False
        begins = not self.opened_at
        if not self._findings.judge("S1", (kind == "hello") == begins, "hello first, and only then", kind):
            return False
        if kind == "goodbye":
            self.parted = True
        elif not begins:
            self._findings.judge("S2", not self._owes_answer, "nothing before the answer", f"a {kind} before it")
        return True


OnHello = Callable[[ClientStream, inference.Hello], None]


class _Inference(InferenceBase):
    """`Inference` of the proto."""

    def __init__(self, findings: Findings, on_hello: OnHello) -> None:
        """`on_hello` gets each stream."""
        self._findings = findings
        self._on_hello = on_hello

    async def Session(self, stream: _Stream) -> None:
        """Serves a stream until its end."""
        await ClientStream(stream, self._findings).serve(self._on_hello)

    async def Describe(self, stream: Stream[inference.DescribeRequest, inference.DescribeReply]) -> None:
        """The limits of a broker."""
        await stream.recv_message()
        await stream.send_message(
            inference.DescribeReply(
                protocol_version=codec.PROTOCOL_VERSION, learner_ready=True, max_message_bytes=MAX_MESSAGE_BYTES
            )
        )


@asynccontextmanager
async def serving(address: Address, findings: Findings, on_hello: OnHello) -> AsyncIterator[None]:
    """Serves `Inference` inside.

    Raises:
      AddressInUse: somebody else listens there, or it is none of this machine's.
    """
    address.ensure_free()
    server = Server([_Inference(findings, on_hello)])
    try:
        await server.start(**({"path": address.path} if address.path else {"host": address.host, "port": address.port}))
    except OSError as error:
        raise AddressInUse(f"cannot listen on {address}: {error.strerror or error}") from error
    try:
        yield
    finally:
        server.close()
        await server.wait_closed()
