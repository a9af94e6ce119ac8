"""The Atari protocol as it comes out of ale_py: endings, raw whole-game returns, the frame cap, lives, stickiness."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import ale_py
import gymnasium
import numpy as np
import pytest

from seedrl_actor import environments
from seedrl_actor.atari_vector import AtariVector
from seedrl_actor.isolated_vector import IsolatedVector
from seedrl_core.codec import FIRST, LAST, RESTARTED, TERMINATED, TRUNCATED, Episode
from seedrl_core.config import ActorConfig, AtariConfig
from seedrl_core.errors import ConfigError


def make(
    env_id: str = "ALE/Breakout-v5", num_envs: int = 2, env_kwargs: Any = None, seed: int = 0, **atari: Any
) -> Any:
    """Games of one session."""
    settings = ActorConfig(
        env_id=env_id, env_kwargs=env_kwargs or {}, seed=seed, atari=AtariConfig(**({"threads": 1} | atari))
    )
    return environments.make(settings, 0, num_envs, 1)


def random_actions(vector: Any, rng: np.random.Generator) -> tuple[Any, ...]:
    """Uniform over the game's actions."""
    return (rng.integers(0, int(vector.spec.action[0].high[0]) + 1, vector.num_envs),)


def test_spec_is_one_grey_frame_and_the_games_actions() -> None:
    """Channel last, action repeat 4, advice to stack 4, Breakout's four actions."""
    vector = make()
    assert isinstance(vector, AtariVector)
    (frame,), (action,) = vector.spec.observation, vector.spec.action
    assert (frame.dtype, frame.shape, frame.low, frame.high) == (np.uint8, (84, 84, 1), (0.0,), (255.0,))
    assert (action.dtype, action.shape, action.low, action.high) == (np.int64, (), (0.0,), (3.0,))
    assert (vector.spec.action_repeat, vector.spec.frame_stack) == (4, 4)
    step = vector.reset()
    assert step.observation[0].shape == (2, 84, 84, 1)
    assert step.flags.tolist() == [FIRST, FIRST]


def test_a_recording_has_the_games_names_of_actions(tmp_path: Path) -> None:
    """Of each action of the game, beside the frame; without a recording there is neither."""
    settings = ActorConfig(env_id="ALE/Breakout-v5", role="eval", recording=tmp_path / "recording")
    recorded, plain = environments.make(settings, 0, 1, 1).reset(), make().reset()
    assert recorded.action_names == ("NOOP", "FIRE", "RIGHT", "LEFT")
    assert recorded.picture is not None and recorded.picture.shape == (84, 84, 3)
    assert (plain.picture, plain.action_names) == (None, ())


def test_the_frame_cap_is_a_truncation_after_that_many_frames() -> None:
    """A cap of 100 frames is 25 steps of 4 frames; the tick after it is FIRST and no step of a game."""
    vector = make("ALE/Pong-v5", max_episode_frames=100)
    flags = [vector.reset().flags]
    episodes: list[Episode] = []
    for _ in range(52):
        step = vector.step((np.zeros(2, np.int64),))
        flags.append(step.flags)
        episodes.extend(step.episodes)
    period = [FIRST, *[0] * 24, TRUNCATED]
    assert [int(flag[0]) for flag in flags] == [*period, *period, FIRST]
    assert [(episode.env, episode.length) for episode in episodes] == [(0, 25), (1, 25), (0, 25), (1, 25)]


