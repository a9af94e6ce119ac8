"""Spaces as leaves: dtypes, bounds, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from seedrl_actor.spaces import action_leaves, environment_actions, observation_leaves, write_observation
from seedrl_core.errors import BadRequest, EnvironmentFailed


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [(np.uint8, "uint8"), (np.int64, "int64"), (np.float16, "float32"), (np.float64, "float32"), (np.bool_, "bool")],
)
def test_dtype_of_a_box(dtype: Any, expected: str) -> None:
    """Integers keep their dtype, floats travel as float32."""
    (leaf,) = observation_leaves(spaces.Box(0, 1, (3, 2), dtype))
    assert (leaf.path, leaf.dtype.name, leaf.shape) == ("observation", expected, (3, 2))


def test_bounds_are_as_short_as_can_be() -> None:
    """Equal bounds are one value, none stand for unbounded, others are one an element in C order."""
    (image,) = observation_leaves(spaces.Box(0, 255, (4, 4), np.uint8))
    assert (image.low, image.high) == ((0.0,), (255.0,))
    mixed = spaces.Box(np.array([-1, -np.inf], np.float32), np.array([np.inf, np.inf], np.float32))
    (vector,) = observation_leaves(mixed)
    assert (vector.low, vector.high) == ((-1.0, -np.inf), ())


@pytest.mark.parametrize("space", [spaces.Discrete(3), spaces.Tuple((spaces.Discrete(2),)), spaces.Text(4)])
def test_other_observation_spaces_are_refused(space: Any) -> None:
    """The error names the space and what is supported."""
    with pytest.raises(BadRequest, match="observation space: expected a Box, got"):
        observation_leaves(space)


@pytest.mark.parametrize("space", [spaces.Box(-1, 1, (2,)), spaces.MultiDiscrete([2, 3])])
def test_other_action_spaces_are_refused(space: Any) -> None:
    """The error names the space and what is supported."""
    with pytest.raises(BadRequest, match="action space: expected a Discrete, got"):
        action_leaves(space)


def test_actions_become_what_the_space_contains() -> None:
    """A decoded action is accepted by the Discrete space it was made for."""
    space = spaces.Discrete(3, start=-1)
    (leaf,) = action_leaves(space)
    assert (leaf.low, leaf.high) == ((-1,), (1,))
    assert all(space.contains(action) for action in environment_actions((np.array([-1, 0, 1], np.int64),)))


def test_an_observation_of_another_dtype_is_cast_only_where_it_is_safe() -> None:
    """float64 fits a float32 leaf; floats in an integer leaf are an error that names both."""
    leaves = observation_leaves(spaces.Box(-9, 9, (2,), np.float32))
    rows = (np.zeros((3, 2), np.float32),)
    write_observation([1.5, 2.5], leaves, rows, 1)
    np.testing.assert_array_equal(rows[0], [[0, 0], [1.5, 2.5], [0, 0]])
    integers = observation_leaves(spaces.Box(-9, 9, (2,), np.int32))
    with pytest.raises(EnvironmentFailed, match=r"observation: expected int32 \(2,\), got float64"):
        write_observation(np.array([1.5, 2.5]), integers, (np.zeros((3, 2), np.int32),), 2)
