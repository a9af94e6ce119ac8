"""R2D2: recurrent Q-learning from replayed sequences (Kapturowski et al., ICLR 2019)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from seedrl_core.config import LearnerConfig
from seedrl_core.spec import EnvironmentSpec, TensorSpec
from seedrl_learner.agents import inputs as network_inputs
from seedrl_learner.agents.actions import ActionSpace, DiscreteActions
from seedrl_learner.agents.base import Loss
from seedrl_learner.batch import StepExplanation, StepInput, StepOutput, UnrollBatch, time_major
from seedrl_learner.compute import compute_dtype
from seedrl_learner.networks.dueling import DuelingNetwork
from seedrl_learner.rl.exploration import epsilon_ladder
from seedrl_learner.rl.losses import masked_mean
from seedrl_learner.rl.returns import n_step_return
from seedrl_learner.rl.value_rescaling import rescale, unrescale


class R2D2Agent:
    """Epsilon-greedy actions; double Q-learning with rescaled n-step returns. See `Agent` and `ReplayAgent`.

    The network's values are rescaled ones, h(Q). An unroll begins with `burn_in` steps that only bring the core state
    up to date; its other transitions are trained on, each of them in this unroll alone.
    """

    def __init__(self, config: LearnerConfig, spec: EnvironmentSpec) -> None:
        """Takes a resolved configuration. Raises ConfigError when it cannot handle the spaces."""
        assert config.frame_stack is not None, "configuration not resolved"
        assert config.r2d2.burn_in is not None, "configuration not resolved"
        assert config.r2d2.target_update_period is not None, "configuration not resolved"
        self.config = config
        assert config.unroll_length is not None, "configuration not resolved"
        self._burn_in = config.r2d2.burn_in
        self._unroll_length = config.unroll_length
        self._target_update_period = config.r2d2.target_update_period
        self._actions = DiscreteActions.of(spec, config.agent)
        self._mask = ActionSpace(spec).mask
        self.network, self._target = (
            DuelingNetwork(
                config.network,
                spec,
                num_actions=self._actions.num_actions,
                frame_stack=config.frame_stack,
                dtype=tf.as_dtype(compute_dtype(config)),
                seed=config.seed,
            )
            for _ in range(2)
        )
        self.overlap = self._burn_in + 1
        self.stacked = self.network.stacked
        self.core_state_sizes = self.network.core_state_sizes
        self.training_state: Mapping[str, tf.Module] = {"target": self._target}
        self.behaviour: tuple[TensorSpec, ...] = (
            TensorSpec("q_of_action", np.dtype(np.float32), ()),
            TensorSpec("q_max", np.dtype(np.float32), ()),
        )
        self._epsilon = epsilon_ladder(
            config.r2d2.epsilon_levels, config.r2d2.epsilon_base, config.r2d2.epsilon_exponent
        )

    def act(
        self, inputs: StepInput, core_state: tuple[tf.Tensor, ...], greedy: tf.Tensor | None, seed: tf.Tensor
    ) -> StepOutput:
        """See Agent. An environment's epsilon depends on its slot, so it keeps it while others come and go."""
        step = network_inputs.of_step(inputs, self.stacked, self._actions, self.config.r2d2.reward_clip)
        output = self.network(step, core_state)
        q = output.q[:, 0]
        best = tf.argmax(self._mask(output.q, step.observation)[:, 0], axis=-1, output_type=tf.int32)
        index = best
        if greedy is not None:
            level = inputs.slot % len(self._epsilon)
            epsilon = tf.where(greedy, self.config.r2d2.eval_epsilon, tf.gather(tf.constant(self._epsilon), level))
            explores = tf.random.stateless_uniform(tf.shape(best), seed) < epsilon
            equally_likely = self._mask(tf.zeros_like(output.q), step.observation)[:, 0]
            any_action = tf.random.stateless_categorical(equally_likely, 1, tf.random.fold_in(seed, 1), dtype=tf.int32)
            index = tf.where(explores, any_action[:, 0], best)
        behaviour = (_of_action(q, index), _of_action(q, best))
        return StepOutput(self._actions.from_index(index), behaviour, output.core_state)

    def explain(self, inputs: StepInput, core_state: tuple[tf.Tensor, ...]) -> StepExplanation:
        """See Agent: action values, of which a forbidden action's has no meaning."""
        step = network_inputs.of_step(inputs, self.stacked, self._actions, self.config.r2d2.reward_clip)
        rescaled = self.network(step, core_state).q
        allowed = self._mask(rescaled, step.observation)[:, 0]
        epsilon = self.config.r2d2.rescaling_epsilon
        return StepExplanation(unrescale(tf.reduce_max(allowed, axis=-1), epsilon), unrescale(rescaled[:, 0], epsilon))

    def loss(self, batch: UnrollBatch, done: tf.Tensor | float = 0.0) -> Loss:
        """Importance-weighted mean over unrolls of the sum over transitions of TD^2 / 2."""
        (q, q_allowed), (q_target, _) = self._values(self.network, batch), self._values(self._target, batch)
        best = tf.argmax(q_allowed, axis=-1, output_type=tf.int32)
        q_of_action = _of_action(q, self._trained(self._actions.to_index(batch.action)))[:-1]
        td_error = tf.stop_gradient(self._target_values(batch, _of_action(q_target, best))) - q_of_action
        valid = self._trained(batch.valid)
        per_unroll = tf.reduce_sum(tf.where(valid, 0.5 * tf.square(td_error), 0.0), axis=0)
        total = tf.reduce_mean(batch.weight * per_unroll)
        metrics = {
            "loss/total": total,
            "train/td_error": masked_mean(tf.abs(td_error), valid),
            "train/q_mean": masked_mean(q_of_action, valid),
            "train/q_max": tf.reduce_max(q),
        }
        return Loss(total, metrics, self._priority(td_error, valid))

    def after_update(self, batch: UnrollBatch, loss: Loss, updates: tf.Tensor) -> dict[str, tf.Tensor]:
        """Every `target_update_period` updates the target network becomes a copy of the network."""
        self.network.observe(network_inputs.newest_steps(batch, self._unroll_length))
        lag = updates % self._target_update_period

        def copy() -> tf.Tensor:
            for target, online in zip(self._target.variables, self.network.variables, strict=True):
                target.assign(online)
            return tf.constant(True)

        tf.cond(tf.equal(lag, 0), copy, lambda: tf.constant(False))
        return {"train/target_lag_updates": tf.cast(lag, tf.float32)}

    def initial_priority(self, batch: UnrollBatch) -> tf.Tensor:
        """See ReplayAgent. TD errors of the values that acted, as in Ape-X: the network is its own target."""
        q_of_action, q_max = map(self._trained, batch.behaviour)
        td_error = self._target_values(batch, q_max) - q_of_action[:-1]
        return self._priority(td_error, self._trained(batch.valid))

    def _values(self, network: DuelingNetwork, batch: UnrollBatch) -> tuple[tf.Tensor, tf.Tensor]:
        """Values [unroll_length + 1, B, A] after the burn-in, through which no gradient flows: plain and masked."""
        inputs = network_inputs.of_unrolls(batch, self._actions, self.config.r2d2.reward_clip)
        state = batch.core_state
        if self._burn_in:
            before, inputs = inputs.split(self._burn_in)
            state = tuple(map(tf.stop_gradient, network(before, state).core_state))
        q = network(inputs, state).q
        return time_major(q), time_major(self._mask(q, inputs.observation))

    def _target_values(self, batch: UnrollBatch, value: tf.Tensor) -> tf.Tensor:
        """h(n-step return) [unroll_length, B] from rescaled state values [unroll_length + 1, B]."""
        config = self.config.r2d2
        returns = n_step_return(
            reward=self._trained(network_inputs.clip_reward(batch.reward, config.reward_clip))[1:],
            discount=self._trained(batch.discount(config.discount)),
            value=unrescale(value, config.rescaling_epsilon),
            valid=self._trained(batch.valid),
            n=config.n_step,
        )
        return rescale(returns, config.rescaling_epsilon)

    def _priority(self, td_error: tf.Tensor, valid: tf.Tensor) -> tf.Tensor:
        """Eta max |TD| + (1 - eta) mean |TD| over the valid transitions of each unroll (section 2.3): [T, B] -> [B]."""
        eta = self.config.r2d2.priority_max_weight
        error = tf.where(valid, tf.abs(td_error), 0.0)
        count = tf.reduce_sum(tf.cast(valid, tf.float32), axis=0)
        mean = tf.reduce_sum(error, axis=0) / tf.maximum(count, 1.0)
        return eta * tf.reduce_max(error, axis=0) + (1.0 - eta) * mean

    def _trained(self, x: tf.Tensor) -> tf.Tensor:
        """Without the burn-in, time major: [B, burn_in + S, ...] -> [S, B, ...]."""
        return time_major(x)[self._burn_in :]


def _of_action(q: tf.Tensor, action: tf.Tensor) -> tf.Tensor:
    """The values [...] of the actions [...] int32 among q [..., A]."""
    return tf.gather(q, action, axis=-1, batch_dims=action.shape.rank)
