"""Between protobuf messages and NumPy arrays: specs, ticks, actions. The only module of the core that knows schemas.

Sizes and dtypes are checked before anything is allocated. No Python loop runs over environments (episodes aside).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgpack
import numpy as np
from google.protobuf.message import DecodeError

from seedrl_core import wire
from seedrl_core.errors import BadRequest, PeerLost, SpecMismatch
from seedrl_core.shared_memory import SESSION_ID_BYTES, PeerRegion, Reference
from seedrl_core.spec import MAX_DIMENSIONS, MAX_LEAVES, Array, EnvironmentSpec, TensorSpec
from seedrl_proto.v1 import inference_pb2 as inference
from seedrl_proto.v1 import spec_pb2

PROTOCOL_VERSION = 1
MAX_NUM_ENVS = 1 << 16
MAX_INFO_BYTES = 4096
# Of a Hello: 256 leaves with bounds for each of a hundred elements are half of it.
MAX_HELLO_BYTES = 1 << 20
MAX_NAME_LENGTH = 256
# Of a session whose actions are explained: 65,536 numbers may come with each.
MAX_EXPLAINED_ENVS = 64

FIRST = int(inference.FLAG_FIRST)
TERMINATED = int(inference.FLAG_TERMINATED)
TRUNCATED = int(inference.FLAG_TRUNCATED)
RESTARTED = int(inference.FLAG_RESTARTED)
LAST = TERMINATED | TRUNCATED

# Of each value of a byte of flags, whether it is allowed: FIRST shares no tick with an ending, RESTARTED needs FIRST.
_ALLOWED_FLAGS = np.zeros(256, np.bool_)
_ALLOWED_FLAGS[[0, FIRST, FIRST | RESTARTED, TERMINATED, TRUNCATED, LAST]] = True

_FLOAT = np.dtype("<f4")

# Of a Tick besides its observation: fields that stand there once, a reward, flags and an Episode an environment.
_MOST_OTHER_FIELDS = 64
_MOST_OTHER_BYTES = 8192
_MOST_BYTES_AN_ENV = MAX_INFO_BYTES + 64

_DTYPE_TO_PROTO: dict[str, spec_pb2.DType] = {
    "bool": spec_pb2.DTYPE_BOOL,
    "uint8": spec_pb2.DTYPE_UINT8,
    "int8": spec_pb2.DTYPE_INT8,
    "uint16": spec_pb2.DTYPE_UINT16,
    "int16": spec_pb2.DTYPE_INT16,
    "uint32": spec_pb2.DTYPE_UINT32,
    "int32": spec_pb2.DTYPE_INT32,
    "int64": spec_pb2.DTYPE_INT64,
    "float32": spec_pb2.DTYPE_FLOAT32,
    "float64": spec_pb2.DTYPE_FLOAT64,
}
_PROTO_TO_DTYPE = {number: np.dtype(name).newbyteorder("<") for name, number in _DTYPE_TO_PROTO.items()}


@dataclass(frozen=True)
class Episode:
    """A whole episode as the environment counted it: raw return, length in steps, optional named numbers."""

    env: int
    episode_return: float
    length: int
    info: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class TickArrays:
    """One step of a session's N environments.

    Attributes:
      sequence: 0, 1, 2, ... over the session's life.
      observation: obs_t, one array [N, *shape] a leaf, in the spec's order. Decoded ones are read-only views.
      reward: [N] float32, raw reward_t earned by action t-1.
      flags: [N] uint8, bitwise or of FIRST, TERMINATED, TRUNCATED, RESTARTED.
      episodes: those that ended with this tick.
      env_ms: milliseconds the environments took.
    """

    sequence: int
    observation: tuple[Array, ...]
    reward: Array
    flags: Array
    episodes: tuple[Episode, ...] = ()
    env_ms: float = 0.0


@dataclass(frozen=True)
class Explanation:
    """What the agent made of an observation of N environments.

    Attributes:
      value: [N] float32, the discounted return that it expects, of rewards as it is trained on.
      preference: [N, A] float32, the probability of each action, or its value where action values are learned; A is 0
        unless the action is a single Discrete one.
    """

    value: Array
    preference: Array


def spec_to_proto(spec: EnvironmentSpec) -> spec_pb2.EnvironmentSpec:
    """The message for a spec."""
    return spec_pb2.EnvironmentSpec(
        environment_id=spec.environment_id,
        observation=[_leaf_to_proto(leaf) for leaf in spec.observation],
        action=[_leaf_to_proto(leaf) for leaf in spec.action],
        action_repeat=spec.action_repeat,
        frame_stack=spec.frame_stack,
    )


def spec_from_proto(message: spec_pb2.EnvironmentSpec) -> EnvironmentSpec:
    """The spec in a message; BadRequest when it is not usable."""
    for name, leaves in (("observation", message.observation), ("action", message.action)):
        if len(leaves) > MAX_LEAVES:
            raise BadRequest(f"spec: expected 1 to {MAX_LEAVES} {name} leaves, got {len(leaves)}")
    _check_length("spec.environment_id", message.environment_id)
    return EnvironmentSpec(
        environment_id=message.environment_id,
        observation=tuple(_leaf_from_proto(leaf) for leaf in message.observation),
        action=tuple(_leaf_from_proto(leaf) for leaf in message.action),
        action_repeat=max(1, message.action_repeat),
        frame_stack=max(1, message.frame_stack),
    )


def _leaf_to_proto(leaf: TensorSpec) -> spec_pb2.TensorSpec:
    return spec_pb2.TensorSpec(
        path=leaf.path, dtype=_DTYPE_TO_PROTO[leaf.dtype.name], shape=leaf.shape, low=leaf.low, high=leaf.high
    )


def _leaf_from_proto(message: spec_pb2.TensorSpec) -> TensorSpec:
    dtype = _PROTO_TO_DTYPE.get(message.dtype)
    if dtype is None:
        raise BadRequest(f"{message.path or 'leaf'}: expected a known dtype, got number {message.dtype}")
    if len(message.shape) > MAX_DIMENSIONS:
        raise BadRequest(f"{message.path}: expected at most {MAX_DIMENSIONS} dimensions, got {len(message.shape)}")
    return TensorSpec(message.path, dtype, tuple(message.shape), tuple(message.low), tuple(message.high))


def check_hello(hello: inference.Hello) -> None:
    """Checks all but the spec; BadRequest says which field is wrong, SpecMismatch that the contract's version is."""
    if hello.protocol_version != PROTOCOL_VERSION:
        raise SpecMismatch(f"protocol_version: expected {PROTOCOL_VERSION}, got {hello.protocol_version}")
    if len(hello.session_id) != SESSION_ID_BYTES:
        raise BadRequest(f"session_id: expected {SESSION_ID_BYTES} bytes, got {len(hello.session_id)}")
    if not 1 <= hello.num_envs <= MAX_NUM_ENVS:
        raise BadRequest(f"num_envs: expected 1..{MAX_NUM_ENVS}, got {hello.num_envs}")
    if hello.role not in (inference.ROLE_TRAIN, inference.ROLE_EVAL):
        raise BadRequest(f"role: expected ROLE_TRAIN or ROLE_EVAL, got {hello.role}")
    if hello.explain and (hello.role != inference.ROLE_EVAL or hello.num_envs > MAX_EXPLAINED_ENVS):
        raise BadRequest(
            f"explain: expected ROLE_EVAL and at most {MAX_EXPLAINED_ENVS} environments, got "
            f"{inference.Role.Name(hello.role)} and {hello.num_envs}"
        )
    _check_length("actor_id", hello.actor_id)


