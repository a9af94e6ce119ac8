"""The V-trace agent through its real act() and loss(): what inference saw is what training sees."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import rollouts
import tensorflow as tf

from seedrl_core.codec import FIRST, TERMINATED, TRUNCATED
from seedrl_core.config import LearnerConfig
from seedrl_core.spec import Array, EnvironmentSpec, TensorSpec
from seedrl_learner.agents import make_agent
from seedrl_learner.agents.vtrace import VTraceAgent
from seedrl_learner.batch import StepInput, StepOutput, UnrollBatch
from seedrl_learner.defaults import resolve

B, T, START, NUM_ACTIONS = 4, 7, 3, 5
# An episode that ends by its own rules, one that is cut, one of a single step, and one without an ending.
FLAGS = np.zeros((B, T + 1), np.uint8)
FLAGS[:, 0] = [FIRST, 0, 0, 0]
FLAGS[0, 2:4] = [TERMINATED, FIRST]
FLAGS[1, 4:6] = [TRUNCATED, FIRST]
FLAGS[2, 1:5] = [TERMINATED, FIRST, TRUNCATED, FIRST]
FIRSTS = (FLAGS & FIRST) != 0
INVALID = (FLAGS[:, :-1] & (TERMINATED | TRUNCATED)) != 0

VECTOR = TensorSpec("observation", np.dtype(np.float32), (6,))
IMAGE = TensorSpec("observation", np.dtype(np.uint8), (36, 36))


ACTION = TensorSpec("action", np.dtype(np.int64), (), (START,), (START + NUM_ACTIONS - 1,))


def make(leaf: TensorSpec = VECTOR, frame_stack: int = 1, **config: Any) -> VTraceAgent:
    """An agent for START .. START + NUM_ACTIONS - 1, computing in float32."""
    spec = EnvironmentSpec("test", (leaf,), (ACTION,), frame_stack=frame_stack)
    settings = LearnerConfig.model_validate({"compute_dtype": "float32", "unroll_length": T} | config)
    agent = make_agent(resolve(settings, spec), spec)
    assert isinstance(agent, VTraceAgent)
    return agent


RECURRENT = {"core": "lstm", "core_size": 16, "previous_action": True, "previous_reward": True}
AGENTS = {
    "mlp": lambda: make(),
    "mlp_lstm": lambda: make(network=RECURRENT),
    "mlp_stack": lambda: make(frame_stack=3),
    "image_stack_lstm": lambda: make(IMAGE, frame_stack=4, network=RECURRENT),
    "impala": lambda: make(IMAGE, frame_stack=2, network={"torso": "impala_resnet"}),
}


def rollout(agent: VTraceAgent, leaf: TensorSpec, flags: Array = FLAGS, seed: int = 0) -> UnrollBatch:
    """An unroll of `agent`."""
    assert agent.config.frame_stack is not None
    return rollouts.rollout(agent, leaf, ACTION, flags, frame_stack=agent.config.frame_stack, seed=seed)


def gradients(agent: VTraceAgent, batch: UnrollBatch) -> tuple[Array, list[Array]]:
    """The loss and its gradients."""
    variables = agent.network.trainable_variables
    with tf.GradientTape() as tape:
        loss = agent.loss(batch).total
    return loss.numpy(), [tf.convert_to_tensor(g).numpy() for g in tape.gradient(loss, variables)]


@pytest.mark.parametrize("name", AGENTS)
def test_importance_ratios_are_one_without_policy_lag(name: str) -> None:
    """Training recomputes the very logits that inference used, with episodes starting and ending inside the unroll."""
    agent = AGENTS[name]()
    leaf = IMAGE if "im" in name else VECTOR
    batch = rollout(agent, leaf)
    output = agent.unroll(batch)
    np.testing.assert_allclose(output.policy, batch.behaviour[0], rtol=1e-4, atol=1e-6)
    index = batch.action[0].numpy()[..., np.newaxis] - START
    log_pi, log_mu = (
        np.take_along_axis(tf.nn.log_softmax(logits).numpy(), index, axis=-1)[..., 0]
        for logits in (output.policy, batch.behaviour[0])
    )
    np.testing.assert_allclose(np.exp(log_pi - log_mu), np.ones((B, T + 1)), rtol=2e-6)
    metrics = agent.loss(batch).metrics
    assert float(metrics["train/rho_mean"]) == pytest.approx(1.0, abs=1e-6)
    assert float(metrics["train/kl"]) == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("name", AGENTS)
def test_invalid_transitions_carry_no_weight(name: str) -> None:
    """Reward, action and behaviour at a transition into a reset change neither the loss nor a gradient."""
    agent = AGENTS[name]()
    batch = rollout(agent, IMAGE if "im" in name else VECTOR)
    loss, expected = gradients(agent, batch)
    into_reset = np.pad(INVALID, ((0, 0), (1, 0)))
    at_last = np.pad(INVALID, ((0, 0), (0, 1)))
    behaviour = np.where(at_last[:, :, None], np.float32([50, -50, 0, 0, 0]), batch.behaviour[0])
    poisoned = batch._replace(
        reward=tf.constant(np.where(into_reset, np.float32(1e6), batch.reward)),
        action=(tf.constant(np.where(at_last, START + 1, batch.action[0])),),
        previous_action=(tf.constant(np.where(into_reset, START + 1, batch.previous_action[0])),),
        behaviour=(tf.constant(behaviour),),
    )
    poisoned_loss, got = gradients(agent, poisoned)
    np.testing.assert_array_equal(poisoned_loss, loss)
    for one, other in zip(got, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def test_valid_transitions_carry_weight() -> None:
    """The same changes at a valid transition do change the gradients (so that the test above can fail)."""
    agent = make()
    batch = rollout(agent, VECTOR)
    _, expected = gradients(agent, batch)
    reward = batch.reward.numpy()
    reward[3, 3] += 1.0
    _, got = gradients(agent, batch._replace(reward=tf.constant(reward)))
    assert any((one != other).any() for one, other in zip(got, expected, strict=True))


@pytest.mark.parametrize("name", ["mlp_lstm", "mlp_stack", "image_stack_lstm"])
def test_nothing_crosses_a_first(name: str) -> None:
    """After a FIRST in an unroll, the outputs do not depend on anything from before it; until then, they do."""
    agent = AGENTS[name]()
    leaf = IMAGE if "im" in name else VECTOR
    flags = np.zeros((B, T + 1), np.uint8)
    flags[:, 2:4] = [TRUNCATED, FIRST]
    one, other = rollout(agent, leaf, flags, seed=1), rollout(agent, leaf, flags, seed=2)
    history = agent.config.frame_stack - 1

    def joined(before: tf.Tensor, after: tf.Tensor, at: int) -> tf.Tensor:
        return tf.concat([before[:, :at], after[:, at:]], axis=1)

    mixed = other._replace(
        observation=(joined(one.observation[0], other.observation[0], history + 3),),
        reward=joined(one.reward, other.reward, 4),
        previous_action=(joined(one.previous_action[0], other.previous_action[0], 4),),
        core_state=one.core_state,
    )
    expected, got = agent.unroll(other), agent.unroll(mixed)
    np.testing.assert_array_equal(got.policy[:, 3:], expected.policy[:, 3:])
    np.testing.assert_array_equal(got.baseline[:, 3:], expected.baseline[:, 3:])
    assert (got.policy[:, 2] != expected.policy[:, 2]).numpy().any()


def act(agent: VTraceAgent, greedy: bool | None, seed: tuple[int, int], rows: int = 512) -> StepOutput:
    """One step of `rows` environments that all observe the same."""
    step = StepInput(
        observation=(tf.ones([rows, *VECTOR.shape]),),
        reward=tf.zeros([rows]),
        first=tf.ones([rows], tf.bool),
        previous_action=(tf.fill([rows], tf.constant(START, tf.int64)),),
        stack_age=tf.zeros([rows], tf.int32),
        slot=tf.range(rows),
    )
    return agent.act(step, (), None if greedy is None else tf.fill([rows], greedy), tf.constant(seed))


def test_actions_are_in_the_space_of_the_environment() -> None:
    """Discrete(5, start=3): every action of 3..7 is sampled and no other, in the spec's dtype."""
    action = act(make(), greedy=False, seed=(0, 0)).action[0]
    assert action.dtype == tf.int64
    assert set(action.numpy()) == set(range(START, START + NUM_ACTIONS))


