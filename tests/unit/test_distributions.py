"""Distributions over actions against sums over all actions, integrals and samples."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from seedrl_learner.rl.distributions import MASKED, Categorical, Product, SquashedGaussian

SIZES = [(4,), (2, 2, 2), (3, 5, 2)]
LOW, HIGH = (-1.0, 0.5), (1.0, 3.5)
GAUSSIANS = np.float32([[0.0, 0.0, 0.0, 0.0], [1.5, -2.0, -1.0, 2.0], [-0.3, 0.7, 1.0, -3.0]])


def random_logits(size: int, rows: int = 3, seed: int = 0) -> Any:
    """[rows, size] float32."""
    return (np.random.default_rng(seed).normal(size=(rows, size)) * 2).astype(np.float32)


def joint(logits: Any, sizes: tuple[int, ...]) -> tuple[Any, Any]:
    """All actions [A, choices], and their probabilities [rows, A] in float64."""
    actions = np.array(list(itertools.product(*map(range, sizes))), np.int32)
    parts = np.split(logits.astype(np.float64), np.cumsum(sizes)[:-1], axis=-1)
    each = [np.exp(part) / np.exp(part).sum(-1, keepdims=True) for part in parts]
    return actions, np.prod([p[:, actions[:, i]] for i, p in enumerate(each)], axis=0)


@pytest.mark.parametrize("sizes", SIZES)
def test_categorical_agrees_with_the_sum_over_all_actions(sizes: tuple[int, ...]) -> None:
    """Log-probability, entropy, KL and mode of one or several choices, of equal or different sizes."""
    distribution = Categorical(sizes)
    p_logits, q_logits = (random_logits(sum(sizes), seed=seed) for seed in (0, 1))
    (actions, p), (_, q) = joint(p_logits, sizes), joint(q_logits, sizes)
    assert distribution.num_parameters == sum(sizes)
    for i, action in enumerate(actions):
        log_prob = distribution.log_prob(tf.constant(p_logits), tf.constant([action] * len(p)))
        np.testing.assert_allclose(log_prob, np.log(p[:, i]), rtol=1e-4)
    np.testing.assert_allclose(distribution.entropy(p_logits), -(p * np.log(p)).sum(-1), rtol=1e-4)
    np.testing.assert_allclose(distribution.kl_divergence(p_logits, q_logits), (p * np.log(p / q)).sum(-1), rtol=1e-4)
    np.testing.assert_array_equal(distribution.mode(p_logits), actions[p.argmax(-1)])


@pytest.mark.parametrize("sizes", SIZES)
def test_categorical_samples_by_probability(sizes: tuple[int, ...]) -> None:
    """Frequencies are the probabilities, the same seed gives the same actions."""
    distribution = Categorical(sizes)
    logits = random_logits(sum(sizes), rows=1)
    actions, p = joint(logits, sizes)
    rows = tf.constant(np.repeat(logits, 20_000, axis=0))
    sampled = distribution.sample(rows, tf.constant([0, 1])).numpy()
    frequency = [(sampled == action).all(-1).mean() for action in actions]
    np.testing.assert_allclose(frequency, p[0], atol=0.015)
    np.testing.assert_array_equal(distribution.sample(rows, tf.constant([0, 1])), sampled)
    assert (distribution.sample(rows, tf.constant([0, 2])).numpy() != sampled).any()


def test_leading_dimensions_are_kept() -> None:
    """[T, B, parameters] gives [T, B]."""
    for distribution in (Categorical((3, 5)), Categorical((4,)), SquashedGaussian(LOW, HIGH)):
        parameters = tf.zeros([2, 3, distribution.num_parameters])
        assert distribution.log_prob(parameters, distribution.mode(parameters)).shape == (2, 3)
        assert distribution.entropy(parameters).shape == distribution.kl_divergence(parameters, parameters).shape


def test_a_masked_value_has_no_part_in_the_policy() -> None:
    """It is never sampled and has probability 0; entropy, KL and gradients are those of a policy without it."""
    full, reduced = Categorical((5, 2)), Categorical((3, 2))
    kept = [0, 2, 3, 5, 6]
    p, q = random_logits(7), random_logits(7, seed=1)
    mask = np.isin(np.arange(7), kept)
    sampled = full.sample(tf.repeat(tf.where(mask, p, MASKED), 50_000, axis=0), tf.constant([1, 2])).numpy()
    assert set(sampled[:, 0]) == {0, 2, 3}

    def entropy_and_kl(logits: tf.Tensor, distribution: Categorical, other: Any) -> tf.Tensor:
        return distribution.entropy(logits) + 2.0 * distribution.kl_divergence(logits, other)

    logits, small = tf.constant(p), tf.constant(p[:, kept])
    with tf.GradientTape(persistent=True) as tape:
        tape.watch([logits, small])
        masked = tf.where(mask, logits, MASKED)
        value = entropy_and_kl(masked, full, tf.where(mask, q, MASKED))
        expected = entropy_and_kl(small, reduced, q[:, kept])
        chosen = full.log_prob(masked, tf.constant([[2, 1]] * 3))
        chosen_small = reduced.log_prob(small, tf.constant([[1, 1]] * 3))
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    np.testing.assert_allclose(chosen, chosen_small, rtol=1e-5)
    for one, other in ((value, expected), (chosen, chosen_small)):
        gradient = tape.gradient(one, logits).numpy()
        np.testing.assert_allclose(gradient[:, kept], tape.gradient(other, small), rtol=1e-4, atol=1e-6)
        assert not gradient[:, ~mask].any()
    forbidden = full.log_prob(masked, tf.constant([[1, 0]] * 3))
    np.testing.assert_array_equal(tf.exp(forbidden), np.zeros(3))


def test_everything_masked_is_uniform_and_finite() -> None:
    """Where nothing is allowed, all is equally likely: no NaN."""
    nothing = tf.fill([1, 4], MASKED)
    distribution = Categorical((4,))
    assert float(distribution.entropy(nothing)[0]) == pytest.approx(np.log(4))
    assert float(distribution.kl_divergence(nothing, nothing)[0]) == 0.0


def test_a_certain_policy_is_finite() -> None:
    """Logits of +-1e4 give entropy 0 and KL 0 to itself, not NaN."""
    certain = np.array([[1e4, -1e4, 0.0]], np.float32)
    assert Categorical((3,)).entropy(certain)[0] == 0.0
    assert Categorical((3,)).kl_divergence(certain, certain)[0] == 0.0


@pytest.mark.parametrize("row", range(len(GAUSSIANS)))
def test_squashed_density_is_one_over_its_interval(row: int) -> None:
    """The density of one element, as a function of the squashed value, integrates to 1 between its bounds."""
    for i in range(2):
        distribution = SquashedGaussian(LOW[i : i + 1], HIGH[i : i + 1])
        parameters = GAUSSIANS[row : row + 1, [i, 2 + i]]
        u = np.linspace(-30, 30, 400_001, dtype=np.float64)[:, np.newaxis]
        value = (LOW[i] + HIGH[i]) / 2 + (HIGH[i] - LOW[i]) / 2 * np.tanh(u)
        density = tf.exp(distribution.log_prob(np.repeat(parameters, len(u), axis=0), u.astype(np.float32)))
        assert np.trapezoid(density.numpy().astype(np.float64), value[:, 0]) == pytest.approx(1.0, abs=2e-3)


@pytest.mark.parametrize("row", range(len(GAUSSIANS)))
def test_squashed_entropy_and_kl_agree_with_samples(row: int) -> None:
    """Entropy is -E[log p], KL is E[log p - log q]; a mean of 200,000 samples shows it."""
    distribution = SquashedGaussian(LOW, HIGH)
    p = tf.repeat(GAUSSIANS[row : row + 1], 200_000, axis=0)
    q = tf.repeat(GAUSSIANS[row - 1 : row] if row else GAUSSIANS[-1:], 200_000, axis=0)
    action = distribution.sample(p, tf.constant([3, row]))
    log_p, log_q = distribution.log_prob(p, action).numpy(), distribution.log_prob(q, action).numpy()
    assert float(distribution.entropy(p[:1])[0]) == pytest.approx(-log_p.mean(), abs=0.03)
    error = 5 * (log_p - log_q).std() / np.sqrt(len(log_p))
    assert float(distribution.kl_divergence(p[:1], q[:1])[0]) == pytest.approx((log_p - log_q).mean(), abs=error)


def test_squashed_values_stay_in_their_interval() -> None:
    """Also where tanh rounds to 1, and the log-probability there is finite, as are its gradients."""
    distribution = SquashedGaussian(LOW, HIGH)
    action = tf.constant([[-50.0, 50.0], [0.0, 0.0], [20.0, -20.0]])
    np.testing.assert_allclose(distribution.squash(action), [[-1, 3.5], [0, 2], [1, 0.5]], atol=1e-6)
    np.testing.assert_allclose(distribution.relative(distribution.squash(action)), tf.tanh(action), atol=1e-6)
    parameters = tf.constant(GAUSSIANS)
    with tf.GradientTape() as tape:
        tape.watch(parameters)
        log_prob = distribution.log_prob(parameters, action)
    assert np.isfinite(log_prob).all()
    assert np.isfinite(tape.gradient(log_prob, parameters)).all()


def test_a_product_adds_its_parts() -> None:
    """Log-probability, entropy and KL are sums; each part is sampled from its own parameters with a seed of its own."""
    parts = (Categorical((3,)), SquashedGaussian(LOW, HIGH), Categorical((3,)))
    product = Product(parts)
    assert product.num_parameters == 10
    p, q = random_logits(10, rows=64), random_logits(10, rows=64, seed=1)
    p[:, 7:] = p[:, :3]
    owns = [(x[:, :3], x[:, 3:7], x[:, 7:]) for x in (p, q)]
    action = product.sample(tf.constant(p), tf.constant([4, 5]))
    expected = sum(part.log_prob(own, x) for part, own, x in zip(parts, owns[0], action, strict=True))
    np.testing.assert_allclose(product.log_prob(tf.constant(p), action), expected, rtol=1e-6)
    expected = sum(part.entropy(own) for part, own in zip(parts, owns[0], strict=True))
    np.testing.assert_allclose(product.entropy(tf.constant(p)), expected, rtol=1e-6)
    expected = sum(part.kl_divergence(*own) for part, own in zip(parts, zip(*owns, strict=True), strict=True))
    np.testing.assert_allclose(product.kl_divergence(tf.constant(p), tf.constant(q)), expected, rtol=1e-6)
    for mode, part, own in zip(product.mode(tf.constant(p)), parts, owns[0], strict=True):
        np.testing.assert_array_equal(mode, part.mode(own))
    assert (action[0].numpy() != action[2].numpy()).any()
