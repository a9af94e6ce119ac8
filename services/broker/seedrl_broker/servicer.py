"""The broker's gRPC edge towards clients: streams in, calls of `BrokerService` out. Errors become statuses only here.

Ticks and actions stay bytes.
"""

from __future__ import annotations

import asyncio
from typing import Any

import grpc

from seedrl_broker.link import LearnerLink
from seedrl_broker.service import BrokerService
from seedrl_broker.session import Session
from seedrl_core import wire
from seedrl_core.access import Role
from seedrl_core.aio import first_leaf
from seedrl_core.codec import MAX_HELLO_BYTES, PROTOCOL_VERSION
from seedrl_core.config import BrokerConfig
from seedrl_core.errors import BadRequest, ExpectedError, PeerLost, SeedrlError
from seedrl_grpc.streams import Context, HostLimit, OpenStreams, abort, host_of, read, write
from seedrl_proto.v1 import inference_pb2 as inference
from seedrl_proto.v1.learner_pb2 import OpaqueServerMessage

SERVICE_NAME = "seedrl_proto.v1.Inference"
CALLERS = {"Session": (Role.ACTOR,), "Describe": (Role.ACTOR, Role.OPERATOR)}
_HELLO_TIMEOUT_S = 15.0
_MOST_FIELDS = 64  # of a message: one, and what later versions may add


class InferenceServicer:
    """`Inference` of the proto."""

    def __init__(self, config: BrokerConfig, service: BrokerService, link: LearnerLink) -> None:
        """The edge of `service`; `link` is asked for the spec."""
        self._config = config
        self._service = service
        self._link = link
        self.streams = OpenStreams()
        # A host that reconnects all its sessions may have its old streams open for a while.
        self._hosts = HostLimit(2 * config.max_sessions_per_host)

    def handler(self) -> grpc.GenericRpcHandler:
        """What to register at the server."""
        methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            "Session": grpc.stream_stream_rpc_method_handler(
                self.session,
                request_deserializer=_parse,
                response_serializer=OpaqueServerMessage.SerializeToString,
            ),
            "Describe": grpc.unary_unary_rpc_method_handler(
                self.describe,
                request_deserializer=inference.DescribeRequest.FromString,
                response_serializer=inference.DescribeReply.SerializeToString,
            ),
        }
        return grpc.method_handlers_generic_handler(SERVICE_NAME, methods)

    async def describe(self, _: inference.DescribeRequest, context: Context) -> inference.DescribeReply:
        """What a client may expect here, and the numbers behind the batching."""
        service = self._service
        return inference.DescribeReply(
            protocol_version=PROTOCOL_VERSION,
            spec=await self._link.spec(),
            learner_ready=service.learner_ready,
            sessions=service.num_sessions,
            num_envs=service.num_envs,
            max_message_bytes=self._config.max_message_bytes,
            metrics=service.metrics.values,
        )

    async def session(self, _: Any, context: Context) -> None:
        """One client's stream. Cancellation, which is how gRPC tells that the client is gone, closes the session."""
        error: SeedrlError | None = None
        with self.streams.one():
            host = host_of(context)
            try:
                with self._hosts.one(host):
                    await self._serve(context, host)
            except* SeedrlError as group:
                leaf = first_leaf(group)
                assert isinstance(leaf, SeedrlError)
                error = leaf
        if error is not None:
            await abort(context, error)

    async def _serve(self, context: Context, host: str) -> None:
        """Reads and writes until the session ends; one task for each, so that nothing is started a message.

        A client that was asked to leave gets time to do so: a stream that the server ends first is reset, and a client
        library may then drop the Drain unread.
        """
        session = self._service.open(await _read_hello(context), host)
        try:
            async with asyncio.TaskGroup() as group:
                reader = group.create_task(self._read(session, context))
                while (message := await session.next_message()) is not None:
                    await write(context, message)
                if session.drained:
                    await asyncio.wait((reader,), timeout=self._config.drain_grace_s)
                reader.cancel()
        finally:
            self._service.close(session)

    async def _read(self, session: Session, context: Context) -> None:
        """Takes in ticks until the client parts; a message that is not allowed ends the session.

        Without a deadline, as environments may compute for long; keep-alive cancels the stream of a lost client.
        """
        try:
            while (message := await read(context)) is not None:
                match _kind(message):
                    case "tick":
                        self._service.tick(session, message)
                    case "goodbye":
                        break
                    case kind:
                        raise BadRequest(f"expected tick or goodbye, got {kind}")
            self._service.close(session)
        except ExpectedError as error:
            self._service.close(session, error)


async def _read_hello(context: Context) -> inference.Hello:
    try:
        async with asyncio.timeout(_HELLO_TIMEOUT_S):
            message = await read(context)
    except TimeoutError as error:
        raise BadRequest(f"expected hello within {_HELLO_TIMEOUT_S:.0f} s, got nothing") from error
    if message is None:
        raise PeerLost("the client left without a hello")
    if (kind := _kind(message)) != "hello":
        raise BadRequest(f"expected hello first, got {kind}")
    hello: inference.Hello = message.hello
    return hello


def _parse(serialized: bytes) -> memoryview | inference.ClientMessage:
    """A client's message; of a tick, the serialized Tick where it arrived."""
    tick = wire.whole(serialized, inference.ClientMessage.TICK_FIELD_NUMBER)
    if tick is not None:
        return tick
    # With a field of some later version beside it, say.
    ticks, _ = wire.cut(serialized, inference.ClientMessage.TICK_FIELD_NUMBER, _MOST_FIELDS)
    if ticks:
        return ticks[-1]
    if len(serialized) > MAX_HELLO_BYTES:
        raise BadRequest(f"hello: expected at most {MAX_HELLO_BYTES} bytes, got {len(serialized)}")
    return inference.ClientMessage.FromString(serialized)


def _kind(message: memoryview | inference.ClientMessage) -> str:
    return "tick" if isinstance(message, memoryview) else message.WhichOneof("kind") or "an empty message"
