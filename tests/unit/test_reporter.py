"""What metrics and summary say of a run's speed and returns, and that a full disk spoils neither."""

from __future__ import annotations

import json
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from seedrl_core.config import LearnerConfig
from seedrl_core.spec import EnvironmentSpec, TensorSpec
from seedrl_learner.batch import UnrollBatch
from seedrl_learner.reporter import Reporter
from seedrl_learner.run import Run

SPEC = EnvironmentSpec(
    "Counter-v0",
    (TensorSpec("observation", np.dtype(np.float32), (2,)),),
    (TensorSpec("action", np.dtype(np.int64), (), (0.0,), (1.0,)),),
)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A run that has just been started."""
    return Run(LearnerConfig(run_dir=tmp_path))


def summary(run: Run) -> dict[str, Any]:
    """What was written last."""
    values: dict[str, Any] = json.loads((run.config.run_dir / "summary.json").read_text())
    return values


def speed_in_summary(reporter: Reporter, run: Run) -> float:
    """What the summary says."""
    reporter.write_summary()
    speed: float = summary(run)["env_steps_per_s"]
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


def test_the_mean_return_is_told_human_normalized_too(run: Run) -> None:
    """In the metrics and in the summary, from the first episode on: 14.6 is what a person comes to in Pong."""
    reporter = Reporter(run)
    assert "episode/human_normalized_score" not in reporter.report(num_envs=1), "no environment is known yet"
    run.build(replace(SPEC, environment_id="ALE/Pong-v5"))
    assert "episode/human_normalized_score" not in reporter.report(num_envs=1), "no episode is over yet"
    reporter.write_summary()
    assert summary(run)["human_normalized_score"] is None
    run.progress.add_episode(14.6)
    run.progress.add_episode(-20.7)
    assert reporter.report(num_envs=1)["episode/human_normalized_score"] == pytest.approx(0.5)
    reporter.write_summary()
    assert summary(run)["human_normalized_score"] == pytest.approx(0.5)
    last = json.loads((run.config.run_dir / "metrics.jsonl").read_text().splitlines()[-1])
    assert last["episode/human_normalized_score"] == pytest.approx(0.5)


def test_an_environment_without_reference_scores_has_no_human_normalized_score(run: Run) -> None:
    """Not 0, which would be a random policy's."""
    run.build(SPEC)
    run.progress.add_episode(1.0)
    reporter = Reporter(run)
    assert "episode/human_normalized_score" not in reporter.report(num_envs=1)
    reporter.write_summary()
    assert summary(run)["human_normalized_score"] is None


@pytest.fixture(autouse=True)
def _no_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    """What tests print goes into a file, too, which the limit below would hold for."""
    monkeypatch.setattr("seedrl_learner.reporter._log.error", lambda *_, **__: None)


@contextmanager
def room_in(file: Path, num_bytes: int) -> Iterator[None]:
    """Files may be no larger than this file and `num_bytes` more, as on a disk that is nearly full."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (file.stat().st_size + num_bytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def num_open(directory: Path) -> int:
    """How many files of this directory this process has open, deleted ones too."""
    opened = [os.readlink(entry) for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink()]
    return sum(target.startswith(f"{directory}/") for target in opened)


def test_a_full_disk_spoils_nothing_that_is_written_later(run: Run) -> None:
    """Records that do not fit are left out whole; those before and after are there, in TensorBoard too."""
    run.build(SPEC)
    reporter = Reporter(run)
    metrics = run.config.run_dir / "metrics.jsonl"

    def report(env_steps: int) -> None:
        run.progress.env_steps = env_steps
        run.metrics.observe("loss/total", 1.0)
        reporter.report(num_envs=1)

    report(1)
    (events,) = (run.config.run_dir / "tensorboard").iterdir()
    assert num_open(events.parent) == 1
    for env_steps, file in ((2, events), (3, metrics)):
        with room_in(file, 20):
            report(env_steps)
            reporter.write_summary()
    report(4)
    assert num_open(events.parent) == 1, "the file that could not be written to is closed"
    steps = [json.loads(line)["env_steps"] for line in metrics.read_text().splitlines()]
    assert steps == [1, 2, 4]
    accumulator = EventAccumulator(str(events.parent)).Reload()
    assert [event.step for event in accumulator.Tensors("loss/total")] == [1, 4]


def test_a_summary_that_does_not_fit_is_left_out_whole(run: Run) -> None:
    """Half of one would be no JSON to those who read it; one that was there stays."""
    empty = run.config.run_dir / "empty"
    empty.touch()
    reporter = Reporter(run)
    with room_in(empty, 20):
        reporter.write_summary()
    assert list(run.config.run_dir.iterdir()) == [empty]
    reporter.write_summary()
    with room_in(empty, 20):
        reporter.write_summary()
    assert summary(run)["episodes"] == 0


def test_tensorboard_shows_the_newest_batch_once_in_a_while(run: Run) -> None:
    """Not with every record: pictures are large."""
    image = TensorSpec("observation", np.dtype(np.uint8), (36, 36, 1), (0.0,), (255.0,))
    machinery = run.build(replace(SPEC, observation=(image,)))
    reporter = Reporter(run)
    flags = np.zeros((2, 4), np.uint8)
    nothing = np.zeros((2, 4), np.float32)
    for env_steps in (1, 2, 3):
        run.progress.env_steps = env_steps
        if env_steps > 1:
            frames = np.full((2, 4, 36, 36, 1), env_steps, np.uint8)
            batch = UnrollBatch((frames,), nothing, flags, (), (), (), flags[:, 0], (), nothing, nothing[:, 0])
            machinery.trainer.newest = batch
        reporter.report(num_envs=1)
    accumulator = EventAccumulator(str(run.config.run_dir / "tensorboard")).Reload()
    (event,) = accumulator.Tensors("observation")
    width, height, *pictures = event.tensor_proto.string_val
    assert (event.step, width, height, len(pictures)) == (2, b"36", b"36", 2)
    np.testing.assert_array_equal(tf.io.decode_png(pictures[0]), np.full((36, 36, 1), 2))
