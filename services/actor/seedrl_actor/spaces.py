"""Gymnasium spaces as leaves: their specs, and values from and to an environment. It knows no environment."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from seedrl_core.errors import BadRequest, EnvironmentFailed
from seedrl_core.spec import DTYPES, Array, TensorSpec


def observation_leaves(space: Any) -> tuple[TensorSpec, ...]:
    """The leaves of an observation space; BadRequest when it is not supported.

    Floats of other sizes than 32 bits travel as float32.
    """
    if not isinstance(space, spaces.Box):
        raise BadRequest(f"observation space: expected a Box, got {space}")
    dtype = np.dtype(space.dtype)
    if dtype.kind == "f":
        dtype = np.dtype(np.float32)
    if dtype.name not in DTYPES:
        raise BadRequest(f"observation space: expected a dtype of {', '.join(DTYPES)}, got {dtype.name}")
    low, high = _bounds(space.low, dtype, -np.inf), _bounds(space.high, dtype, np.inf)
    return (TensorSpec("observation", dtype, tuple(space.shape), low, high),)


def action_leaves(space: Any) -> tuple[TensorSpec, ...]:
    """The leaves of an action space; BadRequest when it is not supported."""
    if not isinstance(space, spaces.Discrete):
        raise BadRequest(f"action space: expected a Discrete, got {space}")
    low = int(space.start)
    return (TensorSpec("action", np.dtype(np.int64), (), (low,), (low + int(space.n) - 1,)),)


def write_observation(value: Any, leaves: tuple[TensorSpec, ...], rows: tuple[Array, ...], env: int) -> None:
    """Copies one environment's observation into row `env` of each leaf's array [N, *shape].

    Raises:
      EnvironmentFailed: the observation has another shape or cannot become the leaf's dtype.
    """
    leaf = leaves[0]
    array = value if isinstance(value, np.ndarray) else np.asarray(value)
    if array.shape != leaf.shape or not np.can_cast(array.dtype, leaf.dtype, "same_kind"):
        raise EnvironmentFailed(
            f"{leaf.path}: expected {leaf.dtype.name} {leaf.shape}, got {array.dtype.name} {array.shape}"
        )
    rows[0][env] = array


def environment_actions(action: tuple[Array, ...]) -> list[Any]:
    """The actions of N environments, each as its space has it: a Python int for Discrete."""
    values: list[Any] = action[0].tolist()
    return values


def _bounds(values: Array, dtype: np.dtype[Any], unbounded: float) -> tuple[float, ...]:
    """Bounds as in TensorSpec: none where all are unbounded, one where all are the same."""
    flat = np.asarray(values, dtype).reshape(-1).tolist()
    if not flat or all(value == unbounded for value in flat):
        return ()
    return (float(flat[0]),) if len(set(flat)) == 1 else tuple(float(value) for value in flat)
