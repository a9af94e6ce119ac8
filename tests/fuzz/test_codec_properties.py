"""Whatever bytes arrive, what reads them takes them in or refuses them in a sentence, and at no great price."""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Callable
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from seedrl_broker.servicer import _parse
from seedrl_core import codec, wire
from seedrl_core.errors import BadRequest, PeerLost, SeedrlError, SpecMismatch, words_of
from seedrl_core.spec import DTYPES, EnvironmentSpec, TensorSpec
from seedrl_learner.batch_request import BatchRequest
from seedrl_proto.v1 import inference_pb2 as inference
from seedrl_proto.v1 import learner_pb2 as learner
from seedrl_proto.v1 import spec_pb2

N = 3
ACTION = TensorSpec("action", np.dtype(np.int64), (), (0.0,), (3.0,))
SPEC = EnvironmentSpec(
    "Three-v0",
    (
        TensorSpec("observation/image", np.dtype(np.uint8), (2, 2)),
        TensorSpec("observation/bits", np.dtype(np.bool_), (3,)),
        TensorSpec("observation/vector", np.dtype(np.float32), (2,)),
    ),
    (ACTION,),
)
MOST_SENTENCE = 1100


def refused_in_a_sentence(read: Callable[[], object]) -> bool:
    """True when it is refused, by an error that says something; any other error is the test's failure."""
    try:
        read()
    except (BadRequest, SpecMismatch, PeerLost) as refused:
        sentence = words_of(refused)
    except codec.DecodeError:
        return True  # of the library; the edges make it a BadRequest
    else:
        return False
    assert 5 < len(sentence) < MOST_SENTENCE
    return True


def peak_bytes(read: Callable[[], object]) -> int:
    """Memory of Python's that reading takes at most."""
    tracemalloc.start()
    try:
        refused_in_a_sentence(read)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


# Any bytes.


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    """By the broker's edge, the learner's edge, and the decoder of ticks."""
    refused_in_a_sentence(lambda: _parse(data))
    refused_in_a_sentence(lambda: BatchRequest.parse(data))
    refused_in_a_sentence(lambda: codec.decode_tick(data, SPEC, N))


# Ticks with anything in them.

_anything = st.one_of(st.binary(max_size=40), st.sampled_from([bytes(N * 4), bytes(N * 3), bytes(N * 8), bytes(N)]))
_numbers = st.one_of(st.floats(width=32), st.just(math.nan), st.just(math.inf))
_info = st.one_of(
    st.binary(max_size=20),
    st.dictionaries(st.text(max_size=5), st.floats(), max_size=3).map(msgpack.packb),
    st.recursive(st.integers(0, 9), lambda inner: st.lists(inner, max_size=2), max_leaves=5).map(msgpack.packb),
)
_ticks = st.builds(
    inference.Tick,
    sequence=st.integers(0, 2**64 - 1),
    observation=st.lists(_anything, max_size=5),
    reward=st.one_of(_anything, arrays.arrays(np.float32, N).map(lambda array: array.tobytes())),
    flags=st.one_of(_anything, st.binary(min_size=N, max_size=N)),
    episodes=st.lists(
        st.builds(
            inference.Episode,
            env=st.integers(0, 5),
            episode_return=st.floats(),
            length=st.integers(0, 2**64 - 1),
            info=_info,
        ),
        max_size=5,
    ),
    env_ms=_numbers,
    shared=st.none() | st.builds(inference.SharedObservation, offset=st.lists(st.integers(0, 2**64 - 1), max_size=4)),
)


@given(_ticks)
def test_a_tick_that_is_taken_in_is_sound(tick: inference.Tick) -> None:
    """What is not refused has finite numbers, allowed flags, bools of 0 and 1, one episode an environment at most."""
    decoded: list[codec.TickArrays] = []
    if refused_in_a_sentence(lambda: decoded.append(codec.decode_tick(tick.SerializeToString(), SPEC, N))):
        return
    (taken,) = decoded
    assert [leaf.shape for leaf in taken.observation] == [(N, 2, 2), (N, 3), (N, 2)]
    assert np.isfinite(taken.reward).all() and np.isfinite(taken.observation[2]).all() and math.isfinite(taken.env_ms)
    assert taken.observation[1].view(np.uint8).max() <= 1
    assert (
        not (taken.flags & codec.FIRST).any() or not ((taken.flags & codec.FIRST != 0) & (taken.flags & 6 != 0)).any()
    )
    assert len(taken.episodes) <= N
    assert all(math.isfinite(value) for episode in taken.episodes for value in episode.info.values())


