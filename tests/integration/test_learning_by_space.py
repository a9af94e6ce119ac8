"""Every kind of space is learned to near the best return, which is known, in a few thousand steps."""

from __future__ import annotations

import pytest
from in_process_training import InProcess
from space_environments import KINDS, LENGTH

pytestmark = pytest.mark.integration

# Env steps, and the least share of the best return; guessing earns at most half of it.
NEEDED = {"Box": (60_000, 0.9), "Nested": (40_000, 0.93)}
USUALLY = (20_000, 0.97)


@pytest.mark.parametrize("kind", [kind.__name__ for kind in KINDS])
def test_the_right_actions_are_learned(kind: str) -> None:
    """Greedy episodes after training earn nearly all that there is. An action outside of its space would fail."""
    env_steps, share = NEEDED.get(kind, USUALLY)
    run = InProcess(
        f"{kind}-v0",
        env_steps,
        actor__env_import="space_environments",
        learner__vtrace__discount=0.5,
        learner__optimizer__learning_rate=3e-3,
    )
    run.train()
    assert run.evaluate(64) > share * LENGTH