def test_greedy_rows_take_the_most_likely_action() -> None:
    """A greedy row takes the argmax of the logits, whatever the seed; so do all rows without exploration."""
    agent = make()
    for greedy, seed in ((True, (0, 0)), (True, (5, 9)), (None, (0, 0))):
        output = act(agent, greedy=greedy, seed=seed)
        best = tf.argmax(output.behaviour[0], axis=-1) + START
        np.testing.assert_array_equal(output.action[0], best)


def test_sampling_is_a_function_of_the_seed_and_follows_the_logits() -> None:
    """The same seed gives the same actions, another one others; frequencies are the policy's probabilities."""
    agent = make()
    one, same, other = (act(agent, greedy=False, seed=seed, rows=4096) for seed in ((1, 2), (1, 2), (1, 3)))
    np.testing.assert_array_equal(one.action[0], same.action[0])
    assert (one.action[0] != other.action[0]).numpy().any()
    frequency = np.bincount(one.action[0].numpy() - START, minlength=NUM_ACTIONS) / 4096
    np.testing.assert_allclose(frequency, tf.nn.softmax(one.behaviour[0][0]), atol=0.03)


def test_rewards_are_clipped_where_configured() -> None:
    """A reward of 7 trains as 1 under reward_clip 1, and as 7 under reward_clip 0."""
    for clip, same_as in ((1.0, 1.0), (0.0, 7.0)):
        agent = make(vtrace={"reward_clip": clip})
        batch = rollout(agent, VECTOR)
        seven, expected = (
            agent.loss(batch._replace(reward=tf.fill([B, T + 1], value))).total for value in (7.0, same_as)
        )
        assert float(seven) == float(expected)
    assert float(agent.loss(batch._replace(reward=tf.ones([B, T + 1]))).total) != float(seven)


