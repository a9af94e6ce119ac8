"""Codec and specs: what is encoded comes back, and wrong input is refused with a sentence that names it."""

from __future__ import annotations

import os
from dataclasses import replace

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seedrl_core import codec
from seedrl_core.errors import BadRequest, PeerLost, SpecMismatch
from seedrl_core.shared_memory import OwnRegion, PeerRegion
from seedrl_core.spec import DTYPES, EnvironmentSpec, TensorSpec, check_same_spec
from seedrl_proto.v1 import inference_pb2 as inference
from seedrl_proto.v1 import spec_pb2

IMAGE = TensorSpec("observation/image", np.dtype(np.uint8), (4, 3, 1), (0.0,), (255.0,))
VECTOR = TensorSpec("observation/vector", np.dtype(np.float32), (2,), (-1.0, -2.0), (1.0, 2.0))
ACTION = TensorSpec("action", np.dtype(np.int64), (), (1.0,), (4.0,))
SPEC = EnvironmentSpec("Two-v0", (IMAGE, VECTOR), (ACTION,), action_repeat=4, frame_stack=3)
N = 5


def make_tick(**changes: object) -> codec.TickArrays:
    """A valid tick of SPEC for N environments."""
    rng = np.random.default_rng(0)
    tick = codec.TickArrays(
        sequence=7,
        observation=(
            rng.integers(0, 255, (N, 4, 3, 1), dtype=np.uint8),
            rng.normal(size=(N, 2)).astype(np.float32),
        ),
        reward=rng.normal(size=N).astype(np.float32),
        flags=np.array([0, codec.FIRST, codec.TERMINATED, codec.TRUNCATED, codec.FIRST | codec.RESTARTED], np.uint8),
        episodes=(codec.Episode(2, -3.5, 17, {"score": 2.0}),),
        env_ms=1.5,
    )
    return replace(tick, **changes)  # type: ignore[arg-type]


def through_the_wire(tick: codec.TickArrays) -> codec.TickArrays:
    """Encoded, serialized, parsed, decoded."""
    serialized = b"".join(codec.encode_tick(tick))
    return codec.decode_tick(serialized, SPEC, N)


def test_a_tick_comes_back_equal() -> None:
    """Every array and every episode survives the wire."""
    tick, back = make_tick(), through_the_wire(make_tick())
    for sent, got in zip(
        (*tick.observation, tick.reward, tick.flags), (*back.observation, back.reward, back.flags), strict=True
    ):
        assert got.dtype == sent.dtype
        np.testing.assert_array_equal(got, sent)
    assert (back.sequence, back.episodes, back.env_ms) == (7, tick.episodes, 1.5)


def test_decoded_arrays_cannot_be_written() -> None:
    """Arrays over a message's bytes are read-only, so nobody can change them by mistake."""
    with pytest.raises(ValueError, match="read-only"):
        through_the_wire(make_tick()).observation[0][0] = 1


def test_a_non_contiguous_observation_is_sent_in_c_order() -> None:
    """A transposed view arrives as it looks, not as it lies in memory."""
    image = np.arange(N * 12, dtype=np.uint8).reshape(1, 3, 4, N).T
    back = through_the_wire(make_tick(observation=(image, make_tick().observation[1])))
    np.testing.assert_array_equal(back.observation[0], image)