def _check_length(name: str, text: str) -> None:
    if len(text) > MAX_NAME_LENGTH:
        raise BadRequest(f"{name}: expected at most {MAX_NAME_LENGTH} characters, got {len(text)}")


def encode_tick(tick: TickArrays, shared: Reference | None = None) -> list[wire.Buffer]:
    """A serialized Tick in parts, its observation among them uncopied, or in the region where `shared` says it stands.

    The arrays must have the dtypes of their spec.
    """
    small = inference.Tick(
        reward=np.asarray(tick.reward, _FLOAT).tobytes(),
        flags=np.asarray(tick.flags, np.uint8).tobytes(),
        episodes=[_episode_to_proto(episode) for episode in tick.episodes],
        env_ms=tick.env_ms,
    )
    if shared is not None:
        small.shared.offset.extend(shared.offsets)
        small.shared.generation = shared.generation
    parts: list[wire.Buffer] = [inference.Tick(sequence=tick.sequence).SerializeToString()]
    for leaf in () if shared else tick.observation:
        parts += wire.field(inference.Tick.OBSERVATION_FIELD_NUMBER, np.ascontiguousarray(leaf))
    return [*parts, small.SerializeToString()]


def decode_tick(
    serialized: wire.Buffer, spec: EnvironmentSpec, num_envs: int, region: PeerRegion | None = None
) -> TickArrays:
    """Arrays over the bytes of a serialized Tick, or over the region it refers to; read-only and without copying them.

    Raises:
      BadRequest: no Tick, a leaf of the wrong size, a NaN or infinite number, contradicting flags, a reference that is
        none into the region.
      PeerLost: it refers to a region, and there is none: the session must be opened again.
    """
    observation, rest = wire.cut(
        serialized, inference.Tick.OBSERVATION_FIELD_NUMBER, MAX_LEAVES + _MOST_OTHER_FIELDS + num_envs
    )
    most_bytes = _MOST_OTHER_BYTES + num_envs * _MOST_BYTES_AN_ENV
    if len(rest) > most_bytes:
        raise BadRequest(f"tick: expected at most {most_bytes} bytes besides the observation, got {len(rest)}")
    try:
        message = inference.Tick.FromString(rest)
    except DecodeError as error:
        raise BadRequest(f"tick: expected a serialized Tick, got {len(serialized)} bytes that are none") from error
    if message.HasField("shared"):
        if observation:
            raise BadRequest("observation: expected none in a tick that has it in shared memory")
        if region is None:
            raise PeerLost("the learner does not hold the session's shared memory: open the session again")
        reference = Reference(tuple(message.shared.offset[: MAX_LEAVES + 1]), message.shared.generation)
        observation = region.read(reference, spec.observation, num_envs)
    if len(observation) != len(spec.observation):
        raise BadRequest(f"observation: expected {len(spec.observation)} leaves, got {len(observation)}")
    flags = _array(message.flags, np.dtype(np.uint8), (num_envs,), "flags")
    reward = _array(message.reward, _FLOAT, (num_envs,), "reward")
    leaves = decode_leaves(observation, spec.observation, num_envs)
    _check_finite(reward, "reward")
    for array, leaf in zip(leaves, spec.observation, strict=True):
        if leaf.dtype.kind == "f":
            _check_finite(array, leaf.path)
        elif leaf.dtype.kind == "b":
            _check_bool(array, leaf.path)
    _check_flags(flags)
    if not math.isfinite(message.env_ms):
        raise BadRequest(f"env_ms: expected a finite number, got {message.env_ms}")
    if len(message.episodes) > num_envs:
        raise BadRequest(f"episodes: expected at most {num_envs}, one an environment, got {len(message.episodes)}")
    return TickArrays(
        sequence=message.sequence,
        observation=leaves,
        reward=reward,
        flags=flags,
        episodes=tuple(episode_from_proto(episode, num_envs) for episode in message.episodes),
        env_ms=message.env_ms,
    )