@pytest.mark.parametrize(("entropy_decay", "entropy_cost"), [(False, 0.1), (True, 0.025)])
def test_loss_is_the_weighted_sum_of_its_parts(entropy_decay: bool, entropy_cost: float) -> None:
    """Total = policy + baseline_cost * baseline - entropy_cost * entropy + kl_cost * KL, after 3/4 of the run."""
    agent = make(vtrace={"baseline_cost": 0.25, "entropy_cost": 0.1, "entropy_decay": entropy_decay, "kl_cost": 2.0})
    batch = rollout(agent, VECTOR)
    batch = batch._replace(behaviour=(batch.behaviour[0] * 0.5 + 0.3 * tf.range(5, dtype=tf.float32),))
    loss = agent.loss(batch, tf.constant(0.75))
    value = {name: float(metric) for name, metric in loss.metrics.items()}
    assert value["train/kl"] > 0.01
    parts = value["loss/policy"] + 0.25 * value["loss/baseline"] + 2.0 * value["train/kl"]
    expected = parts - entropy_cost * value["train/entropy"]
    assert float(loss.total) == pytest.approx(expected, rel=1e-6)


def test_normalized_values_and_advantages_do_not_depend_on_the_size_of_rewards() -> None:
    """Once the targets are known the losses of returns a thousand times larger are the same; values stay the same."""
    losses = []
    for scale in (1.0, 1000.0):
        agent = make(vtrace={"normalize_values": True, "normalize_advantages": True, "discount": 0.0})
        batch = rollout(agent, VECTOR)
        batch = batch._replace(reward=batch.reward * scale)
        first = agent.loss(batch)
        before = agent.unroll(batch).baseline
        agent.after_update(batch, first, tf.constant(1, tf.int64))
        np.testing.assert_allclose(agent.unroll(batch).baseline, before, rtol=1e-4, atol=1e-3)
        agent.network._baseline.kernel.assign(tf.zeros_like(agent.network._baseline.kernel))
        agent.network._baseline.bias.assign([0.25])
        losses.append(agent.loss(batch))
    small, large = ({name: float(x) for name, x in loss.metrics.items()} for loss in losses)
    assert large["loss/baseline"] == pytest.approx(small["loss/baseline"], rel=1e-3)
    assert large["loss/policy"] == pytest.approx(small["loss/policy"], rel=1e-3)
    assert large["train/value_mean"] == pytest.approx(1000.0 * small["train/value_mean"], rel=1e-3)


def test_an_unroll_without_a_valid_transition_trains_nothing() -> None:
    """The loss is finite and every gradient zero when all transitions go into resets."""
    agent = make()
    batch = rollout(agent, VECTOR, np.full((B, T + 1), FIRST | TRUNCATED, np.uint8))
    loss, got = gradients(agent, batch)
    assert loss == 0.0
    assert not any(g.any() for g in got)
