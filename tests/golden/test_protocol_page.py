"""docs/protocol.md shows the bytes that the codec makes, and bits as they are taken out of them."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from seedrl_core import codec, wire
from seedrl_core.spec import TensorSpec
from seedrl_learner.networks.bits import unpack
from seedrl_proto.v1 import inference_pb2 as inference

PAGE = Path(__file__).parents[2] / "docs" / "protocol.md"


def printed_bytes(after: str) -> bytes:
    """The bytes at the beginning of each line of the first code block after a sentence."""
    block = PAGE.read_text().split(after, 1)[1].split("```")[1]
    return b"".join(bytes.fromhex(line[1]) for line in re.finditer(r"^ *((?:[0-9a-f]{2} +)+)", block, re.MULTILINE))


def test_the_worked_tick_is_what_the_codec_makes() -> None:
    """The tick printed in the documentation is the serialized message."""
    tick = codec.TickArrays(
        sequence=3,
        observation=(np.array([[0.5, -1.0], [2.0, 0.0]], np.float32),),
        reward=np.array([1.0, 0.0], np.float32),
        flags=np.array([codec.TERMINATED, codec.FIRST], np.uint8),
        episodes=(codec.Episode(0, 10.0, 4),),
        env_ms=0.25,
    )
    message = wire.field(inference.ClientMessage.TICK_FIELD_NUMBER, *codec.encode_tick(tick))
    assert printed_bytes("The message, 54 bytes:") == b"".join(message)


def test_the_worked_answer_is_what_the_codec_makes() -> None:
    """The actions printed in the documentation are the serialized message."""
    message = inference.ServerMessage(actions=codec.encode_actions(3, (np.array([1, 0], np.int64),), 7))
    assert printed_bytes("by policy version 7:") == message.SerializeToString(deterministic=True)


def test_the_worked_bits_are_what_the_learner_sees() -> None:
    """Ten bits in two bytes, the first in the highest bit of the first."""
    leaf, bits = TensorSpec.of_bits("observation", (2, 5)), [[1, 0, 0, 1, 1], [0, 1, 0, 0, 1]]
    packed = np.frombuffer(printed_bytes("of shape 2 x 5:"), np.uint8)
    np.testing.assert_array_equal(packed, np.packbits(bits))
    np.testing.assert_array_equal(unpack(packed[np.newaxis], leaf)[0], np.array(bits) * 255)
