"""Recurrent cores: from features over time to features over time, with a clean state at every FIRST."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import tensorflow as tf

from seedrl_learner.networks.layers import Dense, orthogonal

CoreState = tuple[tf.Tensor, ...]


class Core(Protocol):
    """Maps features [B, S, inputs] to [B, S, output_size], step by step."""

    output_size: int
    state_sizes: tuple[int, ...]

    def __call__(self, x: tf.Tensor, first: tf.Tensor, state: CoreState) -> tuple[tf.Tensor, CoreState]:
        """Outputs of S steps and the state after the last.

        Args:
          x: [B, S, inputs].
          first: [B, S] bool; the state before such a step is zeros.
          state: [B, size] float32 each, before step 0.
        """


class NoCore(tf.Module):
    """Passes features on."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.output_size = inputs
        self.state_sizes: tuple[int, ...] = ()

    def __call__(self, x: tf.Tensor, first: tf.Tensor, state: CoreState) -> tuple[tf.Tensor, CoreState]:
        """See Core."""
        return x, state


class Lstm(tf.Module):
    """A long short-term memory (Hochreiter & Schmidhuber, 1997), forget bias 1.

    The inputs of all steps are projected in one product; what remains for each step is one product with the state. Its
    steps are laid out in the graph, which is several times faster than a loop in TensorFlow.
    """

    def __init__(self, inputs: int, size: int, rng: np.random.Generator, dtype: tf.DType) -> None:
        """`size` is that of output and cell; `dtype` the compute dtype, the state itself is float32."""
        super().__init__()
        self.output_size = size
        self.state_sizes = (size, size)
        self._dtype = dtype
        self._project = Dense(inputs, 4 * size, rng, dtype, 1.0)
        self.kernel = tf.Variable(orthogonal(rng, (size, 4 * size), 1.0), name="kernel")

    def __call__(self, x: tf.Tensor, first: tf.Tensor, state: CoreState) -> tuple[tf.Tensor, CoreState]:
        """See Core; S must be known when tracing."""
        assert x.shape.rank == 3, f"expected [B, S, inputs], got {x.shape}"
        projected = tf.cast(self._project(x), tf.float32)
        kernel = tf.cast(self.kernel, self._dtype)
        keep = tf.cast(~first, tf.float32)[:, :, tf.newaxis]
        hidden, cell = state
        outputs = []
        for t in range(x.shape[1]):
            hidden, cell = hidden * keep[:, t], cell * keep[:, t]
            product = tf.cast(tf.matmul(tf.cast(hidden, self._dtype), kernel), tf.float32)
            hidden, cell = _lstm_step(projected[:, t] + product, cell)
            outputs.append(hidden)
        return tf.stack(outputs, axis=1), (hidden, cell)


def _lstm_step(gates: tf.Tensor, cell: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Gates [B, 4 * size] before their nonlinearities, and cell [B, size] -> hidden, cell."""
    input_gate, forget_gate, output_gate, candidate = tf.split(gates, 4, axis=-1)
    cell = tf.sigmoid(forget_gate + 1.0) * cell + tf.sigmoid(input_gate) * tf.tanh(candidate)
    return tf.sigmoid(output_gate) * tf.tanh(cell), cell
