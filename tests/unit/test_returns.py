"""n-step returns against a slow loop written from the definition, and cases that can be worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from seedrl_core.spec import Array
from seedrl_learner.rl.returns import n_step_return


def run(reward: Array, discount: Array, value: Array, valid: Array, n: int) -> Array:
    """`n_step_return` of NumPy arrays, given as [T, B] or, for one sequence, as [T]."""
    one = reward.ndim == 1
    arrays = [x[:, None] if one else x for x in (reward, discount, value, valid)]
    dtypes = (tf.float32, tf.float32, tf.float32, tf.bool)
    names = ("reward", "discount", "value", "valid")
    tensors = {name: tf.constant(x, dtype) for name, x, dtype in zip(names, arrays, dtypes, strict=True)}
    result: Array = n_step_return(**tensors, n=n).numpy()
    return result[:, 0] if one else result


def oracle(reward: Array, discount: Array, value: Array, valid: Array, n: int) -> Array:
    """The definition: m rewards, each discounted by all discounts before it, then the value m steps ahead.

    m is n, or less where the sequence ends or an invalid transition comes before.
    """
    length, batch = reward.shape
    returns = np.zeros((length, batch))
    for b in range(batch):
        for t in range(length):
            m = 0
            while m < n and t + m < length and valid[t + m, b]:
                m += 1
            for k in range(m):
                returns[t, b] += np.prod(discount[t : t + k, b]) * reward[t + k, b]
            returns[t, b] += np.prod(discount[t : t + m, b]) * value[t + m, b]
    return returns


def random_episodes(length: int = 14, batch: int = 64, gamma: float = 0.9) -> tuple[Array, Array, Array, Array]:
    """Reward, discount, value, valid of sequences in which episodes terminate and are truncated anywhere."""
    rng = np.random.default_rng(0)
    ends = rng.random((length + 1, batch)) < 0.2  # x_t is the last of its episode
    ends[1:] &= ~ends[:-1]  # the next one is the first of another
    terminated = ends & (rng.random(ends.shape) < 0.5)
    reward, value = rng.normal(size=(length, batch)), rng.normal(size=(length + 1, batch))
    return reward, gamma * ~terminated[1:], value, ~ends[:-1]


@pytest.mark.parametrize("n", [1, 2, 5, 14, 30])
def test_returns_are_those_of_the_definition(n: int) -> None:
    """With terminations, truncations and the sequence's end inside the window."""
    reward, discount, value, valid = random_episodes()
    assert (~valid).any()
    assert (discount == 0).any()
    expected = oracle(reward, discount, value, valid, n)
    np.testing.assert_allclose(run(reward, discount, value, valid, n), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("n", [1, 2, 5])
def test_the_bootstrap_value_is_discounted_n_times(n: int) -> None:
    """Rewards 0, all values 1: gamma^n, and near the end of the sequence one power for each step that is left."""
    length, gamma = 8, 0.5
    returns = run(np.zeros(length), np.full(length, gamma), np.ones(length + 1), np.ones(length, bool), n)
    assert returns.tolist() == [gamma ** min(n, length - t) for t in range(length)]


@pytest.mark.parametrize(("terminates", "expected"), [(False, [1, 1, 1, 100, 100]), (True, [0, 0, 1, 100, 100])])
def test_two_short_episodes_in_a_sequence_do_not_mix(terminates: bool, expected: list[float]) -> None:
    """Two steps with V = 1, then an episode with V = 100; no discount, no reward: the first never sees the 100."""
    value = np.array([1, 1, 1, 100, 100, 100])
    valid = np.array([True, True, False, True, True])
    discount = np.ones(5)
    discount[1] = 0.0 if terminates else 1.0
    assert run(np.zeros(5), discount, value, valid, 5).tolist() == expected


@pytest.mark.parametrize("n", [1, 2, 5])
def test_a_sequence_is_worth_what_its_episodes_are_worth_alone(n: int) -> None:
    """Cut at the invalid transitions into episodes, each gives the same returns as in the sequence."""
    reward, discount, value, valid = random_episodes(batch=8)
    returns = run(reward, discount, value, valid, n)
    for b in range(8):
        starts = [0, *(np.flatnonzero(~valid[:, b]) + 1)]
        for start, end in zip(starts, [*(start - 1 for start in starts[1:]), len(valid)], strict=True):
            if end > start:
                part = slice(start, end)
                steps = slice(start, end + 1)
                alone = run(reward[part, b], discount[part, b], value[steps, b], valid[part, b], n)
                np.testing.assert_array_equal(returns[part, b], alone)


def test_what_stands_at_an_invalid_transition_does_not_matter() -> None:
    """Even NaN there changes nothing; its own return is the value of its observation."""
    reward, discount, value, valid = random_episodes()
    expected = run(reward, discount, value, valid, 5)
    poisoned = run(np.where(valid, reward, np.nan), np.where(valid, discount, np.nan), value, valid, 5)
    np.testing.assert_array_equal(poisoned, expected)
    np.testing.assert_array_equal(expected[~valid], value[:-1][~valid].astype(np.float32))


def test_wrong_shapes_and_dtypes_are_refused() -> None:
    """Values for T instead of T + 1 steps, a rank of 1, a float mask."""
    good = {"reward": tf.zeros([3, 1]), "discount": tf.zeros([3, 1]), "value": tf.zeros([4, 1])}
    valid = tf.ones([3, 1], tf.bool)
    for change in ({"value": tf.zeros([3, 1])}, {"discount": tf.zeros([3])}, {"valid": tf.ones([3, 1])}):
        with pytest.raises(AssertionError, match="expected"):
            n_step_return(**good | {"valid": valid} | change, n=1)
