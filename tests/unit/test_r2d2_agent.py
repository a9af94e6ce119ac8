"""The R2D2 agent through its real act(), loss() and priorities, against the paper's formulas in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import rollouts
import tensorflow as tf

from seedrl_core.codec import FIRST, TERMINATED, TRUNCATED
from seedrl_core.config import LearnerConfig
from seedrl_core.errors import ConfigError
from seedrl_core.spec import Array, EnvironmentSpec, TensorSpec
from seedrl_learner.agents import inputs as network_inputs
from seedrl_learner.agents import make_agent
from seedrl_learner.agents.actions import DiscreteActions
from seedrl_learner.agents.base import ReplayAgent
from seedrl_learner.agents.r2d2 import R2D2Agent
from seedrl_learner.batch import StepInput, UnrollBatch
from seedrl_learner.defaults import resolve
from seedrl_learner.networks.trunk import NetworkInput

BURN_IN, LENGTH = 3, 7
B, STEPS, START, NUM_ACTIONS = 4, BURN_IN + LENGTH + 1, 3, 5
GAMMA, EPSILON, ETA = 0.997, 1e-3, 0.9
# An ending in the burn-in and one after it, one cut at the seam, episodes of a single step, no ending at all.
FLAGS = np.zeros((B, STEPS), np.uint8)
FLAGS[:, 0] = [FIRST, 0, 0, 0]
FLAGS[0, [1, 2, 7, 8]] = [TERMINATED, FIRST, TRUNCATED, FIRST]
FLAGS[1, [2, 3]] = [TRUNCATED, FIRST]
FLAGS[2, 5:9] = [TERMINATED, FIRST, TRUNCATED, FIRST]

VECTOR = TensorSpec("observation", np.dtype(np.float32), (6,))
IMAGE = TensorSpec("observation", np.dtype(np.uint8), (36, 36))
ACTION = TensorSpec("action", np.dtype(np.int64), (), (START,), (START + NUM_ACTIONS - 1,))
SMALL = {"core_size": 16, "head_size": 16, "mlp_sizes": [16]}
AGENTS: dict[str, dict[str, Any]] = {
    "lstm": {},
    "no_core": {"network": SMALL | {"core": "none"}},
    "stack": {"frame_stack": 3},
    "image_stack": {"leaf": IMAGE, "frame_stack": 4},
    "no_burn_in": {"r2d2": {"burn_in": 0}, "unroll_length": LENGTH + BURN_IN},
}


def make(leaf: TensorSpec = VECTOR, frame_stack: int = 1, **config: Any) -> R2D2Agent:
    """A small agent for START .. START + NUM_ACTIONS - 1, computing in float32."""
    spec = EnvironmentSpec("test", (leaf,), (ACTION,), frame_stack=frame_stack)
    defaults = {"agent": "r2d2", "compute_dtype": "float32", "unroll_length": LENGTH, "network": SMALL}
    config["r2d2"] = {"burn_in": BURN_IN} | config.get("r2d2", {})
    agent = make_agent(resolve(LearnerConfig.model_validate(defaults | config), spec), spec)
    assert isinstance(agent, R2D2Agent)
    assert isinstance(agent, ReplayAgent)
    return agent


def rollout(agent: R2D2Agent, leaf: TensorSpec = VECTOR, flags: Array = FLAGS, seed: int = 0) -> UnrollBatch:
    """An unroll of `agent`."""
    assert agent.config.frame_stack is not None
    return rollouts.rollout(agent, leaf, ACTION, flags, frame_stack=agent.config.frame_stack, seed=seed)


def unrolled(name: str) -> tuple[R2D2Agent, UnrollBatch]:
    """One of AGENTS and its unrolls."""
    agent = make(**AGENTS[name])
    return agent, rollout(agent, AGENTS[name].get("leaf", VECTOR))


def inputs_of(agent: R2D2Agent, batch: UnrollBatch) -> NetworkInput:
    """All steps as the network takes them."""
    actions = DiscreteActions(ACTION, START, NUM_ACTIONS)
    return network_inputs.of_unrolls(batch, actions, agent.config.r2d2.reward_clip)


def q_values(agent: R2D2Agent, batch: UnrollBatch, network: Any = None) -> Array:
    """Rescaled values [B, STEPS, A] of all steps, in one go from the stored core state."""
    q: Array = (network or agent.network)(inputs_of(agent, batch), batch.core_state).q.numpy()
    return q


def disturb(network: Any, seed: int = 5) -> None:
    """Moves all variables, so that two networks differ."""
    rng = np.random.default_rng(seed)
    for variable in network.trainable_variables:
        variable.assign_add(tf.constant(rng.normal(scale=0.2, size=variable.shape), tf.float32))


def h(x: Array) -> Array:
    """Value rescaling in float64, as the paper writes it."""
    return np.sign(x) * (np.sqrt(np.abs(x) + 1) - 1) + EPSILON * x


def h_inverse(y: Array) -> Array:
    """Its inverse."""
    root = np.sqrt(1 + 4 * EPSILON * (np.abs(y) + 1 + EPSILON))
    return np.sign(y) * (((root - 1) / (2 * EPSILON)) ** 2 - 1)


def td_errors(agent: R2D2Agent, batch: UnrollBatch, q_of_action: Array, bootstrap: Array) -> tuple[Array, Array]:
    """TD errors and validity [B, LENGTH] by the definition, from rescaled values [B, STEPS] of all steps.

    The error of transition t is h(sum of m discounted rewards + gamma^m h^-1(value m steps on)) - Q(x_t, a_t); m is n,
    or less where the episode or the sequence ends before.
    """
    flags, reward, n = batch.flags.numpy(), batch.reward.numpy().astype(np.float64), agent.config.r2d2.n_step
    burn_in, steps = agent.overlap - 1, flags.shape[1]
    last, terminated = (flags & (TERMINATED | TRUNCATED)) != 0, (flags & TERMINATED) != 0
    errors, valid = np.zeros((B, steps - 1)), np.zeros((B, steps - 1), bool)
    for b in range(B):
        for t in range(burn_in, steps - 1):
            if last[b, t]:
                continue
            total, factor, m = 0.0, 1.0, 0
            while m < n and t + m < steps - 1 and not last[b, t + m]:
                total += factor * reward[b, t + m + 1]
                factor *= 0.0 if terminated[b, t + m + 1] else GAMMA
                m += 1
            total += factor * h_inverse(np.float64(bootstrap[b, t + m]))
            errors[b, t], valid[b, t] = h(np.float64(total)) - q_of_action[b, t], True
    return errors[:, burn_in:], valid[:, burn_in:]


def priorities(errors: Array, valid: Array) -> Array:
    """0.9 max |TD| + 0.1 mean |TD| of each unroll's valid transitions."""
    return np.array([ETA * abs(e[v]).max() + (1 - ETA) * abs(e[v]).mean() for e, v in zip(errors, valid, strict=True)])


