"""Value rescaling: the closed forms in float64, the round trip in float32, what happens at zero."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from seedrl_core.spec import Array
from seedrl_learner.rl.value_rescaling import rescale, unrescale

EPSILON = 1e-3
SIZES = np.geomspace(1e-3, 1e5, 4001)
BOTH_SIGNS = np.concatenate([SIZES, -SIZES])


def exact_rescale(x: Array) -> Array:
    """The function as the paper writes it."""
    return np.sign(x) * (np.sqrt(np.abs(x) + 1) - 1) + EPSILON * x


def exact_unrescale(y: Array) -> Array:
    """Its inverse as the paper writes it."""
    root = np.sqrt(1 + 4 * EPSILON * (np.abs(y) + 1 + EPSILON))
    return np.sign(y) * (((root - 1) / (2 * EPSILON)) ** 2 - 1)


def test_values_are_those_of_the_paper() -> None:
    """Both functions in float32 against the closed forms in float64."""
    x = BOTH_SIGNS.astype(np.float32)
    np.testing.assert_allclose(rescale(tf.constant(x), EPSILON), exact_rescale(x.astype(np.float64)), rtol=1e-6)
    y = exact_rescale(BOTH_SIGNS).astype(np.float32)
    np.testing.assert_allclose(unrescale(tf.constant(y), EPSILON), exact_unrescale(y.astype(np.float64)), rtol=1e-6)


def test_the_round_trip_keeps_five_digits_in_float32() -> None:
    """For sizes from 1e-3 to 1e5 of both signs, in both orders; 0 stays 0."""
    x = tf.constant(BOTH_SIGNS, tf.float32)
    np.testing.assert_allclose(unrescale(rescale(x, EPSILON), EPSILON), x, rtol=1e-5)
    y = tf.constant(exact_rescale(BOTH_SIGNS), tf.float32)
    np.testing.assert_allclose(rescale(unrescale(y, EPSILON), EPSILON), y, rtol=1e-5)
    assert float(rescale(tf.constant(0.0), EPSILON)) == float(unrescale(tf.constant(0.0), EPSILON)) == 0.0


def test_the_paper_s_form_would_not_do_in_float32() -> None:
    """The closed form of the inverse loses all digits of a small value: the reason for the other form."""
    y = np.float32(exact_rescale(np.array(1e-3)))
    one, four, epsilon = np.float32(1), np.float32(4), np.float32(EPSILON)
    root = np.sqrt(one + four * epsilon * (y + one + epsilon))
    naive = ((root - one) / (2 * epsilon)) ** 2 - one
    assert abs(naive - 1e-3) > 1e-5


@pytest.mark.parametrize(("function", "slope"), [(rescale, 0.5 + EPSILON), (unrescale, 1 / (0.5 + EPSILON))])
def test_gradients_are_finite_and_right_at_zero(function, slope) -> None:
    """h'(0) = 1/2 + epsilon, and its inverse has the inverse slope; elsewhere gradients are positive."""
    x = tf.constant([0.0, *BOTH_SIGNS], tf.float32)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = function(x, EPSILON)
    gradient = tape.gradient(y, x).numpy()
    assert gradient[0] == pytest.approx(slope, rel=1e-6)
    assert np.all(np.isfinite(gradient) & (gradient > 0))
