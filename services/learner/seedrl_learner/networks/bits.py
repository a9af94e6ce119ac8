"""Leaves that travel and are stored as bits become arrays of bytes here, where the network takes them in."""

from __future__ import annotations

import math

import numpy as np
import tensorflow as tf

from seedrl_core.spec import TensorSpec

# Of each value of a byte, its eight bits as bytes of 0 and 255, the highest bit first: to look them up takes half the
# time of shifts and masks.
_BITS = np.unpackbits(np.arange(256, dtype=np.uint8)[:, np.newaxis], axis=1) * np.uint8(255)


def unpack(values: tf.Tensor, leaf: TensorSpec) -> tf.Tensor:
    """Values [..., *shape] of a leaf as `leaf.unpacked` describes it; those of a leaf without bits are returned.

    They keep the dtype of `values`. At most one of the dimensions before the leaf's may be unknown when tracing.
    """
    if not leaf.bits:
        return values
    leading = [-1 if size is None else size for size in values.shape[:-1]]
    bits = tf.gather(tf.constant(_BITS, values.dtype), tf.cast(values, tf.int32))
    bits = tf.reshape(bits, [*leading, 8 * leaf.size])
    count = math.prod(leaf.bits)
    return tf.reshape(bits if count == bits.shape[-1] else bits[..., :count], [*leading, *leaf.bits])
