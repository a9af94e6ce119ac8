"""Torsos of the user's own: a function named `package.module:function` builds one for the leaves of the observation.

The function gets the leaves as the torso will see them (a TensorSpec each, frames stacked) and a seed, and returns a
tf.Module with an `output_size` and a call from a tuple of leaves [rows, *shape] to float features [rows, output_size].
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from seedrl_core.errors import ConfigError
from seedrl_core.spec import TensorSpec

_SETTING = "learner.network.torso"


def build_user_torso(path: str, leaves: Sequence[TensorSpec], seed: int) -> Any:
    """The torso that `path` names, after one call with zeros, so that variables which it makes late exist.

    Raises:
      ConfigError: it cannot be imported or built, or is not what is described above.
    """
    build = _load(path)
    leaves = tuple(leaves)
    zeros = tuple(tf.zeros([1, *leaf.shape], leaf.dtype.name) for leaf in leaves)
    try:
        torso = build(leaves, seed)
        features = torso(zeros)
    except Exception as error:
        raise ConfigError(f"{_SETTING}: {path} failed: {type(error).__name__}: {error}") from error
    size = getattr(torso, "output_size", None)
    if not isinstance(torso, tf.Module) or not torso.trainable_variables:
        raise ConfigError(
            f"{_SETTING}: expected {path} to return a tf.Module with trainable variables, got {type(torso).__name__}"
        )
    if features.shape != (1, size) or not features.dtype.is_floating:
        raise ConfigError(
            f"{_SETTING}: expected {path} to give floats of shape [rows, output_size={size}], got "
            f"{features.dtype.name} {features.shape} for one row"
        )
    return torso


def _load(path: str) -> Callable[..., Any]:
    module, _, name = path.partition(":")
    try:
        imported = importlib.import_module(module)
    except Exception as error:
        raise ConfigError(f"{_SETTING}: importing {module} failed: {type(error).__name__}: {error}") from error
    build = getattr(imported, name, None)
    if not callable(build):
        raise ConfigError(f"{_SETTING}: expected a function {name} in {module}, got {build!r}")
    function: Callable[..., Any] = build
    return function
