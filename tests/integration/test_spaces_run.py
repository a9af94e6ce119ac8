"""Spaces and a torso of one's own through the real command: `seedrl train`, then `seedrl eval` of its checkpoint."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from local_runs import call, last_json

pytestmark = pytest.mark.integration

TESTS = Path(__file__).parents[1]
EXAMPLE = TESTS.parent / "examples" / "custom_network"


def train_and_evaluate(run_dir: Path, env_id: str, *settings: str) -> dict[str, Any]:
    """The summary of an evaluation."""
    assignments = [word for setting in settings for word in ("--set", setting)]
    trained = call("train", env_id, "--run-dir", run_dir, "--env-steps", "40000", "--seed", "1", "--json", *assignments)
    assert trained.returncode == 0, trained.stderr
    evaluated = call("eval", run_dir, "--episodes", "40", "--json")
    assert evaluated.returncode == 0, evaluated.stderr
    return last_json(evaluated.stdout)


@pytest.fixture
def importable(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes the modules of a directory importable in the services."""
    return lambda directory: monkeypatch.setenv("PYTHONPATH", str(directory), prepend=os.pathsep)


def test_nested_spaces_over_the_wire(tmp_path: Path, importable: Any) -> None:
    """A Dict with a Tuple in it, of continuous and discrete leaves, both ways: nearly every answer is right."""
    importable(TESTS)
    result = train_and_evaluate(
        tmp_path / "run",
        "Nested-v0",
        "actor.env_import=space_environments",
        "learner.vtrace.discount=0.5",
        "learner.optimizer.learning_rate=3e-3",
        "learner.batch_unrolls=2",
        "learner.queue_unrolls=2",  # so that the policy lag is small on any machine
    )
    assert result["mean_return"] > 0.9 * 8


def test_the_example_of_a_torso_of_ones_own(tmp_path: Path, importable: Any) -> None:
    """Its command learns to catch the ball, and the evaluation builds the same torso again."""
    importable(EXAMPLE)
    result = train_and_evaluate(
        tmp_path / "run",
        "Catch-v0",
        "actor.env_import=catch",
        "learner.network.torso=board_torso:build",
        "learner.batch_unrolls=2",
        "learner.queue_unrolls=2",  # so that the policy lag is small on any machine
        "learner.optimizer.learning_rate=3e-3",
    )
    assert result["mean_return"] > 0.9
