"""Encoders: all leaves of an observation -> one vector of features a step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from seedrl_core.config import NetworkConfig
from seedrl_core.errors import ConfigError
from seedrl_core.spec import EnvironmentSpec, TensorSpec
from seedrl_learner.networks.bits import unpack
from seedrl_learner.networks.frame_stack import stack_frames, to_blocks
from seedrl_learner.networks.leaves import leaf_layer
from seedrl_learner.networks.torsos import ImpalaResnet, Mlp, NatureCnn
from seedrl_learner.networks.user_torso import build_user_torso

MIN_IMAGE_SIZE = 36
JOINT_SIZE = 256
_MEAN_OF_EVERY = 4
_IMAGE_TORSOS: dict[str, type[NatureCnn | ImpalaResnet]] = {"nature_cnn": NatureCnn, "impala_resnet": ImpalaResnet}


def is_image(leaf: TensorSpec) -> bool:
    """True for leaves of bytes or bits, [height, width] or [height, width, channels], that convolutions can take."""
    leaf = leaf.unpacked
    return leaf.dtype.name == "uint8" and len(leaf.shape) in (2, 3) and min(leaf.shape[:2]) >= MIN_IMAGE_SIZE


def stacked_leaves(spec: EnvironmentSpec, frame_stack: int) -> tuple[bool, ...]:
    """Which observation leaves are stacked: the images, or all where none is one. Masks and instructions never are."""
    images = [is_image(leaf) for leaf in spec.observation]
    return tuple(
        frame_stack > 1 and not (leaf.is_action_mask or leaf.is_instruction) and (image or not any(images))
        for leaf, image in zip(spec.observation, images, strict=True)
    )


class Torso(Protocol):
    """A torso for all leaves: rows [rows, *shape] of each, frames stacked, to features [rows, output_size]."""

    output_size: int

    def __call__(self, leaves: tuple[tf.Tensor, ...]) -> tf.Tensor:
        """See Torso."""


class Encoder(tf.Module):
    """Stacks frames and runs the torso on all steps at once, as rows of one batch."""

    def __init__(
        self, config: NetworkConfig, spec: EnvironmentSpec, frame_stack: int, rng: np.random.Generator, dtype: tf.DType
    ) -> None:
        """Raises ConfigError when the torso does not fit the observation."""
        super().__init__()
        assert config.torso is not None, "configuration not resolved"
        self.stacked = stacked_leaves(spec, frame_stack)
        convolutional = _IMAGE_TORSOS.get(config.torso)
        self._images = tuple(convolutional is not None and is_image(leaf) for leaf in spec.observation)
        self._block = convolutional.BLOCK if convolutional else 1
        self._travelling = spec.observation
        self._centres = bool(config.normalize_observations) and any(self._images)
        self._leaves = leaves = tuple(
            _as_seen(_in_blocks(leaf.unpacked, self._block) if image else leaf.unpacked, frame_stack if stacked else 1)
            for leaf, image, stacked in zip(spec.observation, self._images, self.stacked, strict=True)
        )
        self._torso: Torso
        if ":" in config.torso:
            self._torso = build_user_torso(config.torso, leaves, int(rng.integers(1 << 31)))
        else:
            self._torso = MixedTorso(config, leaves, self._images, rng, dtype)
        self.output_size = self._torso.output_size

    def __call__(self, observation: tuple[tf.Tensor, ...], first: tf.Tensor, stack_age: tf.Tensor) -> tf.Tensor:
        """Features of S steps.

        Args:
          observation: leaf [B, S, *shape]; a stacked leaf [B, K-1+S, *shape].
          first: [B, S] bool.
          stack_age: [B] int32, see `stack_frames`.

        Returns:
          [B, S, output_size].
        """
        rows = []
        parts = zip(self._unpacked(observation), self._images, self.stacked, self._leaves, strict=True)
        for values, image, stacked, leaf in parts:
            # Each frame once, before it stands in several stacks.
            frames = self._frames(values) if image else values
            steps = stack_frames(frames, first, stack_age) if stacked else frames
            rows.append(tf.cast(tf.reshape(steps, [-1, *leaf.shape]), leaf.dtype.name))
        return tf.reshape(self._torso(tuple(rows)), [-1, first.shape[1], self.output_size])

    def observe(self, observation: tuple[tf.Tensor, ...]) -> None:
        """Takes new observations, leaves [B, steps, *shape], into the mean images where they are configured."""
        if self._centres:
            assert isinstance(self._torso, MixedTorso)
            leaves = zip(self._unpacked(tuple(map(_some_steps, observation))), self._images, strict=True)
            self._torso.observe([self._frames(leaf) if image else None for leaf, image in leaves])

    def _unpacked(self, observation: tuple[tf.Tensor, ...]) -> tuple[tf.Tensor, ...]:
        return tuple(unpack(values, leaf) for values, leaf in zip(observation, self._travelling, strict=True))

    def _frames(self, image: tf.Tensor) -> tf.Tensor:
        """[B, steps, height, width] or with channels, in the torso's blocks."""
        return to_blocks(image[..., tf.newaxis] if image.shape.rank == 4 else image, self._block)


