"""The actor's numbers."""

from __future__ import annotations

import numpy as np

from seedrl_actor.environments import Step
from seedrl_actor.stepping_metrics import SteppingMetrics
from seedrl_core.codec import FIRST, RESTARTED, TERMINATED, Episode


def test_resets_are_no_env_steps_and_replaced_environments_are_counted() -> None:
    """Of five rows two are resets, one of them of a replaced environment; sessions count while they are open."""
    metrics = SteppingMetrics({"actor_id": "host-0"})
    flags = np.array([0, FIRST, FIRST | RESTARTED, TERMINATED, 0], np.uint8)
    zeros = np.zeros(5, np.float32)
    with metrics.session(5, "run-1"):
        metrics.stepped(Step((zeros,), zeros, flags, (Episode(3, 1.0, 4),), restarts=2), env_ms=2.0)
        with metrics.waiting():
            pass
        assert metrics.readings().gauges == {"sessions": 1, "num_envs": 5}
        assert metrics.readings().info == {"actor_id": "host-0", "run": "run-1"}
    totals = metrics.totals()
    assert totals.counts == {
        "env_steps_per_s": 3,
        "episodes_per_s": 1,
        "restarted_rows_per_s": 1,
        "environment_restarts_per_s": 2,
    }
    assert totals.sums["environment/step_ms"] == 2.0
    assert totals.weights["answer_wait_ms"] == 1
    assert metrics.readings().gauges == {"sessions": 0, "num_envs": 0}
