"""Action spaces as the networks see them: Discrete actions as indices from 0."""

from __future__ import annotations

from dataclasses import dataclass

import tensorflow as tf

from seedrl_core.errors import ConfigError
from seedrl_core.spec import EnvironmentSpec, TensorSpec


@dataclass(frozen=True)
class DiscreteActions:
    """One integer leaf without dimensions: `num_actions` values from `start` on."""

    leaf: TensorSpec
    start: int
    num_actions: int

    @classmethod
    def of(cls, spec: EnvironmentSpec, agent: str) -> DiscreteActions:
        """The action space of `spec`; ConfigError, naming the agent that asks, when it is another kind."""
        leaf = spec.action[0]
        if len(spec.action) > 1 or not leaf.is_integer or leaf.shape:
            got = ", ".join(leaf.describe() for leaf in spec.action)
            raise ConfigError(f"action space: agent {agent} expects one integer of shape (), got {got}")
        return cls(leaf, int(leaf.low[0]), int(leaf.high[0]) - int(leaf.low[0]) + 1)

    def to_index(self, action: tuple[tf.Tensor, ...]) -> tf.Tensor:
        """The environment's action leaves [...] as int32 indices [...]."""
        return tf.cast(tf.cast(action[0], tf.int64) - self.start, tf.int32)

    def from_index(self, index: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """Int32 indices [...] as the environment's action leaves [...]."""
        return (tf.cast(tf.cast(index, tf.int64) + self.start, self.leaf.dtype.name),)
