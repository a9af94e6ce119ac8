"""What a session refuses before it sends anything."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from seedrl_client.validation import check_flags, check_observation, check_reward
from seedrl_core.codec import FIRST, RESTARTED, TERMINATED, TRUNCATED
from seedrl_core.errors import BadRequest
from seedrl_core.spec import EnvironmentSpec, TensorSpec

SPEC = EnvironmentSpec(
    "Two-v0",
    (
        TensorSpec("observation/camera", np.dtype(np.uint8), (4, 4)),
        TensorSpec("observation/speed", np.dtype(np.float32), ()),
    ),
    (TensorSpec("action", np.dtype(np.int64), (), (0.0,), (1.0,)),),
)
CAMERA, SPEED = np.zeros((2, 4, 4), np.uint8), np.zeros(2, np.float32)


@pytest.mark.parametrize(
    ("observation", "message"),
    [
        (CAMERA, r"observation: expected 2 arrays \(observation/camera, observation/speed\), got 1"),
        ((CAMERA, SPEED[:1]), r"observation/speed: expected float32 \(2,\), got float32 \(1,\)"),
        ((CAMERA[:, :3], SPEED), r"observation/camera: expected uint8 \(2, 4, 4\), got uint8 \(2, 3, 4\)"),
        ((CAMERA.astype(np.int32), SPEED), r"observation/camera: expected uint8 .*, got int32"),
        ((CAMERA, [0.0, 1.0]), r"observation/speed: expected float32 .*, got float64"),
    ],
)
def test_a_wrong_leaf_is_named(observation: Any, message: str) -> None:
    """The error names the leaf, what was expected and what was got."""
    with pytest.raises(BadRequest, match=message):
        check_observation(observation, SPEC, 2)


def test_the_array_of_an_only_leaf_needs_no_tuple() -> None:
    """An array stands for a tuple of one."""
    spec = EnvironmentSpec("One-v0", SPEC.observation[:1], SPEC.action)
    assert check_observation(CAMERA, spec, 2)[0] is CAMERA


@pytest.mark.parametrize(
    ("reward", "message"),
    [
        (np.zeros((2, 1)), r"reward: expected numbers of shape \(2,\), got float64 \(2, 1\)"),
        (np.array([0.0, np.nan]), "got nan in environment 1"),
        (np.array([-np.inf, 0.0]), "got -inf in environment 0"),
        (np.array([0.0, 1e300]), r"expected finite float32 values, got 1e\+300 in environment 1"),
        (np.array(["a", "b"]), "reward: expected numbers"),
    ],
)
def test_wrong_rewards_are_refused(reward: Any, message: str) -> None:
    """Other shapes, and values that are not finite as float32, say where."""
    with pytest.raises(BadRequest, match=message):
        check_reward(reward, 2)


def test_rewards_of_any_number_type_become_float32() -> None:
    """Integers, float64 and lists are fine."""
    for reward in (np.array([1, 2]), np.array([1.0, 2.0]), [1, 2]):
        checked = check_reward(reward, 2)  # type: ignore[arg-type]
        assert checked.dtype == np.float32
        assert checked.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("flags", "previous", "message"),
    [
        ([FIRST, 0], None, "the first tick of a session must be FIRST, got 0 in environment 1"),
        ([0, 0], [0, TRUNCATED], "the tick after an ending must be FIRST, got 0 in environment 1"),
        ([FIRST | TERMINATED, 0], [0, 0], "FIRST and an ending cannot share a tick"),
        ([0, RESTARTED], [0, 0], "RESTARTED needs FIRST, got 8 in environment 1"),
        ([16, 0], [0, 0], "expected only FIRST, TERMINATED, TRUNCATED and RESTARTED, got 16 in environment 0"),
        ([-1, 0], [0, 0], "got -1 in environment 0"),
        ([0], [0, 0], r"flags: expected uint8 of shape \(2,\)"),
    ],
)
def test_flags_must_make_episodes(flags: list[int], previous: list[int] | None, message: str) -> None:
    """Unknown bits and impossible orders name the environment."""
    before = None if previous is None else np.array(previous, np.uint8)
    with pytest.raises(BadRequest, match=message):
        check_flags(np.array(flags), before, 2)


def test_good_flags_pass() -> None:
    """Endings, resets after them and replaced environments are fine."""
    previous = np.array([TERMINATED, 0, 0, TRUNCATED], np.uint8)
    flags = np.array([FIRST, TERMINATED | TRUNCATED, FIRST | RESTARTED, FIRST], np.int64)
    checked = check_flags(flags, previous, 4)
    assert checked.dtype == np.uint8
    assert checked.tolist() == flags.tolist()
