"""A broker for tests of clients: a real grpclib server on a Unix socket that plays a script and checks its input."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpclib.exceptions
import numpy as np
from grpclib.const import Status
from grpclib.server import Server

from seedrl_core import codec
from seedrl_core.shared_memory import PeerRegion
from seedrl_core.spec import EnvironmentSpec
from seedrl_proto.v1 import inference_pb2 as inference
from seedrl_proto.v1.inference_grpc import InferenceBase


class Call:
    """One connection of a client, as the script sees it."""

    def __init__(self, broker: FakeBroker, stream: Any) -> None:
        """Of a stream that the client opened."""
        self._broker = broker
        self._stream = stream
        self.spec: EnvironmentSpec
        self.num_envs = 0
        self._region: PeerRegion | None = None

    async def hello(self) -> None:
        """Takes the client's Hello."""
        message = await self._stream.recv_message()
        assert message is not None, "the stream ended before its Hello"
        assert message.WhichOneof("kind") == "hello", f"expected hello, got {message.WhichOneof('kind')}"
        codec.check_hello(message.hello)
        self.spec = codec.spec_from_proto(message.hello.spec)
        self.num_envs = message.hello.num_envs
        self._broker.hellos.append(message.hello)

    async def welcome(self, *, maps_memory: bool = False) -> None:
        """Takes the client's Hello and answers it; maps the memory that it must offer, if asked to."""
        await self.hello()
        await self.greet(maps_memory=maps_memory)

    async def greet(self, *, maps_memory: bool = False) -> None:
        """Answers the Hello that was taken."""
        if maps_memory:
            hello = self._broker.hellos[-1]
            offer = hello.shared_memory
            self._region = PeerRegion(hello.session_id, offer.pid, offer.fd, offer.num_bytes, 1 << 20)
        await self._send(welcome=inference.Welcome(run_id="run", policy_version=1, shared_memory=maps_memory))

    async def tick(self) -> codec.TickArrays | None:
        """Takes a tick; None when the client left with a Goodbye."""
        message = await self._stream.recv_message()
        assert message is not None, "the stream ended without a Goodbye"
        kind = message.WhichOneof("kind")
        if kind == "goodbye":
            self._broker.goodbyes.append(message.goodbye.reason)
            return None
        assert kind == "tick", f"expected tick, got {kind}"
        tick = codec.decode_tick(message.tick.SerializeToString(), self.spec, self.num_envs, self._region)
        # What stands in shared memory changes with the next tick.
        tick = replace(tick, observation=tuple(leaf.copy() for leaf in tick.observation))
        self._broker.ticks.append(tick)
        self._broker.shared.append(message.tick.HasField("shared"))
        return tick

    async def answer(self, tick: codec.TickArrays) -> None:
        """Answers a tick with the lowest action plus the parity of its number."""
        action = tuple(
            np.full((self.num_envs, *leaf.shape), leaf.low[0] + tick.sequence % 2, leaf.dtype)
            for leaf in self.spec.action
        )
        await self._send(actions=codec.encode_actions(tick.sequence, action, policy_version=2 + tick.sequence))

    async def answer_all(self) -> None:
        """Answers ticks until the client says Goodbye."""
        while (tick := await self.tick()) is not None:
            await self.answer(tick)

    async def waiting(self, reason: str, waited_s: float = 1.0) -> None:
        """Sends a sign of life."""
        await self._send(waiting=inference.Waiting(reason=reason, waited_s=waited_s))

    async def drain(self, code: inference.Drain.Code) -> None:
        """Asks the client to leave."""
        await self._send(drain=inference.Drain(code=code, reason="script"))

    def drop(self) -> None:
        """Cuts the connection."""
        self._stream._stream._transport.abort()

    def end_in_two_ways(self) -> None:
        """Resets the stream and ends the connection, in one segment."""
        stream = self._stream._stream
        stream._h2_connection.reset_stream(stream.id)
        stream._h2_connection.close_connection()
        stream._transport.write(stream._h2_connection.data_to_send())

    async def _send(self, **kind: Any) -> None:
        await self._stream.send_message(inference.ServerMessage(**kind))


Act = Callable[[Call], Awaitable[None]]


class FakeBroker(InferenceBase):
    """Serves the first connection by the first act, and so on; the last act serves all further connections."""

    def __init__(self, *acts: Act) -> None:
        """Records hellos, ticks, which of them were in shared memory, goodbyes, and the errors of acts."""
        self._acts = acts
        self.hellos: list[inference.Hello] = []
        self.ticks: list[codec.TickArrays] = []
        self.shared: list[bool] = []
        self.goodbyes: list[str] = []
        self.errors: list[Exception] = []
        self.connections = 0

    async def Session(self, stream: Any) -> None:
        """Plays the next act."""
        act = self._acts[min(self.connections, len(self._acts) - 1)]
        self.connections += 1
        try:
            await act(Call(self, stream))
        except grpclib.exceptions.GRPCError:
            raise
        except Exception as error:
            self.errors.append(error)
            raise

    async def Describe(self, stream: Any) -> None:
        """Not part of any script."""
        raise grpclib.exceptions.GRPCError(Status.UNIMPLEMENTED)

    @asynccontextmanager
    async def serve(self, directory: Path, name: str = "broker") -> AsyncIterator[str]:
        """Listens on a socket in `directory`; yields its address. An error of an act fails the test at the end."""
        path = directory / f"{name}.sock"
        server = Server([self])
        await server.start(path=str(path))
        try:
            yield f"unix:{path}"
        finally:
            server.close()
            await server.wait_closed()
        assert not self.errors, self.errors


async def serve_all(call: Call) -> None:
    """The act of a healthy broker."""
    await call.welcome()
    await call.answer_all()


def fail(status: Status, message: str) -> Act:
    """An act that answers the Hello with an error."""

    async def act(call: Call) -> None:
        await call.hello()
        raise grpclib.exceptions.GRPCError(status, message)

    return act
