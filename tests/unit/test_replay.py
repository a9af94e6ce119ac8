"""Prioritized replay: who is sampled how often, who is overwritten, and what late priorities do."""

from __future__ import annotations

import numpy as np
import pytest

from seedrl_learner.replay.replay import Replay

EXPONENT = 0.7


def worn(capacity: int, seed: int = 0) -> tuple[Replay, dict[int, float]]:
    """A replay that wrapped around several times and had many updates, some of them late; priorities by item."""
    rng = np.random.default_rng(seed)
    replay, priority = Replay(capacity, EXPONENT, np.random.default_rng(seed + 1)), dict[int, float]()
    row = 0
    for _ in range(8 * capacity):
        count = int(rng.integers(1, min(4, capacity) + 1))
        values = rng.uniform(0.1, 10.0, count)
        items = range(replay.num_inserted, replay.num_inserted + count)
        replay.insert(list(range(row, row + count)), values)
        row += count
        priority |= zip(items, values, strict=True)
        changed = rng.integers(max(0, replay.num_inserted - 2 * capacity), replay.num_inserted, 5)
        values = rng.uniform(0.1, 10.0, 5)
        replay.update(changed, values)
        priority |= {int(item): value for item, value in zip(changed, values, strict=True)}
    return replay, {int(item): priority[int(item)] for item in replay.items}


def probabilities(priority: dict[int, float]) -> np.ndarray:
    """Of the items, oldest first: priority^exponent, normalized."""
    weights = np.array([priority[item] for item in sorted(priority)]) ** EXPONENT
    return weights / weights.sum()


def chi_square(counts: np.ndarray, probability: np.ndarray) -> float:
    """Pearson's statistic in standard deviations above its mean; about 0 where `probability` is right."""
    expected = counts.sum() * probability
    degrees = len(counts) - 1
    return float((((counts - expected) ** 2 / expected).sum() - degrees) / np.sqrt(2 * degrees))


@pytest.mark.parametrize("batch", [1, 32])
@pytest.mark.parametrize("capacity", [2, 37, 64])
def test_items_are_sampled_in_proportion_to_their_weights(capacity: int, batch: int) -> None:
    """Chi-square after wrap-around and many updates, over all items, the oldest and the newest among them."""
    replay, priority = worn(capacity)
    probability = probabilities(priority)
    oldest, newest = replay.items[0], replay.items[-1]
    draws = [replay.sample(batch) for _ in range(6000 // batch + 1000)]
    counts = np.bincount(np.concatenate([draw.items for draw in draws]) - oldest, minlength=capacity)
    assert len(counts) == capacity
    assert chi_square(counts, probability) < 4
    assert chi_square(counts, np.roll(probability, 1)) > 20, "this test can tell a wrong distribution"
    for end in (0, -1):
        deviation = np.sqrt(counts.sum() * probability[end] * (1 - probability[end]))
        assert abs(counts[end] - counts.sum() * probability[end]) < 4 * deviation
    assert newest == replay.num_inserted - 1
    draw = draws[0]
    np.testing.assert_allclose(draw.probability, probability[draw.items - oldest], rtol=1e-9)


def test_a_batch_is_spread_over_the_mass() -> None:
    """One draw from each equal part: an item of half the mass is in every batch, half of it or one more or less."""
    replay = Replay(3, 1.0, np.random.default_rng(0))
    replay.insert([0, 1, 2], np.array([1.0, 2.0, 1.0]))
    for _ in range(200):
        assert abs(np.count_nonzero(replay.sample(8).rows == 1) - 4) <= 1


def test_the_oldest_items_make_room_and_their_rows_come_back() -> None:
    """Insertion beyond the capacity returns exactly the rows of those that left, oldest first."""
    replay = Replay(3, EXPONENT, np.random.default_rng(0))
    assert replay.insert([10, 11], np.ones(2)) == []
    assert len(replay) == 2
    assert replay.insert([12, 13], np.ones(2)) == [10]
    assert replay.insert([14, 15, 16], np.ones(3)) == [11, 12, 13]
    assert replay.items.tolist() == [4, 5, 6]
    assert replay.rows(replay.items).tolist() == [14, 15, 16]
    assert set(replay.sample(99).rows) == {14, 15, 16}


def test_a_priority_that_comes_too_late_hits_nothing() -> None:
    """An item overwritten meanwhile: its update is counted and dropped, the newer one in its place keeps its own."""
    replay = Replay(2, 1.0, np.random.default_rng(0))
    replay.insert([0, 1], np.array([1.0, 2.0]))
    sample = replay.sample(2)
    assert set(sample.items) <= {0, 1}
    replay.insert([2], np.array([3.0]))
    assert replay.update(np.array([0, 1]), np.array([100.0, 5.0])) == 1
    assert replay.items.tolist() == [1, 2]
    assert replay.weights(replay.items).tolist() == [5.0, 3.0]
    replay.insert([3, 4], np.array([7.0, 8.0]))
    assert replay.update(np.array([0, 1, 2]), np.full(3, 100.0)) == 3
    assert replay.weights(replay.items).tolist() == [7.0, 8.0]


def test_a_priority_of_zero_is_sampled_some_day() -> None:
    """Sequences without any TD error keep a small chance; all of them at once is no division by zero."""
    replay = Replay(4, 0.9, np.random.default_rng(0))
    replay.insert([0, 1], np.zeros(2))
    assert set(replay.sample(64).rows) == {0, 1}
    assert np.all(replay.sample(4).probability == 0.5)


def test_exponents_zero_and_one() -> None:
    """0 samples uniformly, 1 in proportion to the priority."""
    for exponent, expected in ((0.0, [0.5, 0.5]), (1.0, [0.1, 0.9])):
        replay = Replay(2, exponent, np.random.default_rng(0))
        replay.insert([0, 1], np.array([1.0, 9.0]))
        sample = replay.sample(50)
        np.testing.assert_allclose(sample.probability, np.array(expected)[sample.items])


def test_a_replay_of_one_item() -> None:
    """Capacity 1: the newest item is all there is."""
    replay = Replay(1, EXPONENT, np.random.default_rng(0))
    assert [replay.insert([row], np.ones(1)) for row in range(4)] == [[], [0], [1], [2]]
    sample = replay.sample(3)
    assert sample.items.tolist() == [3, 3, 3]
    assert sample.probability.tolist() == [1.0, 1.0, 1.0]


def test_priorities_are_finite() -> None:
    """NaN from a diverged network is an error at once, not a replay that samples one item for ever."""
    replay = Replay(2, EXPONENT, np.random.default_rng(0))
    with pytest.raises(AssertionError, match="finite priorities"):
        replay.insert([0], np.array([np.nan]))
