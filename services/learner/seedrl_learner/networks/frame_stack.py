"""Frame stacks from single frames. One function serves inference and training, so both see the same stacks."""

from __future__ import annotations

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
    stacks = tf.transpose(stacks, [0, 2, 1, 3])
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
