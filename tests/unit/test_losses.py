"""Losses and statistics against NumPy, and that what is masked has no part in them."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from seedrl_learner.rl import losses

rng = np.random.default_rng(0)
LOGITS = rng.normal(size=(3, 2, 4)).astype(np.float32) * 3
OTHER = rng.normal(size=(3, 2, 4)).astype(np.float32)
VALID = np.array([[1, 0], [1, 1], [0, 1]], np.bool_)


def test_masked_mean_is_over_valid_elements_only() -> None:
    """NaN at a masked element has no effect on the mean nor on its gradient."""
    x = tf.constant(np.where(VALID, np.arange(6, dtype=np.float32).reshape(3, 2), np.nan))
    with tf.GradientTape() as tape:
        tape.watch(x)
        mean = losses.masked_mean(x, tf.constant(VALID))
    assert float(mean) == np.mean([0, 2, 3, 5])
    np.testing.assert_array_equal(tape.gradient(mean, x), VALID / 4)


def test_masked_mean_of_nothing_is_zero() -> None:
    """Without a valid element the mean is 0, not NaN."""
    assert float(losses.masked_mean(tf.ones([3, 2]), tf.zeros([3, 2], tf.bool))) == 0.0


def test_policy_gradient_moves_towards_actions_of_positive_advantage() -> None:
    """The gradient for log pi is -A / valid transitions, 0 where masked; there is none for the advantage."""
    log_prob, advantage = tf.constant(LOGITS[..., 0]), tf.constant(OTHER[..., 0])
    with tf.GradientTape() as tape:
        tape.watch([log_prob, advantage])
        loss = losses.policy_gradient_loss(log_prob, advantage, tf.constant(VALID))
    to_log_prob, to_advantage = tape.gradient(loss, [log_prob, advantage])
    np.testing.assert_allclose(to_log_prob, -advantage * VALID / VALID.sum(), rtol=1e-6)
    assert to_advantage is None


def test_baseline_loss_is_half_the_mean_square_and_targets_are_constants() -> None:
    """The gradient for the value is (value - target) / valid transitions; there is none for the target."""
    value, target = tf.constant(LOGITS[..., 0]), tf.constant(OTHER[..., 0])
    with tf.GradientTape() as tape:
        tape.watch([value, target])
        loss = losses.baseline_loss(value, target, tf.constant(VALID))
    to_value, to_target = tape.gradient(loss, [value, target])
    assert float(loss) == pytest.approx(0.5 * np.mean((value - target).numpy()[VALID] ** 2), rel=1e-5)
    np.testing.assert_allclose(to_value, (value - target) * VALID / VALID.sum(), rtol=1e-5)
    assert to_target is None


def test_explained_variance_is_one_for_perfect_and_zero_for_constant_predictions() -> None:
    """It is 1 - Var(error) / Var(target) over valid transitions, and 0 where the targets are all the same."""
    target, valid = tf.constant(OTHER[..., 1]), tf.constant(VALID)
    assert float(losses.explained_variance(target, target, valid)) == pytest.approx(1.0)
    assert float(losses.explained_variance(tf.fill([3, 2], 5.0), target, valid)) == pytest.approx(0.0, abs=1e-6)
    assert float(losses.explained_variance(target, tf.ones([3, 2]), valid)) == 0.0


def test_normalized_over_valid_elements() -> None:
    """Mean 0 and deviation 1 where valid, 0 elsewhere even for NaN; elements that are all the same become 0."""
    x = rng.normal(size=(3, 2)).astype(np.float32) * 5 + 100
    result = losses.normalized(tf.constant(np.where(VALID, x, np.nan)), tf.constant(VALID)).numpy()
    np.testing.assert_allclose(result[VALID], (x[VALID] - x[VALID].mean()) / x[VALID].std(), rtol=1e-4)
    np.testing.assert_array_equal(result[~VALID], 0.0)
    np.testing.assert_array_equal(losses.normalized(tf.fill([3, 2], 7.0), tf.constant(VALID)), 0.0)
