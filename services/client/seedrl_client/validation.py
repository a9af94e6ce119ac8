"""Checks what an environment service passes to a session, before anything is sent: mistakes show where they arise."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from seedrl_core.codec import FIRST, LAST, RESTARTED
from seedrl_core.errors import BadRequest
from seedrl_core.spec import Array, EnvironmentSpec, TensorSpec

_ALL_FLAGS = FIRST | LAST | RESTARTED


def check_observation(observation: Array | Sequence[Array], spec: EnvironmentSpec, num_envs: int) -> tuple[Array, ...]:
    """The leaves as [N, *shape] arrays in C order; BadRequest names the leaf, what was expected and what was got."""
    leaves = (observation,) if isinstance(observation, np.ndarray) else tuple(observation)
    if len(leaves) != len(spec.observation):
        raise BadRequest(
            f"observation: expected {len(spec.observation)} arrays "
            f"({', '.join(leaf.path for leaf in spec.observation)}), got {len(leaves)}"
        )
    return tuple(_check_leaf(value, leaf, num_envs) for value, leaf in zip(leaves, spec.observation, strict=True))


def check_reward(reward: Array, num_envs: int) -> Array:
    """[N] float32; BadRequest for another shape and for values that are not finite as float32."""
    array = np.asarray(reward)
    if array.shape != (num_envs,) or array.dtype.kind not in "fiub":
        raise BadRequest(f"reward: expected numbers of shape {(num_envs,)}, got {array.dtype.name} {array.shape}")
    with np.errstate(over="ignore"):
        array = array.astype(np.float32, copy=False)
    finite = np.isfinite(array)
    if not finite.all():
        env = int(np.argmin(finite))
        raise BadRequest(f"reward: expected finite float32 values, got {reward[env]} in environment {env}")
    return array


def check_flags(flags: Array, previous: Array | None, num_envs: int) -> Array:
    """[N] uint8, and in an order that makes episodes.

    Args:
      flags: of this tick.
      previous: of the tick before; None at the first tick of the session.
      num_envs: N.

    Raises:
      BadRequest: unknown or contradicting bits, or an environment that goes on after its episode's end without FIRST.
    """
    array = np.asarray(flags)
    if array.shape != (num_envs,) or array.dtype.kind not in "iu":
        raise BadRequest(f"flags: expected uint8 of shape {(num_envs,)}, got {array.dtype.name} {array.shape}")
    _raise_at(array & _ALL_FLAGS != array, array, "expected only FIRST, TERMINATED, TRUNCATED and RESTARTED")
    first = array & FIRST != 0
    _raise_at(first & (array & LAST != 0), array, "FIRST and an ending cannot share a tick")
    _raise_at(~first & (array & RESTARTED != 0), array, "RESTARTED needs FIRST")
    if previous is None:
        _raise_at(~first, array, "the first tick of a session must be FIRST")
    else:
        _raise_at(~first & (previous & LAST != 0), array, "the tick after an ending must be FIRST")
    return array.astype(np.uint8, copy=False)


def _check_leaf(value: Array, leaf: TensorSpec, num_envs: int) -> Array:
    array = np.asarray(value)
    shape = (num_envs, *leaf.shape)
    if array.shape != shape or array.dtype != leaf.dtype:
        raise BadRequest(f"{leaf.path}: expected {leaf.dtype.name} {shape}, got {array.dtype.name} {array.shape}")
    return array


def _raise_at(wrong: Array, flags: Array, why: str) -> None:
    if wrong.any():
        env = int(np.argmax(wrong))
        raise BadRequest(f"flags: {why}, got {int(flags[env])} in environment {env}")
