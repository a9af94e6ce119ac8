"""Losses and statistics of actor-critic agents: pure functions of [T, B] tensors, means over valid transitions."""

from __future__ import annotations

import tensorflow as tf


def masked_mean(x: tf.Tensor, valid: tf.Tensor) -> tf.Tensor:
    """Mean of x [T, B] float32 where valid [T, B] bool; 0 where nothing is. Invalid elements get no gradient."""
    assert x.shape.rank == valid.shape.rank == 2, f"expected [T, B], got {x.shape} and {valid.shape}"
    count = tf.reduce_sum(tf.cast(valid, tf.float32))
    return tf.reduce_sum(tf.where(valid, x, 0.0)) / tf.maximum(count, 1.0)


def log_prob(logits: tf.Tensor, action: tf.Tensor) -> tf.Tensor:
    """Log pi(a) of a categorical policy: logits [..., A] float32, action [...] int32 -> [...] float32."""
    return -tf.nn.sparse_softmax_cross_entropy_with_logits(labels=action, logits=logits)


def entropy(logits: tf.Tensor) -> tf.Tensor:
    """Entropy of a categorical policy in nats: [..., A] float32 -> [...] float32."""
    log_pi = tf.nn.log_softmax(logits)
    return -tf.reduce_sum(tf.exp(log_pi) * log_pi, axis=-1)


def kl_divergence(logits_p: tf.Tensor, logits_q: tf.Tensor) -> tf.Tensor:
    """KL(p || q) of categorical policies in nats: [..., A] float32 each -> [...] float32."""
    log_p, log_q = tf.nn.log_softmax(logits_p), tf.nn.log_softmax(logits_q)
    return tf.reduce_sum(tf.exp(log_p) * (log_p - log_q), axis=-1)


def policy_gradient_loss(logits: tf.Tensor, action: tf.Tensor, advantage: tf.Tensor, valid: tf.Tensor) -> tf.Tensor:
    """Mean of -A_t log pi(a_t | x_t) over valid transitions.

    Args:
      logits: [T, B, A] float32.
      action: [T, B] int32.
      advantage: [T, B] float32; no gradient flows through it.
      valid: [T, B] bool.
    """
    return masked_mean(-tf.stop_gradient(advantage) * log_prob(logits, action), valid)


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
