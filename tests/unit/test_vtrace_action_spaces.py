"""The V-trace agent on every kind of action space: training recomputes what inference did, masks hold in both."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from seedrl_core.codec import FIRST, TERMINATED, TRUNCATED
from seedrl_core.config import LearnerConfig
from seedrl_core.spec import EnvironmentSpec, TensorSpec
from seedrl_learner.agents import make_agent
from seedrl_learner.agents.vtrace import VTraceAgent
from seedrl_learner.batch import StepInput, UnrollBatch
from seedrl_learner.defaults import resolve

B, T = 16, 7
FLAGS = np.zeros((B, T + 1), np.uint8)
FLAGS[:, 0] = FIRST
FLAGS[0, 2:4] = [TERMINATED, FIRST]
FLAGS[1, 4:6] = [TRUNCATED, FIRST]

STATE = TensorSpec("observation/state", np.dtype(np.float32), (3,))
DISCRETE = TensorSpec("action/a", np.dtype(np.int64), (), (3,), (7,))
MULTI = TensorSpec("action/b", np.dtype(np.int64), (2,), (0, 1), (1, 3))
BOX = TensorSpec("action/c", np.dtype(np.float32), (2,), (-2.0, 0.0), (2.0, 0.5))
MASK = TensorSpec("observation/action_mask/b", np.dtype(np.int8), (5,))
SPECS = {
    "multi": EnvironmentSpec("test", (STATE,), (MULTI,)),
    "box": EnvironmentSpec("test", (STATE,), (BOX,)),
    "all": EnvironmentSpec("test", (STATE,), (DISCRETE, MULTI, BOX)),
    "masked": EnvironmentSpec("test", (MASK, STATE), (DISCRETE, MULTI, BOX)),
    "masked_stacked": EnvironmentSpec("test", (MASK, STATE), (MULTI,), frame_stack=3),
}


def make(name: str, **config: Any) -> VTraceAgent:
    """A recurrent agent that sees its previous action."""
    spec = SPECS[name]
    network = {"core": "lstm", "core_size": 8, "previous_action": True, "normalize_observations": True}
    agent = make_agent(resolve(LearnerConfig.model_validate({"unroll_length": T, "network": network}), spec), spec)
    assert isinstance(agent, VTraceAgent)
    # Far from the uniform policy of the beginning.
    for variable in agent.network.trainable_variables:
        variable.assign_add(tf.random.stateless_normal(variable.shape, [1, 2], stddev=0.3))
    return agent


def rollout(name: str, agent: VTraceAgent) -> UnrollBatch:
    """B unrolls through act(), with random observations and masks that always allow something."""
    rng = np.random.default_rng(0)
    spec, history = SPECS[name], agent.config.frame_stack - 1
    observation = []
    for leaf, stacked in zip(spec.observation, agent.stacked, strict=True):
        shape = (B, T + 1 + (history if stacked else 0), *leaf.shape)
        values = rng.normal(size=shape).astype(leaf.dtype)
        if leaf is MASK:
            values = (rng.random(shape) < 0.5).astype(np.int8)
            values[..., 0] |= values[..., 1] == 0
            values[..., 3] |= (values[..., 2] == 0) & (values[..., 4] == 0)
        observation.append(values)
    first = (FLAGS & FIRST) != 0
    state = initial_state = tuple(tf.zeros([B, size]) for size in agent.core_state_sizes)
    action = tuple(tf.zeros([B, *leaf.shape], leaf.dtype) for leaf in spec.action)
    age = np.zeros(B, np.int32)
    steps = []
    for t in range(T + 1):
        age = np.where(first[:, t], 0, np.minimum(age + 1, history)).astype(np.int32)
        inputs = StepInput(
            observation=tuple(
                tf.constant(leaf[:, t : t + history + 1] if stacked and history else leaf[:, t])
                for leaf, stacked in zip(observation, agent.stacked, strict=True)
            ),
            reward=tf.zeros([B]),
            first=tf.constant(first[:, t]),
            previous_action=action,
            stack_age=tf.constant(age),
            slot=tf.range(B),
        )
        output = agent.act(inputs, state, tf.zeros([B], tf.bool), tf.constant([3, t]))
        steps.append((action, output.action, output.behaviour))
        action, state = output.action, output.core_state
    previous, actions, behaviour = (
        tuple(tf.stack(leaf, axis=1) for leaf in zip(*parts, strict=True)) for parts in zip(*steps, strict=True)
    )
    return UnrollBatch(
        observation=tuple(map(tf.constant, observation)),
        reward=tf.constant(rng.normal(size=(B, T + 1)).astype(np.float32)),
        flags=tf.constant(FLAGS),
        previous_action=previous,
        action=actions,
        behaviour=behaviour,
        stack_age=tf.zeros([B], tf.int32),
        core_state=initial_state,
        policy_version=tf.zeros(FLAGS.shape, tf.int64),
        weight=tf.ones([B]),
    )


@pytest.mark.parametrize("name", SPECS)
def test_importance_ratios_are_one_without_policy_lag(name: str) -> None:
    """Training recomputes the log-probability of what inference sampled; every variable gets a finite gradient."""
    agent = make(name)
    batch = rollout(name, agent)
    with tf.GradientTape() as tape:
        loss = agent.loss(batch)
    gradients = tape.gradient(loss.total, agent.network.trainable_variables)
    assert all(np.isfinite(tf.convert_to_tensor(gradient)).all() for gradient in gradients)
    assert float(loss.metrics["train/rho_mean"]) == pytest.approx(1.0, abs=1e-5)
    assert float(loss.metrics["train/kl"]) == pytest.approx(0.0, abs=1e-5)
    for sizes, value in zip(agent.behaviour, batch.behaviour, strict=True):
        assert value.shape == (B, T + 1, *sizes.shape)


@pytest.mark.parametrize("name", ["masked", "masked_stacked"])
def test_a_masked_action_is_impossible_in_inference_and_in_training(name: str) -> None:
    """It is never taken, and both policies give it probability 0; allowed ones share all of it."""
    agent = make(name)
    batch = rollout(name, agent)
    action = batch.action[0 if name == "masked_stacked" else 1].numpy()
    mask = batch.observation[0].numpy() != 0
    np.testing.assert_array_equal(np.take_along_axis(mask[..., :2], action[..., :1], axis=-1), True)
    np.testing.assert_array_equal(np.take_along_axis(mask[..., 2:], action[..., 1:] - 1, axis=-1), True)
    first = 0 if name == "masked_stacked" else 5
    for policy in (batch.behaviour[0], agent.unroll(batch).policy):
        for part, allowed in (
            (policy[..., first : first + 2], mask[..., :2]),
            (policy[..., first + 2 : first + 5], mask[..., 2:]),
        ):
            probability = tf.nn.softmax(part).numpy()
            np.testing.assert_array_equal(probability[~allowed], 0.0)
            np.testing.assert_allclose(np.where(allowed, probability, 0.0).sum(-1), 1.0, rtol=1e-5)


def test_statistics_change_the_policy_only_after_an_update() -> None:
    """act() and loss() leave the statistics alone; after_update() takes in the steps that unrolls do not share."""
    agent = make("box")
    batch = rollout("box", agent)
    before = agent.unroll(batch).policy
    loss = agent.loss(batch)
    np.testing.assert_array_equal(agent.unroll(batch).policy, before)
    agent.after_update(batch, loss, tf.constant(1, tf.int64))
    assert (agent.unroll(batch).policy != before).numpy().any()
    seen = batch.observation[0].numpy()[:, 1:].reshape(-1, 3)
    normalized = agent.network._trunk._normalizer(batch.observation)[0].numpy()[:, 1:].reshape(-1, 3)
    np.testing.assert_allclose(normalized, (seen - seen.mean(0)) / seen.std(0), rtol=1e-3, atol=1e-4)
