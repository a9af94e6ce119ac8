"""The sum tree: exact sums whatever happened before, and what a mass finds."""

from __future__ import annotations

import math

import numpy as np
import pytest

from seedrl_learner.replay.sum_tree import SumTree

CAPACITIES = [1, 2, 3, 5, 8, 37, 100]


def indices_of(*values: int) -> np.ndarray:
    """Indices as the tree takes them."""
    return np.array(values, np.int64)


def pairwise_sum(weights: np.ndarray) -> float:
    """The sum of weights, padded with zeros to a power of two, in the order in which a binary tree adds."""
    level = np.zeros(1 << max(0, len(weights) - 1).bit_length())
    level[: len(weights)] = weights
    while len(level) > 1:
        level = level[0::2] + level[1::2]
    return float(level[0])


@pytest.mark.parametrize("capacity", CAPACITIES)
def test_sums_are_exact_after_many_updates(capacity: int) -> None:
    """After 100,000 random changes over 12 decades, the total is that of the weights added up once: no drift."""
    rng = np.random.default_rng(capacity)
    tree, weights = SumTree(capacity), np.zeros(capacity)
    for _ in range(1000):
        indices = rng.integers(0, capacity, 100)
        values = np.where(rng.random(100) < 0.1, 0.0, 10.0 ** rng.uniform(-6, 6, 100))
        tree.set(indices, values)
        for index, value in zip(indices, values, strict=True):
            weights[index] = value  # where an index stands twice, the last one counts
    assert tree.total == pairwise_sum(weights)
    assert tree.total == pytest.approx(math.fsum(weights), rel=1e-14)
    np.testing.assert_array_equal(tree.weights(np.arange(capacity)), weights)


@pytest.mark.parametrize("capacity", CAPACITIES)
def test_find_gives_the_index_at_which_the_running_sum_passes_the_mass(capacity: int) -> None:
    """With whole weights, some of them 0: at, just before and just after every boundary."""
    rng = np.random.default_rng(capacity)
    weights = rng.integers(0, 4, capacity).astype(np.float64)
    weights[rng.integers(capacity)] = 2.0
    tree = SumTree(capacity)
    tree.set(np.arange(capacity), weights)
    running = np.cumsum(weights)
    mass = np.array([m for end in (0.0, *running) for m in (end - 2**-20, end, end + 0.5) if 0 <= m < tree.total])
    assert len(mass) > 1
    np.testing.assert_array_equal(tree.find(mass), np.searchsorted(running, mass, side="right"))


def test_find_never_gives_an_index_of_weight_zero() -> None:
    """Not at either end of the mass, not where sums are rounded, not where most weights are 0."""
    rng = np.random.default_rng(0)
    for _ in range(300):
        capacity = int(rng.integers(1, 70))
        weights = np.where(rng.random(capacity) < rng.choice([0.1, 0.9]), 0.0, 10.0 ** rng.uniform(-12, 12, capacity))
        weights[rng.integers(capacity)] = 0.1
        tree = SumTree(capacity)
        tree.set(np.arange(capacity), weights)
        mass = np.array([0.0, *(tree.total * rng.random(50)), np.nextafter(tree.total, 0.0)])
        found = tree.find(mass)
        assert np.all((found >= 0) & (found < capacity))
        assert np.all(tree.weights(found) > 0)


def test_nothing_is_set_by_no_indices() -> None:
    """An empty change is none; an empty tree has nothing to find."""
    tree = SumTree(5)
    tree.set(indices_of(), np.zeros(0))
    assert tree.total == 0.0
    with pytest.raises(AssertionError, match="nothing to sample"):
        tree.find(np.zeros(1))


@pytest.mark.parametrize("weight", [-1.0, np.nan, np.inf])
def test_a_weight_is_finite_and_at_least_zero(weight: float) -> None:
    """Anything else would spoil every sum above it."""
    tree = SumTree(3)
    with pytest.raises(AssertionError, match="finite weights"):
        tree.set(indices_of(1), np.array([weight]))
    assert tree.total == 0.0
