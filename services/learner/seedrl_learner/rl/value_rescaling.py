"""Value rescaling: one network learns returns of any size from raw rewards (Pohlen et al., arXiv 1805.11593)."""

from __future__ import annotations

import tensorflow as tf


def rescale(x: tf.Tensor, epsilon: float) -> tf.Tensor:
    """h(x) = sign(x) (sqrt(|x| + 1) - 1) + epsilon x, elementwise; section 3.2.

    sqrt(1 + a) - 1 is computed as a / (sqrt(1 + a) + 1), which keeps all digits of a small a.
    """
    return x / (tf.sqrt(tf.abs(x) + 1.0) + 1.0) + epsilon * x


def unrescale(y: tf.Tensor, epsilon: float) -> tf.Tensor:
    """The inverse of `rescale`, elementwise; epsilon > 0; proposition A.2.

    The closed form is sign(y) (u^2 - 1) with

        u = (s - 1) / (2 epsilon),    s = sqrt(1 + 4 epsilon (|y| + 1 + epsilon)).

    Both differences cancel in float32. Since s = 1 + 2 epsilon at y = 0, they can be written without a cancellation:

        u - 1 = 2 |y| / (s + 1 + 2 epsilon),    u^2 - 1 = (u - 1) (u - 1 + 2).
    """
    size = tf.abs(y)
    s = tf.sqrt((1.0 + 2.0 * epsilon) ** 2 + 4.0 * epsilon * size)
    slope = 2.0 / (s + 1.0 + 2.0 * epsilon)
    return y * slope * (size * slope + 2.0)
