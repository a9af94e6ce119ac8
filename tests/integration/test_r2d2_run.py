"""R2D2 through real processes: a run that trains from replay, is evaluated, and goes on with the replay it had."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from local_runs import call, last_json, service_pids

pytestmark = pytest.mark.integration

ENV_STEPS = 4_000
SETTINGS = {
    "learner.replay.save": "true",
    "learner.replay.min_unrolls": 40,
    "learner.replay.capacity_unrolls": 150,
    "learner.replay.ratio": 2.0,
    "learner.r2d2.target_update_period": 5,
    "learner.batch_unrolls": 16,
    "learner.log_every_s": 0.5,
    "actor.num_envs": 8,
}


def train(run_dir: Path, env_steps: int, *arguments: str) -> dict[str, Any]:
    """Trains to `env_steps` and returns the summary."""
    settings = [word for key, value in SETTINGS.items() for word in ("--set", f"{key}={value}")]
    size = ("--actors", "1", "--env-steps", str(env_steps))
    done = call("train", "CartPole-v1", "--agent", "r2d2", "--run-dir", run_dir, *size, "--json", *settings, *arguments)
    assert done.returncode == 0, done.stderr
    return last_json(done.stdout)


def events(run_dir: Path) -> list[dict[str, Any]]:
    """The lines of the learner's log."""
    lines = (run_dir / "logs" / "learner.log").read_text().splitlines()
    return [json.loads(line) for line in lines if line.startswith("{")]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A finished run's directory and the summary that it printed."""
    run_dir = tmp_path_factory.mktemp("trained") / "run"
    return run_dir, train(run_dir, ENV_STEPS)


def test_a_run_trains_from_replay(trained):
    """The summary counts updates and episodes; the metrics have the replay's numbers; no process is left."""
    run_dir, summary = trained
    assert summary["env_steps"] >= ENV_STEPS
    assert summary["policy_version"] > 5
    assert summary["episodes"] > 20
    records = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    names = set().union(*records)
    assert names >= {
        "replay/fill",
        "replay/ratio",
        "replay/age_unrolls",
        "replay/priority",
        "replay/initial_priority",
        "train/td_error",
        "train/q_mean",
        "train/target_lag_updates",
    }
    assert all(record.get("replay/ratio", 0.0) <= 2.0 + 1e-9 for record in records)
    assert [event["unrolls"] for event in events(run_dir) if event["event"] == "replay_sized"] == [150]
    assert service_pids(run_dir) == []


def test_it_is_evaluated_from_its_checkpoint(trained):
    """Whole episodes by the last policy."""
    run_dir, summary = trained
    done = call("eval", run_dir, "--episodes", "5", "--json")
    assert done.returncode == 0, done.stderr
    result = last_json(done.stdout)
    assert result["episodes"] == 5
    assert result["policy_version"] == summary["policy_version"]


def test_a_resumed_run_goes_on_with_its_replay(trained):
    """Every counter grows from where it was, and the replay is the one that was saved."""
    run_dir, summary = trained
    saved = Path(summary["checkpoint"]) / "replay"
    assert (saved / "observation-0.raw").stat().st_size > 0
    resumed = train(run_dir, ENV_STEPS + 1_000, "--resume")
    assert resumed["env_steps"] >= ENV_STEPS + 1_000
    for counter in ("env_steps", "episodes", "policy_version"):
        assert resumed[counter] > summary[counter]
    restored = [event["unrolls"] for event in events(run_dir) if event["event"] == "replay_restored"]
    assert len(restored) == 1
    assert restored[0] >= 40
