"""Settings of training runs and evaluations: flags, files, and what the launcher decides."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from seedrl_core.access import NO_CREDENTIALS
from seedrl_core.config import Settings, write_settings
from seedrl_core.errors import ConfigError
from seedrl_launcher import run_settings
from seedrl_launcher.run_settings import (
    chosen_run_dir,
    default_num_actors,
    eval_settings,
    has_accelerator,
    train_settings,
    with_run_dir,
)


def resolve(**changes: Any) -> Settings:
    """The settings of `seedrl train CartPole-v1` with some flags."""
    given: dict[str, Any] = {
        "env_id": "CartPole-v1",
        "agent": None,
        "env_steps": None,
        "envs_per_actor": None,
        "seed": None,
        "num_actors": 2,
        "file": None,
        "assignments": [],
    }
    return train_settings(**(given | changes))


def test_flags_go_to_the_settings_they_stand_for():
    """Each flag of `seedrl train` sets its setting; one seed serves network and environments."""
    settings = resolve(env_steps=1000, envs_per_actor=8, seed=7, assignments=["learner.unroll_length=5"])
    assert (settings.actor.env_id, settings.actor.num_envs, settings.actor.seed) == ("CartPole-v1", 8, 7)
    assert (settings.learner.total_env_steps, settings.learner.seed, settings.learner.unroll_length) == (1000, 7, 5)


def test_batches_are_whole_where_the_network_shares_the_cores(tmp_path, monkeypatch):
    """Without an accelerator one batch at a time for one session an actor, unless the user says otherwise."""
    file = tmp_path / "config.toml"
    file.write_text("[broker]\nmax_delay_ms = 5.0\n")

    def batching(**changes: Any) -> tuple[int, float, int]:
        settings = resolve(**changes)
        return settings.learner.inference_credits, settings.broker.max_delay_ms, settings.actor.sessions

    monkeypatch.setattr(run_settings, "has_accelerator", lambda: True)
    assert batching() == (2, 5.0, 2)
    monkeypatch.setattr(run_settings, "has_accelerator", lambda: False)
    assert batching() == (1, 20.0, 1)
    assert batching(assignments=["learner.inference_credits=2", "actor.sessions=3"], file=file) == (2, 5.0, 3)
    monkeypatch.setenv("SEEDRL_LEARNER__INFERENCE_CREDITS", "3")
    assert batching() == (3, 20.0, 1)


def test_an_accelerator_is_known_by_its_device(tmp_path):
    """A GPU has a device file; the control device of a driver alone is none."""
    (tmp_path / "nvidiactl").touch()
    assert not has_accelerator(tmp_path)
    (tmp_path / "nvidia0").touch()
    assert has_accelerator(tmp_path)


def test_a_resumed_run_goes_on_from_its_own_checkpoints(tmp_path):
    """The checkpoint that a run started from is not where it resumes; one named again is an error."""
    file = tmp_path / "c.toml"
    write_settings(resolve(assignments=["learner.checkpoint=other/step-1"]), file)
    assert resolve(file=file).learner.checkpoint == Path("other/step-1")
    assert resolve(file=file, resume=True).learner.checkpoint is None
    with pytest.raises(ConfigError, match="expected none with --resume, got x"):
        resolve(file=file, resume=True, assignments=["learner.checkpoint=x"])


def test_a_missing_flag_leaves_what_the_file_says(tmp_path):
    """Without a flag the file's value counts, with one the flag's; resume and mode are never the file's."""
    file = tmp_path / "c.toml"
    file.write_text('[learner]\ntotal_env_steps = 500\nresume = true\nmode = "serve"\n[actor]\nnum_envs = 4\n')
    settings = resolve(file=file, envs_per_actor=6)
    assert (settings.learner.total_env_steps, settings.actor.num_envs) == (500, 6)
    assert (settings.learner.resume, settings.learner.mode) == (False, "train")


def test_a_deterministic_run_has_one_actor_with_one_session(tmp_path, monkeypatch):
    """The flag decides both; whoever asks for more is told, also where only the setting is given."""
    monkeypatch.setattr(run_settings, "has_accelerator", lambda: True)
    settings = resolve(num_actors=None, deterministic=True)
    assert (settings.learner.deterministic, settings.actor.sessions) == (True, 1)
    assert default_num_actors(settings) == 1
    file = tmp_path / "c.toml"
    write_settings(settings, file)
    assert resolve(num_actors=None, file=file) == settings
    more = r"learner\.deterministic: expected one actor with actor\.sessions=1, got "
    with pytest.raises(ConfigError, match=more + r"2 with actor\.sessions=1"):
        resolve(num_actors=2, deterministic=True)
    with pytest.raises(ConfigError, match=more + r"1 with actor\.sessions=3"):
        resolve(num_actors=1, deterministic=True, assignments=["actor.sessions=3"])
    with pytest.raises(ConfigError, match=more + r"1 with actor\.sessions=2"):
        resolve(num_actors=None, assignments=["learner.deterministic=true"])


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"agent": "dqn2"}, "learner.agent"),
        ({"assignments": ["learner.unrol_length=20"]}, "unroll_length"),
        ({"assignments": ["nonsense"]}, "section.key=value"),
        ({"assignments": ["actor.env_id=Other-v0"]}, "actor.env_id"),
        ({"file": Path("no/such.toml")}, "no/such.toml"),
        ({"envs_per_actor": 4000}, "learner.max_envs"),
    ],
)
def test_a_wrong_setting_is_named(changes, named):
    """Every kind of wrong input is an error that names the setting, before any process starts."""
    with pytest.raises(ConfigError, match=named):
        resolve(**changes)


def test_run_dir_of_the_settings_counts_when_it_was_set():
    """A run directory from `--set` is used, the default of the model is not taken for one."""
    assert chosen_run_dir(resolve()) is None
    assert chosen_run_dir(resolve(assignments=["learner.run_dir=runs/mine"])) == Path("runs/mine")


def test_evaluation_keeps_the_environment_and_trains_nothing(tmp_path):
    """An evaluation has the run's environment, plays as EVAL, serves only, in whole games with other seeds."""
    file = tmp_path / "config.toml"
    trained = resolve(env_id="ALE/Pong-v5", seed=3, assignments=["actor.atari.episodic_life=true"])
    write_settings(with_run_dir(trained, tmp_path / "before-it-was-moved"), file)
    settings = eval_settings(file, tmp_path, episodes=5, num_envs=32, seed=None, results=tmp_path / "results")
    assert (settings.actor.env_id, settings.actor.role, settings.actor.episodes) == ("ALE/Pong-v5", "eval", 5)
    assert (settings.learner.mode, settings.learner.run_dir) == ("serve", tmp_path)
    assert settings.actor.num_envs == 5
    assert settings.actor.seed != trained.actor.seed
    assert not settings.actor.atari.episodic_life


def test_evaluation_does_without_the_tokens_of_the_run(tmp_path):
    """Its sockets are its own, so it goes on where the token files have gone."""
    file = tmp_path / "config.toml"
    tokens = [f"access.{role}_token_file={tmp_path / 'gone'}" for role in ("actor", "broker", "operator")]
    write_settings(resolve(assignments=tokens), file)
    settings = eval_settings(file, tmp_path, episodes=5, num_envs=32, seed=None, results=tmp_path / "results")
    assert settings.access == NO_CREDENTIALS
