"""Fuzzes a broker and a learner that are real processes, over their sockets, beside a real client's session."""

from __future__ import annotations

import asyncio
import os
import random
import socket
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
from faults.levels import Level
from faults.supervised import Supervised
from fuzz.mutations import MAX_MESSAGE_BYTES, Mutator
from fuzz.recording import NUM_ENVS, Recording
from fuzz.target import CODES, Violation, batch_of, check_sentence, mutators

from seedrl_client import Session
from seedrl_core import codec
from seedrl_proto.v1 import inference_pb2 as inference
from seedrl_proto.v1 import learner_pb2 as learner

# What a service may grow by beyond its limit on messages; most of it is TensorFlow's, for batches of new sizes.
GROWTH_MIB = 128
DEADLINE_S = 60.0
CONNECTIONS = 4
WHERE = ("broker: session", "broker: session that is open", "learner: link", "learner: link that is open", "raw bytes")
# What grpc.aio makes of a call whose end meets a message on its way; the server's own status is lost to it.
_ENDED_WHILE_WRITING = (grpc.StatusCode.INTERNAL, "Internal error from Core")
_SETTINGS = (
    *("--set", "learner.network.mlp_sizes=[8]", "--set", "learner.unroll_length=5", "--set", "learner.max_envs=64"),
    *(
        "--set",
        f"learner.max_message_bytes={MAX_MESSAGE_BYTES}",
        "--set",
        f"broker.max_message_bytes={MAX_MESSAGE_BYTES}",
    ),
    *("--set", "learner.tensorboard=false"),
)