def decode_leaves(values: Sequence[wire.Buffer], leaves: Sequence[TensorSpec], num_envs: int) -> tuple[Array, ...]:
    """One read-only array [num_envs, *shape] a leaf; BadRequest names the leaf of the wrong size."""
    if len(values) != len(leaves):
        raise BadRequest(f"expected {len(leaves)} leaves ({[leaf.path for leaf in leaves]}), got {len(values)}")
    return tuple(
        _array(value, leaf.dtype, (num_envs, *leaf.shape), leaf.path)
        for value, leaf in zip(values, leaves, strict=True)
    )


def encode_actions(
    sequence: int, action: Sequence[Array], policy_version: int, explanation: Explanation | None = None
) -> inference.Actions:
    """The message for the actions [N, *shape] of each leaf; the arrays must have the dtypes of their spec."""
    message = inference.Actions(
        sequence=sequence, action=[leaf.tobytes() for leaf in action], policy_version=policy_version
    )
    if explanation is not None:
        message.explanation.value = explanation.value.astype(_FLOAT).tobytes()
        message.explanation.preference = explanation.preference.astype(_FLOAT).tobytes()
    return message


def decode_explanation(message: inference.Explanation, num_envs: int) -> Explanation:
    """Arrays of num_envs rows; BadRequest when there are more or fewer numbers."""
    num_actions = len(message.preference) // (num_envs * _FLOAT.itemsize)
    return Explanation(
        _array(message.value, _FLOAT, (num_envs,), "explanation.value"),
        _array(message.preference, _FLOAT, (num_envs, num_actions), "explanation.preference"),
    )


