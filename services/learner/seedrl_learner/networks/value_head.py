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
    """

    def __init__(self, inputs: int, rng: np.random.Generator, *, normalize: bool) -> None:
        """`inputs` is the size of x. All in float32: three digits are too few for values."""
        super().__init__(inputs, 1, rng, tf.float32, 1.0)
        if normalize:
            self._mean = tf.Variable(0.0, trainable=False)
            self._square = tf.Variable(0.0, trainable=False)
            self._updates = tf.Variable(0.0, trainable=False)
        self._normalize = normalize

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        """[..., inputs] -> values [...] float32."""
        output = self.output(x)
        return self._mean + self.deviation * output if self._normalize else output

    def output(self, x: tf.Tensor) -> tf.Tensor:
        """The value [...] of x W + b, in units of the deviation, from the mean."""
        return super().__call__(x)[..., 0]

    @property
    def deviation(self) -> tf.Tensor:
        """What a difference of values is divided by where it enters a loss; scalar float32, 1 without `normalize`."""
        if not self._normalize:
            return tf.constant(1.0)
        variance = self._square - tf.square(self._mean)
        return tf.where(self._updates > 0.0, tf.maximum(tf.sqrt(tf.maximum(variance, 0.0)), _LEAST_DEVIATION), 1.0)

    def observe(self, target: tf.Tensor, valid: tf.Tensor) -> None:
        """Takes in the targets [T, B] of V that are valid [T, B]."""
        if not self._normalize:
            return
        seen = tf.cast(tf.reduce_any(valid), tf.float32)
        rate = seen * tf.maximum(1.0 / (self._updates + 1.0), _LEAST_RATE)
        old_mean, old_deviation = self._mean.read_value(), self.deviation
        self._mean.assign_add(rate * (masked_mean(target, valid) - old_mean))
        self._square.assign_add(rate * (masked_mean(tf.square(target), valid) - self._square))
        self._updates.assign_add(seen)
        deviation = self.deviation
        self.kernel.assign(self.kernel * old_deviation / deviation)
        self.bias.assign((old_deviation * self.bias + old_mean - self._mean) / deviation)
