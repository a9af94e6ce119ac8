"""A torso for small boards: two convolutions that keep the board's size, then one layer over all squares."""

from __future__ import annotations

import math
from collections.abc import Sequence

import tensorflow as tf

from seedrl_core.spec import TensorSpec


class BoardTorso(tf.Module):
    """For one leaf [height, width, planes] of numbers 0..1."""

    def __init__(self, shape: tuple[int, int, int], seed: int, channels: int = 16, units: int = 64) -> None:
        """`channels` of each convolution, `units` of the last layer."""
        super().__init__()
        height, width, planes = shape
        self.output_size = units
        self._kernels = [
            tf.Variable(_initial((3, 3, before, channels), seed + i), name="kernel")
            for i, before in enumerate((planes, channels))
        ]
        self._weights = tf.Variable(_initial((height * width * channels, units), seed + 2), name="weights")
        self._bias = tf.Variable(tf.zeros([units]), name="bias")

    def __call__(self, leaves: tuple[tf.Tensor, ...]) -> tf.Tensor:
        """[rows, height, width, planes] -> [rows, units]."""
        (board,) = leaves
        x = tf.cast(board, tf.float32)
        for kernel in self._kernels:
            x = tf.nn.relu(tf.nn.conv2d(x, kernel, strides=1, padding="SAME"))
        return tf.nn.relu(tf.reshape(x, [-1, self._weights.shape[0]]) @ self._weights + self._bias)


def _initial(shape: tuple[int, ...], seed: int) -> tf.Tensor:
    """Values that keep the size of features from layer to layer (He et al., arXiv 1502.01852)."""
    return tf.random.stateless_normal(shape, [seed, 0], stddev=math.sqrt(2.0 / math.prod(shape[:-1])))


def build(leaves: Sequence[TensorSpec], seed: int) -> BoardTorso:
    """What `--set learner.network.torso=board_torso:build` names."""
    (board,) = leaves
    height, width, planes = board.shape
    return BoardTorso((height, width, planes), seed)
