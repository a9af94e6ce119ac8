"""Continuous control with the defaults for it: squashed Gaussians on normalized observations."""

from __future__ import annotations

import pytest
from in_process_training import InProcess

pytestmark = pytest.mark.integration

pytest.importorskip("mujoco", reason="needs seedrl[mujoco]")


@pytest.mark.timeout(600)
def test_inverted_pendulum_is_balanced() -> None:
    """After 200,000 steps without any setting the pole stays up for most of an episode's 1,000 steps."""
    run = InProcess("InvertedPendulum-v5", 200_000, num_envs=32)
    run.train()
    assert run.evaluate(32) > 800
