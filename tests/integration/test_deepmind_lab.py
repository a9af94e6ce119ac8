"""Levels of the real DeepMind Lab, where its module is installed."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from seedrl_actor import environments
from seedrl_actor.dmlab_environment import LabEnvironment
from seedrl_core.config import ActorConfig
from seedrl_core.errors import ConfigError, EnvironmentFailed

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(importlib.util.find_spec("deepmind_lab") is None, reason="deepmind_lab is not installed"),
    pytest.mark.timeout(600),
]


def test_a_whole_episode() -> None:
    """Observations are of the space, rewards are numbers, and the level comes to an end by itself."""
    environment = LabEnvironment("rooms_collect_good_objects_train")
    environment.action_space.seed(0)
    observation, _ = environment.reset(seed=0)
    terminated = False
    for _ in range(20_000):
        assert environment.observation_space.contains(observation)
        observation, reward, terminated, truncated, _ = environment.step(int(environment.action_space.sample()))
        assert np.isfinite(reward)
        assert not truncated
        if terminated:
            break
    assert terminated
    assert environment.observation_space.contains(observation)
    environment.close()


def test_an_instruction() -> None:
    """A language level says what to do."""
    environment = LabEnvironment("language_select_located_object")
    observation, _ = environment.reset(seed=0)
    assert np.count_nonzero(observation["instruction"]) > 2
    environment.close()


def test_the_same_seed_is_the_same_level(tmp_path: Path) -> None:
    """Also when its map comes out of the cache, which has one map then."""
    images = []
    for _ in range(2):
        environment = LabEnvironment("explore_goal_locations_small", num_seeds=1, level_cache=str(tmp_path))
        images.append(environment.reset(seed=0)[0]["pixels"])
        environment.close()
    np.testing.assert_array_equal(*images)
    assert len(list(tmp_path.iterdir())) == 1


def test_levels_step_in_processes() -> None:
    """Two environments of an actor, each in its own."""
    vector = environments.make(ActorConfig(env_id="dmlab/rooms_watermaze"), 0, 2, 1)
    vector.reset()
    for _ in range(20):
        step = vector.step((np.array([0, 5]),))
    assert step.restarts == 0
    vector.close()


def test_a_level_that_is_not_there() -> None:
    """An error that names it, whether the Lab raises one or ends its process."""
    with pytest.raises((ConfigError, EnvironmentFailed), match="no_such_level"):
        environments.make(ActorConfig(env_id="dmlab/no_such_level"), 0, 1, 1)
