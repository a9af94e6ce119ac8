"""Leaves of an observation that are no images, as rows of features: numbers, categories, tokens."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import tensorflow as tf

from seedrl_core.errors import ConfigError
from seedrl_core.spec import TensorSpec
from seedrl_learner.networks.cores import Lstm

MAX_ONE_HOT = 4096
MAX_VOCABULARY = 1 << 16
MAX_TOKENS = 1 << 10
EMBEDDING_SIZE = 32
# Of an instruction; the sizes are those of IMPALA.
MAX_WORDS = 64
WORD_SIZE = 20
INSTRUCTION_SIZE = 64
# Elements of a leaf that a layer takes one by one.
MAX_ELEMENTS = 1 << 18


class LeafLayer(Protocol):
    """Maps rows of one leaf, [rows, *input_shape] in its dtype, to features [rows, output_size]."""

    input_shape: tuple[int, ...]
    output_size: int

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        """See LeafLayer."""


def leaf_layer(leaf: TensorSpec, rng: np.random.Generator, dtype: tf.DType) -> LeafLayer:
    """The layer for a leaf; `dtype` is the compute dtype.

    Bounded int32 and int64 leaves (Discrete, MultiDiscrete, tokens) are categories: one-hot where that is small, an
    embedding for vectors of a larger vocabulary. The words of an instruction are read one after the other. Anything
    else is numbers.

    Raises:
      ConfigError: the leaf is too large.
    """
    if leaf.size > MAX_ELEMENTS:
        raise ConfigError(
            f"{leaf.path}: expected at most {MAX_ELEMENTS} elements of a leaf that is no image, got {leaf.size}"
        )
    low, high = leaf.bounds
    if leaf.is_instruction and leaf.size <= MAX_WORDS and high[0] < MAX_VOCABULARY:
        return Instruction(leaf, rng, dtype)
    if leaf.dtype.name in ("int32", "int64") and np.isfinite(low).all() and np.isfinite(high).all():
        sizes = high - low + 1
        if sizes.sum() <= MAX_ONE_HOT:
            return OneHot(leaf, dtype)
        if (
            len(leaf.shape) <= 1
            and leaf.size <= MAX_TOKENS
            and len(set(low)) == len(set(high)) == 1
            and sizes[0] <= MAX_VOCABULARY
        ):
            return Embedding(leaf, rng, dtype)
    return Numbers(leaf, dtype)


class Numbers(tf.Module):
    """Numbers as they are; bounded integers, bytes above all, scaled to 0..1."""

    def __init__(self, leaf: TensorSpec, dtype: tf.DType) -> None:
        super().__init__()
        self.output_size = leaf.size
        self.input_shape: tuple[int, ...] = (self.output_size,)
        self._dtype = dtype
        low, high = leaf.bounds
        if leaf.dtype.name == "uint8":
            low, high = np.maximum(low, 0.0), np.minimum(high, 255.0)
        with np.errstate(all="ignore"):  # of infinite bounds
            extent = high - low
        scaled = leaf.is_integer & np.isfinite(extent) & (extent > 0)
        self._low = np.where(scaled, low, 0.0).astype(np.float32)
        self._scale = (1.0 / np.where(scaled, extent, 1.0)).astype(np.float32)
        self._is_plain = not scaled.any()

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        """See LeafLayer."""
        if self._is_plain:
            return tf.cast(x, self._dtype)
        return tf.cast((tf.cast(x, tf.float32) - self._low) * self._scale, self._dtype)


class OneHot(tf.Module):
    """One unit for each value of each element; a value outside of the bounds is all zeros."""

    def __init__(self, leaf: TensorSpec, dtype: tf.DType) -> None:
        super().__init__()
        low, high = leaf.bounds
        self.input_shape: tuple[int, ...] = (leaf.size,)
        # The value of each unit, and which element it looks at.
        self._value = np.concatenate([np.arange(a, b + 1) for a, b in zip(low, high, strict=True)])
        self._element = np.repeat(np.arange(leaf.size), (high - low + 1).astype(np.int64))
        self.output_size = len(self._value)
        self._dtype = dtype

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        """See LeafLayer."""
        return tf.cast(tf.gather(x, self._element, axis=1) == tf.cast(self._value, x.dtype), self._dtype)


class Embedding(tf.Module):
    """A trained vector for each token, one after the other, so that their order counts."""

    def __init__(self, leaf: TensorSpec, rng: np.random.Generator, dtype: tf.DType) -> None:
        super().__init__()
        low, high = leaf.bounds
        self.input_shape: tuple[int, ...] = (leaf.size,)
        self.output_size = leaf.size * EMBEDDING_SIZE
        self._low = int(low[0])
        self._last = int(high[0]) - self._low
        self._dtype = dtype
        table = rng.standard_normal((self._last + 1, EMBEDDING_SIZE)) / np.sqrt(EMBEDDING_SIZE)
        self.table = tf.Variable(table.astype(np.float32), name="embedding")

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        """See LeafLayer. A token outside of the bounds counts as the nearest: it must not stop the learner."""
        token = tf.clip_by_value(tf.cast(x, tf.int64) - self._low, 0, self._last)
        return tf.reshape(tf.cast(tf.gather(self.table, token), self._dtype), [-1, self.output_size])


class Instruction(tf.Module):
    """A trained vector for each word, and an LSTM that reads them, as in IMPALA: its output after the last word.

    Without a word it is zeros.
    """

    def __init__(self, leaf: TensorSpec, rng: np.random.Generator, dtype: tf.DType) -> None:
        super().__init__()
        self.input_shape: tuple[int, ...] = leaf.shape
        self.output_size = INSTRUCTION_SIZE
        self._last = int(leaf.high[0])
        self._dtype = dtype
        table = rng.standard_normal((self._last + 1, WORD_SIZE)) / np.sqrt(WORD_SIZE)
        self.table = tf.Variable(table.astype(np.float32), name="embedding")
        self._core = Lstm(WORD_SIZE, INSTRUCTION_SIZE, rng, dtype)

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        """See LeafLayer. A word outside of the bounds counts as the nearest: it must not stop the learner."""
        word = tf.clip_by_value(x, 0, self._last)
        start = tuple(tf.zeros([tf.shape(x)[0], size]) for size in self._core.state_sizes)
        read, _ = self._core(tf.gather(self.table, word), tf.zeros_like(word, tf.bool), start)
        num_words = tf.math.count_nonzero(word, axis=1)
        is_last = tf.one_hot(num_words - 1, x.shape[1], dtype=read.dtype)  # nowhere, if there is none
        return tf.cast(tf.reduce_sum(read * is_last[:, :, tf.newaxis], axis=1), self._dtype)
