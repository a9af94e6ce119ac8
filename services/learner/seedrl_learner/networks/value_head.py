"""The baseline's last layer, whose targets may be of any size: PopArt."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from seedrl_learner.networks.layers import Dense
from seedrl_learner.rl.losses import masked_mean

_LEAST_DEVIATION = 1e-4
# The statistics are means over all targets at first, then over about the last 1 / _LEAST_RATE batches.
_LEAST_RATE = 3e-3


class ValueHead(Dense):
    """V(x) = mean + deviation * (x W + b), with running statistics of the targets of V (PopArt, arXiv 1602.07714).

    What the optimizer sees is of size 1 whatever the rewards are. New statistics do not change V: W and b are adjusted
    to them (equations 8 and 9). Without `normalize` it is the linear layer alone.

    The statistics are float64, and squares are those of distances from the mean: otherwise a deviation that is small
    beside the mean would be lost in rounding.
    """

    def __init__(self, inputs: int, rng: np.random.Generator, *, normalize: bool) -> None:
        """`inputs` is the size of x. All in float32: three digits are too few for values."""
        super().__init__(inputs, 1, rng, tf.float32, 1.0)
        if normalize:
            self._mean = tf.Variable(0.0, dtype=tf.float64, trainable=False)
            self._variance = tf.Variable(0.0, dtype=tf.float64, trainable=False)
            self._updates = tf.Variable(0, dtype=tf.int64, trainable=False)
        self._normalize = normalize

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        """[..., inputs] -> values [...] float32."""
        output = self.output(x)
        return tf.cast(self._mean, tf.float32) + self.deviation * output if self._normalize else output

    def output(self, x: tf.Tensor) -> tf.Tensor:
        """The value [...] of x W + b, in units of the deviation, from the mean."""
        return super().__call__(x)[..., 0]

    @property
    def deviation(self) -> tf.Tensor:
        """What a difference of values is divided by where it enters a loss; scalar float32, 1 without `normalize`."""
        if not self._normalize:
            return tf.constant(1.0)
        deviation = tf.cast(tf.sqrt(self._variance), tf.float32)
        return tf.where(self._updates > 0, tf.maximum(deviation, _LEAST_DEVIATION), 1.0)

    def observe(self, target: tf.Tensor, valid: tf.Tensor) -> None:
        """Takes in the targets [T, B] of V that are valid [T, B]."""
        if not self._normalize:
            return
        seen = tf.reduce_any(valid)
        rate = tf.maximum(1.0 / tf.cast(self._updates + 1, tf.float64), _LEAST_RATE) * tf.cast(seen, tf.float64)
        old_mean, old_deviation = self._mean.read_value(), self.deviation
        # Joins two samples, those so far with the weight 1 - rate (Chan, Golub & LeVeque, 1979).
        target = tf.cast(target, tf.float64)
        mean = masked_mean(target, valid)
        variance = masked_mean(tf.square(target - mean), valid)
        step = rate * (mean - old_mean)
        self._variance.assign((1.0 - rate) * (self._variance + step * (mean - old_mean)) + rate * variance)
        self._mean.assign_add(step)
        self._updates.assign_add(tf.cast(seen, tf.int64))
        deviation = self.deviation
        self.kernel.assign(self.kernel * old_deviation / deviation)
        self.bias.assign((old_deviation * self.bias - tf.cast(step, tf.float32)) / deviation)
