"""Deterministic runs through real processes: one seed, one result."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from local_runs import call, last_json

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

SMALL = {
    "actor.num_envs": 16,
    "learner.unroll_length": 10,
    "learner.batch_unrolls": 8,
    "learner.network.mlp_sizes": "[16]",
}
AGENTS: dict[str, dict[str, Any]] = {
    "vtrace": SMALL,
    "r2d2": SMALL
    | {
        "learner.r2d2.burn_in": 2,
        "learner.network.core_size": 8,
        "learner.replay.min_unrolls": 20,
        "learner.replay.capacity_unrolls": 100,
        "learner.replay.ratio": 2.0,
    },
}


def train(run_dir: Path, agent: str, seed: int, **more: Any) -> tuple[dict[str, bytes], dict[str, Any]]:
    """The variables' files of the last checkpoint of a deterministic run, and its counters."""
    settings = [word for key, value in (AGENTS[agent] | more).items() for word in ("--set", f"{key}={value}")]
    flags = ("--agent", agent, "--env-steps", "3000", "--seed", str(seed), "--deterministic", "--json")
    done = call("train", "CartPole-v1", "--run-dir", run_dir, *flags, *settings)
    assert done.returncode == 0, done.stderr
    checkpoint = Path(last_json(done.stdout)["checkpoint"])
    state = json.loads((checkpoint / "state.json").read_text())
    counters = {key: state[key] for key in ("env_steps", "policy_version")}
    return {file.name: file.read_bytes() for file in checkpoint.glob("variables.*")}, counters


@pytest.mark.parametrize("agent", AGENTS)
def test_one_seed_gives_the_same_variables_bit_for_bit(tmp_path, agent):
    """Two runs, one of which saves and reports all the time, end with the same bytes; another seed with others."""
    files, counters = train(tmp_path / "one", agent, seed=7)
    busy = {"learner.checkpoint_every_s": 0.3, "learner.log_every_s": 0.1}
    assert train(tmp_path / "same", agent, seed=7, **busy) == (files, counters)
    assert counters["policy_version"] >= 30
    others, _ = train(tmp_path / "other", agent, seed=8)
    assert sorted(others) == sorted(files)
    assert others != files


def test_more_than_one_actor_is_refused(tmp_path):
    """One line says what a deterministic run can have."""
    done = call("train", "CartPole-v1", "--run-dir", tmp_path / "run", "--deterministic", "--actors", "2")
    assert done.returncode == 2
    assert "error: learner.deterministic: expected one actor with actor.sessions=1, got 2" in done.stderr
    assert not (tmp_path / "run").exists()
