"""Torsos: from rows of observations to rows of features. They know nothing of time, episodes or actions."""

from __future__ import annotations

import math

import numpy as np
import tensorflow as tf

from seedrl_learner.networks.layers import RELU_SCALE, Conv, Dense
from seedrl_learner.networks.normalization import ImageMean

PIXEL_SCALE = 1.0 / 255.0


class Mlp(tf.Module):
    """Fully connected tanh layers, for vectors."""

    def __init__(self, inputs: int, sizes: tuple[int, ...], rng: np.random.Generator, dtype: tf.DType) -> None:
        """`sizes` are the units a layer."""
        super().__init__()
        self.output_size = sizes[-1] if sizes else inputs
        self._layers = [
            Dense(before, after, rng, dtype, RELU_SCALE) for before, after in zip((inputs, *sizes), sizes, strict=False)
        ]

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        """[rows, inputs] -> [rows, output_size]."""
        for layer in self._layers:
            x = tf.tanh(layer(x))
        return x


class NatureCnn(tf.Module):
    """The three convolutions of DQN (Mnih et al., Nature 2015) and a layer of 512 units, for uint8 images.

    The first convolution, 8 x 8 with stride 4, is one of 2 x 2 with stride 1 on blocks of 4 x 4 pixels: the same
    function of the same number of weights, but with many input channels, which is what processors are fast at.

    Attributes:
      BLOCK: height and width of the blocks, see `to_blocks`.
    """

    BLOCK = 4

    def __init__(self, image: tuple[int, int, int], rng: np.random.Generator, dtype: tf.DType) -> None:
        """`image` is (height, width, channels) in blocks, at least 9 x 9."""
        super().__init__()
        self.input_shape = image
        self.output_size = 512
        self._mean = ImageMean(image)
        height, width, channels = image
        self._convs = [
            Conv(channels, 32, 2, 1, "VALID", rng, dtype, input_scale=PIXEL_SCALE),
            Conv(32, 64, 4, 2, "VALID", rng, dtype),
            Conv(64, 64, 3, 1, "VALID", rng, dtype),
        ]
        for size, stride in ((2, 1), (4, 2), (3, 1)):
            height, width = (height - size) // stride + 1, (width - size) // stride + 1
        self._flat_size = height * width * 64
        self._dense = Dense(self._flat_size, self.output_size, rng, dtype, RELU_SCALE)

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        """[rows, height, width, channels] uint8 -> [rows, output_size]."""
        first, *others = self._convs
        x = tf.nn.relu(first(x, self._mean()))
        for conv in others:
            x = tf.nn.relu(conv(x))
        return tf.nn.relu(self._dense(tf.reshape(x, [-1, self._flat_size])))

    def observe(self, frames: tf.Tensor) -> None:
        """See ImageMean."""
        self._mean.update(frames)


class ImpalaResnet(tf.Module):
    """The 15-layer residual network of IMPALA (arXiv 1802.01561, figure 3, right), for uint8 images."""

    BLOCK = 1
    _CHANNELS = (16, 32, 32)

    def __init__(self, image: tuple[int, int, int], rng: np.random.Generator, dtype: tf.DType) -> None:
        """`image` is (height, width, channels)."""
        super().__init__()
        self.input_shape = image
        self.output_size = 256
        self._mean = ImageMean(image)
        height, width, before = image
        self._sections = []
        for i, channels in enumerate(self._CHANNELS):
            self._sections.append(_ResnetSection(before, channels, rng, dtype, PIXEL_SCALE if i == 0 else 1.0))
            before, height, width = channels, math.ceil(height / 2), math.ceil(width / 2)
        self._flat_size = height * width * before
        self._dense = Dense(self._flat_size, self.output_size, rng, dtype, RELU_SCALE)

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        """[rows, height, width, channels] uint8 -> [rows, output_size]."""
        first, *others = self._sections
        x = first(x, self._mean())
        for section in others:
            x = section(x)
        return tf.nn.relu(self._dense(tf.reshape(tf.nn.relu(x), [-1, self._flat_size])))

    def observe(self, frames: tf.Tensor) -> None:
        """See ImageMean."""
        self._mean.update(frames)


class _ResnetSection(tf.Module):
    """Convolution, max-pooling of stride 2, two residual blocks of two convolutions."""

    def __init__(
        self, inputs: int, channels: int, rng: np.random.Generator, dtype: tf.DType, input_scale: float
    ) -> None:
        super().__init__()
        self._conv = Conv(inputs, channels, 3, 1, "SAME", rng, dtype, scale=1.0, input_scale=input_scale)
        self._blocks = [
            [Conv(channels, channels, 3, 1, "SAME", rng, dtype, scale=1.0) for _ in range(2)] for _ in range(2)
        ]

    def __call__(self, x: tf.Tensor, minus: tf.Tensor | None = None) -> tf.Tensor:
        x = tf.nn.max_pool2d(self._conv(x, minus), 3, 2, "SAME")
        for inner, outer in self._blocks:
            x += outer(tf.nn.relu(inner(tf.nn.relu(x))))
        return x
