"""What the summary says of a run's speed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from seedrl_core.config import LearnerConfig
from seedrl_learner.reporter import Reporter
from seedrl_learner.run import Run


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A run that has just been started."""
    return Run(LearnerConfig(run_dir=tmp_path))


def speed_in_summary(reporter: Reporter, run: Run) -> float:
    """What the summary says."""
    reporter.write_summary()
    speed: float = json.loads((run.config.run_dir / "summary.json").read_text())["env_steps_per_s"]
    return speed


def test_a_run_within_one_window_has_a_speed(run: Run) -> None:
    """All its env steps over the time since the start: there is no later window to count from."""
    reporter = Reporter(run)
    run.progress.env_steps = 500
    run.metrics.count("env_steps_per_s", 500)
    run.started -= 10.0
    reporter.report(num_envs=1)
    assert speed_in_summary(reporter, run) == pytest.approx(50.0, rel=0.1)


def test_the_start_does_not_count(run: Run) -> None:
    """Counted from the end of the first window with env steps, however long it took to get there."""
    reporter = Reporter(run)
    run.started -= 1000.0
    run.progress.env_steps = 500
    run.metrics.count("env_steps_per_s", 500)
    reporter.report(num_envs=1)
    run.progress.env_steps = 1500
    assert speed_in_summary(reporter, run) > 100.0


def test_a_run_without_a_step_has_none(run: Run) -> None:
    """Zero, not an error."""
    assert speed_in_summary(Reporter(run), run) == 0.0
