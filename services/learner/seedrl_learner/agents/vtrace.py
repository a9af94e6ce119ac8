"""The V-trace actor-critic agent of IMPALA (arXiv 1802.01561)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from seedrl_core.config import LearnerConfig
from seedrl_core.spec import EnvironmentSpec, TensorSpec
from seedrl_learner.agents import inputs as network_inputs
from seedrl_learner.agents.actions import DiscreteActions
from seedrl_learner.agents.base import Loss
from seedrl_learner.batch import StepInput, StepOutput, UnrollBatch, time_major
from seedrl_learner.compute import compute_dtype
from seedrl_learner.networks.actor_critic import ActorCriticNetwork, NetworkOutput
from seedrl_learner.rl import losses
from seedrl_learner.rl.vtrace import vtrace


class VTraceAgent:
    """Samples from the policy; learns from unrolls by V-trace. See `Agent` for what its attributes and methods mean."""

    overlap = 1

    def __init__(self, config: LearnerConfig, spec: EnvironmentSpec) -> None:
        """Takes a resolved configuration. Raises ConfigError when it cannot handle the spaces."""
        assert config.frame_stack is not None, "configuration not resolved"
        assert config.vtrace.reward_clip is not None, "configuration not resolved"
        self.config = config
        self._reward_clip = config.vtrace.reward_clip
        self._actions = DiscreteActions.of(spec, config.agent)
        self.network = ActorCriticNetwork(
            config.network,
            spec,
            num_actions=self._actions.num_actions,
            frame_stack=config.frame_stack,
            dtype=tf.as_dtype(compute_dtype(config)),
            seed=config.seed,
        )
        self.stacked = self.network.stacked
        self.core_state_sizes = self.network.core_state_sizes
        self.behaviour: tuple[TensorSpec, ...] = (
            TensorSpec("logits", np.dtype(np.float32), (self._actions.num_actions,)),
        )
        self.training_state: Mapping[str, tf.Module] = {}

    def act(
        self, inputs: StepInput, core_state: tuple[tf.Tensor, ...], greedy: tf.Tensor, seed: tf.Tensor
    ) -> StepOutput:
        """See Agent. The behaviour policy is known by its logits."""
        output = self.network(
            network_inputs.of_step(inputs, self.stacked, self._actions, self._reward_clip), core_state
        )
        logits = output.logits[:, 0]
        sampled = tf.random.stateless_categorical(logits, 1, seed, dtype=tf.int32)[:, 0]
        index = tf.where(greedy, tf.argmax(logits, axis=-1, output_type=tf.int32), sampled)
        return StepOutput(self._actions.from_index(index), (logits,), output.core_state)

    def unroll(self, batch: UnrollBatch) -> NetworkOutput:
        """The target policy and baseline at all T + 1 steps of a batch."""
        return self.network(network_inputs.of_unrolls(batch, self._actions, self._reward_clip), batch.core_state)

    def loss(self, batch: UnrollBatch) -> Loss:
        """Policy gradient + baseline_cost * baseline - entropy_cost * entropy + kl_cost * KL(behaviour || target)."""
        config = self.config.vtrace
        output = self.unroll(batch)
        logits, value = time_major(output.logits)[:-1], time_major(output.baseline)
        behaviour_logits = time_major(batch.behaviour[0])[:-1]
        action = time_major(self._actions.to_index(batch.action))[:-1]
        reward = time_major(network_inputs.clip_reward(batch.reward, self._reward_clip))[1:]
        discount, valid = time_major(batch.discount(config.discount)), time_major(batch.valid)
        rho = tf.exp(losses.log_prob(logits, action) - losses.log_prob(behaviour_logits, action))
        assert config.trace_lambda is not None and config.baseline_cost is not None, "configuration not resolved"
        targets = vtrace(
            rho=rho,
            discount=discount,
            reward=reward,
            value=value,
            valid=valid,
            trace_lambda=config.trace_lambda,
            clip_rho=config.clip_rho,
            clip_c=config.clip_c,
            clip_pg_rho=config.clip_pg_rho,
        )
        policy_loss = losses.policy_gradient_loss(logits, action, targets.pg_advantage, valid)
        baseline_loss = losses.baseline_loss(value[:-1], targets.vs, valid)
        entropy = losses.masked_mean(losses.entropy(logits), valid)
        kl = losses.masked_mean(losses.kl_divergence(behaviour_logits, logits), valid)
        total = policy_loss + config.baseline_cost * baseline_loss - config.entropy_cost * entropy + config.kl_cost * kl
        metrics = {
            "loss/total": total,
            "loss/policy": policy_loss,
            "loss/baseline": baseline_loss,
            "train/entropy": entropy,
            "train/kl": kl,
            "train/rho_mean": losses.masked_mean(rho, valid),
            "train/rho_clip_fraction": losses.masked_mean(tf.cast(rho > config.clip_rho, tf.float32), valid),
            "train/value_mean": losses.masked_mean(value[:-1], valid),
            "train/explained_variance": losses.explained_variance(value[:-1], targets.vs, valid),
        }
        return Loss(total, metrics)

    def after_update(self, updates: tf.Tensor) -> dict[str, tf.Tensor]:
        """Nothing follows an update."""
        return {}