@pytest.mark.parametrize("episodic_life", [False, True])
def test_returns_are_raw_and_of_whole_games(episodic_life: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The metrics' return is the sum of unclipped points until the game is over, however many lives it took."""
    vector = make("ALE/SpaceInvaders-v5", 1, episodic_life=episodic_life)
    emulated: list[float] = []
    step_games = vector._vector.step

    def recorded(action: Any) -> Any:
        outcome = step_games(action)
        emulated.append(float(outcome[1][0]))
        return outcome

    monkeypatch.setattr(vector._vector, "step", recorded)
    rng = np.random.default_rng(1)
    step = vector.reset()
    endings, rewards, episodes = 0, 0.0, ()
    while not episodes:
        step = vector.step(random_actions(vector, rng))
        rewards += float(step.reward.sum())
        endings += int((step.flags & LAST != 0).sum())
        episodes = step.episodes
    assert endings == (3 if episodic_life else 1)
    points = sum(emulated)
    assert episodes[0].episode_return == points
    assert episodes[0].length == len(emulated)
    assert points >= rewards > 0
    assert points % 5 == 0
    assert points > 20


def test_a_game_is_the_one_that_the_plain_environment_plays() -> None:
    """Without randomness the same actions give the points and the length that Gymnasium's own environment gives."""
    plain = gymnasium.make("ALE/SpaceInvaders-v5", repeat_action_probability=0.0, frameskip=4)
    vector = make("ALE/SpaceInvaders-v5", 1, env_kwargs={"repeat_action_probability": 0.0}, noop_max=0)
    rng = np.random.default_rng(2)
    plain.reset(seed=0)
    vector.reset()
    points, steps, over, episodes = 0.0, 0, False, ()
    while not over:
        action = random_actions(vector, rng)
        _, reward, over, _, _ = plain.step(int(action[0][0]))
        points, steps = points + float(reward), steps + 1
        episodes = vector.step(action).episodes
    assert episodes == (Episode(0, points, steps),)


def test_a_lost_life_ends_the_episode_but_not_the_game() -> None:
    """TERMINATED, then FIRST with reward 0, while the game keeps its lives; five of them make one game."""
    vector = make("ALE/Breakout-v5", 1, episodic_life=True)
    rng = np.random.default_rng(0)
    flags, rewards, episodes = [int(vector.reset().flags[0])], [0.0], []
    while not episodes:
        step = vector.step(random_actions(vector, rng))
        flags.append(int(step.flags[0]))
        rewards.append(float(step.reward[0]))
        episodes.extend(step.episodes)
    ends = [t for t, flag in enumerate(flags) if flag & LAST]
    assert len(ends) == 5
    assert all(flags[t] == TERMINATED for t in ends)
    assert all(flags[t + 1] == FIRST and rewards[t + 1] == 0 for t in ends[:-1])
    assert episodes[0].length == len(flags) - 1
    assert int(vector.step((np.zeros(1, np.int64),)).flags[0]) == FIRST


class ScriptedGames:
    """Stands in for ale_py's vector environment: outcomes come from a table of (reward, terminated, lives)."""

    def __init__(self, script: list[tuple[int, bool, int]]) -> None:
        self._script = iter(script)
        self.actions: list[int] = []

    def reset(self, seed: Any) -> Any:
        return np.zeros((1, 1, 84, 84), np.uint8), {"lives": np.array([3], np.int32)}

    def step(self, actions: Any) -> Any:
        assert actions.shape == (1,)
        self.actions.append(int(actions[0]))
        reward, terminated, lives = next(self._script)
        return (
            np.zeros((1, 1, 84, 84), np.uint8),
            np.array([reward], np.int32),
            np.array([terminated]),
            np.array([False]),
            {"lives": np.array([lives], np.int32)},
        )


def test_a_game_that_ends_on_the_first_frame_of_a_life_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """FIRST and an ending never share a tick: the ending is left out and the new game is RESTARTED."""
    vector = make("ALE/Breakout-v5", 1, episodic_life=True)
    script = [(7, False, 3), (0, False, 2), (5, True, 0), (0, False, 3), (1, False, 3)]
    games = ScriptedGames(script)
    monkeypatch.setattr(vector, "_vector", games)
    vector.reset()
    steps = [vector.step((np.array([2]),)) for _ in script]
    assert [int(step.flags[0]) for step in steps] == [0, TERMINATED, FIRST, FIRST | RESTARTED, 0]
    assert [float(step.reward[0]) for step in steps] == [7, 0, 0, 0, 1]
    assert [step.episodes for step in steps if step.episodes] == [(Episode(0, 12.0, 3),)]
    assert games.actions[2] == 0, "the action into the FIRST of a life is ignored"


@pytest.mark.parametrize(
    ("env_id", "sticky"), [("ALE/Pong-v5", 0.25), ("PongNoFrameskip-v4", 0.0), ("PongNoFrameskip-v0", 0.25)]
)
def test_sticky_actions_are_those_of_the_id(env_id: str, sticky: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The registered repeat_action_probability reaches the emulator, and actor.env_kwargs may change it."""
    seen: list[dict[str, Any]] = []
    interface = ale_py.ALEVectorInterface

    def spy(**settings: Any) -> Any:
        seen.append(settings)
        return interface(**settings)

    monkeypatch.setattr(ale_py, "ALEVectorInterface", spy)
    make(env_id, 1)
    make(env_id, 1, env_kwargs={"repeat_action_probability": 0.5, "full_action_space": True})
    assert [settings["repeat_action_probability"] for settings in seen] == [sticky, 0.5]
    assert [settings["full_action_space"] for settings in seen] == [False, True]
    assert not seen[0]["reward_clipping"]
    assert not seen[0]["use_fire_reset"]
    assert (seen[0]["frame_skip"], seen[0]["maxpool"], seen[0]["stack_num"]) == (4, True, 1)


def test_games_are_reproducible_and_distinct() -> None:
    """The same seed plays the same games; environments of one session differ."""

    def play(seed: int) -> Any:
        vector = make("ALE/Pong-v5", 2, seed=seed)
        rng = np.random.default_rng(0)
        vector.reset()
        for _ in range(30):
            step = vector.step((np.repeat(rng.integers(0, 6, 1), 2),))
        return step.observation[0].copy()

    once, again, other = play(3), play(3), play(4)
    np.testing.assert_array_equal(once, again)
    assert not np.array_equal(once, other)
    assert not np.array_equal(once[0], once[1])


def test_settings_of_the_emulator_have_their_own_place() -> None:
    """A keyword that actor.atari replaces is refused, with a pointer to it."""
    with pytest.raises(ConfigError, match=r"actor\.env_kwargs\.frameskip: .*actor\.atari"):
        make(env_kwargs={"frameskip": 2})


def test_one_game_cannot_be_built_anew_by_itself() -> None:
    """Games share an emulator library, so that recycling needs processes, which the error names."""
    with pytest.raises(ConfigError, match=r"actor\.env_recycle_episodes: .*actor\.envs_per_process"):
        environments.make(ActorConfig(env_id="ALE/Pong-v5", env_recycle_episodes=5), 0, 2, 1)


def test_games_in_processes_are_the_same_games() -> None:
    """Frames and rewards of the first steps are those of games that are not apart."""
    config = ActorConfig(env_id="ALE/Pong-v5", seed=3)
    here = environments.make(config, 0, 2, 1)
    apart = environments.make(config.model_copy(update={"envs_per_process": 1}), 0, 2, 1)
    assert isinstance(apart, IsolatedVector)
    assert apart.spec == here.spec
    rng = np.random.default_rng(1)
    for t in range(30):
        action = random_actions(here, rng)
        one, other = (here.reset(), apart.reset()) if t == 0 else (here.step(action), apart.step(action))
        np.testing.assert_array_equal(one.observation, other.observation)
        np.testing.assert_array_equal(one.reward, other.reward)
    here.close()
    apart.close()


def test_games_start_where_the_system_tells_no_cores_of_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only Linux knows sched_getaffinity."""
    monkeypatch.delattr(os, "sched_getaffinity")
    assert make().num_envs
