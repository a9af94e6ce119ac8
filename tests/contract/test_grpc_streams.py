"""Streams at a real server: what a handler sees of a peer that is gone, and what the peer sees of an error."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.message import DecodeError
from grpc_health.v1 import health

from seedrl_core.access import NO_CREDENTIALS
from seedrl_core.errors import BadRequest, Overloaded, PeerLost, SeedrlError
from seedrl_grpc.server import listening
from seedrl_grpc.streams import Context, OpenStreams, abort, read, write

TIMEOUT_S = 30.0
Handler = Callable[[Any, Context], Awaitable[None]]


def decode(message: bytes) -> bytes:
    """Messages of the test are bytes, but for some that are none."""
    if message == b"none":
        raise DecodeError
    return message


async def serve(tmp_path: Path, handler: Handler, peer: Callable[[Any], Awaitable[None]]) -> None:
    """Lets `peer` talk to `handler` over a socket."""
    address = f"unix:{tmp_path / 'server.sock'}"
    method = grpc.stream_stream_rpc_method_handler(handler, request_deserializer=decode)  # type: ignore[arg-type]
    handlers = grpc.method_handlers_generic_handler("test.Test", {"Talk": method})
    async with (
        listening(
            address,
            "test.Test",
            handlers,
            health.aio.HealthServicer(),
            callers={},
            access=NO_CREDENTIALS,
            max_message_bytes=1000,
            grace_s=0.0,
        ),
        grpc.aio.insecure_channel(address) as channel,
        asyncio.timeout(TIMEOUT_S),
    ):
        await peer(channel.stream_stream("/test.Test/Talk")())


async def test_writing_to_a_peer_that_is_gone_is_a_lost_peer(tmp_path: Path) -> None:
    """A task that goes on after the peer cancelled gets PeerLost from a write, and reads that the peer has said all."""
    outcome: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
    cancelled = asyncio.Event()

    async def go_on(context: Context) -> None:
        await cancelled.wait()
        assert await read(context) is None
        outcome.set_exception(*await asyncio.gather(write(context, b"late"), return_exceptions=True))

    async def handler(_: Any, context: Context) -> None:
        async with asyncio.TaskGroup() as group:
            late = group.create_task(go_on(context))
            await write(context, b"hello")
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()
                await asyncio.shield(late)

    async def peer(call: Any) -> None:
        assert await call.read() == b"hello"
        call.cancel()
        with pytest.raises(PeerLost):
            await outcome

    await serve(tmp_path, handler, peer)


async def test_bytes_that_are_no_message_are_a_bad_request(tmp_path: Path) -> None:
    """The peer gets INVALID_ARGUMENT and a sentence; an error's status and words arrive as they are."""

    async def handler(_: Any, context: Context) -> None:
        try:
            while (message := await read(context)) is not None:
                assert message == b"fine"
            raise Overloaded("full")
        except SeedrlError as error:
            await abort(context, error)

    for messages, status, words in (
        ([b"fine", b"none"], grpc.StatusCode.INVALID_ARGUMENT, "bytes that are none"),
        ([b"fine"], grpc.StatusCode.RESOURCE_EXHAUSTED, "full"),
    ):

        async def peer(call: Any, messages: list[bytes] = messages) -> None:
            for message in messages:
                await call.write(message)
            await call.done_writing()
            await call.read()

        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await serve(tmp_path, handler, peer)
        assert refused.value.code() is status
        assert words in (refused.value.details() or "")


async def test_open_streams_are_waited_for_and_their_bugs_kept() -> None:
    """all_parted returns with the last stream, or when its time is up; failure has the first error that left one."""
    streams = OpenStreams()
    await streams.all_parted(TIMEOUT_S)
    with streams.one():
        await streams.all_parted(0.0)
        parting = asyncio.create_task(streams.all_parted(TIMEOUT_S))
        with pytest.raises(BadRequest), streams.one():
            raise BadRequest("first")
        await asyncio.sleep(0)
        assert not parting.done()
    await parting
    with pytest.raises(ZeroDivisionError), streams.one():
        raise ZeroDivisionError
    with pytest.raises(BadRequest, match="first"):
        await streams.failure
