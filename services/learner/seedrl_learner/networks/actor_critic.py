"""The network of actor-critic agents: observations -> torso -> core -> policy and baseline."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from seedrl_core.config import NetworkConfig
from seedrl_core.spec import EnvironmentSpec
from seedrl_learner.networks.cores import Core, CoreState, Lstm, NoCore
from seedrl_learner.networks.encoder import Encoder
from seedrl_learner.networks.layers import Dense
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


class NetworkOutput(NamedTuple):
    """Parameters of the policy [B, S, P], baseline V(obs_t) [B, S], float32, and the core state after the last step."""

    policy: tf.Tensor
    baseline: tf.Tensor
    core_state: CoreState


class ActorCriticNetwork(tf.Module):
    """Torso, optional recurrent core, one linear head for the policy and one for the baseline."""

    def __init__(
        self,
        config: NetworkConfig,
        spec: EnvironmentSpec,
        *,
        policy_size: int,
        action_size: int,
        frame_stack: int,
        dtype: tf.DType,
        seed: int,
    ) -> None:
        """Creates all variables.

        Args:
          config: resolved.
          spec: the environment's spaces.
          policy_size: P, parameters of the policy's distribution.
          action_size: F, features of a previous action.
          frame_stack: K.
          dtype: the compute dtype.
          seed: of the initial values.

        Raises:
          ConfigError: spec and torso do not fit.
        """
        super().__init__()
        rng = np.random.default_rng(seed)
        self._config = config
        self._normalizer = Normalizer(spec.observation) if config.normalize_observations else None
        self._encoder = Encoder(config, spec, frame_stack, rng, dtype)
        self._baseline_encoder = Encoder(config, spec, frame_stack, rng, dtype) if config.separate_baseline else None
        features = self._encoder.output_size + action_size * config.previous_action + config.previous_reward
        self._core: Core = Lstm(features, config.core_size, rng, dtype) if config.core == "lstm" else NoCore(features)
        # Small parameters: the first policy is close to uniform.
        self._policy = Dense(self._core.output_size, policy_size, rng, dtype, 0.01)
        self._baseline = Dense(self._baseline_size(), 1, rng, dtype, 1.0)

    @property
    def stacked(self) -> tuple[bool, ...]:
        """For each observation leaf, whether it is stacked."""
        return self._encoder.stacked

    @property
    def core_state_sizes(self) -> tuple[int, ...]:
        """Size of each vector of the recurrent state."""
        return self._core.state_sizes

    def __call__(self, inputs: NetworkInput, core_state: CoreState) -> NetworkOutput:
        """Runs S steps from `core_state` ([B, size] float32 each); S must be known when tracing."""
        if self._normalizer is not None:
            inputs = inputs._replace(observation=self._normalizer(inputs.observation))
        features = self._encoder(inputs.observation, inputs.first, inputs.stack_age)
        x, core_state = self._core(self._with_previous(features, inputs), inputs.first, core_state)
        policy = self._policy(x)
        baseline = self._baseline(self._baseline_features(x, inputs))[:, :, 0]
        return NetworkOutput(tf.cast(policy, tf.float32), tf.cast(baseline, tf.float32), core_state)

    def observe(self, observation: tuple[tf.Tensor, ...]) -> None:
        """Takes new observations, leaves [..., *shape], into the running statistics where they are configured."""
        if self._normalizer is not None:
            self._normalizer.update(observation)

    def _baseline_size(self) -> int:
        if self._baseline_encoder is None:
            return self._core.output_size
        return self._baseline_encoder.output_size + (self._core.output_size if self._core.state_sizes else 0)

    def _baseline_features(self, x: tf.Tensor, inputs: NetworkInput) -> tf.Tensor:
        """The core's output; or the baseline's own features, joined with that of a recurrent core."""
        if self._baseline_encoder is None:
            return x
        features = self._baseline_encoder(inputs.observation, inputs.first, inputs.stack_age)
        return tf.concat([features, tf.cast(x, features.dtype)], axis=-1) if self._core.state_sizes else features

    def _with_previous(self, features: tf.Tensor, inputs: NetworkInput) -> tf.Tensor:
        """Appends a_{t-1} and reward_t, zeros at FIRST, where configured."""
        parts = [features]
        if self._config.previous_action:
            action = tf.where(inputs.first[:, :, tf.newaxis], 0.0, inputs.previous_action)
            parts.append(tf.cast(action, features.dtype))
        if self._config.previous_reward:
            reward = tf.where(inputs.first, 0.0, inputs.reward)
            parts.append(tf.cast(reward, features.dtype)[:, :, tf.newaxis])
        return tf.concat(parts, axis=-1) if len(parts) > 1 else features
