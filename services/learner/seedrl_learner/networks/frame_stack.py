"""Frame stacks from single frames. One function serves inference and training, so both see the same stacks.

Moving bytes costs about as much as a convolution: what can be moved in larger words is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf


def stack_frames(frames: tf.Tensor, first: tf.Tensor, stack_age: tf.Tensor) -> tf.Tensor:
    """Stacks the K newest frames of each step's episode, oldest first, along the last axis.

    A frame from before the episode's first is replaced by that first one, so that stacks never cross a FIRST.

    Args:
      frames: [B, K-1+S, *shape] of any dtype, the K - 1 frames before step 0 and those of steps 0..S-1.
      first: [B, S] bool, the step's observation comes from a reset.
      stack_age: [B] int32, how many of the frames just before step 0 belong to its episode.

    Returns:
      [B, S, *shape, K] for frames of rank 0 or 2 (scalars, grey images), else [B, S, *shape[:-1], K * shape[-1]].
    """
    steps, shape = first.shape[1], frames.shape[2:]
    depth = frames.shape[1] - steps + 1
    back = tf.minimum(episode_age(first, stack_age)[:, :, tf.newaxis], tf.range(depth - 1, -1, -1))
    newest = tf.range(depth - 1, depth - 1 + steps)[:, tf.newaxis]
    stacks = tf.gather(frames, newest - back, axis=1, batch_dims=1)
    # One transposition of [rows, K, pixels, channels] is several times faster than tf.stack or tf.concat.
    channels = shape[-1] if shape.rank in (1, 3) else 1
    stacks = tf.reshape(stacks, [-1, depth, shape.num_elements() // channels, channels])
    stacks = _in_words(lambda x: tf.transpose(x, [0, 2, 1, 3]), stacks, tf.uint64)
    last = shape[:-1].as_list() if shape.rank in (1, 3) else shape.as_list()
    return tf.reshape(stacks, [-1, steps, *last, depth * channels])


def episode_age(first: tf.Tensor, stack_age: tf.Tensor) -> tf.Tensor:
    """Steps since the FIRST of each step's episode, as far as known.

    Args:
      first: [B, S] bool.
      stack_age: [B] int32, the least age of step 0; counts only where step 0 is not FIRST.

    Returns:
      [B, S] int32.
    """
    assert first.shape.rank == 2, f"expected [B, S], got {first.shape}"
    step = tf.range(first.shape[1])
    is_start = first[:, tf.newaxis, :] & (step[tf.newaxis, tf.newaxis, :] <= step[tf.newaxis, :, tf.newaxis])
    before_unroll = -stack_age[:, tf.newaxis]
    start = tf.reduce_max(tf.where(is_start, step, before_unroll[:, :, tf.newaxis]), axis=2)
    return step - start


def to_blocks(image: tf.Tensor, size: int) -> tf.Tensor:
    """Blocks of pixels as channels, so that a convolution of stride `size` on the image is one of stride 1 on blocks.

    Args:
      image: [..., height, width, channels]; what goes beyond the last whole block is cut off.
      size: height and width of a block.

    Returns:
      [..., height // size, width // size, size * size * channels], a block's pixels row by row.
    """
    height, width, channels = image.shape[-3] // size, image.shape[-2] // size, image.shape[-1]
    whole = image[..., : height * size, : width * size, :]
    rows = tf.reshape(whole, [-1, height, size, width, size * channels])
    blocks = _in_words(lambda x: tf.transpose(x, [0, 1, 3, 2, 4]), rows, tf.uint32)
    return tf.reshape(blocks, [*_leading(image), height, width, size * size * channels])


def _leading(image: tf.Tensor) -> list[Any]:
    """The dimensions before height; at most one is not known when tracing."""
    return [-1 if size is None else size for size in image.shape[:-3]]


def _in_words(transpose: Callable[[tf.Tensor], tf.Tensor], x: tf.Tensor, word: tf.DType) -> tf.Tensor:
    """`transpose(x)`, which must keep the last axis, with several bytes of it as one word where they fit."""
    if x.dtype != tf.uint8 or x.shape[-1] % word.size:
        return transpose(x)
    words = tf.bitcast(tf.reshape(x, [*tf.unstack(tf.shape(x)[:-1]), x.shape[-1] // word.size, word.size]), word)
    moved = transpose(words)
    return tf.reshape(tf.bitcast(moved, tf.uint8), [*tf.unstack(tf.shape(moved)[:-1]), x.shape[-1]])
