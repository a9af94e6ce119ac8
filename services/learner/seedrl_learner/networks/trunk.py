"""The trunk that all agents' networks share: observations -> torso -> previous action and reward -> recurrent core."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from seedrl_core.config import NetworkConfig
from seedrl_core.spec import EnvironmentSpec
from seedrl_learner.networks.cores import Core, CoreState, Lstm, NoCore
from seedrl_learner.networks.encoder import Encoder
from seedrl_learner.networks.frame_stack import episode_age


class NetworkInput(NamedTuple):
    """S steps of B environments.

    Attributes:
      observation: leaf [B, S, *shape] in the spec's dtype; a stacked leaf [B, K-1+S, *shape].
      stack_age: [B] int32, see `stack_frames`.
      first: [B, S] bool.
      previous_action: [B, S] int32, index of a_{t-1}; ignored where `first`.
      reward: [B, S] float32, reward_t as training uses it; ignored where `first`.
    """

    observation: tuple[tf.Tensor, ...]
    stack_age: tf.Tensor
    first: tf.Tensor
    previous_action: tf.Tensor
    reward: tf.Tensor

    def split(self, step: int) -> tuple[NetworkInput, NetworkInput]:
        """The steps before `step` (1..S-1) and those from it on, each with the frames that its stacks need."""
        steps = self.first.shape[1]

        def until(leaf: tf.Tensor) -> tf.Tensor:
            return leaf[:, : leaf.shape[1] - steps + step]

        before = NetworkInput(
            tuple(map(until, self.observation)),
            self.stack_age,
            self.first[:, :step],
            self.previous_action[:, :step],
            self.reward[:, :step],
        )
        after = NetworkInput(
            tuple(leaf[:, step:] for leaf in self.observation),
            # One more than the age of the step before; where `step` is FIRST its age does not count.
            episode_age(before.first, self.stack_age)[:, -1] + 1,
            self.first[:, step:],
            self.previous_action[:, step:],
            self.reward[:, step:],
        )
        return before, after


class Trunk(tf.Module):
    """From the inputs of each step to the features that the heads read."""

    def __init__(
        self,
        config: NetworkConfig,
        spec: EnvironmentSpec,
        *,
        num_actions: int,
        frame_stack: int,
        rng: np.random.Generator,
        dtype: tf.DType,
    ) -> None:
        """Takes a resolved configuration. Raises ConfigError when spec and torso do not fit."""
        super().__init__()
        assert config.core_size is not None, "configuration not resolved"
        self._previous_action = bool(config.previous_action)
        self._previous_reward = bool(config.previous_reward)
        self._num_actions = num_actions
        self._encoder = Encoder(config, spec, frame_stack, rng, dtype)
        features = self._encoder.output_size + num_actions * self._previous_action + self._previous_reward
        self._core: Core = Lstm(features, config.core_size, rng, dtype) if config.core == "lstm" else NoCore(features)
        self.stacked = self._encoder.stacked
        self.core_state_sizes = self._core.state_sizes
        self.output_size = self._core.output_size

    def __call__(self, inputs: NetworkInput, core_state: CoreState) -> tuple[tf.Tensor, CoreState]:
        """Features [B, S, output_size] and the core state ([B, size] float32 each) after the last step.

        S must be known when tracing.
        """
        features = self._encoder(inputs.observation, inputs.first, inputs.stack_age)
        return self._core(self._with_previous(features, inputs), inputs.first, core_state)

    def _with_previous(self, features: tf.Tensor, inputs: NetworkInput) -> tf.Tensor:
        """Appends a_{t-1} and reward_t, zeros at FIRST, where configured."""
        parts = [features]
        if self._previous_action:
            index = tf.where(inputs.first, -1, inputs.previous_action)
            parts.append(tf.one_hot(index, self._num_actions, dtype=features.dtype))
        if self._previous_reward:
            reward = tf.where(inputs.first, 0.0, inputs.reward)
            parts.append(tf.cast(reward, features.dtype)[:, :, tf.newaxis])
        return tf.concat(parts, axis=-1) if len(parts) > 1 else features
