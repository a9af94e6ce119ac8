"""A counter environment through real processes: what it emits is what training gets, and nothing leaks over a reset."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from recorded_runs import (
    BATCH_UNROLLS,
    DISCOUNT,
    FRAME_STACK,
    HISTORY,
    UNROLL_LENGTH,
    Life,
    LiveRun,
    RecordedRun,
    live_run,
    to_tensors,
)
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import seedrl_learner.agents.vtrace as agent_module
from seedrl_core.codec import FIRST, RESTARTED, TERMINATED
from seedrl_core.spec import Array
from seedrl_learner.batch import UnrollBatch
from seedrl_learner.networks.frame_stack import stack_frames

pytestmark = pytest.mark.integration

# Episodes of three lengths, so that those of neighbours overlap in all ways, and of exactly one unroll.
MIXED, ONE_UNROLL = (4, 1, 6), (UNROLL_LENGTH,)
FIRST_SPARSE_LIFE = 10
NUM_STEADY, BREAKS, REBUILT = 3, 1, 3
FIRST_KILLED_LIFE, NUM_KILLED = 50, 3
EPISODES_EACH = 4 * len(MIXED)


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> RecordedRun:
    """Each environment plays its episodes to their end; those of a session then end in the same tick."""
    directory = tmp_path_factory.mktemp("played")

    async def play() -> RecordedRun:
        async with live_run(directory) as live:
            results = [str(directory / f"{actor}.results.jsonl") for actor in range(2)]
            async with (
                live.actor(5, "--episodes", str(5 * EPISODES_EACH), "--results", results[0], lengths=MIXED) as mixed,
                live.actor(
                    *(2, "--episodes", str(2 * EPISODES_EACH), "--results", results[1]),
                    lengths=ONE_UNROLL,
                    last_only=True,
                    first_life=FIRST_SPARSE_LIFE,
                ) as sparse,
            ):
                assert [await mixed.wait(), await sparse.wait()] == [0, 0]
            expected = num_expected(live.lives())
            await live.until(lambda: live.num_unrolls() >= expected, f"{expected} unrolls")
            await live.ask_status()
        return live.finished()

    return asyncio.run(play())


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> RecordedRun:
    """One actor is killed with -9 in mid-run and replaced; an environment of another breaks and is built anew."""
    directory = tmp_path_factory.mktemp("interrupted")

    async def all_trained(live: LiveRun, lives: Iterable[int]) -> None:
        await live.until(lambda: all(live.num_unrolls(life) >= 3 for life in lives), f"3 unrolls of each of {lives}")

    async def play() -> RecordedRun:
        async with live_run(directory) as live, live.actor(NUM_STEADY, lengths=MIXED, breaks_in_life=BREAKS):
            victims = range(FIRST_KILLED_LIFE, FIRST_KILLED_LIFE + NUM_KILLED)
            async with live.actor(NUM_KILLED, lengths=MIXED, first_life=FIRST_KILLED_LIFE) as victim:
                await all_trained(live, victims)
                victim.kill()
            async with live.actor(NUM_KILLED, lengths=MIXED, first_life=FIRST_KILLED_LIFE):
                await all_trained(live, [REBUILT, *range(victims.stop, victims.stop + NUM_KILLED)])
        return live.finished()

    return asyncio.run(play())


@pytest.fixture(params=["played", "interrupted"])
def recorded(request: pytest.FixtureRequest) -> RecordedRun:
    """Either run."""
    run: RecordedRun = request.getfixturevalue(request.param)
    return run


def num_expected(lives: dict[int, Life]) -> int:
    """Unrolls that come to training when all environments have ended: only whole batches do."""
    return sum(life.num_whole_unrolls for life in lives.values()) // BATCH_UNROLLS * BATCH_UNROLLS


def joined(unrolls: UnrollBatch, field: Array) -> Array:
    """Successive unrolls [N, T+1, ...] as the one sequence they were cut from; their shared steps must be the same."""
    np.testing.assert_array_equal(field[1:, 0], field[:-1, -1])
    return np.concatenate([field[0, :1], field[:, 1:].reshape(-1, *field.shape[2:])])


def episode_of(observation: Array) -> Array:
    """Number of the episode in observations [..., 4]."""
    return observation[..., 1].astype(int) * 256 + observation[..., 2]


def test_all_that_an_environment_emits_reaches_training_once_and_in_order(recorded: RecordedRun) -> None:
    """The unrolls of each life, put together, are its diary from the first line on: no step is lost or repeated."""
    num_seen = 0
    for number, life in recorded.lives.items():
        unrolls = recorded.of_life(number)
        num_steps = 1 + UNROLL_LENGTH * len(unrolls.reward)
        assert 0 < len(unrolls.reward) <= life.num_whole_unrolls
        num_seen += len(unrolls.reward)
        observation = joined(unrolls, unrolls.observation[0][:, HISTORY:])
        np.testing.assert_array_equal(observation, life.observation[:num_steps])
        np.testing.assert_array_equal(joined(unrolls, unrolls.reward), life.reward[:num_steps])
        np.testing.assert_array_equal(joined(unrolls, unrolls.flags) & ~np.uint8(RESTARTED), life.flags[:num_steps])
    assert num_seen == len(recorded.unrolls.reward)


def test_actions_are_those_that_the_environment_was_given(recorded: RecordedRun) -> None:
    """The stored a_t is the action of the diary's next step, and the next step's previous action."""
    for number, life in recorded.lives.items():
        unrolls = recorded.of_life(number)
        action, previous = joined(unrolls, unrolls.action[0]), joined(unrolls, unrolls.previous_action[0])
        np.testing.assert_array_equal(previous[1:], action[:-1])
        given = life.action[: len(action)]
        np.testing.assert_array_equal(previous[given >= 0], given[given >= 0])


def test_training_misses_only_the_partial_unrolls_at_the_end(played: RecordedRun) -> None:
    """Every unroll that the environments filled is trained on, but for those that do not make a batch."""
    assert len(played.lives) == 7
    assert len(played.unrolls.reward) == num_expected(played.lives)


def test_lives_of_an_environment_are_never_mixed(interrupted: RecordedRun) -> None:
    """After kill -9 of an actor, and after an environment broke, the new unrolls begin with the new life's reset."""
    lives = interrupted.observation[:, :, 0]
    np.testing.assert_array_equal(lives, np.broadcast_to(lives[:, :1], lives.shape))
    replaced = range(FIRST_KILLED_LIFE + NUM_KILLED, FIRST_KILLED_LIFE + 2 * NUM_KILLED)
    assert set(interrupted.lives) == {*range(NUM_STEADY), REBUILT, *range(FIRST_KILLED_LIFE, replaced.start), *replaced}
    for life in interrupted.lives:
        unrolls = interrupted.of_life(life)
        assert unrolls.flags[0, 0] == (FIRST | RESTARTED if life == REBUILT else FIRST)
        assert (unrolls.stack_age[0], unrolls.previous_action[0][0, 0], unrolls.reward[0, 0]) == (0, 0, 0.0)


