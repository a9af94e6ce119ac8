"""Byte strings in serialized messages: what the protobuf library reads and writes, but as views of the message."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seedrl_core import wire
from seedrl_core.errors import BadRequest
from seedrl_proto.v1 import inference_pb2 as inference
from seedrl_proto.v1 import learner_pb2 as learner

OBSERVATION = inference.Tick.OBSERVATION_FIELD_NUMBER

ticks = st.builds(
    inference.Tick,
    sequence=st.integers(0, 2**64 - 1),
    observation=st.lists(st.binary(max_size=300), max_size=4),
    reward=st.binary(max_size=20),
    flags=st.binary(max_size=5),
    episodes=st.lists(
        st.builds(inference.Episode, env=st.integers(0, 9), episode_return=st.floats(allow_nan=False)), max_size=2
    ),
    env_ms=st.floats(width=32, allow_nan=False),
)


@given(ticks)
def test_cutting_finds_what_the_library_finds(tick: inference.Tick) -> None:
    """The values of the field in their order, and a rest that is the same message without them."""
    values, rest = wire.cut(tick.SerializeToString(), OBSERVATION, 100)
    assert list(map(bytes, values)) == list(tick.observation)
    tick.ClearField("observation")
    assert inference.Tick.FromString(rest) == tick


@given(st.binary(max_size=400), st.integers(1, 1000))
def test_a_field_written_is_a_field_read(value: bytes, session: int) -> None:
    """Parts around a byte string make the message that the library reads."""
    number = learner.SessionRequest(session=session).SerializeToString()
    tick = wire.field(learner.SessionRequest.TICK_FIELD_NUMBER, value)
    message = b"".join(wire.field(learner.BatchRequest.REQUESTS_FIELD_NUMBER, number, *tick))
    (item,) = learner.BatchRequest.FromString(message).requests
    assert (item.session, item.tick) == (session, value)


def test_arrays_are_parts_as_they_are() -> None:
    """The bytes of a NumPy array of several dimensions stand in the message in C order."""
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    values, rest = wire.cut(b"".join(wire.field(1, array)), 1, 1)
    assert (bytes(values[0]), rest) == (array.tobytes(), b"")


def test_a_message_of_one_field_is_told_from_others() -> None:
    """A ClientMessage with a tick and nothing else gives the tick's bytes; any other message gives None."""
    number = inference.ClientMessage.TICK_FIELD_NUMBER
    tick = inference.Tick(sequence=3, observation=[bytes(1000)])
    message = inference.ClientMessage(tick=tick).SerializeToString()
    assert wire.whole(message, number) == tick.SerializeToString()
    assert wire.whole(inference.ClientMessage(tick=inference.Tick()).SerializeToString(), number) == b""
    for other in (b"", message + b"\x50\x00", message[:-1], inference.ClientMessage(goodbye={}).SerializeToString()):
        assert wire.whole(other, number) is None


def test_nothing_is_copied() -> None:
    """Values are views of the message that they came in."""
    message = bytearray(b"".join(wire.field(OBSERVATION, bytes(10))))
    (value,), _ = wire.cut(message, OBSERVATION, 100)
    message[-1] = 7
    assert value[-1] == 7


@pytest.mark.parametrize(
    "message",
    [
        b"\x12",
        b"\x12\x05abc",
        b"\xff" * 11,
        b"\x08",
        b"\x0d\x00",
        b"\x09\x00",
        b"\x13\x14",
        b"\x12\xff\xff\xff\xff\x0f",
    ],
)
def test_bytes_that_are_no_message_are_refused(message: bytes) -> None:
    """Cut off fields, numbers without an end, and kinds of fields that proto3 does not have."""
    with pytest.raises(BadRequest, match="expected a protobuf message"):
        wire.cut(message, OBSERVATION, 100)


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(message: bytes) -> None:
    """No input raises anything but BadRequest, and what is read adds up to the input."""
    try:
        values, rest = wire.cut(message, OBSERVATION, 100)
    except BadRequest:
        return
    assert len(rest) + sum(map(len, values)) <= len(message)


def test_a_message_of_too_many_fields_is_refused_before_it_costs_anything() -> None:
    """Also of fields that are not asked for."""
    for field in (b"\x12\x00", b"\x08\x01"):
        assert wire.cut(100 * field, OBSERVATION, 100)
        with pytest.raises(BadRequest, match="expected a protobuf message of at most 100 fields, got more"):
            wire.cut(101 * field, OBSERVATION, 100)
