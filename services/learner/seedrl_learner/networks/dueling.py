"""The network of Q-learning agents: a trunk, then the duelling heads of Wang et al. (arXiv 1511.06581)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from seedrl_core.config import NetworkConfig
from seedrl_core.spec import EnvironmentSpec
from seedrl_learner.networks.cores import CoreState
from seedrl_learner.networks.layers import RELU_SCALE, Dense
from seedrl_learner.networks.trunk import NetworkInput, Trunk


class QOutput(NamedTuple):
    """Action values [B, S, A] float32 and the core state after the last step."""

    q: tf.Tensor
    core_state: CoreState


class DuelingNetwork(tf.Module):
    """Q(x, a) = V(x) + A(x, a) - mean of A(x, .), each head with one hidden layer (equation 9)."""

    def __init__(
        self,
        config: NetworkConfig,
        spec: EnvironmentSpec,
        *,
        num_actions: int,
        frame_stack: int,
        dtype: tf.DType,
        seed: int,
    ) -> None:
        """Creates all variables; `dtype` is the compute dtype. Raises ConfigError when spec and torso do not fit."""
        super().__init__()
        assert config.head_size is not None, "configuration not resolved"
        rng = np.random.default_rng(seed)
        self._trunk = Trunk(config, spec, action_size=num_actions, frame_stack=frame_stack, rng=rng, dtype=dtype)
        self.stacked = self._trunk.stacked
        self.core_state_sizes = self._trunk.core_state_sizes
        features, hidden = self._trunk.output_size, config.head_size
        # One product serves the hidden layers of both heads.
        self._hidden = Dense(features, 2 * hidden, rng, dtype, RELU_SCALE)
        # In float32: three digits are too few for values.
        self._value = Dense(hidden, 1, rng, tf.float32, 1.0)
        self._advantage = Dense(hidden, num_actions, rng, tf.float32, 0.01)

    def __call__(self, inputs: NetworkInput, core_state: CoreState) -> QOutput:
        """Runs S steps from `core_state` ([B, size] float32 each); S must be known when tracing."""
        x, core_state = self._trunk(self._trunk.normalize(inputs), core_state)
        for_value, for_advantage = tf.split(tf.nn.relu(self._hidden(x)), 2, axis=-1)
        advantage = self._advantage(for_advantage)
        return QOutput(
            self._value(for_value) + advantage - tf.reduce_mean(advantage, axis=-1, keepdims=True), core_state
        )

    def observe(self, observation: tuple[tf.Tensor, ...]) -> None:
        """See Trunk."""
        self._trunk.observe(observation)
