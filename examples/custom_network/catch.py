"""Catch a falling ball with a paddle, on a small board. Importing this module registers `Catch-v0`."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

SIZE = 8


class Catch(gymnasium.Env[np.ndarray[Any, Any], int]):
    """Observation: two planes of squares, ball and paddle. Actions: left, stay, right. A catch is worth 1."""

    observation_space = gymnasium.spaces.Box(0, 1, (SIZE, SIZE, 2), np.uint8)
    action_space = gymnasium.spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """A ball in the top row, the paddle somewhere at the bottom."""
        super().reset(seed=seed)
        self._row = 0
        self._ball, self._paddle = self.np_random.integers(SIZE, size=2)
        return self._observe(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """The ball falls by one square."""
        self._paddle = min(SIZE - 1, max(0, self._paddle + action - 1))
        self._row += 1
        landed = self._row == SIZE - 1
        return self._observe(), float(landed and self._ball == self._paddle), landed, False, {}

    def _observe(self) -> Any:
        board = np.zeros((SIZE, SIZE, 2), np.uint8)
        board[self._row, self._ball, 0] = board[SIZE - 1, self._paddle, 1] = 1
        return board


gymnasium.register("Catch-v0", Catch)
