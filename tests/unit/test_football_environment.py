"""Scenarios of Google Research Football on a stand-in for its package: planes, endings, rewards, seeds, settings."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seedrl_actor import environments
from seedrl_actor.environments import Step, VectorEnvironment
from seedrl_actor.football_environment import FootballEnvironment
from seedrl_core.codec import FIRST, TERMINATED, TRUNCATED, Episode
from seedrl_core.config import ActorConfig
from seedrl_core.errors import ConfigError
from seedrl_core.spec import Array

FAKE = Path(__file__).parents[1] / "fake_gfootball"
EMPTY_GOAL, MATCH = "academy_empty_goal_close", "11_vs_11_easy_stochastic"
IDLE, RIGHT, SHOT = 0, 5, 12


@pytest.fixture(autouse=True)
def game(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The stand-in, new in each test, whatever is installed."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "gfootball"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(FAKE)
    yield importlib.import_module("gfootball.env")
    for name in [name for name in sys.modules if name.partition(".")[0] == "gfootball"]:
        del sys.modules[name]


def make(scenario: str = EMPTY_GOAL, num_envs: int = 1, **settings: Any) -> VectorEnvironment:
    """Environments of a scenario."""
    return environments.make(ActorConfig(env_id=f"football/{scenario}", **settings), 0, num_envs, 1)


def act(vector: VectorEnvironment, action: int = IDLE) -> Step:
    """One step of all by the same action, copied."""
    step = vector.step((np.full(vector.num_envs, action, np.int64),))
    return Step(tuple(leaf.copy() for leaf in step.observation), step.reward.copy(), step.flags.copy(), step.episodes)


def planes(step: Step, env: int = 0) -> Array:
    """[72, 96, 4] of zeros and ones, from what travels."""
    return np.unpackbits(step.observation[0][env]).reshape(72, 96, 4)


def test_the_spec_is_bits_of_four_planes_for_nineteen_actions() -> None:
    """An eighth of the bytes, and the advice to stack four of them."""
    spec = make().spec
    (observation,), (action,) = spec.observation, spec.action
    assert (observation.dtype.name, observation.shape, observation.bits) == ("uint8", (3456,), (72, 96, 4))
    assert observation.num_bytes * 8 == 72 * 96 * 4
    assert (action.path, action.shape, action.low, action.high) == ("action", (), (0,), (18,))
    assert (spec.frame_stack, spec.action_repeat) == (4, 1)


def test_numbers_instead_of_planes() -> None:
    """115 floats, which are not stacked: velocities are among them."""
    vector = make(env_kwargs={"representation": "simple115v2"})
    (observation,) = vector.spec.observation
    assert (observation.dtype.name, observation.shape, observation.bits) == ("float32", (115,), ())
    assert vector.spec.frame_stack == 1
    vector.reset()
    np.testing.assert_array_equal(act(vector, RIGHT).observation[0], np.ones((1, 115)))


def test_planes_and_actions_arrive_as_they_are(game: Any) -> None:
    """Every bit of the game's planes, and every action's number."""
    vector = make(MATCH)
    vector.reset()
    for number in (18, IDLE, SHOT):
        seen = planes(act(vector, number))
        (shown,) = game.observation_preprocessing.generate_smm(game.FootballEnv.made[0].observation())
        np.testing.assert_array_equal(seen * 255, shown)
        assert game.read(seen).action == number


@pytest.mark.parametrize(
    ("scenario", "actions", "flags", "rewards"),
    [
        (EMPTY_GOAL, [RIGHT] * 3, [0, 0, TERMINATED], [0, 0, 1]),
        (EMPTY_GOAL, [IDLE, SHOT], [0, TERMINATED], [0, 0]),
        (EMPTY_GOAL, [IDLE] * 6, [0] * 5 + [TRUNCATED], [0] * 6),
        (EMPTY_GOAL, [IDLE] * 3 + [RIGHT] * 3, [0] * 5 + [TERMINATED], [0] * 5 + [1]),
        (MATCH, [RIGHT] * 3 + [SHOT] * 3, [0] * 5 + [TRUNCATED], [0, 0, 1, 0, 0, 0]),
    ],
)
def test_what_ends_an_episode(scenario: str, actions: list[int], flags: list[int], rewards: list[float]) -> None:
    """A goal and a lost ball terminate it, where the scenario says so; the clock truncates it, but for a last goal."""
    vector = make(scenario)
    assert vector.reset().flags.tolist() == [FIRST]
    steps = [act(vector, action) for action in actions]
    assert [int(step.flags[0]) for step in steps] == flags
    assert [float(step.reward[0]) for step in steps] == rewards
    assert steps[-1].episodes == (Episode(0, float(sum(rewards)), len(actions)),)
    assert act(vector).flags.tolist() == [FIRST]


@pytest.mark.parametrize(("role", "earned"), [("train", 1.3), ("eval", 1.0)])
def test_checkpoints_are_for_training(role: str, earned: float) -> None:
    """An evaluation's return is in goals, whatever is earned on the way to them in training."""
    vector = make(role=role, env_kwargs={"rewards": "scoring,checkpoints"})
    vector.reset()
    (episode,) = [episode for _ in range(3) for episode in act(vector, RIGHT).episodes]
    assert episode.episode_return == pytest.approx(earned)


