"""A level of DeepMind Lab as a Gymnasium environment, with the actions of IMPALA (Espeholt et al., arXiv 1802.01561).

The only module of the actor that knows `deepmind_lab`. Whoever uses it has built that from its source: no package index
has it.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import uuid
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from seedrl_core import logs
from seedrl_core.dmlab30 import DMLAB30
from seedrl_core.errors import ConfigError
from seedrl_core.spec import Array

MAX_WORDS = 16
VOCABULARY = 1000
# Table D.2 of the paper. An action of the Lab is: look right, look up, strafe right, move forward, fire, jump, crouch.
ACTIONS = np.array(
    [
        (0, 0, 0, 1, 0, 0, 0),  # forward
        (0, 0, 0, -1, 0, 0, 0),  # backward
        (0, 0, -1, 0, 0, 0, 0),  # strafe left
        (0, 0, 1, 0, 0, 0, 0),  # strafe right
        (-20, 0, 0, 0, 0, 0, 0),  # look left
        (20, 0, 0, 0, 0, 0, 0),  # look right
        (-20, 0, 0, 1, 0, 0, 0),  # forward and look left
        (20, 0, 0, 1, 0, 0, 0),  # forward and look right
        (0, 0, 0, 0, 1, 0, 0),  # fire
    ],
    np.intc,
)
_PIXELS, _INSTRUCTION = "RGB_INTERLEAVED", "INSTR"
_DMLAB30_DIRECTORY = "contributed/dmlab30"
_MAX_SEED = 2**31 - 1
# What an evaluation on DMLab-30 is made with: the Lab mixes the number into every seed, so that none is trained on.
_EVALUATION = {"allowHoldOutLevels": True, "mixerSeed": 0x600D5EED}
_log = logs.get(__name__)


class LabEnvironment(gymnasium.Env[Any, Any]):
    """A level. Each episode has a seed of its own, drawn from that of the first reset.

    An episode that ends is terminated, as in IMPALA, also where the level's clock has ended it: the Lab does not tell,
    and has no observation any more. The last one before the end is shown once more.
    """

    def __init__(
        self,
        level: str,
        *,
        evaluates: bool = False,
        width: int = 96,
        height: int = 72,
        action_repeat: int = 4,
        renderer: str = "software",
        instruction: bool = True,
        num_seeds: int = 0,
        level_cache: str = "",
        dataset_path: str = "",
        runfiles_path: str = "",
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        """Loads the level.

        Args:
          level: name of a level of DMLab-30, or path of any level without its ending.
          evaluates: for evaluation: other seeds than in training, held-out levels are allowed.
          width: of the image, pixels.
          height: of the image, pixels.
          action_repeat: frames of the Lab a step, of which there are 60 a second.
          renderer: software or hardware.
          instruction: whether observations have the level's instruction; it is empty in levels that give none.
          num_seeds: seeds that episodes have, 0, 1, ...; 0: all that there are.
          level_cache: directory that keeps generated maps; empty: they are generated in every episode.
          dataset_path: directory of the images of `psychlab` levels.
          runfiles_path: directory of the Lab's own files, where it does not find them by itself.
          settings: of the Lab and of the level, by their own names.

        Raises:
          ConfigError: there is no deepmind_lab, the level has no instructions, or num_seeds is no number of seeds.
        """
        if not 0 <= num_seeds <= _MAX_SEED:
            raise ConfigError(f"actor.env_kwargs.num_seeds: expected 0 to {_MAX_SEED}, got {num_seeds}")
        lab = _deepmind_lab()
        if runfiles_path:
            lab.set_runfiles_path(runfiles_path)
        self.action_repeat = action_repeat
        self._reads = instruction
        self._num_seeds = num_seeds or _MAX_SEED
        self._level = f"{_DMLAB30_DIRECTORY}/{level}" if level in DMLAB30 else level
        given = {"width": width, "height": height, "logLevel": "WARN", "datasetPath": dataset_path}
        given |= (_EVALUATION if evaluates else {}) | dict(settings or {})
        try:
            self._lab = lab.Lab(
                self._level,
                [_PIXELS, _INSTRUCTION] if instruction else [_PIXELS],
                {name: _text(value) for name, value in given.items()},
                renderer=renderer,
                level_cache=LevelCache(Path(level_cache)) if level_cache else None,
            )
        except ValueError as error:
            if _INSTRUCTION not in str(error):
                raise
            raise ConfigError(f"{self._level} gives no instructions: set actor.env_kwargs.instruction=false") from error
        leaves: dict[str, spaces.Space[Any]] = {"pixels": spaces.Box(0, 255, (height, width, 3), np.uint8)}
        if instruction:
            leaves["instruction"] = spaces.MultiDiscrete([VOCABULARY] * MAX_WORDS)
        self.observation_space = spaces.Dict(leaves)
        self.action_space = spaces.Discrete(len(ACTIONS))
        self._observation: dict[str, Array] = {}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """A new episode; a level that is generated and in no cache takes the Lab up to half a minute."""
        super().reset(seed=seed)
        self._lab.reset(seed=int(self.np_random.integers(self._num_seeds)))
        return self._observe(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """The same action in `action_repeat` frames, or in fewer where the episode ends."""
        reward = self._lab.step(ACTIONS[action], num_steps=self.action_repeat)
        over = not self._lab.is_running()
        return self._observation if over else self._observe(), reward, over, False, {}

    def close(self) -> None:
        """Frees the Lab."""
        self._lab.close()

    def _observe(self) -> dict[str, Array]:
        shown = self._lab.observations()
        self._observation = {"pixels": shown[_PIXELS]}
        if self._reads:
            self._observation["instruction"] = word_ids(shown[_INSTRUCTION])
        return self._observation


class LevelCache:
    """Generated maps in a directory that environments, actors and hosts may share, as the Lab asks for them in a reset.

    A cache that fails costs time, and no episode.
    """

    def __init__(self, directory: Path) -> None:
        """Makes the directory if there is none."""
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory

    def fetch(self, key: str, pk3_path: str) -> bool:
        """Copies a map to `pk3_path`; False where it is not there."""
        try:
            shutil.copyfile(self._path(key), pk3_path)
        except FileNotFoundError:
            return False
        except OSError as error:
            _log.warning("level_cache_failed", error=str(error))
            return False
        return True

    def write(self, key: str, pk3_path: str) -> None:
        """Keeps the map at `pk3_path`. Others see it whole or not at all."""
        part = self._path(f"{key} {uuid.uuid4()}")
        try:
            shutil.copyfile(pk3_path, part)
            part.replace(self._path(key))
        except OSError as error:
            _log.warning("level_cache_failed", error=str(error))
            part.unlink(missing_ok=True)

    def _path(self, key: str) -> Path:
        """A file for any key, whatever characters it has."""
        return self._directory / f"{hashlib.sha256(key.encode()).hexdigest()}.pk3"


def word_ids(instruction: str) -> Array:
    """[MAX_WORDS] int64: for each word a number from 1 on, by its hash, the same everywhere; 0 after the last.

    Some words share a number. What is longer than MAX_WORDS is cut off.
    """
    words = re.findall(r"\w+", instruction.lower())[:MAX_WORDS]
    ids = np.zeros(MAX_WORDS, np.int64)
    ids[: len(words)] = [1 + zlib.crc32(word.encode()) % (VOCABULARY - 1) for word in words]
    return ids


def _deepmind_lab() -> Any:
    try:
        import deepmind_lab
    except ImportError as error:
        raise ConfigError(
            "expected the module deepmind_lab, which is built from the source of DeepMind Lab (docs/environments.md): "
            f"{error}"
        ) from error
    return deepmind_lab


def _text(value: Any) -> str:
    """A setting as the Lab takes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
