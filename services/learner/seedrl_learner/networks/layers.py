"""Dense and convolution layers: float32 variables, matrix work in the compute dtype, orthogonal initial kernels."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from seedrl_core.errors import ConfigError

RELU_SCALE = math.sqrt(2.0)
MAX_KERNEL = 1 << 26


def orthogonal(rng: np.random.Generator, shape: tuple[int, ...], scale: float) -> npt.NDArray[np.float32]:
    """A kernel [..., inputs, outputs] whose matrix [... * inputs, outputs] is orthogonal, times `scale`.

    Raises:
      ConfigError: it has more than MAX_KERNEL numbers, so that the environment is too large for the network.
    """
    rows, columns = math.prod(shape[:-1]), shape[-1]
    if rows * columns > MAX_KERNEL:
        raise ConfigError(
            f"learner.network: expected layers of at most {MAX_KERNEL} numbers, got one of {rows} x {columns}: the "
            "observation or the action space is too large for it"
        )
    # TensorFlow's, since threads of NumPy's that wait for each other take minutes where cores are scarce.
    q, r = tf.linalg.qr(rng.standard_normal((max(rows, columns), min(rows, columns))))
    q = q.numpy() * np.sign(np.diag(r.numpy()))
    matrix: npt.NDArray[np.float32] = (scale * (q if rows >= columns else q.T)).astype(np.float32)
    return matrix.reshape(shape)


class Dense(tf.Module):
    """y = x W + b on the last axis."""

    def __init__(self, inputs: int, outputs: int, rng: np.random.Generator, dtype: tf.DType, scale: float) -> None:
        """`scale` is that of the initial kernel; `dtype` the compute dtype."""
        super().__init__()
        self._dtype = dtype
        self.kernel = tf.Variable(orthogonal(rng, (inputs, outputs), scale), name="kernel")
        self.bias = tf.Variable(tf.zeros([outputs]), name="bias")

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        """[..., inputs] -> [..., outputs] in the compute dtype."""
        inputs, outputs = self.kernel.shape
        rows = tf.reshape(tf.cast(x, self._dtype), [-1, inputs])
        product = tf.nn.bias_add(tf.matmul(rows, tf.cast(self.kernel, self._dtype)), tf.cast(self.bias, self._dtype))
        return tf.reshape(product, [-1, *x.shape[1:-1], outputs])


class Conv(tf.Module):
    """Two-dimensional convolution of [rows, height, width, channels]."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        size: int,
        stride: int,
        padding: str,
        rng: np.random.Generator,
        dtype: tf.DType,
        *,
        scale: float = RELU_SCALE,
        input_scale: float = 1.0,
    ) -> None:
        """`input_scale` multiplies the inputs, at the price of scaling the kernel instead of every pixel."""
        super().__init__()
        self._stride = stride
        self._padding = padding
        self._dtype = dtype
        self._input_scale = input_scale
        self.kernel = tf.Variable(orthogonal(rng, (size, size, inputs, outputs), scale), name="kernel")
        self.bias = tf.Variable(tf.zeros([outputs]), name="bias")

    def __call__(self, x: tf.Tensor, minus: tf.Tensor | None = None) -> tf.Tensor:
        """[rows, height, width, inputs] -> [rows, height', width', outputs] in the compute dtype.

        With `minus` [height, width, inputs], x - minus is convolved, at the price of one more row.
        """
        kernel = tf.cast(self.kernel * self._input_scale, self._dtype)

        def convolve(rows: tf.Tensor) -> tf.Tensor:
            return tf.nn.conv2d(tf.cast(rows, self._dtype), kernel, self._stride, self._padding)

        if minus is None:
            return tf.nn.bias_add(convolve(x), tf.cast(self.bias, self._dtype))
        return convolve(x) + tf.cast(self.bias - tf.cast(convolve(minus[tf.newaxis]), tf.float32), self._dtype)