@given(
    dtype=st.sampled_from(DTYPES),
    shape=st.lists(st.integers(1, 5), max_size=4),
    low=st.lists(st.floats(-5, 0), max_size=1),
    name=st.text(st.characters(codec="utf-8"), min_size=1, max_size=20),
)
def test_any_spec_comes_back_equal(dtype: str, shape: list[int], low: list[float], name: str) -> None:
    """Specs of all dtypes and shapes survive the wire."""
    leaf = TensorSpec(name, np.dtype(dtype), tuple(shape), tuple(low))
    spec = EnvironmentSpec("x", (leaf,), (replace(ACTION, path=name + "_action"),))
    message = spec_pb2.EnvironmentSpec.FromString(codec.spec_to_proto(spec).SerializeToString())
    assert codec.spec_from_proto(message) == spec


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"reward": np.zeros(N + 1, np.float32)}, r"reward: expected 20 bytes \(float32 \(5,\)\), got 24"),
        (
            {"reward": np.array([0, np.nan, 0, 0, 0], np.float32)},
            "reward: expected finite values, got nan in environment 1",
        ),
        ({"reward": np.array([0, 0, -np.inf, 0, 0], np.float32)}, "got -inf in environment 2"),
        (
            {"observation": (np.zeros((N, 4, 3, 1), np.uint8), np.float32([*[[0, 0]] * 3, [0, np.inf], [0, 0]]))},
            "observation/vector: expected finite values, got inf in environment 3",
        ),
        ({"observation": (np.zeros((N, 4, 3, 1), np.uint8),)}, "observation: expected 2 leaves, got 1"),
        (
            {"observation": (np.zeros((N, 4, 3, 1), np.uint8), np.zeros((N, 2), np.float64))},
            r"observation/vector: expected 40 bytes \(float32 \(5, 2\)\), got 80",
        ),
        ({"flags": np.full(N, codec.FIRST | codec.TRUNCATED, np.uint8)}, "flags: expected .* got 5 in environment 0"),
        ({"flags": np.array([0, 0, 0, 0, codec.RESTARTED], np.uint8)}, "got 8 in environment 4"),
        ({"flags": np.array([0, 0, 64, 0, 0], np.uint8)}, "got 64 in environment 2"),
        ({"episodes": (codec.Episode(N, 0.0, 1),)}, "episode.env: expected below 5, got 5"),
        ({"episodes": (codec.Episode(0, float("nan"), 1),)}, "episode_return: expected a finite number"),
    ],
)
def test_a_wrong_tick_is_refused_by_name(change: dict[str, object], message: str) -> None:
    """The error names the field or leaf, what was expected and what was got."""
    with pytest.raises(BadRequest, match=message):
        through_the_wire(make_tick(**change))


@pytest.mark.parametrize(
    "packed", [b"\xc1", msgpack.packb([1]), msgpack.packb({"a": "b"}), msgpack.packb({1: 1}), b"\xdf\xff\xff\xff\xff"]
)
def test_bad_episode_info_is_refused(packed: bytes) -> None:
    """Only a small msgpack map from string to number is accepted."""
    message = inference.Tick.FromString(b"".join(codec.encode_tick(make_tick())))
    message.episodes[0].info = packed
    with pytest.raises(BadRequest, match=r"episode\.info: expected a msgpack map from string to number"):
        codec.decode_tick(message.SerializeToString(), SPEC, N)


def test_spec_bombs_are_refused_before_anything_is_allocated() -> None:
    """Too many elements, dimensions or leaves, a zero size, an unknown dtype, bounds of a wrong length."""
    for leaf, message in [
        (spec_pb2.TensorSpec(path="x", dtype=2, shape=[1 << 20, 1 << 20]), "expected at most 67108864 elements"),
        (spec_pb2.TensorSpec(path="x", dtype=2, shape=[1] * 9), "at most 8 dimensions"),
        (spec_pb2.TensorSpec(path="x", dtype=2, shape=[0]), "positive size"),
        (spec_pb2.TensorSpec(path="x", dtype=99), "known dtype, got number 99"),  # type: ignore[arg-type]
        (spec_pb2.TensorSpec(path="", dtype=2), "leaf path"),
        (spec_pb2.TensorSpec(path="x", dtype=2, shape=[3], low=[0, 0]), "expected 0, 1 or 3 values of low, got 2"),
    ]:
        with pytest.raises(BadRequest, match=message):
            codec.spec_from_proto(spec_pb2.EnvironmentSpec(observation=[leaf], action=[leaf]))
    with pytest.raises(BadRequest, match="1 to 256 observation leaves, got 257"):
        EnvironmentSpec("x", tuple(replace(IMAGE, path=str(i)) for i in range(257)), (ACTION,))
    with pytest.raises(BadRequest, match="distinct leaf paths"):
        EnvironmentSpec("x", (IMAGE, IMAGE), (ACTION,))
    with pytest.raises(BadRequest, match="action: an integer action needs low and high"):
        EnvironmentSpec("x", (IMAGE,), (replace(ACTION, low=()),))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"observation": (replace(IMAGE, shape=(4, 3, 2)), VECTOR)},
            r"expected observation/image: uint8 \(4, 3, 1\), got observation/image: uint8 \(4, 3, 2\)",
        ),
        ({"observation": (IMAGE, replace(VECTOR, dtype=np.dtype(np.float64)))}, "got observation/vector: float64"),
        ({"observation": (IMAGE,)}, r"expected observation leaves \['observation/image', 'observation/vector'\]"),
        (
            {"action": (replace(ACTION, high=(5.0,)),)},
            r"action: expected bounds \(1.0,\)..\(4.0,\), got \(1.0,\)..\(5.0,\)",
        ),
        ({"action_repeat": 1}, "action_repeat: expected 4, got 1"),
    ],
)
def test_a_different_spec_names_the_leaf(change: dict[str, object], message: str) -> None:
    """A second environment with other spaces is told which leaf differs, what was expected and what was got."""
    with pytest.raises(SpecMismatch, match=message):
        check_same_spec(SPEC, replace(SPEC, **change))  # type: ignore[arg-type]


