"""Tiny Gymnasium environments whose every observation and reward is known beforehand, and some that misbehave."""

from __future__ import annotations

import threading
from typing import Any

import gymnasium
import numpy as np

LENGTH = 4


class Counter(gymnasium.Env[np.ndarray[Any, Any], int]):
    """Episodes of `length` steps: the observation is (step number, seed), the reward is the step's number."""

    def __init__(self, length: int = LENGTH, truncates: bool = False) -> None:
        """`truncates`: episodes are cut instead of ending by themselves."""
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float64)
        self.action_space = gymnasium.spaces.Discrete(3, start=5)
        self._length = length
        self._truncates = truncates
        self._seed = 0
        self._t = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        if seed is not None:
            self._seed = seed
        self._t = 0
        return self._observe(), {}

    def step(self, action: int) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        assert self._t < self._length, "step after the end of an episode"
        assert self.action_space.contains(action), action
        self._t += 1
        over = self._t == self._length
        return self._observe(), self._reward(), over and not self._truncates, over and self._truncates, {}

    def _observe(self) -> Any:
        return np.array([self._t, self._seed], np.float64)

    def _reward(self) -> Any:
        return float(self._t)


class Misbehaving(Counter):
    """A counter that does something wrong at step `at` of the episodes that `fails` more times allow, process-wide."""

    fails = 0

    def __init__(self, how: str, at: int = 2) -> None:
        super().__init__()
        self._how = how
        self._at = at

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        if self._how == "raise in reset" and self._due():
            raise RuntimeError("no simulator")
        return super().reset(seed=seed, options=options)

    def step(self, action: int) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        if self._t + 1 == self._at and self._how == "hang":
            threading.Event().wait()
        if self._t + 1 == self._at and self._due():
            if self._how == "raise":
                raise RuntimeError("simulator broke")
            if self._how == "exit":
                raise SystemExit(1)
        return super().step(action)

    def _due(self) -> bool:
        if Misbehaving.fails <= 0:
            return False
        Misbehaving.fails -= 1
        return True

    def _observe(self) -> Any:
        return np.zeros((2, 1)) if self._how == "shape" and self._t == self._at else super()._observe()

    def _reward(self) -> Any:
        if self._t == self._at:
            return {"nan": np.nan, "array": np.array([1.0])}.get(self._how, 1.0)
        return super()._reward()


gymnasium.register("Counter-v0", Counter)
gymnasium.register("Misbehaving-v0", Misbehaving)
