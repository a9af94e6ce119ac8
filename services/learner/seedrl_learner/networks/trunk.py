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
from seedrl_learner.networks.normalization import Normalizer


class NetworkInput(NamedTuple):
    """S steps of B environments.

    Attributes:
      observation: leaf [B, S, *shape] in the spec's dtype; a stacked leaf [B, K-1+S, *shape].
      stack_age: [B] int32, see `stack_frames`.
      first: [B, S] bool.
      previous_action: [B, S, F] float32, a_{t-1} as features; ignored where `first`.
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
        action_size: int,
        frame_stack: int,
        rng: np.random.Generator,
        dtype: tf.DType,
    ) -> None:
        """Takes a resolved configuration, and the number of features of a previous action.

        Raises:
          ConfigError: spec and torso do not fit.
        """
        super().__init__()
        assert config.core_size is not None, "configuration not resolved"
        self._previous_action = bool(config.previous_action)
        self._previous_reward = bool(config.previous_reward)
        self._normalizer = Normalizer(spec.observation) if config.normalize_observations else None
        self._encoder = Encoder(config, spec, frame_stack, rng, dtype)
        features = self._encoder.output_size + action_size * self._previous_action + self._previous_reward
        self._core: Core = Lstm(features, config.core_size, rng, dtype) if config.core == "lstm" else NoCore(features)
        self.stacked = self._encoder.stacked
        self.core_state_sizes = self._core.state_sizes
        self.output_size = self._core.output_size

    def __call__(self, inputs: NetworkInput, core_state: CoreState) -> tuple[tf.Tensor, CoreState]:
        """Features [B, S, output_size] of normalized inputs, and the core state after the last step.

        S must be known when tracing; core states are [B, size] float32 each.
        """
        features = self._encoder(inputs.observation, inputs.first, inputs.stack_age)
        return self._core(self._with_previous(features, inputs), inputs.first, core_state)

    def normalize(self, inputs: NetworkInput) -> NetworkInput:
        """Inputs with float leaves normalized where that is configured; to be called first."""
        if self._normalizer is None:
            return inputs
        return inputs._replace(observation=self._normalizer(inputs.observation))

    def observe(self, observation: tuple[tf.Tensor, ...]) -> None:
        """Takes new observations, leaves [B, steps, *shape], into the running statistics where they are configured."""
        if self._normalizer is not None:
            self._normalizer.update(observation)
        self._encoder.observe(observation)

    def _with_previous(self, features: tf.Tensor, inputs: NetworkInput) -> tf.Tensor:
        """Appends a_{t-1} and reward_t, zeros at FIRST, where configured."""
        parts = [features]
        if self._previous_action:
            action = tf.where(inputs.first[:, :, tf.newaxis], 0.0, inputs.previous_action)
            parts.append(tf.cast(action, features.dtype))
        if self._previous_reward:
            reward = tf.where(inputs.first, 0.0, inputs.reward)
            parts.append(tf.cast(reward, features.dtype)[:, :, tf.newaxis])
        return tf.concat(parts, axis=-1) if len(parts) > 1 else features
