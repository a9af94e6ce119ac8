"""Actions for somebody's environment: any that its spec, and the masks in its observation, allow. Knows no messages."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from seedrl_core.spec import ACTION_MASK, Array, EnvironmentSpec, TensorSpec


def mask_of(spec: EnvironmentSpec, action: TensorSpec) -> int | None:
    """The number of the observation leaf that masks an action leaf; None where there is none."""
    name = action.path.removeprefix("action").strip("/")
    wanted = f"{ACTION_MASK}/{name}" if name else ACTION_MASK
    return next((index for index, leaf in enumerate(spec.observation) if leaf.path == wanted), None)


def num_values(action: TensorSpec) -> list[int]:
    """How many values each element of an integer action may have, in C order."""
    low, high = action.bounds
    return [int(size) for size in high - low + 1]


def allows_a_value(allowed: Array, action: TensorSpec) -> Array:
    """[N] bool: for each element of an integer action a mask, here [N, all values] bool, has an allowed value."""
    ends = np.cumsum(num_values(action))[:-1]
    allows: Array = np.ones(len(allowed), np.bool_)
    for part in np.split(allowed, ends, axis=1):
        allows &= part.any(axis=1)
    return allows


class ActionChooser:
    """Chooses at random; of masked values one that is allowed, as long as there is one."""

    def __init__(self, spec: EnvironmentSpec, num_envs: int, rng: np.random.Generator) -> None:
        """Of a spec with bounded actions."""
        self._spec = spec
        self._num_envs = num_envs
        self._rng = rng

    def choose(self, observation: Sequence[Array] | None) -> tuple[Array, ...]:
        """An array [N, *shape] a leaf of the action; without an observation nothing is masked."""
        return tuple(self._leaf(leaf, observation) for leaf in self._spec.action)

    def _leaf(self, leaf: TensorSpec, observation: Sequence[Array] | None) -> Array:
        mask = mask_of(self._spec, leaf)
        low, high = leaf.bounds
        size = (self._num_envs, leaf.size)
        if observation is not None and mask is not None:
            flat = low + self._masked(observation[mask].reshape(self._num_envs, -1) != 0, leaf)
        elif leaf.is_integer:
            flat = self._rng.integers(low.astype(np.int64), high.astype(np.int64), size, endpoint=True)
        else:
            flat = self._rng.uniform(low, high, size)
        # A float32 may round to beyond its bound.
        values: Array = np.clip(flat.astype(leaf.dtype), low.astype(leaf.dtype), high.astype(leaf.dtype))
        return values.reshape(self._num_envs, *leaf.shape)

    def _masked(self, allowed: Array, leaf: TensorSpec) -> Array:
        """[N, size] indices from 0 of each element's values."""
        preference = allowed + self._rng.random(allowed.shape)
        ends = np.cumsum(num_values(leaf))[:-1]
        return np.stack([part.argmax(axis=1) for part in np.split(preference, ends, axis=1)], axis=1)
