"""Tiny Gymnasium environments whose every observation and reward is known beforehand, and some that misbehave."""

from __future__ import annotations

import ctypes
import itertools
import json
import os
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

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


class Diary(Counter):
    """A counter that writes down all that it emits and is given; no two of its observations or rewards are alike.

    Each instance is a life with a number of its own. The observation is (life, episode in two bytes, step number).
    """

    def __init__(
        self,
        directory: str,
        lengths: Sequence[int] = (LENGTH,),
        first_life: int = 0,
        last_only: bool = False,
        breaks_in_life: int = -1,
    ) -> None:
        """Takes the next number from `first_life` on that no process has used.

        Args:
          directory: gets a file `LIFE.jsonl` with one line an observation, each written before it is emitted.
          lengths: of the episodes, in turn; each life begins with another.
          first_life: least number of a life.
          last_only: only an episode's last step is rewarded.
          breaks_in_life: the life that raises in the midst of an episode, after three whole ones.
        """
        super().__init__()
        self.observation_space = gymnasium.spaces.Box(0, 255, (4,), np.uint8)
        self._life, self._file = _begin_life(Path(directory), first_life)
        self._lengths = lengths
        self._last_only = last_only
        self._breaks = self._life == breaks_in_life
        self._episode = -1

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self._episode += 1
        turn = self._life + self._episode
        self._length = self._lengths[turn % len(self._lengths)]
        self._truncates = turn % 2 == 1
        observation, info = super().reset(seed=seed)
        self._write(observation, None, 0.0, False, False)
        return observation, info

    def step(self, action: int) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        if self._breaks and self._episode >= 3 and self._t == 2:
            raise RuntimeError("simulator broke")
        observation, reward, terminated, truncated, info = super().step(action)
        self._write(observation, action, reward, terminated, truncated)
        return observation, reward, terminated, truncated, info

    def close(self) -> None:
        self._file.close()

    def _observe(self) -> Any:
        return np.array([self._life, *divmod(self._episode, 256), self._t], np.uint8)

    def _reward(self) -> Any:
        if self._last_only and self._t < self._length:
            return 0.0
        return self._t + self._episode % 16 / 16 + self._life / 4096  # exact in float32

    def _write(self, observation: Any, action: int | None, reward: float, terminated: bool, truncated: bool) -> None:
        line = {
            "observation": observation.tolist(),
            "action": action,
            "reward": reward,
            "terminated": terminated,
            "truncated": truncated,
        }
        self._file.write(json.dumps(line) + "\n")


class Faulty(Counter):
    """A counter of which the first `times` to come to step 2 of an episode, in any process, do something bad there."""

    def __init__(self, how: str, directory: str, times: int = 1) -> None:
        """`directory` keeps count."""
        super().__init__()
        self._how = how
        self._directory = Path(directory)
        self._times = times

    def step(self, action: int) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        if self._t == 1 and self._is_due():
            fault(self._how)
        return super().step(action)

    def _is_due(self) -> bool:
        for number in range(self._times):
            try:
                (self._directory / f"fault-{number}").touch(exist_ok=False)
            except FileExistsError:
                continue
            return True
        return False


class Unbuildable(Counter):
    """A counter whose making does something bad."""

    def __init__(self, how: str) -> None:
        fault(how)
        super().__init__()


def fault(how: str) -> None:
    """What environments do to those who run them."""
    match how:
        case "raise":
            raise RuntimeError("simulator broke")
        case "exit":
            sys.exit(3)
        case "exit at once":
            os._exit(3)
        case "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "hang":
            threading.Event().wait()
        case "hang in C":
            ctypes.PyDLL(None).pause()  # and keeps the interpreter's lock
        case _:
            raise AssertionError(how)


def _begin_life(directory: Path, first: int) -> tuple[int, TextIO]:
    for life in itertools.count(first):
        try:
            return life, (directory / f"{life}.jsonl").open("x", buffering=1)
        except FileExistsError:
            continue
    raise AssertionError


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
gymnasium.register("Diary-v0", Diary)
gymnasium.register("Misbehaving-v0", Misbehaving)
gymnasium.register("Faulty-v0", Faulty)
gymnasium.register("Unbuildable-v0", Unbuildable)
