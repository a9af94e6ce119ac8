"""What can be wrong with a client: faults in its messages, and patches that make the project's own client misbehave.

A fault is done to a message on its way out, so that the client's own checks do not find it first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

import own_client
import pytest
from own_client import NUM_ENVS, observe

from seedrl_client import connection, patience, session
from seedrl_client.connection import Connection
from seedrl_core.codec import FIRST, TERMINATED
from seedrl_core.errors import BadRequest, Overloaded, SeedrlError
from seedrl_core.shared_memory import OwnRegion
from seedrl_proto.v1 import inference_pb2 as inference

Message = inference.ClientMessage
# Of a message, and of how many of its kind came before it: what is sent in its place.
Fault = Callable[[Message, int], Iterable[Message | bytes]]
Patch = Callable[[pytest.MonkeyPatch], Any]

NAN = b"\x00\x00\xc0\x7f"


def honest(message: Message, number: int) -> Iterable[Message | bytes]:
    """Nothing is wrong."""
    yield message


class TamperedConnection(Connection):
    """Sends what a fault makes of each message; counts them over all connections of its class."""

    fault: Fault = staticmethod(honest)
    sent: dict[str, int]

    async def send(self, message: bytes, timeout_s: float) -> None:
        for wrong in self._faulty(message):
            await super().send(wrong, timeout_s)

    async def part(self, message: bytes, timeout_s: float) -> None:
        parts = self._faulty(message)
        for wrong in parts[:-1]:
            await super().send(wrong, timeout_s)
        if parts:
            await super().part(parts[-1], timeout_s)

    def _faulty(self, serialized: bytes) -> list[bytes]:
        message = Message.FromString(serialized)
        kind = message.WhichOneof("kind")
        assert kind is not None
        number = self.sent.get(kind, 0)
        self.sent[kind] = number + 1
        return [one if isinstance(one, bytes) else one.SerializeToString() for one in self.fault(message, number)]


def tamper(fault: Fault) -> Patch:
    """Makes all sessions send what the fault makes of their messages."""
    wrong = type("WrongConnection", (TamperedConnection,), {"fault": staticmethod(fault), "sent": {}})
    return lambda monkeypatch: monkeypatch.setattr(session, "Connection", wrong)


# Messages that are out of place.


def second_hello(message: Message, number: int) -> Iterable[Message | bytes]:
    """Before tick 2 comes a Hello."""
    if message.HasField("tick") and number == 2:
        yield Message(hello=inference.Hello(protocol_version=1))
    yield message


def tick_first(message: Message, number: int) -> Iterable[Message | bytes]:
    """There is no Hello."""
    yield Message(tick=inference.Tick()) if message.HasField("hello") else message


def early_tick(message: Message, number: int) -> Iterable[Message | bytes]:
    """Tick 2 is sent with tick 1, and not again when its time has come. Needs observations in the ticks."""
    if not message.HasField("tick") or number not in (1, 2):
        yield message
    elif number == 1:
        yield message
        early = Message.FromString(message.SerializeToString())
        early.tick.sequence += 1
        early.tick.observation[:] = [leaf.tobytes() for leaf in observe(2)[0]]
        yield early


def speaks_after_goodbye(message: Message, number: int) -> Iterable[Message | bytes]:
    """A tick follows Goodbye."""
    yield message
    if message.HasField("goodbye"):
        yield Message(tick=inference.Tick())


def no_goodbye(message: Message, number: int) -> Iterable[Message | bytes]:
    """Goodbye is left out."""
    if not message.HasField("goodbye"):
        yield message


def not_a_message(message: Message, number: int) -> Iterable[Message | bytes]:
    """Tick 2 is cut off."""
    yield message.SerializeToString()[:-1] if message.HasField("tick") and number == 2 else message


def empty_message(message: Message, number: int) -> Iterable[Message | bytes]:
    """Tick 2 has nothing in it."""
    yield Message() if message.HasField("tick") and number == 2 else message


# Messages with something wrong in them.


def change_tick(change: Callable[[inference.Tick], Any], *numbers: int) -> Fault:
    """Changes the ticks of these numbers; without numbers, all."""

    def fault(message: Message, number: int) -> Iterable[Message | bytes]:
        if message.HasField("tick") and (not numbers or number in numbers):
            change(message.tick)
        yield message

    return fault


def change_hello(change: Callable[[inference.Hello], Any], *numbers: int) -> Fault:
    """Changes the Hellos of these numbers; without numbers, all."""

    def fault(message: Message, number: int) -> Iterable[Message | bytes]:
        if message.HasField("hello") and (not numbers or number in numbers):
            change(message.hello)
        yield message

    return fault


def set_fields(**values: Any) -> Callable[[Any], None]:
    """Sets fields of a message."""

    def change(message: Any) -> None:
        for name, value in values.items():
            setattr(message, name, value)

    return change


def change_flags(value: int, *numbers: int) -> Fault:
    """Sets the flags of all environments in these ticks."""
    return change_tick(set_fields(flags=bytes([value] * NUM_ENVS)), *numbers)


def end_at_first_tick(message: Message, number: int) -> Iterable[Message | bytes]:
    """Tick 5, an episode's first, is also its last; so the next is FIRST again."""
    flags = {5: FIRST | TERMINATED, 6: FIRST}
    return change_flags(flags[number], number)(message, number) if number in flags else [message]


