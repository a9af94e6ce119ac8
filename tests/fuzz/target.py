"""What is fuzzed in one process: the functions that read messages, and broker and learner behind a `Pipe`.

Each message must be taken in or refused with a status and a sentence, in any state of a session, and be answered at
once; meanwhile another session must go on as if nothing were.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
from fuzz.mutations import Mutator
from fuzz.pipe import Pipe, Stream, batch_of
from fuzz.recording import NUM_ENVS, TICKS, Recording

from seedrl_broker.servicer import _parse
from seedrl_core import codec
from seedrl_core.errors import BadRequest, PeerLost, SpecMismatch
from seedrl_learner.batch_request import BatchRequest
from seedrl_proto.v1 import inference_pb2 as inference
from seedrl_proto.v1 import learner_pb2 as learner

LONGEST_SENTENCE = 1100
CODES = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.UNAVAILABLE,
}
# What a message meets, and how it is read there.
READERS = ("client message", "tick", "hello", "batch request")
STATES = ("stream without hello", "session", "session that has ticked", "session that waits", "link")


class Violation(AssertionError):
    """What must not happen has happened."""


def check_sentence(what: str, sentence: str) -> None:
    """An error must say something, and not too much for a status."""
    if not 5 <= len(sentence) <= LONGEST_SENTENCE or "Traceback" in sentence:
        raise Violation(f"{what}: expected a sentence, got {sentence[:200]!r} ({len(sentence)} characters)")


def check_status(stream: Stream) -> str:
    """How a call ended: the name of its code."""
    assert stream.status is not None
    code, details = stream.status
    if code is grpc.StatusCode.OK:
        return "parted"
    if code not in CODES:
        raise Violation(f"a stream ended with {code}: {details}")
    check_sentence(code.name, details)
    return code.name


class Bystander:
    """A session that keeps to the contract, and must not notice anything."""

    def __init__(self, pipe: Pipe, recording: Recording) -> None:
        """Connects with `open`."""
        self.num_ticks = 0
        self._stream = pipe.connect()
        self._recording = recording

    async def open(self) -> None:
        """Hello, and its Welcome."""
        hello = self._recording.hello
        hello.session_id = os.urandom(16)  # which nobody else knows
        self._stream.send(inference.ClientMessage(hello=hello).SerializeToString())
        if not (await self._answer()).HasField("welcome"):
            raise Violation("the bystander was not welcomed")

    async def tick(self) -> None:
        """The next tick, and its actions."""
        tick = inference.Tick.FromString(self._recording.ticks[self.num_ticks % len(self._recording.ticks)])
        tick.sequence = self.num_ticks
        self._stream.send(inference.ClientMessage(tick=tick).SerializeToString())
        actions = inference.Actions.FromString((await self._answer()).actions)
        if actions.sequence != self.num_ticks or len(actions.action) != len(self._recording.spec.action):
            raise Violation(f"the bystander's tick {self.num_ticks} was answered by {actions}")
        self.num_ticks += 1

    async def _answer(self) -> Any:
        reply = await self._stream.receive()
        if reply is None:
            raise Violation(f"the bystander's session ended: {self._stream.status}")
        return reply


class Target:
    """Takes messages, each into one of READERS or STATES.

    Attributes:
      counts: by where the message went and what became of it.
    """

    def __init__(self, pipe: Pipe, recordings: list[Recording]) -> None:
        """Of a pipe that is open."""
        self.counts: Counter[tuple[str, str]] = Counter()
        self._pipe = pipe
        self._recording = recordings[0]
        self._streams: dict[str, Stream] = {}
        self._answered: Counter[str] = Counter()  # ticks of the stream that is in a state
        self._numbers = iter(range(1000, 1 << 60))
        self.bystander = Bystander(pipe, self._recording)

    def in_order(self, where: str) -> bytes | None:
        """The message that would be right there, where there is one."""
        if where == "stream without hello":
            return self._recording.messages[0]
        return self._recording.messages[1 + self._answered[where]] if where.startswith("session") else None

    async def take(self, where: str, message: bytes) -> str:
        """What became of a message; Violation when that is not allowed."""
        if where in READERS:
            outcome = self._read(where, message)
        elif where == "link":
            outcome = await self._send_to_link(message)
        else:
            outcome = await self._send(where, message)
        if self._pipe.failure is not None:
            raise Violation(f"a service would have ended: {self._pipe.failure!r}") from self._pipe.failure
        self.counts[where, outcome] += 1
        return outcome

    async def finish(self) -> None:
        """All sessions but the bystander's part; nothing may be left of them."""
        for stream in self._streams.values():
            stream.finish()
        async with asyncio.timeout(20):
            while self._pipe.service.num_sessions > 1 or self._pipe.broker.num_sessions > 1:
                await asyncio.sleep(0.01)
        await self.bystander.tick()
        machinery = self._pipe.service.run.machinery
        assert machinery is not None
        if machinery.inference._slots.num_used != NUM_ENVS:
            raise Violation(f"slots are left behind: {machinery.inference._slots.num_used}")

    def _read(self, reader: str, message: bytes) -> str:
        read: dict[str, Callable[[bytes], object]] = {
            "client message": _parse,
            "tick": lambda data: codec.decode_tick(data, self._recording.spec, NUM_ENVS),
            "hello": _read_hello,
            "batch request": BatchRequest.parse,
        }
        try:
            read[reader](message)
        except (BadRequest, SpecMismatch, PeerLost) as refused:
            # An edge shortens what is longer, but nothing may be long because the message is.
            check_sentence(reader, str(refused)[:LONGEST_SENTENCE])
            return "refused"
        except codec.DecodeError:
            return "refused"  # by the library; the edge makes it a BadRequest
        return "taken"

    async def _send(self, state: str, message: bytes) -> str:
        stream = self._streams.pop(state, None) or await self._stream_in(state)
        stream.send(message)
        if await stream.receive() is None:
            return check_status(stream)
        self._answered[state] += 1
        if state in ("session", "session that has ticked") and self._answered[state] < TICKS:
            self._streams[state] = stream  # and on
        else:
            stream.finish()
        return "answered"

    async def _stream_in(self, state: str) -> Stream:
        """A new stream that has come to a state in order."""
        stream = self._pipe.connect()
        self._answered[state] = 0
        if state == "stream without hello":
            return stream
        hello = self._recording.hello
        hello.session_id = os.urandom(16)
        stream.send(inference.ClientMessage(hello=hello).SerializeToString())
        await self._expect_answer(stream)
        ticks = self._recording.messages[1:]
        if state == "session that has ticked":
            stream.send(ticks[0])
            await self._expect_answer(stream)
            self._answered[state] = 1
        elif state == "session that waits":
            stream.send(ticks[0])
        return stream

    async def _send_to_link(self, message: bytes) -> str:
        """A broker's message; after it the link must answer one that is in order, or have ended."""
        link = self._streams.pop("link", None) or self._pipe.link()
        link.send(message)
        hello = self._recording.hello
        hello.session_id, number = os.urandom(16), next(self._numbers)
        link.send(batch_of(learner.SessionRequest(session=number, open=hello)))
        link.send(batch_of(learner.SessionRequest(session=number, close=inference.Goodbye())))
        while (reply := await link.receive()) is not None:
            if any(each.session == number for each in reply.replies.replies):
                self._streams["link"] = link
                return "answered"
            for each in reply.replies.replies:
                if each.HasField("error"):
                    check_sentence("a reply", each.error.message)
        return check_status(link)

    async def _expect_answer(self, stream: Stream) -> None:
        if await stream.receive() is None:
            raise Violation(f"a message in order was refused: {stream.status}")


