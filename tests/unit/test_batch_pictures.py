"""Pictures of a batch show what the network gets."""

from __future__ import annotations

import numpy as np
import pytest

from seedrl_core.codec import FIRST
from seedrl_core.spec import EnvironmentSpec, TensorSpec
from seedrl_learner.batch import UnrollBatch
from seedrl_learner.batch_pictures import batch_pictures

ACTION = TensorSpec("action", np.dtype(np.int64), (), (0.0,), (1.0,))
B, STEPS, STACK = 5, 3, 4
SIZE = (40, 36)


def batch(shape: tuple[int, ...], frames: int, starts_at: int | None = None) -> UnrollBatch:
    """Frame t is all t; an episode begins at step `starts_at`, or long before."""
    values = np.zeros((B, frames, *shape), np.uint8)
    values += np.arange(frames, dtype=np.uint8).reshape(1, frames, *[1] * len(shape))
    flags = np.zeros((B, STEPS), np.uint8)
    if starts_at is not None:
        flags[:, starts_at] = FIRST
    nothing = np.zeros((B, STEPS), np.float32)
    age = np.full(B, STACK - 1, np.int32)
    return UnrollBatch((values,), nothing, flags, (), (), (), age, (), nothing, nothing[:, 0])


@pytest.mark.parametrize(
    ("starts_at", "shown"), [(None, [2, 3, 4, 5]), (1, [4, 4, 4, 5]), (2, [5, 5, 5, 5]), (0, [3, 3, 4, 5])]
)
@pytest.mark.parametrize("shape", [SIZE, (*SIZE, 1), (*SIZE, 3)])
def test_the_frames_of_the_last_step_stand_side_by_side(
    shape: tuple[int, ...], starts_at: int | None, shown: list[int]
) -> None:
    """Oldest left; none of another episode."""
    spec = EnvironmentSpec("e", (TensorSpec("observation", np.dtype(np.uint8), shape),), (ACTION,))
    pictures = batch_pictures(batch(shape, STACK - 1 + STEPS, starts_at), spec, (True,))
    picture = pictures["observation"].numpy()
    channels = 3 if shape[2:] == (3,) else 1
    assert picture.shape == (4, SIZE[0], STACK * SIZE[1], channels)
    expected = np.repeat(shown, SIZE[1])[np.newaxis, np.newaxis, :, np.newaxis]
    np.testing.assert_array_equal(picture, np.broadcast_to(expected, picture.shape))


def test_other_channels_stand_side_by_side() -> None:
    """Four planes are no colours."""
    spec = EnvironmentSpec("e", (TensorSpec("observation/map", np.dtype(np.uint8), (*SIZE, 4)),), (ACTION,))
    planes = batch((*SIZE, 4), STEPS)
    planes.observation[0][..., 2] = 200
    picture = batch_pictures(planes, spec, (False,))["observation/map"].numpy()
    assert picture.shape == (4, SIZE[0], 4 * SIZE[1], 1)
    np.testing.assert_array_equal(picture[0, 0, :: SIZE[1], 0], [2, 2, 200, 2])


def test_what_is_no_image_has_no_picture() -> None:
    """Vectors have none."""
    spec = EnvironmentSpec("e", (TensorSpec("observation", np.dtype(np.float32), (3,)),), (ACTION,))
    assert batch_pictures(batch((3,), STEPS), spec, (False,)) == {}
