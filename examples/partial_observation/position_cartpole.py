"""CartPole without velocities: the network sees where cart and pole are, and must remember where they were."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.classic_control import CartPoleEnv

POSITIONS = [0, 2]  # of the cart and of the pole; 1 and 3 are their velocities


class PositionCartPole(gym.ObservationWrapper):  # type: ignore[type-arg]
    """CartPole-v1 that shows positions only."""

    def __init__(self, **kwargs: Any) -> None:
        """Takes CartPole's keyword arguments."""
        super().__init__(CartPoleEnv(**kwargs))
        space = self.env.observation_space
        assert isinstance(space, gym.spaces.Box)
        self.observation_space = gym.spaces.Box(space.low[POSITIONS], space.high[POSITIONS], dtype=np.float32)

    def observation(self, observation: Any) -> Any:
        """The positions."""
        return observation[POSITIONS]


gym.register("PositionCartPole-v0", PositionCartPole, max_episode_steps=500)
