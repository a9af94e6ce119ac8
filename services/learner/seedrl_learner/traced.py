"""Functions of tensors that are traced once, for callers of many small batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf


class Traced:
    """A function of nested tensors or NumPy arrays, traced at its first call, for that signature alone.

    A tf.function examines the whole structure of its arguments at each call to find the right trace. For the arguments
    of an inference step that takes a millisecond of Python, as long as inference itself in a small network.
    """

    def __init__(self, function: Callable[..., Any], signature: Sequence[Any] | None = None) -> None:
        """`signature`: nested TensorSpecs of the arguments; None takes it from those of the first call."""
        self._function = function
        self._signature = signature
        self._concrete: Callable[..., Any] | None = None

    def __call__(self, *arguments: Any) -> Any:
        """What the function returns, as tensors.

        Shapes are the caller's business: those of other arguments than the signature's are not looked at.

        Raises:
          tf.errors.InvalidArgumentError: another dtype.
        """
        tensors = tf.nest.map_structure(tf.convert_to_tensor, arguments)
        if self._concrete is None:
            signature = self._signature or tf.nest.map_structure(tf.TensorSpec.from_tensor, tensors)
            traced = tf.function(self._function, input_signature=signature, autograph=False)
            self._concrete = traced.get_concrete_function()
        return self._concrete(*tensors)
