"""The raw single hop that the data path is measured against: a grpc.aio server that answers each tick at once.

It reads no tick and keeps nothing. Actions are zeros of the right size, so that the same clients can talk to it. With
`--forward-to` it hands each message on to another server and its answer back: with an echo behind it, two raw hops.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
from typing import Any

import grpc
import uvloop

from seedrl_core import codec
from seedrl_core.allocator import keep_freed_memory
from seedrl_proto.v1 import inference_pb2 as inference

METHOD = "/seedrl_proto.v1.Inference/Session"
CHANNEL_OPTIONS = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))


async def session(_: Any, context: grpc.aio.ServicerContext[Any, Any]) -> None:
    """Hello -> Welcome, then Actions for every message."""
    hello = inference.ClientMessage.FromString(await context.read()).hello
    await context.write(inference.ServerMessage(welcome=inference.Welcome(run_id="echo")).SerializeToString())
    action = [bytes(hello.num_envs * leaf.num_bytes) for leaf in codec.spec_from_proto(hello.spec).action]
    sequence = 0
    while await context.read() is not grpc.aio.EOF:
        actions = inference.Actions(sequence=sequence, action=action)
        await context.write(inference.ServerMessage(actions=actions).SerializeToString())
        sequence += 1


def forwarding(channel: grpc.aio.Channel) -> Any:
    """A session that has a stream of its own to the server behind `channel`."""

    async def forward(_: Any, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        method: Any = channel.stream_stream(METHOD)
        call = method()
        while (message := await context.read()) is not grpc.aio.EOF:
            await call.write(message)
            await context.write(await call.read())
        await call.done_writing()

    return forward


async def serve(listen: str, forward_to: str) -> None:
    """Runs until SIGTERM; `forward_to` is an address, or empty."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    server = grpc.aio.server(options=CHANNEL_OPTIONS)
    serve_one = forwarding(grpc.aio.insecure_channel(forward_to, CHANNEL_OPTIONS)) if forward_to else session
    handler: Any = grpc.stream_stream_rpc_method_handler(serve_one)  # messages stay bytes
    service, method = METHOD.strip("/").split("/")
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: handler}),))
    server.add_insecure_port(listen)
    await server.start()
    await stop.wait()
    await server.stop(0.5)


def main() -> None:
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--listen", required=True)
    parser.add_argument("--keep-freed-memory", action="store_true", help="as our services do")
    parser.add_argument("--forward-to", default="", help="address of another echo (default: answers itself)")
    arguments = parser.parse_args()
    if arguments.keep_freed_memory:
        keep_freed_memory()
    uvloop.run(serve(arguments.listen, arguments.forward_to))


if __name__ == "__main__":
    main()