def skip_a_number(tick: inference.Tick) -> None:
    """Counts one too many."""
    tick.sequence += 1


def shorten_leaf(tick: inference.Tick) -> None:
    """Takes a byte from the first leaf."""
    tick.observation[0] = tick.observation[0][:-1]


def break_leaf(index: int, value: bytes) -> Callable[[inference.Tick], None]:
    """Puts bytes at the beginning of a leaf."""

    def change(tick: inference.Tick) -> None:
        tick.observation[index] = value + tick.observation[index][len(value) :]

    return change


def add_episode(**fields: Any) -> Callable[[inference.Tick], None]:
    """Adds an episode."""
    return lambda tick: tick.episodes.append(inference.Episode(**fields))


def forbid_all(tick: inference.Tick) -> None:
    """Lets the mask allow nothing."""
    tick.observation[2] = bytes(len(tick.observation[2]))


def refer_to_nothing(tick: inference.Tick) -> None:
    """Puts a reference in place of the observation."""
    del tick.observation[:]
    tick.shared.offset[:] = [64, 128, 192]
    tick.shared.generation = tick.sequence


def refer_to_header(tick: inference.Tick) -> None:
    """Lets the first leaf begin before byte 64."""
    tick.shared.offset[0] = 0


def unknown_dtype(hello: inference.Hello) -> None:
    """Gives a leaf a dtype that does not exist."""
    hello.spec.observation[0].dtype = 99  # type: ignore[assignment]


def unbounded_action(hello: inference.Hello) -> None:
    """Leaves an upper bound out."""
    hello.spec.action[0].ClearField("high")


def small_mask(hello: inference.Hello) -> None:
    """Gives the mask two values for three actions."""
    hello.spec.observation[2].shape[:] = [2]


def other_spec(hello: inference.Hello) -> None:
    """Has another action repeat."""
    hello.spec.action_repeat = 4


# Sessions that do something wrong.


def same_id(monkeypatch: pytest.MonkeyPatch) -> None:
    """All sessions have one id."""
    monkeypatch.setattr(session.os, "urandom", lambda size: b"0123456789abcdef")


def foreign_region(monkeypatch: pytest.MonkeyPatch) -> None:
    """The region does not begin with the session's id."""
    monkeypatch.setattr(session, "OwnRegion", lambda session_id, *shape: OwnRegion(bytes(16), *shape))


def same_generation(monkeypatch: pytest.MonkeyPatch) -> None:
    """The generation is always 7."""
    write = OwnRegion.write
    monkeypatch.setattr(OwnRegion, "write", lambda self, observation, generation: write(self, observation, 7))


def overwrite_after(delay_s: float) -> Patch:
    """The observation in memory changes while the answer is outstanding."""
    write = OwnRegion.write

    def write_twice(self: OwnRegion, observation: Any, generation: int) -> Any:
        def again() -> None:
            if self._leaves:
                self._leaves[0][:] += 1

        asyncio.get_running_loop().call_later(delay_s, again)
        return write(self, observation, generation)

    return lambda monkeypatch: monkeypatch.setattr(OwnRegion, "write", write_twice)


class _IgnoresDrain(session.Session):
    async def _receive(self, connection: Connection, wanted: str, on_waiting: Callable[[str], None]) -> Any:
        while (message := await connection.receive(self._silence_s)).WhichOneof("kind") != wanted:
            pass
        return message


def ignore_drain(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client reads on after a Drain."""
    monkeypatch.setattr(own_client, "Session", _IgnoresDrain)


def drains_mean(error: type[SeedrlError]) -> Patch:
    """Every Drain is taken for one code."""
    return lambda monkeypatch: monkeypatch.setattr(session, "_error_of", lambda drain: error(drain.reason))


def statuses_mean(error: type[SeedrlError]) -> Patch:
    """Every status of a stream is taken for one."""
    return lambda monkeypatch: monkeypatch.setattr(Connection, "_translate", lambda self, status: error("translated"))


def full_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """RESOURCE_EXHAUSTED is taken for INVALID_ARGUMENT."""
    translate = connection.error_from_status

    def translated(status: int, message: str) -> SeedrlError:
        error = translate(status, message)
        return BadRequest(message) if isinstance(error, Overloaded) else error

    monkeypatch.setattr(connection, "error_from_status", translated)


def keep_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither stream nor connection is closed before another is opened."""
    kept = []

    async def reason(self: Connection, fallback: SeedrlError) -> SeedrlError:
        return fallback

    def forget(self: session.Session) -> None:
        kept.append(self._connection)
        self._connection = None

    monkeypatch.setattr(Connection, "_reason_of_end", reason)
    monkeypatch.setattr(session.Session, "_drop", forget)


def fail_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A finished run ends the client with an error."""
    monkeypatch.setattr(own_client, "RunFinished", KeyError)


def never_retry(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first lost connection is the last."""

    async def give_up(self: patience.Patience) -> None:
        raise patience.GaveUp("no second attempt")

    monkeypatch.setattr(patience.Patience, "pause", give_up)


def retry_in_a_storm(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is hardly a wait before an attempt."""
    monkeypatch.setattr(patience, "MAX_DELAY_S", 0.001)