class LiveSystem:
    """A learner and a broker behind it.

    Attributes:
      counts: by where messages went and what became of them.
      num_ticks: of the bystander.
    """

    def __init__(self, directory: Path, recordings: list[Recording], rng: random.Random) -> None:
        """Use `running`."""
        self.counts: Counter[tuple[str, str]] = Counter()
        self.num_ticks = 0
        self._recording = recordings[0]
        self._mutators = mutators(recordings, rng)
        self._rng = rng
        self._addresses = {name: f"127.0.0.1:{_free_port()}" for name in ("learner", "broker")}
        learner_flags = ["--listen", self._addresses["learner"], "--run-dir", str(directory / "run"), *_SETTINGS]
        broker_flags = ["--listen", self._addresses["broker"], "--learner", self._addresses["learner"], *_SETTINGS]
        self.services = [
            Supervised("learner", "seedrl_learner", learner_flags, directory, {}),
            Supervised("broker", "seedrl_broker", broker_flags, directory, {}),
        ]

    @classmethod
    @asynccontextmanager
    async def running(
        cls, directory: Path, recordings: list[Recording], rng: random.Random
    ) -> AsyncIterator[LiveSystem]:
        """Started, with a bystander's session; at the end all must have gone well."""
        system = cls(directory, recordings, rng)
        try:
            for service in system.services:
                await service.start()
            async with asyncio.TaskGroup() as group:
                stop = asyncio.Event()
                started = asyncio.Event()
                group.create_task(system._stand_by(started, stop))
                await started.wait()
                levels = {service.name: Level.of(service.pid) for service in system.services}
                yield system
                stop.set()
            system._check(levels)
            for service in reversed(system.services):
                assert await service.stop() == 0, service.last_words
        finally:
            for service in system.services:
                await service.abandon()

    async def fuzz(self, num_inputs: int) -> None:
        """Sends that many messages."""
        each = -(-num_inputs // CONNECTIONS)
        channels = {name: _channel(address) for name, address in self._addresses.items()}
        async with asyncio.TaskGroup() as group:
            for _ in range(CONNECTIONS):
                group.create_task(self._fuzz(channels, each))
        for channel in channels.values():
            await channel.close()

    async def _fuzz(self, channels: dict[str, grpc.aio.Channel], num_inputs: int) -> None:
        for _ in range(num_inputs):
            where = self._rng.choice(WHERE)
            async with asyncio.timeout(DEADLINE_S):
                outcome = await self._try(where, channels)
            self.counts[where, outcome] += 1
            for service in self.services:
                if service.exits:
                    raise Violation(f"{service.name} ended with {service.exits}: {service.last_words}")

    async def _try(self, where: str, channels: dict[str, grpc.aio.Channel]) -> str:
        if where == "raw bytes":
            return await self._send_raw(self._rng.choice(list(self._addresses.values())))
        if where.startswith("broker"):
            call = channels["broker"].stream_stream("/seedrl_proto.v1.Inference/Session")()
            hello = self._recording.hello
            hello.session_id = os.urandom(16)
            opening = inference.ClientMessage(hello=hello).SerializeToString()
            return await _converse(call, opening, where.endswith("open"), self._mutators["session"], self._rng)
        call = channels["learner"].stream_stream("/seedrl_proto.v1.Learner/Infer")()
        hello = self._recording.hello
        hello.session_id = os.urandom(16)
        opening = batch_of(learner.SessionRequest(session=5, open=hello))
        return await _converse(call, opening, where.endswith("open"), self._mutators["link"], self._rng)

    async def _send_raw(self, address: str) -> str:
        """No gRPC at all; the service hangs up, or waits for more."""
        host, _, port = address.rpartition(":")
        preface = self._rng.choice((b"", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n"))
        with suppress(ConnectionError):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(preface + self._rng.randbytes(self._rng.choice((1, 100, 5000))))
            writer.write_eof()
            with suppress(TimeoutError):
                await asyncio.wait_for(reader.read(), 0.2)
            writer.close()
        return "hung up"

    async def _stand_by(self, started: asyncio.Event, stop: asyncio.Event) -> None:
        """A session that keeps to the contract, on its one connection, until it may stop."""
        spec = self._recording.spec
        async with Session(self._addresses["broker"], spec, NUM_ENVS, actor_id="bystander") as session:
            connection = session._connection
            ticks = [codec.decode_tick(tick, spec, NUM_ENVS) for tick in self._recording.ticks]
            while not stop.is_set():
                tick = ticks[self.num_ticks % len(ticks)]
                await asyncio.wait_for(session.tick(tick.observation, tick.reward, tick.flags), DEADLINE_S)
                if session._connection is not connection:
                    raise Violation("the bystander had to connect again")
                self.num_ticks += 1
                started.set()
                await asyncio.sleep(0.01)

    def _check(self, before: dict[str, Level]) -> None:
        for service in self.services:
            now, was = Level.of(service.pid), before[service.name]
            if now.resident_mib > was.resident_mib + GROWTH_MIB:
                raise Violation(f"{service.name} grew from {was.resident_mib:.0f} to {now.resident_mib:.0f} MiB")


async def _converse(call: Any, opening: bytes, opens: bool, mutator: Mutator, rng: random.Random) -> str:
    """Some wrong messages on one call, to its end: the name of its status."""
    try:
        if opens:
            await call.write(opening)
            await call.read()
        for _ in range(rng.randint(1, 3)):
            await call.write(mutator.next())
        await call.done_writing()
        while await call.read() is not grpc.aio.EOF:
            pass
    except asyncio.InvalidStateError:
        pass  # it has ended already
    except grpc.aio.AioRpcError:
        pass
    code, details = await call.code(), await call.details()
    if code is grpc.StatusCode.OK:
        return "parted"
    if (code, details) == _ENDED_WHILE_WRITING:
        return "ended while writing"
    if code not in CODES:
        raise Violation(f"a call ended with {code}: {details}")
    check_sentence(code.name, details)
    return str(code.name)


def _channel(address: str) -> grpc.aio.Channel:
    return grpc.aio.insecure_channel(address, (("grpc.enable_http_proxy", 0), ("grpc.use_local_subchannel_pool", 1)))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
