"""Losses and statistics of actor-critic agents: pure functions of [T, B] tensors, means over valid transitions."""

from __future__ import annotations

import tensorflow as tf


def masked_mean(x: tf.Tensor, valid: tf.Tensor) -> tf.Tensor:
    """Mean of x [T, B], a float, where valid [T, B] bool; 0 where nothing is. Invalid elements get no gradient."""
    assert x.shape.rank == valid.shape.rank == 2, f"expected [T, B], got {x.shape} and {valid.shape}"
    count = tf.reduce_sum(tf.cast(valid, x.dtype))
    return tf.reduce_sum(tf.where(valid, x, tf.zeros_like(x))) / tf.maximum(count, 1.0)


def policy_gradient_loss(log_prob: tf.Tensor, advantage: tf.Tensor, valid: tf.Tensor) -> tf.Tensor:
    """Mean of -A_t log pi(a_t | x_t) over valid transitions; [T, B] each, no gradient flows through the advantage."""
    return masked_mean(-tf.stop_gradient(advantage) * log_prob, valid)


def baseline_loss(value: tf.Tensor, target: tf.Tensor, valid: tf.Tensor) -> tf.Tensor:
    """Mean of (target - value)^2 / 2 over valid transitions; [T, B] each, no gradient flows through the target."""
    return masked_mean(0.5 * tf.square(tf.stop_gradient(target) - value), valid)


def explained_variance(value: tf.Tensor, target: tf.Tensor, valid: tf.Tensor) -> tf.Tensor:
    """1 - Var(target - value) / Var(target) over valid transitions; 0 where the targets do not vary. [T, B] each."""

    def variance(x: tf.Tensor) -> tf.Tensor:
        return masked_mean(tf.square(x - masked_mean(x, valid)), valid)

    target_variance = variance(target)
    ratio = tf.math.divide_no_nan(variance(target - value), target_variance)
    return tf.where(target_variance > 0.0, 1.0 - ratio, 0.0)
