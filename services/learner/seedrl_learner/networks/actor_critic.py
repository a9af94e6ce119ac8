"""The network of actor-critic agents: a trunk, then policy logits and a baseline."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from seedrl_core.config import NetworkConfig
from seedrl_core.spec import EnvironmentSpec
from seedrl_learner.networks.cores import CoreState
from seedrl_learner.networks.encoder import Encoder
from seedrl_learner.networks.layers import Dense
from seedrl_learner.networks.trunk import NetworkInput, Trunk
from seedrl_learner.networks.value_head import ValueHead


class NetworkOutput(NamedTuple):
    """Parameters of the policy [B, S, P], baseline V(obs_t) [B, S], float32, and the core state after the last step."""

    policy: tf.Tensor
    baseline: tf.Tensor
    core_state: CoreState


class ActorCriticNetwork(tf.Module):
    """Trunk, one linear head for the policy and one for the baseline."""

    def __init__(
        self,
        config: NetworkConfig,
        spec: EnvironmentSpec,
        *,
        policy_size: int,
        action_size: int,
        frame_stack: int,
        normalize_values: bool,
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
          normalize_values: the baseline is scaled to its targets.
          dtype: the compute dtype.
          seed: of the initial values.

        Raises:
          ConfigError: spec and torso do not fit.
        """
        super().__init__()
        rng = np.random.default_rng(seed)
        self._trunk = Trunk(config, spec, action_size=action_size, frame_stack=frame_stack, rng=rng, dtype=dtype)
        self._baseline_encoder = Encoder(config, spec, frame_stack, rng, dtype) if config.separate_baseline else None
        self.stacked = self._trunk.stacked
        self.core_state_sizes = self._trunk.core_state_sizes
        # Small parameters: the first policy is close to uniform. In float32: three digits are too few for both heads.
        self._policy = Dense(self._trunk.output_size, policy_size, rng, tf.float32, 0.01)
        self._baseline = ValueHead(self._baseline_size(), rng, normalize=normalize_values)

    def __call__(self, inputs: NetworkInput, core_state: CoreState) -> NetworkOutput:
        """Runs S steps from `core_state` ([B, size] float32 each); S must be known when tracing."""
        inputs = self._trunk.normalize(inputs)
        x, core_state = self._trunk(inputs, core_state)
        baseline = self._baseline(self._baseline_features(x, inputs))
        return NetworkOutput(self._policy(x), baseline, core_state)

    @property
    def value_deviation(self) -> tf.Tensor:
        """Size of a difference of values, scalar float32; 1 where they are not normalized."""
        return self._baseline.deviation

    def observe_values(self, target: tf.Tensor, valid: tf.Tensor) -> None:
        """Takes in what values were trained towards, [T, B], where valid, [T, B]."""
        self._baseline.observe(target, valid)

    def observe(self, observation: tuple[tf.Tensor, ...]) -> None:
        """See Trunk."""
        self._trunk.observe(observation)
        if self._baseline_encoder is not None:
            self._baseline_encoder.observe(observation)

    def _baseline_size(self) -> int:
        if self._baseline_encoder is None:
            return self._trunk.output_size
        return self._baseline_encoder.output_size + (self._trunk.output_size if self.core_state_sizes else 0)

    def _baseline_features(self, x: tf.Tensor, inputs: NetworkInput) -> tf.Tensor:
        """The trunk's output; or the baseline's own features, joined with that of a recurrent core."""
        if self._baseline_encoder is None:
            return x
        features = self._baseline_encoder(inputs.observation, inputs.first, inputs.stack_age)
        return tf.concat([features, tf.cast(x, features.dtype)], axis=-1) if self.core_state_sizes else features
