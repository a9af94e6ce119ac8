"""Recordings of play: an actor writes them step by step, the launcher draws them. One msgpack list a step."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import msgpack
import numpy as np

from seedrl_core.spec import Array

_FASTEST = 1  # of zlib's levels
_MAX_STEP_BYTES = 1 << 26


@dataclass(frozen=True)
class RecordedStep:
    """Step t of one environment.

    Attributes:
      picture: [height, width, 3] uint8, what the environment shows at obs_t.
      first, last: whether obs_t begins or ends an episode.
      reward: raw, earned by action t-1.
      action: a_t, all leaves one after the other.
      value: the discounted return that the agent expects from obs_t on, of rewards as it is trained on.
      preference: of each action, its probability or its value; empty unless the action is a single Discrete one.
      action_names: what the environment calls these actions; empty where it does not.
    """

    picture: Array
    first: bool
    last: bool
    reward: float
    action: tuple[float, ...]
    value: float
    preference: tuple[float, ...]
    action_names: tuple[str, ...] = ()


def append(file: BinaryIO, step: RecordedStep) -> None:
    """Adds a step to a recording."""
    height, width, _ = step.picture.shape
    pixels = zlib.compress(step.picture.tobytes(), _FASTEST)
    rest = (step.first, step.last, step.reward, step.action, step.value, step.preference, step.action_names)
    file.write(msgpack.packb([height, width, pixels, *rest]))


def read(path: Path) -> Iterator[RecordedStep]:
    """The steps of a recording, one after the other."""
    with path.open("rb") as file:
        for height, width, pixels, first, last, reward, action, value, preference, names in msgpack.Unpacker(
            file, max_buffer_size=_MAX_STEP_BYTES
        ):
            picture = np.frombuffer(zlib.decompress(pixels), np.uint8).reshape(height, width, 3)
            yield RecordedStep(picture, first, last, reward, tuple(action), value, tuple(preference), tuple(names))
