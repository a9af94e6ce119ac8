"""Frame stacks against a loop over environments and steps."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from seedrl_learner.networks.frame_stack import stack_frames, to_blocks

B, S = 5, 6
FIRST = np.array(
    [[0, 0, 0, 0, 0, 0], [1, 0, 0, 0, 0, 0], [0, 0, 1, 0, 0, 0], [0, 1, 1, 0, 0, 1], [0, 0, 0, 0, 0, 1]], np.bool_
)
STACK_AGE = np.array([3, 0, 1, 0, 2], np.int32)


def oracle(frames: np.ndarray, depth: int) -> list[list[list[np.ndarray]]]:
    """For each environment and step the list of its `depth` frames, oldest first, found by walking back."""
    result = []
    for b in range(B):
        rows = []
        for t in range(S):
            stack, step = [], t
            for _ in range(depth):
                stack.insert(0, frames[b, depth - 1 + step])
                is_start = FIRST[b, step] if step >= 0 else False
                at_oldest = step <= 0 and not is_start and -step >= min(STACK_AGE[b], depth - 1)
                if not is_start and not at_oldest:
                    step -= 1
            rows.append(stack)
        result.append(rows)
    return result


@pytest.mark.parametrize("depth", [2, 4])
@pytest.mark.parametrize(("shape", "axis"), [((), "new"), ((3,), "last"), ((3, 2), "new"), ((3, 2, 3), "last")])
def test_stacks_hold_the_newest_frames_of_the_episode(depth: int, shape: tuple[int, ...], axis: str) -> None:
    """Whatever the rank, with resets inside the unroll and episodes that began shortly before it."""
    frames = np.arange(B * (depth - 1 + S) * int(np.prod(shape))).reshape(B, depth - 1 + S, *shape)
    join = (lambda stack: np.stack(stack, -1)) if axis == "new" else (lambda stack: np.concatenate(stack, -1))
    expected = np.array([[join(stack) for stack in row] for row in oracle(frames, depth)])
    got = stack_frames(tf.constant(frames, tf.int32), tf.constant(FIRST), tf.constant(np.minimum(STACK_AGE, depth - 1)))
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("channels", [1, 2, 8])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_blocks_hold_their_pixels_row_by_row(channels: int, dtype: type) -> None:
    """Against a loop, with a border that fills no block and leading dimensions of any number."""
    image = np.arange(2 * 3 * 9 * 14 * channels).reshape(2, 3, 9, 14, channels).astype(dtype)
    got = to_blocks(tf.constant(image), 4)
    assert got.shape == (2, 3, 2, 3, 16 * channels)
    for y in range(2):
        for x in range(3):
            block = image[:, :, 4 * y : 4 * y + 4, 4 * x : 4 * x + 4].reshape(2, 3, -1)
            np.testing.assert_array_equal(got[:, :, y, x], block)


@pytest.mark.parametrize("channels", [3, 8, 16])
def test_stacks_of_bytes_are_those_of_numbers(channels: int) -> None:
    """Moved as words or one by one, bytes end up where other dtypes do."""
    frames = np.random.default_rng(0).integers(0, 256, (B, 3 + S, 2, 3, channels), np.uint8)
    first, age = tf.constant(FIRST), tf.constant(STACK_AGE)
    as_numbers = stack_frames(tf.constant(frames.astype(np.int32)), first, age)
    np.testing.assert_array_equal(stack_frames(tf.constant(frames), first, age), as_numbers)


def test_a_window_for_inference_gives_the_same_stacks_as_the_unroll() -> None:
    """Each step of an unroll, given alone as a window with its age, is stacked in the same way."""
    frames = tf.reshape(tf.range(B * (3 + S) * 4), [B, 3 + S, 2, 2])
    unroll = stack_frames(frames, tf.constant(FIRST), tf.constant(STACK_AGE))
    age = STACK_AGE
    for t in range(S):
        age = np.where(FIRST[:, t], 0, np.minimum(age + 1, 3) if t else age).astype(np.int32)
        step = stack_frames(frames[:, t : t + 4], tf.constant(FIRST[:, t : t + 1]), tf.constant(age))
        np.testing.assert_array_equal(step[:, 0], unroll[:, t])
