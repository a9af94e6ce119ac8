"""Frame stacks against a loop over environments and steps."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from seedrl_learner.networks.frame_stack import stack_frames

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


def test_a_window_for_inference_gives_the_same_stacks_as_the_unroll() -> None:
    """Each step of an unroll, given alone as a window with its age, is stacked in the same way."""
    frames = tf.reshape(tf.range(B * (3 + S) * 4), [B, 3 + S, 2, 2])
    unroll = stack_frames(frames, tf.constant(FIRST), tf.constant(STACK_AGE))
    age = STACK_AGE
    for t in range(S):
        age = np.where(FIRST[:, t], 0, np.minimum(age + 1, 3) if t else age).astype(np.int32)
        step = stack_frames(frames[:, t : t + 4], tf.constant(FIRST[:, t : t + 1]), tf.constant(age))
        np.testing.assert_array_equal(step[:, 0], unroll[:, t])
