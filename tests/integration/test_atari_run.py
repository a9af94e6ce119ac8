"""Atari through real processes: the documented command, with the games cut short."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from local_runs import call, last_json

pytestmark = pytest.mark.integration

RANDOM, HUMAN = -20.7, 14.6


def test_a_run_and_its_evaluation_tell_human_normalized_scores(tmp_path: Path) -> None:
    """Of the same returns that they tell raw, in summary, metrics and evaluation alike."""
    run_dir = tmp_path / "run"
    small = ("--actors", "1", "--envs-per-actor", "4", "--set", "actor.atari.max_episode_frames=400")
    done = call("train", "ALE/Pong-v5", "--run-dir", run_dir, "--env-steps", "1000", "--json", *small)
    assert done.returncode == 0, done.stderr
    summary = last_json(done.stdout)
    assert summary["episodes"] >= 4
    record = json.loads((run_dir / "metrics.jsonl").read_text().splitlines()[-1])
    done = call("eval", run_dir, "--episodes", "4", "--json")
    assert done.returncode == 0, done.stderr
    result = last_json(done.stdout)
    for mean_return, score in (
        (summary["mean_return"], summary["human_normalized_score"]),
        (record["episode/mean_return_100"], record["episode/human_normalized_score"]),
        (result["mean_return"], result["human_normalized_score"]),
    ):
        assert score == pytest.approx((mean_return - RANDOM) / (HUMAN - RANDOM))
