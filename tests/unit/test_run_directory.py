"""Run directories: new ones, existing ones, and where their sockets go."""

from __future__ import annotations

import json

import pytest

from seedrl_core.errors import CheckpointError, ConfigError
from seedrl_launcher import run_directory
from seedrl_launcher.run_directory import RunDirectory


def test_a_used_directory_is_refused_with_a_way_out(tmp_path):
    """A directory with anything in it is not taken for a new run; the error tells what to do."""
    (tmp_path / "notes.txt").touch()
    with pytest.raises(ConfigError, match="--resume"):
        run_directory.create(tmp_path)


def test_a_file_is_no_directory(tmp_path):
    """A path that is a file is one line of error."""
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="file"):
        run_directory.create(tmp_path / "file")


def test_default_directories_are_distinct_and_named_after_the_run(tmp_path, monkeypatch):
    """Runs of one environment started in the same second get directories of their own, without slashes in names."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(run_directory.time, "strftime", lambda _: "20260101-000000")
    names = [run_directory.create_default("ALE/Pong-v5", "vtrace").path.name for _ in range(3)]
    base = "ALE-Pong-v5-vtrace-20260101-000000"
    assert names == [base, f"{base}-2", f"{base}-3"]


@pytest.mark.parametrize("text", ["../../etc", "a b", "x/..", "", "-rf", "ALE/Pong-v5"])
def test_safe_names_stay_inside_their_directory(text):
    """Whatever an environment is called, its name is one harmless path component."""
    name = run_directory.safe_name(text)
    assert name
    assert "/" not in name
    assert not name.startswith((".", "-"))


def test_only_a_run_with_a_checkpoint_can_be_opened(tmp_path):
    """Missing directory, foreign directory and a run without checkpoint are three different errors."""
    with pytest.raises(ConfigError, match="does not exist"):
        run_directory.open_with_checkpoint(tmp_path / "typo")
    with pytest.raises(ConfigError, match="not a run"):
        run_directory.open_with_checkpoint(tmp_path)
    (tmp_path / "config.toml").touch()
    with pytest.raises(CheckpointError, match="no checkpoint"):
        run_directory.open_with_checkpoint(tmp_path)
    (tmp_path / "checkpoints/.tmp-step-1").mkdir(parents=True)
    with pytest.raises(CheckpointError, match="no checkpoint"):
        run_directory.open_with_checkpoint(tmp_path)
    (tmp_path / "checkpoints/step-1").mkdir()
    (tmp_path / "checkpoints/step-1/state.json").touch()
    assert run_directory.open_with_checkpoint(tmp_path) == RunDirectory(tmp_path)


def test_summary_is_that_of_the_latest_part(tmp_path):
    """A resumed run forgets the earlier summary, so that it is never taken for the new one."""
    run = RunDirectory(tmp_path)
    (tmp_path / "summary.json").write_text(json.dumps({"env_steps": 5}))
    assert run.read_summary() == {"env_steps": 5}
    run.forget_summary()
    run.forget_summary()
    assert run.read_summary() is None


def test_sockets_fit_whatever_the_path(tmp_path):
    """Sockets lie in the run's directory, or in a private short one that is removed, when its path is too long."""
    with run_directory.socket_directory(RunDirectory(tmp_path / "r")) as near:
        fits = len(str(tmp_path / "r").encode()) <= 90
        assert (near == tmp_path / "r") is fits
    deep = tmp_path / ("d" * 120)
    with run_directory.socket_directory(RunDirectory(deep)) as short:
        assert len(str(short / "learner.sock").encode()) <= 107
        assert short.stat().st_mode & 0o077 == 0
    assert not short.exists()
