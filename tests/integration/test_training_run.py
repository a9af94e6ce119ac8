"""A whole training run through real processes: summary, evaluation, resume, and what the run directory keeps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from local_runs import call, last_json, service_pids, started, status, until
from PIL import Image

from seedrl_core.config import load_settings

pytestmark = pytest.mark.integration

ENV_STEPS = 20_000


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A finished run's directory and the summary that it printed."""
    run_dir = tmp_path_factory.mktemp("trained") / "run"
    arguments = ("--run-dir", run_dir, "--env-steps", str(ENV_STEPS), "--seed", "1", "--json")
    done = call("train", "CartPole-v1", *arguments)
    assert done.returncode == 0, done.stderr
    return run_dir, last_json(done.stdout)


def test_a_run_ends_with_a_summary(trained):
    """The last line of output has every figure of the run, and no process is left."""
    run_dir, summary = trained
    assert ENV_STEPS <= summary["env_steps"] < ENV_STEPS * 1.5
    assert summary["frames"] == summary["env_steps"]
    assert summary["episodes"] > 100
    assert summary["mean_return"] > 9
    assert summary["human_normalized_score"] is None
    assert summary["policy_version"] > 10
    assert summary["env_steps_per_s"] > 0
    assert summary["seconds"] > 0
    assert summary["run_dir"] == str(run_dir)
    assert Path(summary["checkpoint"]).is_dir()
    assert service_pids(run_dir) == []


def test_the_run_directory_keeps_the_resolved_settings(trained):
    """`config.toml` loads to the settings of the run, flags included; each service has a log."""
    run_dir, _ = trained
    settings = load_settings(run_dir / "config.toml")
    assert settings.actor.env_id == "CartPole-v1"
    assert (settings.learner.total_env_steps, settings.learner.seed) == (ENV_STEPS, 1)
    assert {path.stem for path in (run_dir / "logs").iterdir()} >= {"learner", "broker", "actor-0"}


def test_evaluation_plays_whole_episodes_and_leaves_the_run_as_it_is(trained):
    """As many episodes as asked for, played by the run's last policy; nothing under the run's directory changes."""
    run_dir, summary = trained
    before = {path: path.stat().st_mtime_ns for path in run_dir.rglob("*")}
    done = call("eval", run_dir, "--episodes", "10", "--json")
    assert done.returncode == 0, done.stderr
    result = last_json(done.stdout)
    assert result["episodes"] == 10
    assert 8 <= result["min_return"] <= result["mean_return"] <= result["max_return"] <= 500
    assert result["std_return"] >= 0
    assert result["human_normalized_score"] is None
    assert (result["policy_version"], result["env_steps"]) == (summary["policy_version"], summary["env_steps"])
    assert {path: path.stat().st_mtime_ns for path in run_dir.rglob("*")} == before


def test_a_policy_is_exported_once(trained, tmp_path):
    """`seedrl export` writes a SavedModel, or ONNX, and what it takes and gives, never over another directory."""
    run_dir, summary = trained
    done = call("export", run_dir, tmp_path / "model")
    assert (done.returncode, done.stdout.strip()) == (0, summary["checkpoint"]), done.stderr
    policy = json.loads((tmp_path / "model" / "policy.json").read_text())
    assert (policy["environment"], policy["policy_version"]) == ("CartPole-v1", summary["policy_version"])
    assert (tmp_path / "model" / "saved_model.pb").is_file()
    done = call("export", run_dir, tmp_path / "onnx", "--format", "onnx")
    assert (done.returncode, done.stdout.strip()) == (0, summary["checkpoint"]), done.stderr
    assert (tmp_path / "onnx" / "policy.onnx").is_file()
    refused = call("export", run_dir, tmp_path / "model")
    assert refused.returncode != 0
    assert "exists already" in refused.stderr


def test_a_run_is_filmed(trained, tmp_path):
    """`seedrl watch` draws the steps of a whole episode and leaves the run as it is."""
    run_dir, _ = trained
    before = {path: path.stat().st_mtime_ns for path in run_dir.rglob("*")}
    done = call("watch", run_dir, "--out", tmp_path / "film.gif", "--max-steps", "20")
    assert done.returncode == 0, done.stderr
    with Image.open(tmp_path / "film.gif") as film:
        frames = getattr(film, "n_frames", 1)
    assert 9 <= frames <= 20  # no CartPole falls within 8 steps
    assert done.stdout.splitlines()[-1] == f"{tmp_path / 'film.gif'} ({frames} steps)"
    assert {path: path.stat().st_mtime_ns for path in run_dir.rglob("*")} == before


def test_the_newest_policy_behind_a_broker_is_filmed(tmp_path):
    """While it is trained; the learner's address is refused with what was expected."""
    run_dir, film = tmp_path / "run", tmp_path / "film.mp4"
    with started(run_dir) as training:
        until(lambda: status(run_dir).get("policy_version", 0) > 0, "a first update")
        done = call("watch", f"unix:{run_dir / 'broker.sock'}", "--out", film)
        refused = call("watch", f"unix:{run_dir / 'learner.sock'}", "--out", film)
        training.terminate()
        training.communicate()
    assert done.returncode == 0, done.stderr
    assert film.stat().st_size > 0
    assert refused.returncode == 2
    assert "expected the address of a broker" in refused.stderr


def test_resume_continues_every_counter(trained):
    """A resumed run goes on from the counters of its checkpoint; the same directory without --resume is refused."""
    run_dir, summary = trained
    arguments = ("--run-dir", run_dir, "--env-steps", str(ENV_STEPS + 5_000), "--json")
    refused = call("train", "CartPole-v1", *arguments)
    assert refused.returncode == 2
    assert "--resume" in refused.stderr
    done = call("train", "CartPole-v1", *arguments, "--resume")
    assert done.returncode == 0, done.stderr
    resumed = last_json(done.stdout)
    assert resumed["env_steps"] >= ENV_STEPS + 5_000
    for counter in ("env_steps", "episodes", "policy_version"):
        assert resumed[counter] > summary[counter]