def of_action(q: Array, batch: UnrollBatch) -> Array:
    """The values of the actions taken."""
    return np.take_along_axis(q, (batch.action[0].numpy() - START)[:, :, None], 2)[:, :, 0]


@pytest.mark.parametrize("name", AGENTS)
def test_training_recomputes_the_values_that_acted(name: str) -> None:
    """Before any update: same core state, previous action, previous reward and stack, so the same values."""
    agent, batch = unrolled(name)
    q = q_values(agent, batch)
    assert [leaf.path for leaf in agent.behaviour] == ["q_of_action", "q_max"]
    np.testing.assert_allclose(batch.behaviour[0], of_action(q, batch), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(batch.behaviour[1], q.max(axis=2), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["lstm", "stack", "image_stack"])
def test_a_sequence_may_be_split_anywhere(name: str) -> None:
    """The values after a burn-in are those of the unsplit sequence, at every length and wherever episodes begin."""
    agent, batch = unrolled(name)
    inputs, whole = inputs_of(agent, batch), q_values(agent, batch)
    for step in range(1, STEPS):
        before, after = inputs.split(step)
        first = agent.network(before, batch.core_state)
        second = agent.network(after, first.core_state)
        np.testing.assert_allclose(tf.concat([first.q, second.q], axis=1), whole, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", AGENTS)
def test_initial_priorities_are_those_of_the_loss_before_any_update(name: str) -> None:
    """Online, target and behaviour network are one then, so both are the paper's formula of the same TD errors."""
    agent, batch = unrolled(name)
    initial = agent.initial_priority(batch._replace(observation=())).numpy()
    errors, valid = td_errors(agent, batch, batch.behaviour[0].numpy(), batch.behaviour[1].numpy())
    np.testing.assert_allclose(initial, priorities(errors, valid), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(agent.loss(batch).priority, initial, rtol=1e-3, atol=1e-5)
    assert len(set(initial.tolist())) == B


@pytest.mark.parametrize("n_step", [1, 2, 5])
@pytest.mark.parametrize("name", ["lstm", "no_burn_in"])
def test_the_loss_is_that_of_double_q_learning(name: str, n_step: int) -> None:
    """The online network selects, the target network evaluates; the maximum of the target would be another loss."""
    settings = AGENTS[name] | {"r2d2": AGENTS[name].get("r2d2", {}) | {"n_step": n_step}}
    agent = make(**settings)
    batch = rollout(agent)
    weight = np.array([0.1, 1.0, 0.5, 0.7], np.float32)
    batch = batch._replace(weight=tf.constant(weight))
    target_network: Any = agent.training_state["target"]
    disturb(agent.network, 1)
    disturb(target_network, 2)
    q, q_target = q_values(agent, batch), q_values(agent, batch, target_network)
    best = q.argmax(axis=2)
    assert (best != q_target.argmax(axis=2)).mean() > 0.2
    selected = np.take_along_axis(q_target, best[:, :, None], 2)[:, :, 0]

    def expected(bootstrap: Array) -> tuple[float, Array]:
        errors, valid = td_errors(agent, batch, of_action(q, batch), bootstrap)
        return float(np.mean(weight * (0.5 * errors**2 * valid).sum(axis=1))), priorities(errors, valid)

    loss = agent.loss(batch)
    total, priority = expected(selected)
    assert float(loss.total) == pytest.approx(total, rel=1e-4)
    np.testing.assert_allclose(loss.priority, priority, rtol=1e-4)
    for wrong in (q_target.max(axis=2), q.max(axis=2)):
        assert abs(expected(wrong)[0] / total - 1) > 0.01


def gradients(agent: R2D2Agent, batch: UnrollBatch) -> tuple[Array, list[Array]]:
    """The loss and its gradients."""
    variables = agent.network.trainable_variables
    with tf.GradientTape() as tape:
        loss = agent.loss(batch).total
    return loss.numpy(), [tf.convert_to_tensor(g).numpy() for g in tape.gradient(loss, variables)]


def test_no_gradient_reaches_the_target_network_or_the_target() -> None:
    """The derivative is that of the prediction alone: TD error times the gradient of Q(x, a)."""
    agent = make()
    batch = rollout(agent)
    target_network: Any = agent.training_state["target"]
    disturb(target_network)
    with tf.GradientTape() as tape:
        loss = agent.loss(batch).total
    assert all(g is None for g in tape.gradient(loss, target_network.trainable_variables))
    bootstrap = np.take_along_axis(
        q_values(agent, batch, target_network), q_values(agent, batch).argmax(axis=2)[:, :, None], 2
    )[:, :, 0]
    errors, _ = td_errors(agent, batch, of_action(q_values(agent, batch), batch), bootstrap)
    before, after = inputs_of(agent, batch).split(BURN_IN)
    state = agent.network(before, batch.core_state).core_state
    index = tf.cast(batch.action[0][:, BURN_IN:-1] - START, tf.int32)
    with tf.GradientTape() as tape:
        prediction = tf.gather(agent.network(after, state).q[:, :-1], index, axis=2, batch_dims=2)
        by_hand = tf.reduce_sum(-tf.constant(errors, tf.float32) * prediction) / B
    expected = tape.gradient(by_hand, agent.network.trainable_variables)
    for got, want in zip(gradients(agent, batch)[1], expected, strict=True):
        np.testing.assert_allclose(got, tf.convert_to_tensor(want), rtol=1e-3, atol=1e-5)


def observation_gradient(agent: R2D2Agent, batch: UnrollBatch) -> Array:
    """Which observations the loss moves with, through the core or not: |d loss / d x| [B, STEPS]."""
    with tf.GradientTape() as tape:
        tape.watch(batch.observation[0])
        loss = agent.loss(batch).total
    gradient: Array = np.abs(tape.gradient(loss, batch.observation[0]).numpy()).sum(axis=2)
    return gradient


def test_no_gradient_flows_through_the_burn_in() -> None:
    """The loss depends on burn-in observations through the core state, and yet has no gradient to them."""
    agent = make()
    batch = rollout(agent, flags=np.zeros((B, STEPS), np.uint8))
    gradient = observation_gradient(agent, batch)
    assert not gradient[:, :BURN_IN].any()
    assert gradient[:, BURN_IN:-1].all()
    changed = batch.observation[0].numpy()
    changed[:, 0] += 1
    assert float(agent.loss(batch._replace(observation=(tf.constant(changed),))).total) != float(
        agent.loss(batch).total
    )


def mixed(agent: R2D2Agent, leaf: TensorSpec, flags: Array, first: int) -> tuple[UnrollBatch, UnrollBatch]:
    """Two batches that are the same from step `first` on, with other core states and everything else before it."""
    one, other = rollout(agent, leaf, flags, seed=1), rollout(agent, leaf, flags, seed=2)
    history = (agent.config.frame_stack or 1) - 1

    def joined(before: tf.Tensor, after: tf.Tensor, at: int) -> tf.Tensor:
        return tf.concat([before[:, :at], after[:, at:]], axis=1)

    return other, other._replace(
        observation=(joined(one.observation[0], other.observation[0], history + first),),
        # Reward and previous action of the step at FIRST are from before it.
        reward=joined(one.reward, other.reward, first + 1),
        previous_action=(joined(one.previous_action[0], other.previous_action[0], first + 1),),
        action=(joined(one.action[0], other.action[0], first),),
        core_state=one.core_state,
    )


@pytest.mark.parametrize("leaf", [VECTOR, IMAGE], ids=["vector", "image"])
def test_a_first_in_the_burn_in_starts_clean(leaf: TensorSpec) -> None:
    """Nothing from before a FIRST in the burn-in, nor the stored core state, changes loss or gradient; else it does."""
    agent = make(leaf, frame_stack=3)
    for first in (1, BURN_IN):
        flags = np.zeros((B, STEPS), np.uint8)
        flags[:, first - 1 : first + 1] = [TRUNCATED, FIRST]
        one, same = mixed(agent, leaf, flags, first)
        (loss, expected), (same_loss, got) = gradients(agent, one), gradients(agent, same)
        assert loss == same_loss
        for x, y in zip(got, expected, strict=True):
            np.testing.assert_array_equal(x, y)
        _, changed = gradients(agent, same._replace(flags=tf.zeros_like(flags)))
        _, before = gradients(agent, one._replace(flags=tf.zeros_like(flags)))
        assert any((x != y).any() for x, y in zip(changed, before, strict=True))


def test_a_first_after_the_burn_in_starts_clean() -> None:
    """What the loss owes to observations after a FIRST does not depend on what was before; without FIRST it does."""
    agent, first = make(), BURN_IN + 3
    flags = np.zeros((B, STEPS), np.uint8)
    flags[:, first - 1 : first + 1] = [TRUNCATED, FIRST]
    one, other = mixed(agent, VECTOR, flags, first)
    after = [observation_gradient(agent, batch)[:, first:] for batch in (one, other)]
    assert after[0][:, :-1].all()
    np.testing.assert_array_equal(after[0], after[1])
    whole = tf.zeros_like(flags)
    after = [observation_gradient(agent, batch._replace(flags=whole))[:, first:] for batch in (one, other)]
    assert (after[0] != after[1]).all(axis=0)[:-1].all()


@pytest.mark.parametrize("name", AGENTS)
def test_invalid_transitions_carry_no_weight(name: str) -> None:
    """Reward, action and behaviour at a transition into a reset change no loss, no gradient and no priority."""
    agent, batch = unrolled(name)
    flags = batch.flags.numpy()
    at_last = (flags & (TERMINATED | TRUNCATED)) != 0
    into_reset = (flags & FIRST) != 0
    poisoned = batch._replace(
        reward=tf.constant(np.where(into_reset, np.float32(1e6), batch.reward)),
        action=(tf.constant(np.where(at_last, START + 1, batch.action[0])),),
        previous_action=(tf.constant(np.where(into_reset, START + 1, batch.previous_action[0])),),
        behaviour=(tf.constant(np.where(at_last, np.float32(1e6), batch.behaviour[0])), batch.behaviour[1]),
    )
    (loss, expected), (poisoned_loss, got) = gradients(agent, batch), gradients(agent, poisoned)
    assert poisoned_loss == loss
    for one, other in zip(got, expected, strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(agent.initial_priority(poisoned), agent.initial_priority(batch))
    np.testing.assert_array_equal(agent.loss(poisoned).priority, agent.loss(batch).priority)
    reward = batch.reward.numpy()
    reward[3, 6] += 1.0
    assert gradients(agent, batch._replace(reward=tf.constant(reward)))[0] != loss, "valid ones do carry weight"


def test_an_unroll_without_a_valid_transition_trains_nothing() -> None:
    """Loss, gradients and priorities are zero when all transitions go into resets."""
    agent = make()
    batch = rollout(agent, flags=np.full((B, STEPS), FIRST | TRUNCATED, np.uint8))
    loss, got = gradients(agent, batch)
    assert loss == 0.0
    assert not any(g.any() for g in got)
    assert not agent.loss(batch).priority.numpy().any()
    assert not agent.initial_priority(batch).numpy().any()


def test_rewards_are_clipped_where_configured() -> None:
    """A reward of 7 trains, and gives a first priority, as 1 under reward_clip 1, and as 7 under 0."""
    for clip, same_as in ((1.0, 1.0), (0.0, 7.0)):
        agent = make(r2d2={"reward_clip": clip})
        batch = rollout(agent)
        sevens, same = (batch._replace(reward=tf.fill([B, STEPS], value)) for value in (7.0, same_as))
        assert float(agent.loss(sevens).total) == float(agent.loss(same).total)
        np.testing.assert_array_equal(agent.initial_priority(sevens), agent.initial_priority(same))
    ones = batch._replace(reward=tf.ones([B, STEPS]))
    assert float(agent.loss(ones).total) != float(agent.loss(sevens).total)


ROWS = 4096


def explored(agent: R2D2Agent, *, greedy: bool | None, batches: int) -> tuple[Array, Array]:
    """How often each of ROWS slots did not take the best action, of `batches` times; and all actions."""
    step = StepInput(
        observation=(tf.ones([ROWS, *VECTOR.shape]),),
        reward=tf.zeros([ROWS]),
        first=tf.ones([ROWS], tf.bool),
        previous_action=(tf.fill([ROWS], tf.constant(START, tf.int64)),),
        stack_age=tf.zeros([ROWS], tf.int32),
        slot=tf.range(ROWS),
    )
    state = tuple(tf.zeros([ROWS, size]) for size in agent.core_state_sizes)
    rows = None if greedy is None else tf.fill([ROWS], greedy)
    act = tf.function(lambda seed: agent.act(step, state, rows, seed), autograph=False)
    outputs = [act(tf.constant([7, i])) for i in range(batches)]
    values = np.array([[part.numpy() for part in output.behaviour] for output in outputs])
    actions = np.array([output.action[0].numpy() for output in outputs])
    return (values[:, 0] != values[:, 1]).sum(axis=0), actions


def test_each_slot_explores_at_the_rate_of_its_level() -> None:
    """Slot i explores with probability epsilon(i mod levels); random actions are uniform over the space."""
    agent = make(r2d2={"epsilon_levels": 4, "epsilon_base": 0.8, "epsilon_exponent": 3.0})
    batches = 8
    counts, actions = explored(agent, greedy=False, batches=batches)
    draws = ROWS / 4 * batches
    # In bit-reversed order. A random action is the best one in one of NUM_ACTIONS cases.
    for level, i in enumerate([0, 2, 1, 3]):
        rate = 0.8 ** (1 + i) * (1 - 1 / NUM_ACTIONS)
        deviation = np.sqrt(draws * rate * (1 - rate))
        assert abs(counts[level::4].sum() - draws * rate) < 4 * deviation
    assert actions.dtype == np.int64
    frequency = np.bincount(actions[:, 0::4].ravel() - START, minlength=NUM_ACTIONS) / draws
    others = np.sort(frequency)[:-1]
    np.testing.assert_allclose(others, 0.8 / NUM_ACTIONS, atol=0.02)


def test_evaluation_explores_once_in_a_thousand_steps() -> None:
    """Greedy rows use 1e-3, whatever their slot."""
    batches = 60
    counts, _ = explored(make(), greedy=True, batches=batches)
    draws, rate = ROWS * batches, 1e-3 * (1 - 1 / NUM_ACTIONS)
    assert abs(counts.sum() - draws * rate) < 4 * np.sqrt(draws * rate)


def test_without_exploration_every_action_is_the_best() -> None:
    """Whatever rate of exploration evaluation has."""
    counts, _ = explored(make(r2d2={"eval_epsilon": 1.0}), greedy=None, batches=1)
    assert not counts.any()


@pytest.mark.parametrize(
    "leaf",
    [TensorSpec("action", np.dtype(np.float32), (2,)), TensorSpec("action", np.dtype(np.int64), (3,), (0,), (4,))],
)
def test_other_action_spaces_are_refused_by_name(leaf: TensorSpec) -> None:
    """A Box or MultiDiscrete action is an error that names the agent, what was expected and what was got."""
    spec = EnvironmentSpec("test", (VECTOR,), (leaf,))
    with pytest.raises(ConfigError, match=r"agent r2d2 expects one integer of shape \(\), got action: "):
        make_agent(resolve(LearnerConfig(agent="r2d2"), spec), spec)


def test_a_masked_action_is_never_taken_and_never_bootstrapped_from() -> None:
    """Best and random actions are among those allowed, all of which occur; double Q takes the best allowed value."""
    mask = TensorSpec("observation/action_mask", np.dtype(np.int8), (NUM_ACTIONS,))
    spec = EnvironmentSpec("test", (mask,), (ACTION,))
    settings = {"agent": "r2d2", "unroll_length": LENGTH, "network": SMALL, "r2d2": {"burn_in": BURN_IN}}
    agent = make_agent(resolve(LearnerConfig.model_validate(settings), spec), spec)
    assert isinstance(agent, R2D2Agent)
    rows, allowed = 512, np.int8([0, 1, 0, 1, 1])
    step = StepInput(
        observation=(tf.constant(np.tile(allowed, (rows, 1))),),
        reward=tf.zeros([rows]),
        first=tf.ones([rows], tf.bool),
        previous_action=(tf.fill([rows], tf.constant(START, tf.int64)),),
        stack_age=tf.zeros([rows], tf.int32),
        slot=tf.zeros([rows], tf.int32),  # the level that explores most
    )
    state = tuple(tf.zeros([rows, size]) for size in agent.core_state_sizes)
    taken = [agent.act(step, state, tf.fill([rows], g), tf.constant([1, 2])).action[0].numpy() for g in (True, False)]
    assert set(taken[1]) == {START + 1, START + 3, START + 4}
    assert set(taken[0]) <= set(taken[1])

    batch = rollouts.rollout(agent, mask, ACTION, FLAGS)
    masks = np.tile(allowed, (B, STEPS, 1))
    batch = batch._replace(observation=(tf.constant(masks),))
    q = q_values(agent, batch)
    best = np.where(masks, q, -np.inf).argmax(-1)
    assert (best != q.argmax(-1)).any()
    bootstrap = np.take_along_axis(q_values(agent, batch, agent._target), best[..., None], -1)[..., 0]
    errors, valid = td_errors(agent, batch, of_action(q, batch), bootstrap)
    np.testing.assert_allclose(agent.loss(batch).priority, priorities(errors, valid), rtol=1e-3)
