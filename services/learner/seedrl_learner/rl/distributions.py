"""Policies as distributions over actions: pure functions of parameters that a network gives.

Every family has the same few functions, so that an algorithm needs no special case. An action here is what was sampled,
a vector [..., k]; how it becomes the environment's own value is not known to this module.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Protocol

import tensorflow as tf

# The logit of what must not happen: its probability is exactly 0 in float32, and all gradients stay finite.
MASKED = -1e9


class Distribution(Protocol):
    """A family of distributions over one action leaf.

    Parameters are [..., num_parameters] float32; actions are [..., k] of the family's dtype, and every function of
    parameters and action gives [...] float32.
    """

    num_parameters: int

    def sample(self, parameters: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        """Actions for parameters [N, num_parameters]; seed [2] int32, the same one gives the same actions."""

    def mode(self, parameters: tf.Tensor) -> tf.Tensor:
        """The action that greedy play takes."""

    def log_prob(self, parameters: tf.Tensor, action: tf.Tensor) -> tf.Tensor:
        """Log pi(a), the density where actions are continuous."""

    def entropy(self, parameters: tf.Tensor) -> tf.Tensor:
        """Entropy in nats, the differential one where actions are continuous."""

    def kl_divergence(self, p: tf.Tensor, q: tf.Tensor) -> tf.Tensor:
        """KL(p || q) in nats, of two sets of parameters."""


class Categorical:
    """Independent choices, the i-th of `sizes[i]` values. Parameters are their logits one after the other.

    Actions are indices [..., len(sizes)] int32.
    """

    def __init__(self, sizes: Sequence[int]) -> None:
        """`sizes`: how many values each choice has; at least one choice."""
        self._sizes = tuple(sizes)
        self.num_parameters = sum(self._sizes)

    def sample(self, parameters: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        """See Distribution."""
        logits = self._logits(parameters)
        rows = tf.reshape(logits, [-1, max(self._sizes)])
        index = tf.random.stateless_categorical(rows, 1, seed, dtype=tf.int32)
        return tf.reshape(index, [-1, len(self._sizes)])

    def mode(self, parameters: tf.Tensor) -> tf.Tensor:
        """The most likely value of each choice."""
        return tf.argmax(self._logits(parameters), axis=-1, output_type=tf.int32)

    def log_prob(self, parameters: tf.Tensor, action: tf.Tensor) -> tf.Tensor:
        """See Distribution."""
        each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=action, logits=self._logits(parameters))
        return -tf.reduce_sum(each, axis=-1)

    def entropy(self, parameters: tf.Tensor) -> tf.Tensor:
        """See Distribution."""
        log_pi = tf.nn.log_softmax(self._logits(parameters))
        return -tf.reduce_sum(tf.exp(log_pi) * log_pi, axis=[-2, -1])

    def kl_divergence(self, p: tf.Tensor, q: tf.Tensor) -> tf.Tensor:
        """See Distribution."""
        log_p, log_q = tf.nn.log_softmax(self._logits(p)), tf.nn.log_softmax(self._logits(q))
        return tf.reduce_sum(tf.exp(log_p) * (log_p - log_q), axis=[-2, -1])

    def _logits(self, parameters: tf.Tensor) -> tf.Tensor:
        """[..., num_parameters] -> [..., choices, values]; shorter choices are filled up with masked values."""
        widest = max(self._sizes)
        if min(self._sizes) == widest:
            return reshape_last(parameters, (len(self._sizes), widest))
        leading = [[0, 0]] * (len(parameters.shape) - 1)
        parts = tf.split(parameters, self._sizes, axis=-1)
        padded = [
            tf.pad(part, [*leading, [0, widest - size]], constant_values=MASKED)
            for part, size in zip(parts, self._sizes, strict=True)
        ]
        return tf.stack(padded, axis=-2)


class SquashedGaussian:
    """Independent Gaussians u, squashed by tanh into an interval each: a = middle + half * tanh(u).

    Actions are the u [..., k] float32 from before the squashing: tanh is not invertible in floating point near the
    bounds, where a log-probability computed from a itself would be wrong or infinite. Parameters are k means, then k
    numbers whose softplus is the standard deviation (plus a least one).
    """

    _LEAST_SCALE = 1e-3
    # Nodes of the trapezoidal rule over a standard Gaussian, whose error falls exponentially with their distance.
    _NODES = tuple(i * 0.25 for i in range(-20, 21))
    _WEIGHTS = tuple(math.exp(-0.5 * z * z) for z in _NODES)

    def __init__(self, low: Sequence[float], high: Sequence[float]) -> None:
        """Finite bounds of each element."""
        self._size = len(low)
        self.num_parameters = 2 * self._size
        half = [(upper - lower) / 2 for lower, upper in zip(low, high, strict=True)]
        self._half = tf.constant(half, tf.float32)
        self._middle = tf.constant([lower + h for lower, h in zip(low, half, strict=True)], tf.float32)

    def squash(self, action: tf.Tensor) -> tf.Tensor:
        """The environment's values [..., k] float32 of actions u; rounding may carry one over a bound."""
        return self._middle + self._half * tf.tanh(action)

    def relative(self, value: tf.Tensor) -> tf.Tensor:
        """Values [..., k] between the bounds as -1..1."""
        return (value - self._middle) / self._half

    def sample(self, parameters: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        """See Distribution."""
        mean, scale = self._mean_and_scale(parameters)
        return mean + scale * tf.random.stateless_normal(tf.shape(mean), seed)

    def mode(self, parameters: tf.Tensor) -> tf.Tensor:
        """The mean before the squashing, which is the median after it."""
        return self._mean_and_scale(parameters)[0]

    def log_prob(self, parameters: tf.Tensor, action: tf.Tensor) -> tf.Tensor:
        """Log density of the squashed value."""
        mean, scale = self._mean_and_scale(parameters)
        z = (action - mean) / scale
        gaussian = -0.5 * tf.square(z) - tf.math.log(scale) - 0.5 * math.log(2 * math.pi)
        return tf.reduce_sum(gaussian - self._log_slope(action), axis=-1)

    def entropy(self, parameters: tf.Tensor) -> tf.Tensor:
        """H(a) = H(u) + E[log da/du]; the expectation by the trapezoidal rule."""
        mean, scale = self._mean_and_scale(parameters)
        nodes = tf.constant(self._NODES, tf.float32)[:, tf.newaxis]
        weights = tf.constant(self._WEIGHTS, tf.float32)[:, tf.newaxis] / sum(self._WEIGHTS)
        u = mean[..., tf.newaxis, :] + scale[..., tf.newaxis, :] * nodes
        log_slope = tf.reduce_sum(weights * self._log_slope(u), axis=-2)
        gaussian = tf.math.log(scale) + 0.5 * math.log(2 * math.pi * math.e)
        return tf.reduce_sum(gaussian + log_slope, axis=-1)

    def kl_divergence(self, p: tf.Tensor, q: tf.Tensor) -> tf.Tensor:
        """That of the Gaussians: squashing both alike does not change it."""
        (mean_p, scale_p), (mean_q, scale_q) = self._mean_and_scale(p), self._mean_and_scale(q)
        ratio = tf.square(scale_p / scale_q)
        each = 0.5 * (ratio + tf.square((mean_p - mean_q) / scale_q) - 1.0 - tf.math.log(ratio))
        return tf.reduce_sum(each, axis=-1)

    def _mean_and_scale(self, parameters: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        mean, scale = tf.split(parameters, 2, axis=-1)
        return mean, tf.nn.softplus(scale) + self._LEAST_SCALE

    def _log_slope(self, u: tf.Tensor) -> tf.Tensor:
        """Log da/du, with log(1 - tanh(u)^2) in a form that is exact where tanh(u) rounds to 1."""
        return tf.math.log(self._half) + 2.0 * (math.log(2.0) - u - tf.nn.softplus(-2.0 * u))


class Product:
    """Independent distributions of several action leaves. Parameters stand one after the other, actions are a tuple."""

    def __init__(self, parts: Sequence[Distribution]) -> None:
        """`parts`: one a leaf, at least one."""
        self._parts = tuple(parts)
        self.num_parameters = sum(part.num_parameters for part in parts)

    def sample(self, parameters: tf.Tensor, seed: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """See Distribution. The first leaf takes the seed as it is, the others take seeds derived from it."""
        seeds = [tf.random.fold_in(seed, i) if i else seed for i in range(len(self._parts))]
        return tuple(
            part.sample(own, own_seed)
            for part, own, own_seed in zip(self._parts, self.split(parameters), seeds, strict=True)
        )

    def mode(self, parameters: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """See Distribution."""
        return tuple(part.mode(own) for part, own in zip(self._parts, self.split(parameters), strict=True))

    def log_prob(self, parameters: tf.Tensor, action: Sequence[tf.Tensor]) -> tf.Tensor:
        """See Distribution."""
        return _sum(
            part.log_prob(own, chosen)
            for part, own, chosen in zip(self._parts, self.split(parameters), action, strict=True)
        )

    def entropy(self, parameters: tf.Tensor) -> tf.Tensor:
        """See Distribution."""
        return _sum(part.entropy(own) for part, own in zip(self._parts, self.split(parameters), strict=True))

    def kl_divergence(self, p: tf.Tensor, q: tf.Tensor) -> tf.Tensor:
        """See Distribution."""
        return _sum(
            part.kl_divergence(own_p, own_q)
            for part, own_p, own_q in zip(self._parts, self.split(p), self.split(q), strict=True)
        )

    def split(self, parameters: tf.Tensor) -> list[tf.Tensor]:
        """The parameters of each part."""
        parts: list[tf.Tensor] = tf.split(parameters, [part.num_parameters for part in self._parts], axis=-1)
        return parts


def reshape_last(x: tf.Tensor, shape: Sequence[int]) -> tf.Tensor:
    """[..., size] -> [..., *shape]; at most one of the leading dimensions may be unknown when tracing."""
    leading = [-1 if size is None else size for size in x.shape[:-1]]
    return tf.reshape(x, [*leading, *shape])


def _sum(terms: Iterable[tf.Tensor]) -> tf.Tensor:
    return tf.add_n(list(terms))
