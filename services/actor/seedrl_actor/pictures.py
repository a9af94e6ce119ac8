"""An environment for people: what it renders, or else its observation, where that is an image; names of actions."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from seedrl_core.errors import ConfigError
from seedrl_core.spec import Array

_RENDER_MODE = "rgb_array"


def make_rendering(env_id: str, **kwargs: Any) -> Any:
    """An environment of Gymnasium, which renders pictures if it can."""
    try:
        return gymnasium.make(env_id, render_mode=_RENDER_MODE, **kwargs)
    except (TypeError, ValueError, gymnasium.error.Error):
        return gymnasium.make(env_id, **kwargs)


def picture_of(env: Any, observation: tuple[Array, ...]) -> Array:
    """[height, width, 3] uint8 of one environment, whose observation leaves are [*shape].

    Raises:
      ConfigError: it has no picture.
    """
    if getattr(env, "render_mode", None) == _RENDER_MODE:
        try:
            rendered = np.asarray(env.render())
        except Exception as error:
            raise ConfigError(f"actor.recording: the environment cannot be rendered: {error}") from error
        if _is_image(rendered):
            return rendered
    return image_among(observation)


def action_names_of(env: Any) -> tuple[str, ...]:
    """What an environment calls its actions, by the method that Atari's games have; () where it has none."""
    meanings = getattr(getattr(env, "unwrapped", None), "get_action_meanings", None)
    return tuple(map(str, meanings())) if meanings else ()


def image_among(observation: tuple[Array, ...]) -> Array:
    """The first image of an observation's leaves, [height, width, 3] uint8; ConfigError when there is none."""
    for leaf in observation:
        if _is_image(leaf):
            return np.broadcast_to(leaf, (*leaf.shape[:2], 3))
    raise ConfigError(
        f"actor.recording: expected an environment that renders {_RENDER_MODE}, or whose observation has a uint8 image "
        f"[height, width, 1 or 3], got leaves {[leaf.shape for leaf in observation]}"
    )


def _is_image(array: Array) -> bool:
    return array.dtype == np.uint8 and array.ndim == 3 and array.shape[2] in (1, 3)
