"""Optimizer updates against NumPy, clipping, decay, and what a checkpoint keeps of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from seedrl_core.config import OptimizerConfig
from seedrl_learner.optimization import Optimization

INITIAL = np.array([1.0, -2.0, 3.0], np.float32)
GRADIENTS = np.array([[0.3, -0.1, 0.0], [0.2, 0.4, -0.5], [-0.1, 0.1, 0.2]], np.float32)


def make(**config: Any) -> tuple[tf.Variable, Optimization]:
    """One variable and its optimizer, without effective clipping unless asked for."""
    variable = tf.Variable(INITIAL)
    settings = {
        "learning_rate": 0.1,
        "max_gradient_norm": 1e6,
        "decay": False,
        "decay_power": 1.0,
        "epsilon": 1e-5,
    } | config
    return variable, Optimization(OptimizerConfig.model_validate(settings), [variable])


def apply(optimization: Optimization, gradient: Any, fraction: float = 0.0) -> dict[str, float]:
    """One update."""
    metrics = optimization.apply([tf.constant(gradient, tf.float32)], tf.constant(fraction))
    return {name: float(value) for name, value in metrics.items()}


def test_adam_is_that_of_the_paper() -> None:
    """Three updates agree with bias-corrected moments computed in float64."""
    variable, optimization = make(name="adam", epsilon=1e-5)
    expected, m, v = INITIAL.astype(np.float64), np.zeros(3), np.zeros(3)
    for t, gradient in enumerate(GRADIENTS, start=1):
        apply(optimization, gradient)
        m, v = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient.astype(np.float64) ** 2
        rate = 0.1 * np.sqrt(1 - 0.999**t) / (1 - 0.9**t)
        expected = expected - rate * m / (np.sqrt(v) + 1e-5)
    np.testing.assert_allclose(variable, expected, rtol=1e-5)


def test_rmsprop_starts_its_mean_square_at_one_with_epsilon_inside_the_root() -> None:
    """Three updates agree with the recursion in float64, momentum included."""
    variable, optimization = make(name="rmsprop", epsilon=0.1, rms_decay=0.9, momentum=0.5)
    expected, square, momentum = INITIAL.astype(np.float64), np.ones(3), np.zeros(3)
    for gradient in GRADIENTS:
        apply(optimization, gradient)
        square = 0.9 * square + 0.1 * gradient.astype(np.float64) ** 2
        momentum = 0.5 * momentum + 0.1 * gradient / np.sqrt(square + 0.1)
        expected = expected - momentum
    np.testing.assert_allclose(variable, expected, rtol=1e-5)


def test_gradients_are_clipped_to_their_global_norm() -> None:
    """A gradient of norm 50 acts as its tenth under a limit of 5; one below the limit is left as it is."""
    (clipped, one), (reference, other) = make(max_gradient_norm=5.0, name="rmsprop"), make(name="rmsprop")
    metrics = apply(one, [30.0, 40.0, 0.0])
    apply(other, [3.0, 4.0, 0.0])
    assert metrics["train/gradient_norm"] == pytest.approx(50.0)
    np.testing.assert_allclose(clipped, reference, rtol=1e-6)
    apply(one, [0.3, 0.4, 0.0])
    apply(other, [0.3, 0.4, 0.0])
    np.testing.assert_allclose(clipped, reference, rtol=1e-6)


def test_the_norm_is_that_of_all_variables_together() -> None:
    """Two gradients of norm 3 and 4 have the global norm 5."""
    variables = [tf.Variable(tf.zeros([1])), tf.Variable(tf.zeros([2]))]
    optimization = Optimization(
        OptimizerConfig(learning_rate=0.1, max_gradient_norm=1.0, decay=False, decay_power=1.0, epsilon=1e-5), variables
    )
    metrics = optimization.apply([tf.constant([3.0]), tf.constant([0.0, 4.0])], tf.constant(0.0))
    assert float(metrics["train/gradient_norm"]) == pytest.approx(5.0)


@pytest.mark.parametrize(
    ("settings", "rate"),
    [({"decay": True}, 0.025), ({"decay": True, "decay_power": 2.0}, 0.00625), ({"decay": False}, 0.1)],
)
def test_the_learning_rate_falls_as_configured(settings: dict[str, Any], rate: float) -> None:
    """At three quarters of the run: a quarter, its square, or all of it."""
    _, optimization = make(**settings)
    assert apply(optimization, GRADIENTS[0], fraction=0.75)["train/learning_rate"] == pytest.approx(rate)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_gradient_that_is_not_finite_is_an_error_and_changes_nothing(bad: float) -> None:
    """In a traced function too, the variable and the optimizer keep their values."""
    variable, optimization = make()
    with pytest.raises(tf.errors.InvalidArgumentError, match="global norm of the gradients"):
        tf.function(optimization.apply)([tf.constant([1.0, bad, 1.0])], tf.constant(0.0))
    np.testing.assert_array_equal(variable, INITIAL)
    assert int(optimization.updates) == 0


@pytest.mark.parametrize("name", ["adam", "rmsprop"])
def test_training_continues_from_a_checkpoint_as_if_never_stopped(tmp_path: Path, name: str) -> None:
    """A new optimizer restored after two updates makes the same third one."""
    variable, optimization = make(name=name, momentum=0.9)
    for gradient in GRADIENTS[:2]:
        apply(optimization, gradient)
    path = tf.train.Checkpoint(variable=variable, optimization=optimization).write(str(tmp_path / "saved"))
    restored, fresh = make(name=name, momentum=0.9)
    tf.train.Checkpoint(variable=restored, optimization=fresh).read(path).assert_consumed()
    apply(optimization, GRADIENTS[2])
    apply(fresh, GRADIENTS[2])
    np.testing.assert_array_equal(restored, variable)
