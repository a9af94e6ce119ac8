"""Running statistics of observations: float leaves enter the network with mean 0 and deviation 1, images with mean 0.

The statistics belong to the policy, like a trained variable: they change with a training update and at no other time.
So inference and training of one policy version see the same inputs, what is older is corrected by importance ratios as
any policy lag, and without training (in evaluation) they stay as the checkpoint has them.
"""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from seedrl_core.spec import TensorSpec

_LIMIT = 10.0
_EPSILON = 1e-8


class Normalizer(tf.Module):
    """Statistics of each element of the float leaves, over all that `update` was given. Other leaves pass as they are.

    Counts and sums are float64: in float32 the mean would stop moving after some ten million steps.
    """

    def __init__(self, leaves: Sequence[TensorSpec]) -> None:
        """`leaves` of the observation."""
        super().__init__()
        self._leaves = [_Statistics(leaf.shape) if leaf.dtype.kind == "f" else None for leaf in leaves]

    def __call__(self, observation: tuple[tf.Tensor, ...]) -> tuple[tf.Tensor, ...]:
        """Leaves [..., *shape]; normalized ones come back as float32 within +-10."""
        return tuple(
            leaf if statistics is None else statistics.normalize(leaf)
            for leaf, statistics in zip(observation, self._leaves, strict=True)
        )

    def update(self, observation: tuple[tf.Tensor, ...]) -> None:
        """Takes in leaves [..., *shape] with new observations, each of the same weight."""
        for leaf, statistics in zip(observation, self._leaves, strict=True):
            if statistics is not None:
                statistics.update(leaf)


class _Statistics(tf.Module):
    """Count, mean and sum of squared deviations of one leaf's elements."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self._rank = len(shape)
        self._count = tf.Variable(0.0, dtype=tf.float64, trainable=False)
        self._mean = tf.Variable(tf.zeros(shape, tf.float64), trainable=False)
        self._squares = tf.Variable(tf.zeros(shape, tf.float64), trainable=False)

    def normalize(self, x: tf.Tensor) -> tf.Tensor:
        variance = tf.where(self._count > 0, self._squares / tf.maximum(self._count, 1.0), 1.0)
        scale = tf.math.rsqrt(tf.cast(variance, tf.float32) + _EPSILON)
        centred = tf.cast(x, tf.float32) - tf.cast(self._mean, tf.float32)
        return tf.clip_by_value(centred * scale, -_LIMIT, _LIMIT)

    def update(self, x: tf.Tensor) -> None:
        """Joins the statistics of two samples (Chan, Golub & LeVeque, 1979)."""
        axes = list(range(x.shape.rank - self._rank))
        values = tf.cast(x, tf.float64)
        count = tf.cast(tf.size(values) / tf.size(self._mean), tf.float64)
        mean = tf.reduce_mean(values, axis=axes)
        squares = tf.reduce_sum(tf.square(values - mean), axis=axes)
        total = self._count + count
        difference = mean - self._mean
        self._squares.assign_add(squares + tf.square(difference) * self._count * count / total)
        self._mean.assign_add(difference * count / total)
        self._count.assign(total)


class ImageMean(tf.Module):
    """The mean of each pixel over all frames that `update` was given, 0 before; the same for each frame of a stack.

    What stands still in all images, most of many games, would otherwise make features that are nearly constant: the
    weights behind them then have to find small differences of large numbers.
    """

    def __init__(self, image: tuple[int, int, int]) -> None:
        """`image` is (height, width, channels) of a stack of frames."""
        super().__init__()
        self._mean = tf.Variable(tf.zeros(image), trainable=False)
        self._updates = tf.Variable(0.0, trainable=False)

    def __call__(self) -> tf.Tensor:
        """[height, width, channels] float32."""
        return self._mean.read_value()

    def update(self, frames: tf.Tensor) -> None:
        """Takes in frames [B, steps, height, width, channels of a frame]."""
        depth = self._mean.shape[-1] // frames.shape[-1]
        mean = tf.reduce_mean(tf.cast(frames, tf.float32), axis=[0, 1])
        self._updates.assign_add(1.0)
        self._mean.assign_add((tf.tile(mean, [1, 1, depth]) - self._mean) / self._updates)
