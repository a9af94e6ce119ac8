"""Functions of tensors that are traced once."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
import tensorflow as tf

from seedrl_learner.traced import Traced


class Pair(NamedTuple):
    """Arguments as agents take them: nested, with empty parts."""

    values: tuple[tf.Tensor, ...]
    nothing: tuple[tf.Tensor, ...]


def doubled(pair: Pair, by: tf.Tensor) -> dict[str, tf.Tensor | tuple[tf.Tensor, ...] | None]:
    """Keeps the structure in what it returns."""
    return {"values": tuple(value * by for value in pair.values), "none": None}


@pytest.mark.parametrize("given", [True, False])
def test_a_function_is_traced_once_and_returns_its_structure(given: bool) -> None:
    """For any number of rows where the signature says so; NumPy arrays are as good as tensors."""
    traces = []

    def function(pair: Pair, by: tf.Tensor) -> dict[str, tf.Tensor | tuple[tf.Tensor, ...] | None]:
        traces.append(pair)
        return doubled(pair, by)

    signature = [Pair((tf.TensorSpec([None], tf.float32),), ()), tf.TensorSpec([], tf.float32)]
    traced = Traced(function, signature if given else None)
    for rows in (2, 3) if given else (2, 2):
        for values in (np.ones(rows, np.float32), tf.ones(rows)):
            result = traced(Pair((values,), ()), tf.constant(3.0))
            np.testing.assert_array_equal(result["values"][0], np.full(rows, 3.0))
            assert result["none"] is None
    assert len(traces) == 1


def test_another_dtype_is_an_error() -> None:
    """Not another trace, which would cost seconds each time, nor a silent conversion."""
    traced = Traced(lambda x: x * 2)
    traced(np.ones(2, np.float32))
    with pytest.raises(tf.errors.InvalidArgumentError):
        traced(np.ones(2, np.float64))


def test_variables_change_in_the_order_of_the_function() -> None:
    """As with any tf.function."""
    variable = tf.Variable(1.0)

    def function(x: tf.Tensor) -> tf.Tensor:
        before = variable.read_value()
        variable.assign_add(x)
        return before

    traced = Traced(function)
    assert [float(traced(np.float32(2.0))) for _ in range(3)] == [1.0, 3.0, 5.0]
