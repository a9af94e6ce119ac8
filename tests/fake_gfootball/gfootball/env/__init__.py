"""Stands in for `gfootball.env`: the same calls, checks and old interface, a known game.

An episode lasts DURATION steps at most. To run right in STEPS_TO_GOAL of them scores, a shot loses the ball; in the
academy both end the episode. Where the left team stands tells the seed, the ball the step, the active player the last
action: `read` takes them out of the planes. What the package leaves undefined is an assertion here.
"""

from __future__ import annotations

import random
from typing import Any, NamedTuple

import numpy as np

from gfootball.env import observation_preprocessing, scenario_builder

DURATION = 6
STEPS_TO_GOAL = 3
RIGHT, SHOT, NUM_ACTIONS = 5, 12, 19
_SEED_BITS = 31


class Seen(NamedTuple):
    """What planes [72, 96, 4] tell."""

    seed: int
    step: int
    action: int


def read(planes: Any) -> Seen:
    """Takes planes apart."""
    seed = sum(1 << int(bit) for bit in np.flatnonzero(planes[0, :_SEED_BITS, 0]))
    return Seen(seed, int(np.argmax(planes[1, :, 2])), int(np.argmax(planes[2, :, 3])))


class Space:
    """Of a Box, the shape; of a Discrete, n. No space of Gymnasium: those of gym have other types."""

    def __init__(self, shape: tuple[int, ...] = (), n: int = 0) -> None:
        self.shape, self.n = shape, n


class Config:
    """Settings, of which an episode gets its seed: from here, or by chance."""

    def __init__(self, values: dict[str, Any]) -> None:
        self._values = values
        self.new_scenario()

    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self._values[key] = value

    def new_scenario(self) -> None:
        self.seed = self._values.get("game_engine_random_seed", random.randint(0, 2_000_000_000))
        self._values.setdefault("reverse_team_processing", bool(self.seed % 2))


class FootballEnv:
    """The game, with what it tells of itself.

    Attributes:
      made: all of this process.
    """

    made: list[FootballEnv] = []  # noqa: RUF012

    def __init__(self, config: Config) -> None:
        self._config = config
        self._state = "created"
        self.episodes: list[tuple[int, bool]] = []
        FootballEnv.made.append(self)

    @property
    def unwrapped(self) -> FootballEnv:
        return self

    def reset(self) -> list[dict[str, Any]]:
        self._config.new_scenario()
        self.episodes.append((self._config.seed, self._config["reverse_team_processing"]))
        self._step = self._way = self._action = 0
        self._state = "running"
        return self.observation()

    def step(self, action: Any) -> tuple[list[dict[str, Any]], Any, bool, dict[str, Any]]:
        assert self._state != "done", "Cant call step() once episode finished (call reset() instead)"
        assert self._state == "running", "reset() must be called before step()"
        assert isinstance(action, list) and len(action) == 1, "one action for each player"
        assert type(action[0]) is int and 0 <= action[0] < NUM_ACTIONS, f"Action {action} not found in action set"
        self._action = action[0]
        self._step += 1
        self._way += self._action == RIGHT
        goal = self._action == RIGHT and self._way == STEPS_TO_GOAL
        ends = self._config["level"].startswith("academy_") and (goal or self._action == SHOT)
        done = ends or self._step >= DURATION
        self._state = "done" if done else "running"
        return self.observation(), np.array([goal], np.float32), done, {"score_reward": int(goal)}

    def observation(self) -> list[dict[str, Any]]:
        assert self._state != "created", "reset() must be called before observation()"
        team = [(0, bit) for bit in range(_SEED_BITS) if self._config.seed >> bit & 1]
        places = {"left_team": team, "right_team": [(71, 95)], "ball": [(1, self._step)], "active": [(2, self._action)]}
        return [{**places, "steps_left": DURATION - self._step, "way": self._way}]

    def close(self) -> None:
        self._state = "closed"


class Wrapped:
    """All wrappers in one: representation, rewards, one player instead of a list of them."""

    def __init__(self, env: FootballEnv, representation: str, rewards: str) -> None:
        self._env, self._representation, self._checkpoints = env, representation, "checkpoints" in rewards.split(",")
        self.observation_space = Space((72, 96, 4) if representation == "extracted" else (115,))
        self.action_space = Space(n=NUM_ACTIONS)

    @property
    def unwrapped(self) -> FootballEnv:
        return self._env

    def reset(self) -> Any:
        return self._observed(self._env.reset())

    def step(self, action: Any) -> tuple[Any, Any, bool, dict[str, Any]]:
        raw, reward, done, info = self._env.step(action)
        if self._checkpoints and action == [RIGHT]:
            reward[0] += 0.1
        return self._observed(raw), reward[0], done, info

    def close(self) -> None:
        self._env.close()

    def _observed(self, raw: list[dict[str, Any]]) -> Any:
        if self._representation == "extracted":
            return observation_preprocessing.generate_smm(raw)[0]
        return np.full(115, raw[0]["way"], np.float32)


def create_environment(
    env_name: str = "", stacked: bool = False, representation: str = "extracted", rewards: str = "scoring"
) -> Wrapped:
    """See the package."""
    assert env_name
    assert not stacked, "stacks are made by the learner"
    assert "scoring" in rewards.split(",")
    if env_name not in scenario_builder.SCENARIOS:
        raise SystemExit(1)
    if representation not in ("extracted", "simple115", "simple115v2"):
        raise ValueError(f"Unsupported representation: {representation}")
    return Wrapped(FootballEnv(Config({"level": env_name})), representation, rewards)
