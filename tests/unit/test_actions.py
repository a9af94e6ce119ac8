"""Action spaces as agents see them: values of the environment, what was sampled, features, masks, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from seedrl_core.errors import ConfigError
from seedrl_core.spec import EnvironmentSpec, TensorSpec
from seedrl_learner.agents.actions import ActionSpace, DiscreteActions
from seedrl_learner.rl.distributions import MASKED

STATE = TensorSpec("observation/state", np.dtype(np.float32), (2,))
DISCRETE = TensorSpec("action/a", np.dtype(np.int64), (), (-2,), (1,))
MULTI = TensorSpec("action/b", np.dtype(np.int16), (2, 2), (0, 1, 2, 3), (1, 3, 2, 3))
BINARY = TensorSpec("action/c", np.dtype(np.int8), (3,), (0,), (1,))
# 0.1 rounded to float32 is larger than 0.1.
BOX = TensorSpec("action/d", np.dtype(np.float64), (1, 2), (-1.0, -0.5), (0.1,))
ALL = (DISCRETE, MULTI, BINARY, BOX)


def space(*action: TensorSpec, masks: tuple[TensorSpec, ...] = ()) -> ActionSpace:
    """For an environment that also shows a vector."""
    return ActionSpace(EnvironmentSpec("test", (STATE, *masks), action))


def mask(path: str, size: int, dtype: Any = np.int8) -> TensorSpec:
    """A mask's leaf."""
    return TensorSpec(f"observation/action_mask{path}", np.dtype(dtype), (size,))


def sample(actions: ActionSpace, rows: int = 256) -> tuple[tf.Tensor, ...]:
    """From nearly uniform parameters."""
    return actions.distribution.sample(tf.zeros([rows, actions.distribution.num_parameters]), tf.constant([0, 0]))


def test_sampled_actions_are_values_of_their_leaves() -> None:
    """Shape and dtype are the leaf's, and over many samples exactly the values between its bounds occur."""
    actions = space(*ALL)
    values = actions.values(sample(actions))
    for value, leaf in zip(values, ALL, strict=True):
        assert (value.shape, value.dtype.as_numpy_dtype) == ((256, *leaf.shape), leaf.dtype.type)
        low, high = leaf.bounds
        flat = value.numpy().reshape(256, -1)
        assert (low <= flat).all()
        assert (flat <= high).all()
        if leaf.is_integer:
            assert [len(set(column)) for column in flat.T] == [int(n) for n in high - low + 1]


def test_a_box_action_never_leaves_its_bounds() -> None:
    """Not even by the rounding from float32 to the leaf's float64, for the most extreme samples."""
    actions = space(BOX)
    (value,) = actions.values((tf.constant([[100.0, 100.0], [-100.0, -100.0]]),))
    np.testing.assert_array_equal(value, [[[0.1, 0.1]], [[-1.0, -0.5]]])


def test_what_was_sampled_is_known_from_values_and_storage() -> None:
    """Integers tell it themselves; of a Box the value before the squashing is stored."""
    actions = space(*ALL)
    assert [(item.path, item.shape) for item in actions.stored] == [("action/d/sampled", (2,))]
    sampled = sample(actions)
    stored = actions.stored_of(sampled)
    for one, other in zip(actions.sampled(actions.values(sampled), stored), sampled, strict=True):
        np.testing.assert_array_equal(one, other)


def test_features_of_an_action() -> None:
    """One-hot for each integer, -1..1 for a Box."""
    actions = space(*ALL)
    values = (
        tf.constant([[-1]], tf.int64)[0],
        tf.constant([[[1, 3], [2, 3]]], tf.int16),
        tf.constant([[0, 1, 1]], tf.int8),
        tf.constant([[[-1.0, -0.2]]], tf.float64),
    )
    expected = [0, 1, 0, 0, *[0, 1], *[0, 0, 1], 1, 1, *[1, 0], *[0, 1], *[0, 1], -1, 0]
    np.testing.assert_allclose(actions.features(values), [expected], atol=1e-6)
    assert actions.num_features == len(expected)