def _read_hello(serialized: bytes) -> None:
    hello = inference.Hello.FromString(serialized)
    codec.check_hello(hello)
    codec.spec_from_proto(hello.spec)


def mutators(recordings: list[Recording], rng: random.Random) -> dict[str, Mutator]:
    """Of the messages for each place."""
    messages = [message for recording in recordings for message in recording.messages]
    ticks = [tick for recording in recordings for tick in recording.ticks]
    hellos = [recording.hello for recording in recordings]
    batches = [batch_of(learner.SessionRequest(session=5, open=hello)) for hello in hellos]
    batches += [batch_of(learner.SessionRequest(session=5, tick=tick), batch_id=2) for tick in ticks]
    batches.append(batch_of(learner.SessionRequest(session=5, close=inference.Goodbye())))
    of_client = Mutator(inference.ClientMessage, messages, rng)
    of_link = Mutator(learner.BatchRequest, batches, rng)
    return {
        **dict.fromkeys(("client message", *STATES), of_client),
        "link": of_link,
        "batch request": of_link,
        "tick": Mutator(inference.Tick, ticks, rng),
        "hello": Mutator(inference.Hello, [hello.SerializeToString() for hello in hellos], rng),
    }


def scratch(directory: Path, name: str) -> Path:
    """A new directory."""
    path = directory / name
    path.mkdir()
    return path
