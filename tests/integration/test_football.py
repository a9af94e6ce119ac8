"""Scenarios of the real Google Research Football, where it is installed. Needs nothing of the learner."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest

from seedrl_actor import environments
from seedrl_actor.environments import VectorEnvironment
from seedrl_core.codec import FIRST, LAST, TERMINATED, TRUNCATED
from seedrl_core.config import ActorConfig
from seedrl_core.errors import ConfigError
from seedrl_core.spec import Array

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(importlib.util.find_spec("gfootball") is None, reason="gfootball is not installed"),
    pytest.mark.timeout(600),
]

EMPTY_GOAL, MATCH = "academy_empty_goal_close", "11_vs_11_easy_stochastic"
IDLE, RIGHT, SHOT = 0, 5, 12
LEFT_TEAM, RIGHT_TEAM, BALL, ACTIVE = range(4)


def make(scenario: str, num_envs: int = 1, **settings: Any) -> VectorEnvironment:
    """Environments of a scenario."""
    return environments.make(ActorConfig(env_id=f"football/{scenario}", **settings), 0, num_envs, 1)


def planes(observation: tuple[Array, ...], env: int = 0) -> Array:
    """[72, 96, 4] of zeros and ones."""
    return np.unpackbits(observation[0][env]).reshape(72, 96, 4)


def play(vector: VectorEnvironment, action: int, steps: int) -> list[tuple[Array, float, int]]:
    """Planes, reward and flags of the first environment: of the reset, then of each step of one action."""
    played = []
    step = vector.reset()
    for _ in range(steps):
        played.append((planes(step.observation), float(step.reward[0]), int(step.flags[0])))
        step = vector.step((np.full(vector.num_envs, action, np.int64),))
    return played


def test_what_stands_on_the_field() -> None:
    """Two of ours, one of whom is active beside the ball, and the other team's keeper."""
    vector = make(EMPTY_GOAL)
    spec = vector.spec
    assert spec.observation[0].bits == (72, 96, 4)
    assert spec.action[0].high == (18,)
    assert spec.frame_stack == 4
    vector.reset()
    shown = planes(vector.step((np.array([IDLE]),)).observation)  # The first observation shows the keeper as active.
    assert shown.sum(axis=(0, 1)).tolist() == [2, 1, 1, 1]
    assert (shown[:, :, LEFT_TEAM] >= shown[:, :, ACTIVE]).all()
    ball, active = (np.argwhere(shown[:, :, plane])[0] for plane in (BALL, ACTIVE))
    assert np.abs(ball - active).max() <= 3
    assert ball[1] > 80, "close to the right goal"
    vector.close()


def test_running_into_the_empty_goal_scores() -> None:
    """The ball moves to the right until a goal terminates the episode, with a reward of 1."""
    vector = make(EMPTY_GOAL)
    played = play(vector, RIGHT, 150)
    ends = [index for index, (_, _, flags) in enumerate(played) if flags & LAST]
    assert ends
    assert [(reward, flags) for _, reward, flags in played if flags & LAST] == [(1.0, TERMINATED)] * len(ends)
    assert all(played[index + 1][2] == FIRST for index in ends if index + 1 < len(played))
    columns = [int(np.argwhere(shown[:, :, BALL])[0][1]) for shown, _, _ in played[: ends[0]]]
    assert columns[-1] > columns[0]
    vector.close()


def test_the_clock_truncates() -> None:
    """A match goes on until its 3000 steps and the one after them are over, whatever happens in it."""
    vector = make(MATCH)
    step, length = vector.reset(), 0
    while not step.flags[0] & LAST:
        step, length = vector.step((np.array([IDLE]),)), length + 1
    assert step.flags.tolist() == [TRUNCATED]
    assert length == 3001
    vector.close()


def test_the_same_seed_is_the_same_game() -> None:
    """Of a match, over and over; another seed is another game, and so is the next episode."""
    games = []
    for seed in (1, 1, 2):
        vector = make(MATCH, seed=seed)
        games.append([shown for shown, _, _ in play(vector, SHOT, 60)])
        vector.close()
    np.testing.assert_array_equal(games[0], games[1])
    assert (np.array(games[0]) != np.array(games[2])).any()


def test_several_games_in_one_process() -> None:
    """They do not disturb each other: each is the same as alone."""
    alone = make(MATCH, seed=5)
    expected = [shown for shown, _, _ in play(alone, RIGHT, 20)]
    alone.close()
    vector = make(MATCH, num_envs=3, seed=5)
    np.testing.assert_array_equal([shown for shown, _, _ in play(vector, RIGHT, 20)], expected)
    vector.close()


def test_numbers_and_checkpoints() -> None:
    """115 of them in a match; in training, running with the ball towards the goal earns more than goals."""
    kwargs = {"representation": "simple115v2", "rewards": "scoring,checkpoints"}
    vector = make(EMPTY_GOAL, env_kwargs=kwargs)
    assert vector.spec.observation[0].shape == (115,)
    assert np.isfinite(vector.reset().observation[0]).all()
    rewards = [float(vector.step((np.array([RIGHT]),)).reward[0]) for _ in range(10)]
    assert sum(rewards) > 0.5
    vector.close()


def test_a_picture(tmp_path: Any) -> None:
    """Of the field, with the white ball."""
    vector = make(EMPTY_GOAL, role="eval", recording=tmp_path / "recording")
    picture = vector.reset().picture
    assert picture is not None
    assert picture.shape == (288, 384, 3)
    assert (picture == 255).all(axis=2).sum() == 16
    vector.close()


def test_a_scenario_that_is_not_there() -> None:
    """The error names those that are."""
    with pytest.raises(ConfigError, match="expected one of .*academy_empty_goal_close.*; got no_such_scenario"):
        make("no_such_scenario")
