"""Pictures of a training batch: its images as the network gets them, frame stacks side by side."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from seedrl_core.spec import EnvironmentSpec
from seedrl_learner.batch import UnrollBatch
from seedrl_learner.networks.encoder import is_image
from seedrl_learner.networks.frame_stack import stack_frames

MOST_ROWS = 4


def batch_pictures(batch: UnrollBatch, spec: EnvironmentSpec, stacked: Sequence[bool]) -> dict[str, tf.Tensor]:
    """The last step of the first unrolls, a picture each.

    Args:
      batch: of the environment of `spec`.
      spec: its leaves.
      stacked: of each observation leaf, whether its frames are stacked.

    Returns:
      For each leaf that is an image, by its path: [rows, height, frames * width, 3] uint8 in colour, or
      [rows, height, frames * channels * width, 1] where it has another number of channels; oldest frame left.
    """
    first, age = tf.constant(batch.first[:MOST_ROWS]), tf.constant(batch.stack_age[:MOST_ROWS])
    pictures = {}
    for leaf, values, is_stacked in zip(spec.observation, batch.observation, stacked, strict=True):
        if not is_image(leaf):
            continue
        frames = tf.constant(values[:MOST_ROWS])
        newest = stack_frames(frames, first, age)[:, -1] if is_stacked else frames[:, -1]
        channels = leaf.shape[2] if len(leaf.shape) == 3 else 1
        pictures[leaf.path] = _side_by_side(newest, leaf.shape[:2], 3 if channels == 3 else 1)
    return pictures


def _side_by_side(image: tf.Tensor, size: Sequence[int], channels: int) -> tf.Tensor:
    """[rows, height, width, parts * channels] -> [rows, height, parts * width, channels]."""
    height, width = size
    parts = tf.reshape(image, [-1, height, width, tf.size(image[0]) // (height * width * channels), channels])
    return tf.reshape(tf.transpose(parts, [0, 1, 3, 2, 4]), [parts.shape[0], height, -1, channels])
