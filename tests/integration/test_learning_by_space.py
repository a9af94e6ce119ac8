"""Every kind of space is learned to near the best return, which is known, in 20,000 steps."""

from __future__ import annotations

import pytest
from in_process_training import InProcess
from space_environments import KINDS, LENGTH

pytestmark = pytest.mark.integration

# The share of the best return that is asked for: numbers are never quite right. Guessing earns 0.25 to 0.78 of it.
SHARE = {"Box": 0.95, "Nested": 0.93}
# Learning rates; at that of the others the losses of several actions together fall back at times.
RATE = {"Nested": 1.5e-3}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", [kind.__name__ for kind in KINDS])
def test_the_right_actions_are_learned(kind: str) -> None:
    """Greedy episodes after training earn nearly all that there is. An action outside of its space would fail."""
    has_default = kind in ("ImageAndVector", "BitPlanes")
    rate = {} if has_default else {"learner__optimizer__learning_rate": RATE.get(kind, 3e-3)}
    run = InProcess(
        f"{kind}-v0",
        20_000,
        actor__env_import="space_environments",
        learner__batch_unrolls=2,
        learner__vtrace__discount=0.5,
        **rate,
    )
    run.train()
    assert run.evaluate(64) > SHARE.get(kind, 0.97) * LENGTH
