"""The V-trace actor-critic agent of IMPALA (arXiv 1802.01561)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from seedrl_core.config import LearnerConfig
from seedrl_core.spec import EnvironmentSpec, TensorSpec
from seedrl_learner.agents import inputs as network_inputs
from seedrl_learner.agents.actions import ActionSpace
from seedrl_learner.agents.base import Loss
from seedrl_learner.batch import StepExplanation, StepInput, StepOutput, UnrollBatch, time_major
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
        assert config.unroll_length is not None, "configuration not resolved"
        assert config.vtrace.reward_clip is not None, "configuration not resolved"
        self.config = config
        self._unroll_length = config.unroll_length
        self._reward_clip = config.vtrace.reward_clip
        self._actions = ActionSpace(spec)
        self._policy = self._actions.distribution
        self.network = ActorCriticNetwork(
            config.network,
            spec,
            policy_size=self._policy.num_parameters,
            action_size=self._actions.num_features,
            frame_stack=config.frame_stack,
            normalize_values=bool(config.vtrace.normalize_values),
            dtype=tf.as_dtype(compute_dtype(config)),
            seed=config.seed,
        )
        self.stacked = self.network.stacked
        self.core_state_sizes = self.network.core_state_sizes
        self.behaviour: tuple[TensorSpec, ...] = (
            TensorSpec("policy", np.dtype(np.float32), (self._policy.num_parameters,)),
            *self._actions.stored,
        )
        self.training_state: Mapping[str, tf.Module] = {}

    def act(
        self, inputs: StepInput, core_state: tuple[tf.Tensor, ...], greedy: tf.Tensor | None, seed: tf.Tensor
    ) -> StepOutput:
        """See Agent. The behaviour policy is known by the parameters of its distribution."""
        output = self._step(inputs, core_state)
        policy = output.policy[:, 0]
        sampled = self._policy.mode(policy)
        if greedy is not None:
            drawn = self._policy.sample(policy, seed)
            sampled = tuple(tf.where(greedy[:, tf.newaxis], *each) for each in zip(sampled, drawn, strict=True))
        behaviour = (policy, *self._actions.stored_of(sampled))
        return StepOutput(self._actions.values(sampled), behaviour, output.core_state)

    def explain(self, inputs: StepInput, core_state: tuple[tf.Tensor, ...]) -> StepExplanation:
        """See Agent."""
        output = self._step(inputs, core_state)
        return StepExplanation(output.baseline[:, 0], self._actions.probabilities(output.policy[:, 0]))

    def unroll(self, batch: UnrollBatch) -> NetworkOutput:
        """The target policy, masked, and the baseline at all T + 1 steps of a batch."""
        inputs = network_inputs.of_unrolls(batch, self._actions, self._reward_clip)
        output = self.network(inputs, batch.core_state)
        return output._replace(policy=self._actions.mask(output.policy, batch.observation))

    def loss(self, batch: UnrollBatch, done: tf.Tensor | float = 0.0) -> Loss:
        """Policy gradient + baseline_cost * baseline - entropy_cost * entropy + kl_cost * KL(behaviour || target)."""
        config = self.config.vtrace
        output = self.unroll(batch)
        policy, value = time_major(output.policy)[:-1], time_major(output.baseline)
        behaviour = time_major(batch.behaviour[0])[:-1]
        sampled = tuple(time_major(x)[:-1] for x in self._actions.sampled(batch.action, batch.behaviour[1:]))
        reward = time_major(network_inputs.clip_reward(batch.reward, self._reward_clip))[1:]
        discount, valid = time_major(batch.discount(config.discount)), time_major(batch.valid)
        log_prob = self._policy.log_prob(policy, sampled)
        rho = tf.exp(log_prob - self._policy.log_prob(behaviour, sampled))
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
        advantage = targets.pg_advantage
        if config.normalize_advantages:
            advantage = losses.normalized(advantage, valid)
        policy_loss = losses.policy_gradient_loss(log_prob, advantage, valid)
        scale = self.network.value_deviation
        baseline_loss = losses.baseline_loss(value[:-1] / scale, targets.vs / scale, valid)
        entropy = losses.masked_mean(self._policy.entropy(policy), valid)
        kl = losses.masked_mean(self._policy.kl_divergence(behaviour, policy), valid)
        assert config.entropy_cost is not None and config.entropy_decay is not None, "configuration not resolved"
        entropy_cost = config.entropy_cost * (1.0 - done) if config.entropy_decay else config.entropy_cost
        total = policy_loss + config.baseline_cost * baseline_loss - entropy_cost * entropy + config.kl_cost * kl
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
        return Loss(total, metrics, value_target=(targets.vs, valid))

    def _step(self, inputs: StepInput, core_state: tuple[tf.Tensor, ...]) -> NetworkOutput:
        """The policy, masked, and the baseline of one step, with a time dimension of 1."""
        step = network_inputs.of_step(inputs, self.stacked, self._actions, self._reward_clip)
        output = self.network(step, core_state)
        return output._replace(policy=self._actions.mask(output.policy, step.observation))

    def after_update(self, batch: UnrollBatch, loss: Loss, updates: tf.Tensor) -> dict[str, tf.Tensor]:
        """New observations and value targets enter the running statistics."""
        assert loss.value_target is not None
        self.network.observe_values(*loss.value_target)
        self.network.observe(network_inputs.newest_steps(batch, self._unroll_length))
        return {}
