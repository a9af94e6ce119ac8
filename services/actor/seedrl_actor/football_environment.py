"""A scenario of Google Research Football (Kurach et al., arXiv 1907.11180) as a Gymnasium environment.

The only module of the actor that knows `gfootball`, whose own interface is that of gym before version 0.26.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from seedrl_core.errors import ConfigError
from seedrl_core.spec import Array

PLANES = "extracted"
REPRESENTATIONS = (PLANES, "simple115v2", "simple115")
GOALS = "scoring"
REWARDS = (GOALS, f"{GOALS},checkpoints")
# Planes show no movement.
FRAME_STACK = 4
_MAX_SEED = 2_000_000_000  # of those that the game draws by itself
_RENDER_MODE = "rgb_array"
_GRASS = (40, 100, 50)
# Of the planes, in the order in which they are drawn over each other: own team, other team, active player, ball.
_DRAWN = ((0, (90, 150, 255)), (1, (235, 80, 70)), (3, (255, 220, 80)), (2, (255, 255, 255)))
_PIXELS = 4  # of a picture for one of a plane, in height and in width


class FootballEnvironment(gymnasium.Env[Any, Any]):
    """One player of the left team at a time, as the game chooses: mostly the one with the ball, or the nearest to it.

    Each episode has a seed of its own, drawn from that of the first reset.

    An episode that the clock ends is truncated, since no representation shows the clock: the value of what is seen last
    does not depend on it. A goal, a lost ball and a ball out of play terminate it, in scenarios that end with them.
    """

    def __init__(
        self, scenario: str, *, evaluates: bool = False, representation: str = PLANES, rewards: str = GOALS
    ) -> None:
        """Starts the game.

        Args:
          scenario: name of one of `gfootball.scenarios`.
          evaluates: for evaluation: goals alone count, whatever `rewards` says.
          representation: extracted, planes of bits [72, 96, 4] with both teams, ball and active player; or simple115v2,
            simple115, 115 numbers.
          rewards: scoring, 1 for a goal and -1 for one of the other team; or scoring,checkpoints, also up to 1 on the
            way to the goal.

        Raises:
          ConfigError: there is no gfootball, or no such scenario, representation or rewards.
        """
        game = _gfootball()
        scenarios = sorted(name for name in game.scenario_builder.all_scenarios() if not name.startswith("test"))
        _check("actor.env_id: of scenarios", scenario, scenarios)
        _check("actor.env_kwargs.representation", representation, REPRESENTATIONS)
        _check("actor.env_kwargs.rewards", rewards, REWARDS)
        self._draw = game.observation_preprocessing.generate_smm
        self._env = game.create_environment(
            env_name=scenario, representation=representation, rewards=GOALS if evaluates else rewards
        )
        self._has_planes = representation == PLANES
        shape = self._env.observation_space.shape
        self.observation_space = (
            spaces.MultiBinary(shape) if self._has_planes else spaces.Box(-np.inf, np.inf, shape, np.float32)
        )
        self.action_space = spaces.Discrete(int(self._env.action_space.n))
        self.metadata = {"render_modes": [_RENDER_MODE], "frame_stack": FRAME_STACK if self._has_planes else 1}
        self.render_mode = _RENDER_MODE

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """A new episode."""
        super().reset(seed=seed)
        drawn = int(self.np_random.integers(_MAX_SEED))
        # Where they are not set, the game draws the first by Python's random numbers, and the second once for all.
        settings = self._env.unwrapped._config
        settings["game_engine_random_seed"] = drawn
        settings["reverse_team_processing"] = bool(drawn % 2)
        return self._observed(self._env.reset()), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """One of the game's steps, a tenth of a second of its time."""
        # A list, as all of the game's wrappers take it.
        observation, reward, over, info = self._env.step([int(action)])
        out_of_time = over and self._raw["steps_left"] <= 0 and not info["score_reward"]
        return self._observed(observation), float(reward), over and not out_of_time, out_of_time, {}

    def render(self) -> Array:
        """The field from above, [288, 384, 3] uint8."""
        (planes,) = self._draw([self._raw])
        picture = np.full((*planes.shape[:2], 3), _GRASS, np.uint8)
        for plane, colour in _DRAWN:
            picture[planes[:, :, plane] > 0] = colour
        return picture.repeat(_PIXELS, axis=0).repeat(_PIXELS, axis=1)

    def close(self) -> None:
        """Ends the game."""
        self._env.close()

    @property
    def _raw(self) -> dict[str, Any]:
        """All that the game tells of itself, from a player's view."""
        raw: dict[str, Any] = self._env.unwrapped.observation()[0]
        return raw

    def _observed(self, observation: Array) -> Array:
        return (observation > 0).view(np.int8) if self._has_planes else observation


def _check(name: str, value: str, known: Any) -> None:
    if value not in known:
        raise ConfigError(f"{name}: expected one of {' '.join(known)}; got {value}")


def _gfootball() -> Any:
    try:
        import gfootball.env
        import gfootball.env.scenario_builder
    except ImportError as error:
        raise ConfigError(
            "expected the module gfootball in the actor's environment; deploy/install-football makes one for it, which "
            f"actor.python names (docs/environments.md): {error}"
        ) from error
    return gfootball.env
