"""Tiny environments, one for each kind of space, in which every right action is known: the best return is LENGTH.

Each step shows something new, and an action earns 1 when it is the right answer to it (less when it is partly right).
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

LENGTH = 8


class Puzzle(gymnasium.Env[Any, Any]):
    """LENGTH questions. A puzzle says what it shows and how right an action is, 0..1."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self._t = 0
        self._shown = self.show()
        return self._shown, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), action
        reward = float(self.rightness(self._shown, action))
        self._t += 1
        self._shown = self.show()
        return self._shown, reward, self._t == LENGTH, False, {}

    def show(self) -> Any:
        """An observation."""
        return self.observation_space.sample()

    def rightness(self, shown: Any, action: Any) -> Any:
        """What the action earns."""
        raise NotImplementedError


class ShiftedDiscrete(Puzzle):
    """Discrete with starts: the answer to 5 is 1, to 6 it is 2, and so on in a circle."""

    observation_space = spaces.Discrete(6, start=5)
    action_space = spaces.Discrete(6, start=-2)

    def rightness(self, shown: Any, action: Any) -> Any:
        assert isinstance(action, int)
        return (action + 2) == (shown - 5 + 3) % 6


class MultiDiscrete(Puzzle):
    """Choices of different sizes: each is to be copied."""

    observation_space = spaces.MultiDiscrete([2, 4, 3], start=[0, 7, -1])
    action_space = spaces.MultiDiscrete([2, 4, 3], start=[1, 0, 5])

    def rightness(self, shown: Any, action: Any) -> Any:
        return np.mean(action - [1, 0, 5] == shown - [0, 7, -1])


class MultiBinary(Puzzle):
    """Bits: each is to be turned around."""

    observation_space = spaces.MultiBinary((2, 2))
    action_space = spaces.MultiBinary((2, 2))

    def rightness(self, shown: Any, action: Any) -> Any:
        return np.mean(action != shown)


class Box(Puzzle):
    """Numbers between bounds of their own: each is a line of the observation. Guessing the middle earns 0.775."""

    observation_space = spaces.Box(-1, 1, (2,), np.float64)
    action_space = spaces.Box(np.array([-2.0, 0.0]), np.array([2.0, 0.1]), dtype=np.float64)

    def rightness(self, shown: Any, action: Any) -> Any:
        right = np.array([-1.8 * shown[1], 0.05 + 0.045 * shown[0]])
        return 1 - np.mean(np.abs(action - right) / [4.0, 0.1])


class Nested(Puzzle):
    """A Dict with a Tuple in it, of every kind of leaf."""

    observation_space = spaces.Dict(
        {"which": spaces.Tuple((spaces.Discrete(3), spaces.MultiBinary(2))), "where": spaces.Box(-1, 1, (), np.float32)}
    )
    action_space = spaces.Dict(
        {"arm": spaces.Tuple((spaces.Box(-1, 1, (1,), np.float32), spaces.Discrete(3))), "legs": spaces.MultiBinary(2)}
    )

    def rightness(self, shown: Any, action: Any) -> Any:
        reach, hand = action["arm"]
        close = 1 - min(1.0, float(abs(reach[0] - shown["where"])))
        return (close + (hand == shown["which"][0]) + np.mean(action["legs"] == shown["which"][1])) / 3


class Masked(Puzzle):
    """The largest action that the mask allows is right. A forbidden one is an error of the learner."""

    observation_space = spaces.Dict({"action_mask": spaces.MultiBinary(5), "noise": spaces.Box(-1, 1, (1,))})
    action_space = spaces.Discrete(5, start=10)

    def show(self) -> Any:
        shown = self.observation_space.sample()
        shown["action_mask"][self.np_random.integers(5)] = 1
        return shown

    def rightness(self, shown: Any, action: Any) -> Any:
        assert shown["action_mask"][action - 10], "a forbidden action"
        return action - 10 == np.flatnonzero(shown["action_mask"]).max()


class Instruction(Puzzle):
    """Four words of a large vocabulary: the second of them is the order, the others say nothing."""

    observation_space = spaces.MultiDiscrete([5000] * 4)
    action_space = spaces.Discrete(4)
    _WORDS = np.array([17, 512, 2048, 4999])

    def show(self) -> Any:
        return self._WORDS[self.np_random.integers(4, size=4)]

    def rightness(self, shown: Any, action: Any) -> Any:
        return self._WORDS[action] == shown[1]


class ImageAndVector(Puzzle):
    """Two questions in one: whether the picture's upper half is bright, and whether the number is positive."""

    observation_space = spaces.Dict(
        {"camera": spaces.Box(0, 255, (36, 36), np.uint8), "state": spaces.Box(-1, 1, (1,), np.float32)}
    )
    action_space = spaces.Discrete(4)

    def show(self) -> Any:
        camera = np.full((36, 36), 20, np.uint8)
        camera[:18] = self.np_random.choice([20, 220])
        return {"camera": camera, "state": self.np_random.choice([-1.0, 1.0], 1).astype(np.float32)}

    def rightness(self, shown: Any, action: Any) -> Any:
        return action == 2 * (shown["camera"][0, 0] > 100) + (shown["state"][0] > 0)


class BitPlanes(Puzzle):
    """Two questions in one, answered by bits alone: is the first plane's upper half set, and the second's left half?"""

    observation_space = spaces.MultiBinary((36, 40, 2))
    action_space = spaces.Discrete(4)

    def show(self) -> Any:
        planes = np.zeros((36, 40, 2), np.int8)
        planes[:18, :, 0], planes[:, :20, 1] = self.np_random.integers(2, size=2)
        return planes

    def rightness(self, shown: Any, action: Any) -> Any:
        return action == 2 * shown[0, 0, 0] + shown[0, 0, 1]


KINDS = (ShiftedDiscrete, MultiDiscrete, MultiBinary, Box, Nested, Masked, Instruction, ImageAndVector, BitPlanes)
for kind in KINDS:
    gymnasium.register(f"{kind.__name__}-v0", kind)
