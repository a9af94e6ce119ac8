"""Spaces as leaves: paths, dtypes, bounds, values from and to an environment, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from seedrl_actor.spaces import ActionSpace, ObservationSpace
from seedrl_core.errors import BadRequest, EnvironmentFailed
from seedrl_core.spec import Array

NESTED = spaces.Dict(
    {
        "arm": spaces.Tuple((spaces.Box(-1, 1, (2,), np.float32), spaces.Discrete(3, start=-1))),
        "flags": spaces.MultiBinary(4),
        "gear": spaces.MultiDiscrete([[2, 3], [4, 5]]),
        "speed": spaces.Box(0, 0.1, (), np.float64),
    }
)


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [(np.uint8, "uint8"), (np.int64, "int64"), (np.float16, "float32"), (np.float64, "float32"), (np.bool_, "bool")],
)
def test_dtype_of_an_observed_box(dtype: Any, expected: str) -> None:
    """Integers keep their dtype, floats travel as float32."""
    (leaf,) = ObservationSpace(spaces.Box(0, 1, (3, 2), dtype)).specs
    assert (leaf.path, leaf.dtype.name, leaf.shape) == ("observation", expected, (3, 2))


@pytest.mark.parametrize(("dtype", "expected"), [(np.float16, "float32"), (np.float64, "float64"), (np.int8, "int8")])
def test_dtype_of_an_action_box(dtype: Any, expected: str) -> None:
    """float64 stays: rounded to float32 a value might leave its bounds."""
    (leaf,) = ActionSpace(spaces.Box(0, 1, (3, 2), dtype)).specs
    assert (leaf.path, leaf.dtype.name) == ("action", expected)


def test_bounds_are_as_short_as_can_be() -> None:
    """Equal bounds are one value, none stand for unbounded, others are one an element in C order."""
    (image,) = ObservationSpace(spaces.Box(0, 255, (4, 4), np.uint8)).specs
    assert (image.low, image.high) == ((0.0,), (255.0,))
    mixed = spaces.Box(np.array([-1, -np.inf], np.float32), np.array([np.inf, np.inf], np.float32))
    (vector,) = ObservationSpace(mixed).specs
    assert (vector.low, vector.high) == ((-1.0, -np.inf), ())


def test_leaves_of_a_nested_space() -> None:
    """Paths follow keys and positions; integer leaves have the bounds of their space, start included."""
    leaves = [(leaf.path, leaf.dtype.name, leaf.shape, leaf.low, leaf.high) for leaf in ObservationSpace(NESTED).specs]
    assert leaves == [
        ("observation/arm/0", "float32", (2,), (-1.0,), (1.0,)),
        ("observation/arm/1", "int64", (), (-1.0,), (1.0,)),
        ("observation/flags", "int8", (4,), (0.0,), (1.0,)),
        ("observation/gear", "int64", (2, 2), (0.0,), (1.0, 2.0, 3.0, 4.0)),
        ("observation/speed", "float32", (), (0.0,), (pytest.approx(0.1),)),
    ]


def test_many_bits_travel_eight_in_a_byte() -> None:
    """In C order, the first in the highest bit; the last byte is filled up with zeros."""
    space = spaces.MultiBinary((31, 35))
    observations = ObservationSpace(spaces.Dict({"map": space}))
    (leaf,) = observations.specs
    assert (leaf.path, leaf.dtype.name, leaf.shape, leaf.bits) == ("observation/map", "uint8", (136,), (31, 35))
    assert (leaf.low, leaf.high) == ((), ())
    written = rows(observations, 2)
    space.seed(0)
    sample = space.sample()
    observations.write({"map": sample}, written, 1)
    expected = np.zeros(136, np.uint8)
    for index, bit in enumerate(sample.reshape(-1).tolist()):
        expected[index // 8] |= bit * (128 >> index % 8)
    np.testing.assert_array_equal(written[0][1], expected)
    np.testing.assert_array_equal(written[0][0], np.full(136, 7))
    observations.write({"map": sample.astype(np.bool_)}, written, 0)
    np.testing.assert_array_equal(written[0][0], expected)


@pytest.mark.parametrize(
    ("path", "space"), [("flags", spaces.MultiBinary(1023)), ("action_mask", spaces.MultiBinary(2048))]
)
def test_few_bits_and_masks_are_a_byte_each(path: str, space: Any) -> None:
    """Few are not worth it, and the values of a mask are asked for one by one. So are all bits of an action."""
    (leaf,) = ObservationSpace(spaces.Dict({path: space})).specs
    assert (leaf.dtype.name, leaf.shape, leaf.bits) == ("int8", space.shape, ())
    (action,) = ActionSpace(spaces.MultiBinary(2048)).specs
    assert (action.dtype.name, action.bits) == ("int8", ())


@pytest.mark.parametrize("value", [np.zeros((31, 34), np.int8), np.zeros(136, np.uint8), np.zeros((31, 35))])
def test_bits_of_another_shape_or_dtype_are_an_error(value: Array) -> None:
    """It says what the space expects, not what travels."""
    observations = ObservationSpace(spaces.MultiBinary((31, 35)))
    with pytest.raises(EnvironmentFailed, match=r"observation: expected int8 \(31, 35\), got "):
        observations.write(value, rows(observations, 1), 0)


@pytest.mark.parametrize("space", [spaces.Text(4), spaces.Dict({"a": spaces.Tuple((spaces.Text(4),))})])
def test_other_spaces_are_refused(space: Any) -> None:
    """The error names the leaf, what is supported and what was got."""
    expected = "expected Box, Discrete, MultiDiscrete, MultiBinary, or a Dict or Tuple of these, got Text"
    with pytest.raises(BadRequest, match=f"^observation(/a/0)?: {expected}"):
        ObservationSpace(space)
    with pytest.raises(BadRequest, match=f"^action(/a/0)?: {expected}"):
        ActionSpace(space)


def test_an_empty_dict_is_refused() -> None:
    """A space without a leaf is an error that names it."""
    with pytest.raises(BadRequest, match="observation/a: expected at least one space in it, got Dict"):
        ObservationSpace(spaces.Dict({"a": spaces.Dict({}), "b": spaces.Discrete(2)}))


def rows(space: ObservationSpace, num_envs: int) -> list[Array]:
    """Arrays for observations, filled with 7."""
    return [np.full((num_envs, *leaf.shape), 7, leaf.dtype) for leaf in space.specs]


@pytest.mark.parametrize(
    "space",
    [
        NESTED,
        spaces.Discrete(5, start=3),
        spaces.MultiDiscrete([2, 3], start=[5, -1]),
        spaces.MultiBinary((2, 2)),
        spaces.Box(-2, np.array([0.1, 3.0]), dtype=np.float64),
        spaces.Tuple((spaces.Box(0, 9, (2, 2), np.int32), spaces.Dict({"x": spaces.Discrete(2)}))),
    ],
)
def test_values_go_there_and_back(space: Any) -> None:
    """What is written from a sample and read as an action is in the space and equals the sample."""
    space.seed(0)
    observations, actions = ObservationSpace(space), ActionSpace(space)
    samples = [space.sample() for _ in range(5)]
    written = [np.zeros((5, *leaf.shape), leaf.dtype) for leaf in actions.specs]
    for env, sample in enumerate(samples):
        observations.write(sample, written, env)
    for value, sample in zip(actions.values(written), samples, strict=True):
        assert space.contains(value), value
        for one, other in zip(flatten(value), flatten(sample), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-6)


def flatten(value: Any) -> list[Any]:
    """The leaves of a nested value."""
    if isinstance(value, dict):
        value = tuple(value[key] for key in sorted(value))
    return [leaf for part in value for leaf in flatten(part)] if isinstance(value, tuple) else [value]


def test_actions_may_be_changed_by_the_environment() -> None:
    """An action array is writable and its own memory, also when it came as a read-only view of a message."""
    space = ActionSpace(spaces.Box(-1, 1, (2,), np.float32))
    message = np.frombuffer(np.ones((3, 2), np.float32).tobytes(), np.float32).reshape(3, 2)
    first, second, _ = space.values((message,))
    first += 1
    np.testing.assert_array_equal(second, [1, 1])


def test_an_observation_of_another_dtype_is_cast_only_where_it_is_safe() -> None:
    """float64 fits a float32 leaf; floats in an integer leaf are an error that names both."""
    space = ObservationSpace(spaces.Box(-9, 9, (2,), np.float32))
    arrays = rows(space, 3)
    space.write([1.5, 2.5], arrays, 1)
    np.testing.assert_array_equal(arrays[0], [[7, 7], [1.5, 2.5], [7, 7]])
    integers = ObservationSpace(spaces.Box(-9, 9, (2,), np.int32))
    with pytest.raises(EnvironmentFailed, match=r"observation: expected int32 \(2,\), got float64"):
        integers.write(np.array([1.5, 2.5]), rows(integers, 3), 2)


def test_a_missing_leaf_is_an_error_that_names_it() -> None:
    """A Dict without one of its keys, and an array where a Dict was declared."""
    space = ObservationSpace(spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Dict({"c": spaces.Discrete(2)})}))
    with pytest.raises(EnvironmentFailed, match=r"observation/b/c: expected a value under 'b', got keys \['a'\]"):
        space.write({"a": 1}, rows(space, 1), 0)
    with pytest.raises(EnvironmentFailed, match="observation/b/c: expected a value under 'c', got int"):
        space.write({"a": 1, "b": 3}, rows(space, 1), 0)