class Weighed:
    """What the real loss gives to V-trace for all unrolls, time first."""

    def __init__(self, run: RecordedRun, monkeypatch: pytest.MonkeyPatch) -> None:
        vtrace = agent_module.vtrace

        def spied(**arguments: Any) -> Any:
            self.arguments = {name: np.asarray(value) for name, value in arguments.items()}
            return vtrace(**arguments)

        monkeypatch.setattr(agent_module, "vtrace", spied)
        run.agent.loss(run.batch)

    def __getitem__(self, name: str) -> Array:
        """[N, T]."""
        return self.arguments[name].T


def test_no_transition_into_a_reset_has_weight(recorded: RecordedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """A transition is valid exactly if both its observations are of one episode; the discount is 0 into a terminal."""
    weighed = Weighed(recorded, monkeypatch)
    before, after = recorded.observation[:, :-1], recorded.observation[:, 1:]
    inside = episode_of(before) == episode_of(after)
    np.testing.assert_array_equal(weighed["valid"], inside)
    np.testing.assert_array_equal(after[inside][:, 3], before[inside][:, 3] + 1)
    assert (after[~inside][:, 3] == 0).all()
    assert (~inside).any()
    terminal = (recorded.unrolls.flags[:, 1:] & TERMINATED) != 0
    np.testing.assert_array_equal(weighed["discount"], np.where(terminal, np.float32(0), np.float32(DISCOUNT)))


def test_episodes_of_exactly_one_unroll_keep_their_only_reward(
    played: RecordedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of episodes rewarded at their last step alone the loss counts every reward, wherever unrolls are cut."""
    weighed = Weighed(played, monkeypatch)
    trained_on = np.where(weighed["valid"], weighed["reward"], 0)
    for number in (FIRST_SPARSE_LIFE, FIRST_SPARSE_LIFE + 1):
        rows = played.observation[:, 0, 0] == number
        rewards = trained_on[rows][trained_on[rows] != 0]
        expected = [total for total, _ in played.lives[number].episodes]
        assert len(expected) == EPISODES_EACH
        # The last ones may be in a partial unroll or batch.
        assert len(rewards) >= EPISODES_EACH - BATCH_UNROLLS
        np.testing.assert_array_equal(rewards, expected[: len(rewards)])


def test_stacks_hold_frames_of_the_episode_alone(recorded: RecordedRun) -> None:
    """A stack is a step's frame and those before it, back to the reset's, which fills what is missing."""
    first = (recorded.unrolls.flags & FIRST) != 0
    frames, age = recorded.unrolls.observation[0], recorded.unrolls.stack_age
    stacks = stack_frames(tf.constant(frames), tf.constant(first), tf.constant(age))
    expected = np.repeat(recorded.observation[:, :, np.newaxis], FRAME_STACK, axis=2)
    back = np.arange(FRAME_STACK - 1, -1, -1)
    expected[..., 3] = np.maximum(expected[..., 3].astype(int) - back, 0)
    np.testing.assert_array_equal(tf.reshape(stacks, expected.shape), expected)


def test_an_episode_gives_the_same_policy_when_nothing_came_before_it(recorded: RecordedRun) -> None:
    """Behaviour logits equal those of each episode alone: core state, previous action and stack are clean at FIRST."""
    for number, life in recorded.lives.items():
        unrolls = recorded.of_life(number)
        logits = joined(unrolls, unrolls.behaviour[0])
        np.testing.assert_allclose(
            logits, logits_of_episodes_alone(recorded, life)[: len(logits)], rtol=1e-4, atol=1e-6
        )


def logits_of_episodes_alone(run: RecordedRun, life: Life) -> Array:
    """Logits [n, A] of a life, each of its episodes begun with zero core state, no previous action and no frames."""
    starts = [*np.flatnonzero(life.flags & FIRST), len(life.flags)]
    parts = [slice(start, end) for start, end in pairwise(starts)]
    shape = (len(parts), max(MIXED) + 1)
    observation = np.zeros((shape[0], HISTORY + shape[1], 4), np.uint8)
    reward, flags, action = np.zeros(shape, np.float32), np.zeros(shape, np.uint8), np.zeros(shape, np.int64)
    flags[:, 0] = FIRST
    for row, part in enumerate(parts):
        steps = part.stop - part.start
        observation[row, :HISTORY] = life.observation[part.start]
        observation[row, HISTORY : HISTORY + steps] = life.observation[part]
        reward[row, :steps], action[row, :steps] = life.reward[part], life.action[part]
    batch = UnrollBatch(
        observation=(observation,),
        reward=reward,
        flags=flags,
        previous_action=(action,),
        action=(),
        behaviour=(),
        stack_age=np.zeros(shape[0], np.int32),
        core_state=tuple(np.zeros((shape[0], size), np.float32) for size in run.agent.core_state_sizes),
        policy_version=np.zeros(shape, np.int64),
        weight=np.ones(shape[0], np.float32),
    )
    logits = run.agent.unroll(to_tensors(batch)).policy.numpy()
    return np.concatenate([logits[row, : part.stop - part.start] for row, part in enumerate(parts)])


def test_core_states_are_those_after_the_unroll_before(recorded: RecordedRun) -> None:
    """The network run over an unroll, but for its last step, gives the state that the next one starts from."""
    for number in recorded.lives:
        unrolls = recorded.of_life(number)
        batch = to_tensors(unrolls)
        head = batch._replace(
            observation=(batch.observation[0][:, :-1],),
            reward=batch.reward[:, :-1],
            flags=batch.flags[:, :-1],
            previous_action=(batch.previous_action[0][:, :-1],),
        )
        for computed, stored in zip(recorded.agent.unroll(head).core_state, unrolls.core_state, strict=True):
            np.testing.assert_allclose(stored[1:], computed[:-1], rtol=1e-5, atol=1e-6)


def test_every_importance_ratio_is_one_under_an_unchanging_policy(
    played: RecordedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Training computes what inference did, but for float32 rounding: in the loss and in all updates that were made."""
    assert np.ptp(played.unrolls.behaviour[0]) > 1.0
    np.testing.assert_allclose(Weighed(played, monkeypatch)["rho"], 1.0, rtol=0.0, atol=2e-6)
    (metrics,) = records(played)
    assert metrics["policy_version"] == len(played.unrolls.reward) / BATCH_UNROLLS
    assert metrics["train/rho_mean"] == pytest.approx(1.0, abs=1e-6)
    assert metrics["train/kl"] == pytest.approx(0.0, abs=1e-6)


def test_episodes_in_the_metrics_are_those_that_the_environments_counted(played: RecordedRun) -> None:
    """Number, returns and lengths: in metrics.jsonl, TensorBoard, the summary, the status and the actors' results."""
    episodes = [episode for life in played.lives.values() for episode in life.episodes]
    assert len(episodes) == 7 * EPISODES_EACH
    assert sorted((line["return"], line["length"]) for line in played.results) == sorted(episodes)
    mean_return, mean_length = np.mean(episodes, axis=0)
    env_steps = sum(int((life.action >= 0).sum()) for life in played.lives.values())
    (metrics,) = records(played)
    assert (metrics["episode/return"], metrics["episode/length_steps"]) == (mean_return, mean_length)
    events = EventAccumulator(str(played.config.run_dir / "tensorboard")).Reload()
    (event,) = events.Tensors("episode/return")
    assert event.step == env_steps
    assert tf.make_ndarray(event.tensor_proto) == np.float32(mean_return)
    summary = json.loads((played.config.run_dir / "summary.json").read_text())
    for values in (played.status, summary):
        assert values["mean_return"] == mean_return
    for values in (played.status, summary, metrics):
        assert (values["episodes"], values["env_steps"]) == (len(episodes), env_steps)


def records(run: RecordedRun) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl."""
    return [json.loads(line) for line in (run.config.run_dir / "metrics.jsonl").read_text().splitlines()]
