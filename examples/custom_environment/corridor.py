"""A corridor to walk along: start at cell 0, reach the last one. Importing this module registers `Corridor-v0`."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np


class Corridor(gymnasium.Env[np.ndarray[Any, Any], int]):
    """Observation: the position, 0..1. Actions: 0 back, 1 ahead. A step costs 0.01, the end is worth 1."""

    def __init__(self, length: int = 20) -> None:
        """A corridor of `length` cells."""
        self.observation_space = gymnasium.spaces.Box(0.0, 1.0, (1,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(2)
        self._length = length

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Back to the start."""
        super().reset(seed=seed)
        self._cell = 0
        return self._observe(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """One cell back or ahead."""
        self._cell = max(0, self._cell + (1 if action == 1 else -1))
        arrived = self._cell == self._length - 1
        return self._observe(), 1.0 if arrived else -0.01, arrived, False, {}

    def _observe(self) -> Any:
        return np.array([self._cell / (self._length - 1)], np.float32)


gymnasium.register("Corridor-v0", Corridor, max_episode_steps=200)