def test_every_episode_has_a_seed_of_its_own(game: Any) -> None:
    """Those of environments differ from each other, all are the same in the next run; teams are processed by parity."""

    def seeds() -> list[list[tuple[int, bool]]]:
        game.FootballEnv.made.clear()
        vector = make(num_envs=2, seed=3)
        shown = vector.reset()
        assert game.read(planes(shown, 1)).seed == game.FootballEnv.made[1].episodes[0][0]
        for _ in range(20):
            act(vector)
        return [made.episodes for made in game.FootballEnv.made]

    (one, other), again = seeds(), seeds()
    assert len({*one, *other}) == len(one) + len(other) == 6
    assert again == [one, other]
    assert all(reverse == seed % 2 for seed, reverse in (*one, *other))
    assert len({reverse for _, reverse in (*one, *other)}) == 2


@pytest.mark.parametrize(
    ("scenario", "env_kwargs", "message"),
    [
        (
            "academy_empty_gaol",
            {},
            "expected one of 11_vs_11_easy_stochastic academy_empty_goal_close academy_run_to_score; got academy_e",
        ),
        (EMPTY_GOAL, {"representation": "raw"}, r"representation: expected one of extracted simple115v2 .*; got raw"),
        (EMPTY_GOAL, {"rewards": "checkpoints"}, r"rewards: expected one of scoring scoring,checkpoints; got check"),
        (EMPTY_GOAL, {"stacked": True}, "stacked"),
    ],
)
def test_wrong_settings_are_one_line(scenario: str, env_kwargs: dict[str, Any], message: str) -> None:
    """An unknown scenario, representation, reward or argument is named, with those that there are."""
    with pytest.raises(ConfigError, match=message) as caught:
        make(scenario, env_kwargs=env_kwargs)
    assert "\n" not in str(caught.value)


def test_the_package_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says how to get it and how to use it."""
    monkeypatch.setitem(sys.modules, "gfootball.env", None)
    with pytest.raises(ConfigError, match=r"module gfootball .*deploy/install-football .*actor\.python"):
        make()


def test_a_recording_shows_the_field(tmp_path: Path) -> None:
    """Grass, and in it four pixels by four for each thing, the ball above all others."""
    vector = make(role="eval", recording=tmp_path / "recording")
    picture = vector.reset().picture
    assert picture is not None
    assert picture.shape == (288, 384, 3)
    assert picture.dtype == np.uint8
    ball = (picture == 255).all(axis=2)
    assert ball.sum() == 16
    assert ball[4:8, :4].all()


def test_an_environment_can_be_played_alone() -> None:
    """It is a Gymnasium environment like any other: observations and actions are of its spaces."""
    environment = FootballEnvironment(EMPTY_GOAL)
    observation, _ = environment.reset(seed=1)
    over = False
    while not over:
        assert environment.observation_space.contains(observation)
        observation, _, terminated, truncated, _ = environment.step(environment.action_space.sample())
        over = terminated or truncated
    environment.close()
