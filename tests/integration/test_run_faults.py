"""A training run whose processes are killed or cannot start: what goes on, what ends, and what is said."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from held_memory import regions_of
from local_runs import PATIENCE_S, call, kill, last_json, service_pids, started, status, until

pytestmark = pytest.mark.integration

TWO_SESSIONS = ("--set", "actor.sessions=2")


def one_line_error(done: subprocess.CompletedProcess[str]) -> str:
    """What a refused command says."""
    lines = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1
    assert "Traceback" not in done.stderr
    return lines[0]


def test_a_killed_actor_comes_back_and_ctrl_c_ends_all(tmp_path):
    """After kill -9 of an actor the run goes on and gets it back; Ctrl-C saves, sums up and leaves nothing."""
    run_dir = tmp_path / "run"
    with started(run_dir, "--envs-per-actor", "8", *TWO_SESSIONS) as launcher:
        before = until(
            lambda: (now := status(run_dir)).get("num_envs") == 16 and now["env_steps"] and now, "16 environments"
        )
        victim = service_pids(run_dir, "seedrl_actor")[0]
        kill(victim)
        until(
            lambda: victim not in service_pids(run_dir) and len(service_pids(run_dir, "seedrl_actor")) == 2, "restart"
        )
        after = until(lambda: (now := status(run_dir)).get("num_envs") == 16 and now, "16 environments again")
        assert after["env_steps"] > before["env_steps"]
        assert last_json(call("status", f"unix:{run_dir / 'broker.sock'}", "--json").stdout)["sessions"] == 4
        launcher.send_signal(signal.SIGINT)
        output, errors = launcher.communicate(timeout=60)
    assert launcher.returncode == 130, errors
    assert re.search(r"actor-\d was ended by SIGKILL", errors)
    assert service_pids(run_dir) == []
    summary = last_json(output)
    assert summary["env_steps"] >= after["env_steps"]
    assert summary["checkpoint"]


def test_a_killed_actor_leaves_no_shared_memory(tmp_path):
    """Actors share memory with the learner; after kill -9 of one nobody holds its regions any more."""
    run_dir = tmp_path / "run"
    with started(run_dir, "--envs-per-actor", "8", *TWO_SESSIONS):
        until(lambda: status(run_dir).get("num_envs") == 16, "16 environments")
        learner = service_pids(run_dir, "seedrl_learner")[0]
        victim, survivor = service_pids(run_dir, "seedrl_actor")
        lost, kept = regions_of(victim), regions_of(survivor)
        assert len(lost) == len(kept) == 2, "each actor has two sessions"
        assert regions_of(learner) == lost | kept
        kill(victim)
        until(lambda: regions_of(learner) == kept, "the end of the lost regions")
        until(lambda: len(regions_of(learner)) == 4, "regions of the successor")
        assert all(regions_of(pid).isdisjoint(lost) for pid in service_pids(run_dir))


def test_nothing_outlives_a_killed_launcher(tmp_path):
    """After kill -9 of the launcher itself every service stops, and the learner still writes its checkpoint."""
    run_dir = tmp_path / "run"
    with started(run_dir) as launcher:
        until(lambda: status(run_dir).get("policy_version"), "a first update")
        launcher.kill()
        launcher.communicate()
    until(lambda: not service_pids(run_dir), "the services' end")
    assert list(run_dir.glob("checkpoints/*/state.json"))


def log(run_dir: Path, service: str) -> list[dict[str, Any]]:
    """The lines of a service's log, of all its starts."""
    lines = (run_dir / "logs" / f"{service}.log").read_text().splitlines()
    return [json.loads(line) for line in lines if line.startswith("{")]


@pytest.mark.parametrize("module", ["seedrl_learner", "seedrl_broker"])
def test_a_killed_learner_or_broker_comes_back(tmp_path, module):
    """After kill -9 the run goes on to its end: a learner from its checkpoint, and the actors as they are."""
    run_dir = tmp_path / "run"
    often = ("--set", "learner.checkpoint_every_s=0.2")
    with started(run_dir, "--env-steps", "20000", "--envs-per-actor", "8", *often) as launcher:
        until(lambda: list(run_dir.glob("checkpoints/step-*")), "a checkpoint")
        actors = service_pids(run_dir, "seedrl_actor")
        (victim,) = service_pids(run_dir, module)
        kill(victim)
        until(lambda: set(service_pids(run_dir, module)) - {victim}, "a new process")
        assert service_pids(run_dir, "seedrl_actor") == actors
        output, errors = launcher.communicate(timeout=PATIENCE_S)
    assert launcher.returncode == 0, errors
    assert f"{module.removeprefix('seedrl_')} was ended by SIGKILL" in errors
    assert last_json(output)["env_steps"] >= 20_000
    assert service_pids(run_dir) == []
    restored = [line["env_steps"] for line in log(run_dir, "learner") if line["event"] == "checkpoint_restored"]
    assert len(restored) == (module == "seedrl_learner")
    for index in range(2):
        told = [line["event"] for line in log(run_dir, f"actor-{index}")]
        assert told.count("run_finished") == 1
        assert "environment_restarts" not in told


def test_an_unknown_environment_ends_the_run_at_once(tmp_path):
    """A mistyped environment id is one line that names it, without restarts; nothing is left running."""
    done = call("train", "CartPoel-v1", "--run-dir", tmp_path / "run", "--json")
    assert done.returncode == 2, done.stderr
    assert "CartPoel" in one_line_error(done)
    assert service_pids(tmp_path / "run") == []


def test_a_mistyped_run_is_one_line(tmp_path):
    """Evaluation and resume of a directory that is no run are refused, naming it, before anything starts."""
    typo = tmp_path / "typo"
    assert str(typo) in one_line_error(call("eval", typo))
    assert str(typo) in one_line_error(call("train", "CartPole-v1", "--run-dir", typo, "--resume"))


def test_status_of_nobody_is_one_line(tmp_path):
    """Asking where nobody listens is an error that names the address."""
    done = call("status", f"unix:{tmp_path / 'nobody.sock'}")
    assert done.returncode == 1
    assert "nobody.sock" in one_line_error(done)
