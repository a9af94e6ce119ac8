"""Continuous control with the defaults for it: squashed Gaussians on normalized observations."""

from __future__ import annotations

import pytest
from in_process_training import InProcess

pytestmark = pytest.mark.integration

pytest.importorskip("mujoco", reason="needs seedrl[mujoco]")


@pytest.mark.timeout(600)
def test_inverted_pendulum_is_balanced() -> None:
    """After 150,000 steps with the defaults the pole stays up; without normalized values this seed never learned it."""
    # The steps of both threads in a fixed order, so that a busy machine learns the same.
    run = InProcess(
        "InvertedPendulum-v5", 150_000, num_envs=32, learner__deterministic=True, learner__seed=3, actor__seed=3
    )
    run.train()
    assert run.evaluate(32) >= 950