def test_the_name_of_an_environment_is_not_compared() -> None:
    """Two ids with the same spaces may train together."""
    check_same_spec(SPEC, replace(SPEC, environment_id="Other-v1"))


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("protocol_version", 2, "protocol_version: expected 1, got 2"),
        ("session_id", b"short", "session_id: expected 16 bytes, got 5"),
        ("num_envs", 0, r"num_envs: expected 1\.\.65536, got 0"),
        ("num_envs", 2**31, r"num_envs: expected 1\.\.65536, got 2147483648"),
        ("role", 0, "role: expected ROLE_TRAIN or ROLE_EVAL, got 0"),
        ("actor_id", "a" * 257, "actor_id: expected at most 256 characters, got 257"),
        ("explain", True, "explain: expected ROLE_EVAL and at most 64 environments, got ROLE_TRAIN and 1"),
    ],
)
def test_a_wrong_hello_is_refused_by_field(field: str, value: object, message: str) -> None:
    """Each field of Hello has its sentence."""
    hello = inference.Hello(
        protocol_version=1, session_id=bytes(16), num_envs=1, role=inference.ROLE_TRAIN, spec=codec.spec_to_proto(SPEC)
    )
    codec.check_hello(hello)
    assert codec.spec_from_proto(hello.spec) == SPEC
    setattr(hello, field, value)
    with pytest.raises((BadRequest, SpecMismatch), match=message):
        codec.check_hello(hello)


def test_actions_come_back_equal() -> None:
    """Actions decode to one array a leaf in the spec's dtype."""
    message = codec.encode_actions(3, (np.array([1, 2, 3, 4, 1]),), policy_version=9)
    (action,) = codec.decode_leaves(message.action, SPEC.action, N)
    assert action.tolist() == [1, 2, 3, 4, 1]
    assert (message.sequence, message.policy_version) == (3, 9)


@pytest.mark.parametrize("num_actions", [0, 4])
def test_explanations_come_back_equal(num_actions: int) -> None:
    """A value and a row of preferences an environment; numbers too few or too many are refused."""
    given = codec.Explanation(np.arange(N, dtype=np.float32), np.random.rand(N, num_actions).astype(np.float32))
    message = codec.encode_actions(3, (np.array([1, 2, 3, 4, 1]),), 9, given).explanation
    got = codec.decode_explanation(message, N)
    np.testing.assert_array_equal(got.value, given.value)
    np.testing.assert_array_equal(got.preference, given.preference)
    message.value += bytes(4)
    with pytest.raises(BadRequest, match=r"explanation.value: expected 20 bytes \(float32 \(5,\)\), got 24"):
        codec.decode_explanation(message, N)


def test_a_tick_refers_to_shared_memory_or_carries_its_observation() -> None:
    """By reference it is small and reads from the region; both at once, or a reference to nothing, are refused."""
    session_id = bytes(16)
    own = OwnRegion(session_id, SPEC.observation, N)
    peer = PeerRegion(session_id, os.getpid(), own.fd, own.num_bytes, 1 << 20)
    tick = make_tick()
    serialized = b"".join(codec.encode_tick(tick, own.write(tick.observation, 3)))
    assert len(serialized) < sum(leaf.nbytes for leaf in tick.observation)
    back = codec.decode_tick(serialized, SPEC, N, peer)
    for sent, got in zip(tick.observation, back.observation, strict=True):
        np.testing.assert_array_equal(got, sent)
        assert not got.flags.writeable
    with pytest.raises(PeerLost, match="open the session again"):
        codec.decode_tick(serialized, SPEC, N)
    with pytest.raises(BadRequest, match="observation: expected none"):
        codec.decode_tick(serialized + b"".join(codec.encode_tick(tick)), SPEC, N, peer)
    del back, got
    own.close()
