"""Football through real processes, on a stand-in for its package that only the actors' interpreter has."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from local_runs import call, last_json

pytestmark = pytest.mark.integration

FAKE = Path(__file__).parents[1] / "fake_gfootball"
SCENARIO = "football/academy_empty_goal_close"


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """An interpreter that has the package."""
    path = tmp_path / "python"
    path.write_text(f'#!/bin/sh\nPYTHONPATH="{FAKE}:$PYTHONPATH" exec {sys.executable} "$@"\n')
    path.chmod(0o700)
    return path


def test_a_run_and_its_evaluation(tmp_path: Path, python: Path) -> None:
    """Actors have their own interpreter in both; planes of bits reach the network, and evaluations count goals."""
    run_dir = tmp_path / "run"
    small = ("--actors", "1", "--envs-per-actor", "4", "--set", "actor.env_kwargs.rewards=scoring,checkpoints")
    settings = ("--env-steps", "600", "--json", *small, "--set", f"actor.python={python}")
    trained = call("train", SCENARIO, "--run-dir", run_dir, *settings)
    assert trained.returncode == 0, trained.stderr
    assert last_json(trained.stdout)["mean_return"] > 0, "checkpoints are earned by running, now and then"
    evaluated = call("eval", run_dir, "--episodes", "8", "--json")
    assert evaluated.returncode == 0, evaluated.stderr
    result = last_json(evaluated.stdout)
    assert result["episodes"] == 8
    assert {result["min_return"], result["max_return"]} <= {0.0, 1.0}
    state = next((run_dir / "checkpoints").glob("*/state.json"))
    (leaf,) = json.loads(state.read_text())["spec"]["observation"]
    assert (leaf["shape"], leaf["bits"]) == ([3456], [72, 96, 4])


def test_the_launchers_interpreter_has_no_football(tmp_path: Path) -> None:
    """Without actor.python the run ends with one line that says what to do."""
    done = call("train", SCENARIO, "--run-dir", tmp_path / "run", "--actors", "1")
    assert done.returncode != 0
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert "expected the module gfootball in the actor's environment; deploy/install-football" in line