class MixedTorso(tf.Module):
    """Each image through a convolutional torso, all other leaves together through an mlp, then what there is of both.

    A layer over several parts lets them interact also without a recurrent core. With `torso` mlp, images are numbers.
    """

    def __init__(
        self,
        config: NetworkConfig,
        leaves: Sequence[TensorSpec],
        images: Sequence[bool],
        rng: np.random.Generator,
        dtype: tf.DType,
    ) -> None:
        """`leaves` as the torso's layers take them; `images` are those for a convolutional torso.

        Raises:
          ConfigError: `torso` needs an image and there is none.
        """
        super().__init__()
        convolutional = _IMAGE_TORSOS.get(config.torso or "")
        self._is_image = images
        if convolutional is not None and not any(self._is_image):
            got = ", ".join(leaf.describe() for leaf in leaves)
            raise ConfigError(
                f"learner.network.torso: {config.torso} expects a uint8 image of at least {MIN_IMAGE_SIZE} x "
                f"{MIN_IMAGE_SIZE}, got {got}"
            )
        self._layers: list[Any] = [
            convolutional(_image_shape(leaf), rng, dtype) if convolutional and image else leaf_layer(leaf, rng, dtype)
            for leaf, image in zip(leaves, self._is_image, strict=True)
        ]
        images, others = self._separate([layer.output_size for layer in self._layers])
        self._mlp = Mlp(sum(others), config.mlp_sizes, rng, dtype) if others else None
        parts = images if self._mlp is None else [*images, self._mlp.output_size]
        self._joint = Mlp(sum(parts), (JOINT_SIZE,), rng, dtype) if len(parts) > 1 else None
        self.output_size: int = sum(parts) if self._joint is None else self._joint.output_size

    def __call__(self, leaves: tuple[tf.Tensor, ...]) -> tf.Tensor:
        """[rows, *shape] each -> [rows, output_size] in the compute dtype."""
        images, others = self._separate(
            [layer(tf.reshape(x, [-1, *layer.input_shape])) for x, layer in zip(leaves, self._layers, strict=True)]
        )
        parts = images if self._mlp is None else [*images, self._mlp(_concatenate(others))]
        features = _concatenate(parts)
        return features if self._joint is None else self._joint(features)

    def observe(self, frames: Sequence[tf.Tensor | None]) -> None:
        """Takes new frames [..., height, width, channels] of each image into the means of its torso."""
        for layer, leaf in zip(self._layers, frames, strict=True):
            if leaf is not None:
                layer.observe(leaf)

    def _separate(self, values: list[Any]) -> tuple[list[Any], list[Any]]:
        """What belongs to images, and what to other leaves."""
        pairs = list(zip(values, self._is_image, strict=True))
        return [value for value, image in pairs if image], [value for value, image in pairs if not image]


def _some_steps(leaf: tf.Tensor) -> tf.Tensor:
    """Each n-th of [B, steps, ...]: successive frames are alike. A slice with a stride would copy byte by byte."""
    return tf.gather(leaf, tf.range(0, leaf.shape[1], _MEAN_OF_EVERY), axis=1)


def _as_seen(leaf: TensorSpec, frame_stack: int) -> TensorSpec:
    """The leaf as a torso gets it: stacked as by `stack_frames`, floats as float32."""
    if leaf.dtype.kind == "f":
        leaf = replace(leaf, dtype=np.dtype(np.float32))
    if frame_stack == 1:
        return leaf
    has_channels = len(leaf.shape) in (1, 3)
    pixels, channels = (leaf.shape[:-1], leaf.shape[-1]) if has_channels else (leaf.shape, 1)

    def tile(bound: tuple[float, ...]) -> tuple[float, ...]:
        if len(bound) <= 1:
            return bound
        return tuple(np.tile(np.reshape(bound, (-1, channels)), (1, frame_stack)).reshape(-1).tolist())

    return replace(leaf, shape=(*pixels, frame_stack * channels), low=tile(leaf.low), high=tile(leaf.high))


def _in_blocks(image: TensorSpec, block: int) -> TensorSpec:
    """An image as `to_blocks` makes it."""
    height, width, *channels = image.shape
    shape = (height // block, width // block, block * block * math.prod(channels))
    return replace(image, shape=shape, low=(), high=())


def _image_shape(blocks: TensorSpec) -> tuple[int, int, int]:
    height, width, channels = blocks.shape
    return height, width, channels


def _concatenate(parts: list[tf.Tensor]) -> tf.Tensor:
    return tf.concat(parts, axis=-1) if len(parts) > 1 else parts[0]