def _array(value: wire.Buffer, dtype: np.dtype[Any], shape: tuple[int, ...], name: str) -> Array:
    expected = math.prod(shape) * dtype.itemsize
    if len(value) != expected:
        raise BadRequest(f"{name}: expected {expected} bytes ({dtype.name} {shape}), got {len(value)}")
    return np.frombuffer(value, dtype).reshape(shape)


def _check_finite(array: Array, name: str) -> None:
    finite = np.isfinite(array)
    if not finite.all():
        at = np.unravel_index(int(np.argmin(finite)), array.shape)
        raise BadRequest(f"{name}: expected finite values, got {array[at]} in environment {at[0]}")


def _check_bool(array: Array, name: str) -> None:
    most = int(array.view(np.uint8).max())
    if most > 1:
        raise BadRequest(f"{name}: expected bytes of 0 and 1 for a bool, got {most}")


def _check_flags(flags: Array) -> None:
    allowed = _ALLOWED_FLAGS.take(flags)
    if not allowed.all():
        env = int(np.argmin(allowed))
        raise BadRequest(
            "flags: expected FIRST, TERMINATED, TRUNCATED or RESTARTED with FIRST, never FIRST with an ending; "
            f"got {int(flags[env])} in environment {env}"
        )


def _episode_to_proto(episode: Episode) -> inference.Episode:
    return inference.Episode(
        env=episode.env,
        episode_return=episode.episode_return,
        length=episode.length,
        info=msgpack.packb(dict(episode.info)) if episode.info else b"",
    )


def episode_from_proto(message: inference.Episode, num_envs: int) -> Episode:
    """The episode in a message; BadRequest when it is none of `num_envs` environments."""
    if message.env >= num_envs:
        raise BadRequest(f"episode.env: expected below {num_envs}, got {message.env}")
    if not np.isfinite(message.episode_return):
        raise BadRequest(f"episode.episode_return: expected a finite number, got {message.episode_return}")
    return Episode(message.env, message.episode_return, message.length, _unpack_info(message.info))


def _unpack_info(packed: bytes) -> dict[str, float]:
    if not packed:
        return {}
    if len(packed) > MAX_INFO_BYTES:
        raise BadRequest(f"episode.info: expected at most {MAX_INFO_BYTES} bytes, got {len(packed)}")
    try:
        info = msgpack.unpackb(packed, strict_map_key=True)
    except (ValueError, msgpack.UnpackException) as error:
        raise BadRequest(f"episode.info: expected a msgpack map from string to number, got {error}") from error
    if not isinstance(info, dict) or not all(
        isinstance(key, str) and isinstance(value, int | float) for key, value in info.items()
    ):
        raise BadRequest("episode.info: expected a msgpack map from string to number")
    if not all(map(math.isfinite, info.values())):
        raise BadRequest(f"episode.info: expected finite numbers, got {info}")
    return {key: float(value) for key, value in info.items()}