def test_masks_belong_to_the_action_leaf_of_their_name() -> None:
    """`action_mask/b` masks `action/b`; leaves without a mask stay as they are, any non-zero value allows."""
    actions = space(*ALL, masks=(mask("/c", 6, np.bool_), mask("/a", 4)))
    parameters = tf.ones([1, actions.distribution.num_parameters])
    binary, discrete = [1, 0, 1, 1, 0, 1], [0, 7, 1, -1]
    masked = actions.mask(parameters, (tf.zeros([1, 2]), tf.constant([binary]), tf.constant([discrete], tf.int8)))
    allowed = np.concatenate([discrete, np.ones(7), binary, np.ones(4)]) != 0
    np.testing.assert_array_equal(masked[0], np.where(allowed, 1.0, MASKED))


def test_a_mask_that_forbids_everything_has_no_effect() -> None:
    """As after an episode's end; the masks of other leaves and rows stay in force."""
    actions = space(DISCRETE, BINARY, masks=(mask("/a", 4), mask("/c", 6)))
    parameters = tf.reshape(tf.range(20, dtype=tf.float32), [2, 10])
    masks = (tf.constant([[0, 0, 0, 0], [0, 1, 1, 1]]), tf.constant([[1, 1, 1, 1, 1, 0], [0] * 6]))
    masked = actions.mask(parameters, (tf.zeros([2, 2]), *masks)).numpy()
    assert np.argwhere(masked == MASKED).tolist() == [[0, 9], [1, 0]]
    np.testing.assert_array_equal(masked[masked != MASKED], np.delete(parameters.numpy(), [9, 10]))


def test_a_mask_of_a_single_action_has_the_name_alone() -> None:
    """`observation/action_mask` masks `action`, of any shape with one element a value."""
    multi = TensorSpec("action", np.dtype(np.int64), (2,), (0,), (2,))
    square = TensorSpec("observation/action_mask", np.dtype(np.uint8), (2, 3))
    actions = ActionSpace(EnvironmentSpec("test", (square,), (multi,)))
    masked = actions.mask(tf.zeros([1, 1, 6]), (tf.constant([[[[1, 0, 1], [0, 0, 1]]]], tf.uint8),))
    np.testing.assert_array_equal(masked[0, 0] == 0.0, [True, False, True, False, False, True])


@pytest.mark.parametrize(
    ("masks", "message"),
    [
        ((mask("/a", 3),), r"observation/action_mask/a: expected an integer .* got .* \(3,\) for action/a: int64 \(\)"),
        ((mask("/a", 4, np.float32),), "observation/action_mask/a: expected an integer or boolean"),
        ((mask("/d", 4),), "observation/action_mask/d: expected an integer or boolean for each value of an integer"),
        ((mask("", 4),), r"observation/action_mask: expected a mask named like an action leaf \(action/a, action/b"),
    ],
)
def test_masks_that_do_not_fit_are_refused(masks: tuple[TensorSpec, ...], message: str) -> None:
    """Wrong size, floats, a mask of a continuous action, and one for no action: each names the leaf."""
    with pytest.raises(ConfigError, match=message):
        space(*ALL, masks=masks)


@pytest.mark.parametrize(
    ("leaf", "message"),
    [
        (TensorSpec("action", np.dtype(np.float32), (2,)), r"action: expected finite bounds .* got low \(\)"),
        (TensorSpec("action", np.dtype(np.float32), (2,), (0.0, 1.0), (1.0,)), "action: expected finite bounds"),
        (TensorSpec("action", np.dtype(np.int32), (), (0,), (1 << 20,)), "action: expected .* at most 65536 values"),
    ],
)
def test_actions_that_cannot_be_handled_are_refused(leaf: TensorSpec, message: str) -> None:
    """Unbounded or empty intervals, and integers of too many values: the error names the leaf and what it got."""
    with pytest.raises(ConfigError, match=message):
        space(leaf)


@pytest.mark.parametrize("leaves", [(BOX,), (MULTI,), (DISCRETE, BINARY)])
def test_value_based_agents_take_one_discrete_action(leaves: tuple[TensorSpec, ...]) -> None:
    """Other action spaces are an error that says what was expected and what was got."""
    with pytest.raises(ConfigError, match=r"agent r2d2 expects one integer of shape \(\), got action/"):
        DiscreteActions.of(EnvironmentSpec("test", (STATE,), leaves), "r2d2")
