"""Stands in for the module `deepmind_lab`, which has to be built: the same calls, checks and errors, a known world.

An episode has FRAMES frames, and frame t earns t. The image tells the frame, the seed and the
last action: `read` takes them out of it. What the module leaves undefined is an assertion here.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

FRAMES = 10
INSTRUCTION = "Pick up the RED ball, then the red hat!"
# Level -> what is special about it.
LEVELS = {
    "lt_chasm": "",
    "contributed/dmlab30/rooms_watermaze": "",
    "contributed/dmlab30/rooms_collect_good_objects_train": "",
    "contributed/dmlab30/rooms_collect_good_objects_test": "held out",
    "contributed/dmlab30/language_select_located_object": "instructed",
    "contributed/dmlab30/explore_goal_locations_small": "generated",
    "tests/empty_room_test": "mute",
    "tests/no_map": "no map",
}
_ACTIONS = (
    ("LOOK_LEFT_RIGHT_PIXELS_PER_FRAME", -512, 512),
    ("LOOK_DOWN_UP_PIXELS_PER_FRAME", -512, 512),
    ("STRAFE_LEFT_RIGHT", -1, 1),
    ("MOVE_BACK_FORWARD", -1, 1),
    ("FIRE", 0, 1),
    ("JUMP", 0, 1),
    ("CROUCH", 0, 1),
)
_runfiles_path = str(Path(__file__).parent)


class Seen(NamedTuple):
    """What an image tells."""

    frame: int
    seed: int
    action: tuple[int, ...]


def read(image: Any) -> Seen:
    """Takes an image apart."""
    frame = int(image[0, 0, 0])
    return Seen(frame, int.from_bytes(image[0, 1:5, 0].tobytes(), "big"), tuple(image[1, :7, 0].astype(int) - 128))


def runfiles_path() -> str:
    """Where the Lab's own files are."""
    return _runfiles_path


def set_runfiles_path(path: str) -> bool:
    """Of the whole module."""
    global _runfiles_path
    assert isinstance(path, str)
    _runfiles_path = path
    return True


class Lab:
    """One environment.

    Attributes:
      made: all of this process.
      generated: how often a map was generated in this process.
    """

    made: list[Lab] = []  # noqa: RUF012
    generated = 0

    def __init__(
        self,
        level: str,
        observations: list[str],
        config: dict[str, str] = {},  # noqa: B006
        renderer: str = "software",
        level_cache: Any = None,
    ) -> None:
        for name, value, kind in (
            ("level", level, str),
            ("observations", observations, list),
            ("config", config, dict),
        ):
            if not isinstance(value, kind):
                raise TypeError(f"{name} must be {kind.__name__}, not {type(value).__name__}")
        if renderer not in ("software", "hardware"):
            raise RuntimeError(f'Failed to set renderer must be "hardware" or "software" actual "{renderer}"!')
        if not all(isinstance(text, str) for pair in config.items() for text in pair):
            raise TypeError("bad argument type for built-in operation")
        if level not in LEVELS:
            raise RuntimeError(f'Failed to init environment - "no such level: {level}"')
        if LEVELS[level] == "held out" and config.get("allowHoldOutLevels") != "true":
            raise RuntimeError('Failed to init environment - "level is held out"')
        self.level, self.config, self.renderer = level, dict(config), renderer
        self._shape = (int(config.get("height", "240")), int(config.get("width", "320")), 3)
        known = {spec["name"] for spec in self.observation_spec()}
        for name in observations:
            if name not in known:
                raise ValueError(f"Unknown observation '{name}'.")
        self._names = list(observations)
        self._cache = level_cache
        self._status = "initialized"
        self._seed = 0
        self._frame = 0
        self._action = (0,) * len(_ACTIONS)
        self.episodes: list[tuple[int, int]] = []
        Lab.made.append(self)

    def observation_spec(self) -> list[dict[str, Any]]:
        specs: list[dict[str, Any]] = [{"name": "RGB_INTERLEAVED", "dtype": np.uint8, "shape": self._shape}]
        if LEVELS[self.level] != "mute":
            specs.append({"name": "INSTR", "dtype": str, "shape": ()})
        return specs

    def action_spec(self) -> list[dict[str, Any]]:
        return [{"name": name, "min": low, "max": high} for name, low, high in _ACTIONS]

    def reset(self, episode: int = -1, seed: Any = None) -> bool:
        if seed is not None and not isinstance(seed, int):
            raise ValueError(f"'seed' must be int or None, was '{type(seed).__name__}'.")
        assert self._status != "closed"
        assert seed is not None and 0 <= seed < 2**31, "an episode that cannot be repeated"
        if LEVELS[self.level] == "no map":
            os._exit(1)
        if LEVELS[self.level] == "generated":
            self._load_map(seed)
        self.episodes.append((episode, seed))
        self._seed, self._frame, self._status = seed, 0, "running"
        self._action = (0,) * len(_ACTIONS)
        return True

    def is_running(self) -> bool:
        return self._status == "running"

    def num_steps(self) -> int:
        return self._frame

    def step(self, action: Any, num_steps: int = 1) -> float:
        if not isinstance(action, np.ndarray):
            raise TypeError(f"action must be numpy.ndarray, not {type(action).__name__}")
        if not self.is_running():
            raise RuntimeError("Environment in wrong status to advance.")
        if action.shape != (len(_ACTIONS),):
            raise ValueError(f"action must have shape ({len(_ACTIONS)})")
        if action.dtype != np.intc:
            raise ValueError("action must have dtype np.intc")
        assert all(low <= value <= high for value, (_, low, high) in zip(action, _ACTIONS, strict=True))
        assert isinstance(num_steps, int) and num_steps > 0
        before, self._frame = self._frame, min(self._frame + num_steps, FRAMES)
        self._action = tuple(map(int, action))
        if self._frame == FRAMES:
            self._status = "terminated"
        return float(sum(range(before + 1, self._frame + 1)))

    def observations(self) -> dict[str, Any]:
        if not self.is_running():
            raise RuntimeError("Environment in wrong status for call to observations()")
        image = np.zeros(self._shape, np.uint8)
        image[0, 0, 0] = self._frame
        image[0, 1:5, 0] = list(self._seed.to_bytes(4, "big"))
        image[1, :7, 0] = np.array(self._action) + 128
        text = INSTRUCTION if LEVELS[self.level] == "instructed" else ""
        values = {"RGB_INTERLEAVED": image, "INSTR": text}
        return {name: values[name] for name in self._names}

    def close(self) -> bool:
        was_open, self._status = self._status != "closed", "closed"
        return was_open

    def _load_map(self, seed: int) -> None:
        """Asks the cache, and gives it what it did not have."""
        key = f"{self.level}/{seed}"
        content = hashlib.sha256(key.encode()).digest() * 1000
        with tempfile.TemporaryDirectory() as directory:
            pk3 = Path(directory) / "maps.pk3"
            if self._cache is not None and self._cache.fetch(key, str(pk3)):
                assert pk3.read_bytes() == content, "another map, or a part of it"
                return
            Lab.generated += 1
            pk3.write_bytes(content)
            if self._cache is not None:
                self._cache.write(key, str(pk3))
