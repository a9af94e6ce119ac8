"""The encoder: all leaves of an observation -> one vector of features a step."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from seedrl_core.config import NetworkConfig
from seedrl_core.errors import ConfigError
from seedrl_core.spec import EnvironmentSpec, TensorSpec
from seedrl_learner.networks.frame_stack import stack_frames
from seedrl_learner.networks.torsos import PIXEL_SCALE, ImpalaResnet, Mlp, NatureCnn

MIN_IMAGE_SIZE = 36
_IMAGE_TORSOS = {"nature_cnn": NatureCnn, "impala_resnet": ImpalaResnet}


def is_image(leaf: TensorSpec) -> bool:
    """True for uint8 leaves [height, width] or [height, width, channels] that a convolutional torso can take."""
    return leaf.dtype.name == "uint8" and len(leaf.shape) in (2, 3) and min(leaf.shape[:2]) >= MIN_IMAGE_SIZE


def stacked_leaves(spec: EnvironmentSpec, frame_stack: int) -> tuple[bool, ...]:
    """Which observation leaves are stacked: the images, or all leaves where none is an image. Masks never are."""
    images = [is_image(leaf) for leaf in spec.observation]
    return tuple(
        frame_stack > 1 and not leaf.is_action_mask and (image or not any(images))
        for leaf, image in zip(spec.observation, images, strict=True)
    )


class Encoder(tf.Module):
    """The mlp takes all leaves, flat. A convolutional torso takes one image; the other leaves join its features."""

    def __init__(
        self, config: NetworkConfig, spec: EnvironmentSpec, frame_stack: int, rng: np.random.Generator, dtype: tf.DType
    ) -> None:
        """Raises ConfigError when a convolutional torso is asked for and there is no image."""
        super().__init__()
        self.stacked = stacked_leaves(spec, frame_stack)
        self._torsos: list[Any] = []
        for leaf, stacked in zip(spec.observation, self.stacked, strict=True):
            depth = frame_stack if stacked else 1
            if config.torso in _IMAGE_TORSOS and is_image(leaf):
                channels = depth * (leaf.shape[2] if len(leaf.shape) == 3 else 1)
                self._torsos.append(_IMAGE_TORSOS[config.torso]((leaf.shape[0], leaf.shape[1], channels), rng, dtype))
            else:
                self._torsos.append(_Flat(leaf, depth, dtype))
        if config.torso in _IMAGE_TORSOS and all(isinstance(torso, _Flat) for torso in self._torsos):
            got = ", ".join(leaf.describe() for leaf in spec.observation)
            raise ConfigError(
                f"learner.network.torso: {config.torso} expects a uint8 image of at least {MIN_IMAGE_SIZE} x "
                f"{MIN_IMAGE_SIZE}, got {got}"
            )
        self.output_size: int = sum(torso.output_size for torso in self._torsos)
        self._mlp = Mlp(self.output_size, config.mlp_sizes, rng, dtype) if config.torso == "mlp" else None
        if self._mlp is not None:
            self.output_size = self._mlp.output_size

    def __call__(self, observation: tuple[tf.Tensor, ...], first: tf.Tensor, stack_age: tf.Tensor) -> tf.Tensor:
        """Features of S steps, all of them rows of one batch for the torsos.

        Args:
          observation: leaf [B, S, *shape]; a stacked leaf [B, K-1+S, *shape].
          first: [B, S] bool.
          stack_age: [B] int32, see `stack_frames`.

        Returns:
          [B, S, output_size] in the compute dtype.
        """
        parts = []
        for leaf, stacked, torso in zip(observation, self.stacked, self._torsos, strict=True):
            steps = stack_frames(leaf, first, stack_age) if stacked else leaf
            parts.append(torso(tf.reshape(steps, [-1, *torso.input_shape])))
        rows = tf.concat(parts, axis=-1) if len(parts) > 1 else parts[0]
        if self._mlp is not None:
            rows = self._mlp(rows)
        return tf.reshape(rows, [-1, first.shape[1], self.output_size])


class _Flat(tf.Module):
    """No torso: a leaf as numbers; bytes are scaled to 0..1."""

    def __init__(self, leaf: TensorSpec, depth: int, dtype: tf.DType) -> None:
        super().__init__()
        self.output_size = leaf.size * depth
        self.input_shape = (self.output_size,)
        self._dtype = dtype
        self._scale = PIXEL_SCALE if leaf.dtype.name == "uint8" else 1.0

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        return tf.cast(tf.cast(x, tf.float32) * self._scale, self._dtype)