@given(st.data())
def test_every_tick_in_order_comes_back(data: st.DataObject) -> None:
    """Whatever finite values it has."""
    finite = st.floats(width=32, allow_nan=False, allow_infinity=False)
    tick = codec.TickArrays(
        sequence=data.draw(st.integers(0, 2**64 - 1)),
        observation=(
            data.draw(arrays.arrays(np.uint8, (N, 2, 2))),
            data.draw(arrays.arrays(np.bool_, (N, 3))),
            data.draw(arrays.arrays(np.float32, (N, 2), elements=finite)),
        ),
        reward=data.draw(arrays.arrays(np.float32, N, elements=finite)),
        flags=data.draw(arrays.arrays(np.uint8, N, elements=st.sampled_from([0, 1, 2, 4, 6, 9]))),
    )
    back = codec.decode_tick(b"".join(codec.encode_tick(tick)), SPEC, N)
    for sent, got in zip((*tick.observation, tick.reward), (*back.observation, back.reward), strict=True):
        np.testing.assert_array_equal(got, sent)
    np.testing.assert_array_equal(back.flags, tick.flags)


# Specs and Hellos with anything in them.

_sizes = st.sampled_from([0, 1, 2, 84, 2**16, 2**26, 2**31, 2**32 - 1])
_bounds = st.lists(st.sampled_from([0.0, -1.0, 3.0, 1e18, 1e308, -1e308, math.nan, math.inf, -math.inf]), max_size=3)
_leaves = st.builds(
    spec_pb2.TensorSpec,
    path=st.text(max_size=5) | st.just("x" * 600),
    dtype=st.integers(-1, 12),
    shape=st.lists(_sizes, max_size=10),
    low=_bounds,
    high=_bounds,
)
_hellos = st.builds(
    inference.Hello,
    protocol_version=st.integers(0, 2),
    session_id=st.binary(min_size=15, max_size=17),
    actor_id=st.text(max_size=3) | st.just("x" * 600),
    role=st.integers(-1, 4),
    num_envs=st.sampled_from([0, 1, 65536, 65537, 2**31, 2**32 - 1]),
    spec=st.builds(
        spec_pb2.EnvironmentSpec,
        environment_id=st.text(max_size=5) | st.just("x" * 600),
        observation=st.lists(_leaves, max_size=3),
        action=st.lists(_leaves, max_size=3),
        action_repeat=st.integers(0, 2**32 - 1),
        frame_stack=st.integers(0, 2**32 - 1),
    ),
)


@given(_hellos)
def test_any_hello_is_taken_or_refused(hello: inference.Hello) -> None:
    """Also with 2^31 environments, bounds that are no numbers, sizes whose product has a hundred digits."""

    def read() -> None:
        codec.check_hello(hello)
        codec.spec_from_proto(hello.spec)

    refused_in_a_sentence(lambda: codec.spec_from_proto(hello.spec))
    refused_in_a_sentence(read)


@given(st.sampled_from(DTYPES), st.lists(st.integers(1, 9), max_size=8))
def test_every_usable_spec_comes_back(dtype: str, shape: list[int]) -> None:
    """Of all dtypes, up to eight dimensions."""
    spec = EnvironmentSpec("x", (TensorSpec("o", np.dtype(dtype), tuple(shape)),), (ACTION,))
    assert codec.spec_from_proto(codec.spec_to_proto(spec)) == spec


# Bombs: what is small on the wire and large in memory.

COPIES = 200_000


def _nested(*numbers: int, value: bytes) -> bytes:
    for number in reversed(numbers):
        value = b"".join(wire.field(number, value))
    return value


@pytest.mark.parametrize(
    ("read", "bomb"),
    [
        (lambda bomb: codec.decode_tick(bomb, SPEC, N), b"\x12\x00" * COPIES),
        (lambda bomb: codec.decode_tick(bomb, SPEC, N), b"\x2a\x00" * COPIES),
        (lambda bomb: codec.decode_tick(bomb, SPEC, N), b"\x50\x00" * COPIES),
        (lambda bomb: codec.decode_tick(bomb, SPEC, N), _nested(7, 1, value=b"\x01" * COPIES)),
        (lambda bomb: _parse(bomb), _nested(1, 6, value=b"\x12\x00" * 5 * COPIES)),
        (lambda bomb: _parse(bomb), b"\x0a\x00" * COPIES),
        (BatchRequest.parse, b"\x12\x00" * COPIES),
        (BatchRequest.parse, _nested(2, value=b"\x1a\x00" * COPIES)),
        (BatchRequest.parse, _nested(2, 2, 6, value=b"\x12\x00" * 5 * COPIES)),
    ],
    ids=[
        *("observations", "episodes", "unknown fields", "offsets", "leaves", "hellos"),
        *("requests", "ticks of a request", "leaves of a request"),
    ],
)
def test_bombs_cost_little(read: Callable[[bytes], Any], bomb: bytes) -> None:
    """Each is refused, and costs no more memory than a few times its own size: it was a hundred times and more."""
    assert refused_in_a_sentence(lambda: read(bomb))
    assert peak_bytes(lambda: read(bomb)) < 4 * len(bomb) + (32 << 20)


@given(st.text(min_size=1000, max_size=3000) | st.just("é" * 3000))
def test_what_an_error_says_fits_into_a_status(text: str) -> None:
    """However long the error is."""

    class Talkative(SeedrlError):
        pass

    assert len(words_of(Talkative(text)).encode()) <= 1010
    assert words_of(Talkative()) == "Talkative"
    assert len(learner.SessionError(message=words_of(Talkative(text))).SerializeToString()) < MOST_SENTENCE
