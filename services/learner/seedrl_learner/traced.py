"""Functions of tensors that are traced once, for callers of many small batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf


class Traced:
    """A function of nested tensors or NumPy arrays, traced at its first call, for that signature alone.

    A tf.function examines the whole structure of its arguments at each call to find the right trace, and even the
    concrete function does so to cast them to its signature. For the arguments of an inference step that takes two
    milliseconds of Python, as long as inference itself in a small network; so the operation that calls a function is
    given the flat list of its inputs here.
    """

    def __init__(self, function: Callable[..., Any], signature: Sequence[Any] | None = None) -> None:
        """`signature`: nested TensorSpecs of the arguments; None takes it from those of the first call."""
        self._function = function
        self._signature = signature
        self._concrete: Any = None

    def __call__(self, *arguments: Any) -> Any:
        """What the function returns, as tensors.

        Structure and shapes are the caller's business: those of other arguments than the signature's are not looked at.

        Raises:
          tf.errors.InvalidArgumentError: another number of leaves, or another dtype.
        """
        if self._concrete is None:
            self._trace(arguments)
        leaves = tf.nest.flatten(arguments)
        returned = tf.raw_ops.StatefulPartitionedCall(args=leaves + self._captured, Tout=self._dtypes, f=self._concrete)
        values = iter(returned)
        return tf.nest.map_structure(lambda output: None if output is None else next(values), self._outputs)

    def _trace(self, arguments: tuple[Any, ...]) -> None:
        tensors = tf.nest.map_structure(tf.convert_to_tensor, arguments)
        signature = self._signature or tf.nest.map_structure(tf.TensorSpec.from_tensor, tensors)
        traced = tf.function(self._function, input_signature=signature, autograph=False)
        self._concrete = traced.get_concrete_function()
        self._captured = list(self._concrete.captured_inputs)
        self._outputs = self._concrete.structured_outputs
        self._dtypes = [output.dtype for output in self._concrete.outputs]
