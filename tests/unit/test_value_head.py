"""PopArt: values of any size from outputs of size 1, and statistics that do not change them."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from seedrl_learner.networks.value_head import ValueHead

rng = np.random.default_rng(0)
X = tf.constant(rng.normal(size=(5, 3, 4)), tf.float32)
TARGET = (rng.normal(size=(5, 3)) * 70.0 + 500.0).astype(np.float32)
VALID = rng.random((5, 3)) < 0.7


def make(*, normalize: bool = True) -> ValueHead:
    """A head with a bias."""
    head = ValueHead(4, np.random.default_rng(1), normalize=normalize)
    head.bias.assign([0.3])
    return head


def observe(head: ValueHead, target: np.ndarray, valid: np.ndarray) -> None:
    """Takes in targets."""
    head.observe(tf.constant(target), tf.constant(valid))


def test_new_statistics_do_not_change_the_values() -> None:
    """Neither the first nor later ones; what the layer itself gives does change."""
    head = make()
    before, output = head(X).numpy(), head.output(X).numpy()
    observe(head, TARGET, VALID)
    np.testing.assert_allclose(head(X), before, rtol=1e-4, atol=1e-3)
    assert np.abs(head.output(X).numpy() - output).min() > 1.0
    observe(head, TARGET - 480.0, VALID)
    np.testing.assert_allclose(head(X), before, rtol=1e-4, atol=1e-3)


def test_the_deviation_is_that_of_all_valid_targets() -> None:
    """Over the batches so far, and a masked target does not count, whatever it is."""
    head = make()
    assert float(head.deviation) == 1.0
    observe(head, np.where(VALID, TARGET, np.nan), VALID)
    assert float(head.deviation) == pytest.approx(TARGET[VALID].std(), rel=1e-3)
    observe(head, TARGET + 100.0, VALID)
    both = np.concatenate([TARGET[VALID], TARGET[VALID] + 100.0])
    assert float(head.deviation) == pytest.approx(both.std(), rel=1e-3)


def test_a_batch_without_valid_targets_changes_nothing() -> None:
    """Neither before others nor after them."""
    head = make()
    observe(head, TARGET, np.zeros_like(VALID))
    assert float(head.deviation) == 1.0
    observe(head, TARGET, VALID)
    deviation = float(head.deviation)
    observe(head, TARGET, np.zeros_like(VALID))
    assert float(head.deviation) == deviation


def test_targets_that_are_all_the_same_leave_finite_values() -> None:
    """Their deviation has a least value."""
    head = make()
    for _ in range(3):
        observe(head, np.full_like(TARGET, 7.0), VALID)
    assert float(head.deviation) > 0.0
    assert np.isfinite(head(X)).all()


def test_without_normalization_it_is_a_linear_layer() -> None:
    """With no further variables, and targets are nothing to it."""
    head = make(normalize=False)
    observe(head, TARGET, VALID)
    assert float(head.deviation) == 1.0
    assert len(head.variables) == 2
    np.testing.assert_array_equal(head(X), head.output(X))


def test_the_deviation_is_found_far_from_zero() -> None:
    """Of targets around 10,000 that deviate by 1, from the first batch on and after thousands; values stay as well."""
    head = make()
    take_in = tf.function(head.observe)
    targets = np.random.default_rng(2)
    for batch in range(2000):
        take_in(tf.constant(targets.normal(1e4, 1.0, (20, 8)), tf.float32), tf.ones((20, 8), tf.bool))
        if batch == 0:
            head.bias.assign([0.3])  # values near the targets
            before = head(X).numpy()
        if batch in (0, 10, 1999):
            assert float(head.deviation) == pytest.approx(1.0, abs=0.15)
    np.testing.assert_allclose(head(X), before, rtol=0.0, atol=0.01)
