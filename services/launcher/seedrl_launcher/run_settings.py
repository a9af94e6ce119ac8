"""Settings of a training run and of an evaluation: from a file, flags and `--set`, and what the launcher decides."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from seedrl_core.access import Role
from seedrl_core.config import LearnerConfig, Settings, load_settings, parse_assignments
from seedrl_core.errors import ConfigError

# Where the network runs on the cores of everything else, a row of inference costs half as much in one batch of all
# environments as in batches of half of them, which are all that can be had while another batch is in flight. A second
# session of an actor has nothing to do meanwhile then, and costs its messages.
_SHARED_CORES: dict[str, Any] = {"learner.inference_credits": 1, "broker.max_delay_ms": 20.0, "actor.sessions": 1}
_EVAL_SEED_OFFSET = 1_000_000_007  # so that an evaluation does not replay the training's environments


def default_num_actors(settings: Settings) -> int:
    """Two, so that one steps while another waits for the network; one where there is a single core, or must be."""
    return 2 if (os.cpu_count() or 1) > 1 and not settings.learner.deterministic else 1


def has_accelerator(devices: Path = Path("/dev")) -> bool:
    """Whether this machine seems to have a GPU that TensorFlow can use, of NVIDIA or of AMD."""
    return any(devices.glob("nvidia[0-9]*")) or (devices / "kfd").exists()


def train_settings(
    *,
    env_id: str,
    agent: str | None,
    env_steps: int | None,
    envs_per_actor: int | None,
    seed: int | None,
    num_actors: int | None,
    file: Path | None,
    assignments: Sequence[str],
    deterministic: bool = False,
    resume: bool = False,
) -> Settings:
    """Settings of a training run; a flag that is None leaves what the file says, and so does `deterministic`=False.

    A run that resumes goes on from its own checkpoints, not from the one that the file says it started from.

    Raises:
      ConfigError: an unknown key, a bad value, more environments than the learner has slots for, or more sessions than
        a deterministic run can have.
    """
    flags: dict[str, Any] = {
        "actor.env_id": env_id,
        "actor.num_envs": envs_per_actor,
        "actor.seed": seed,
        "learner.seed": seed,
        "learner.agent": agent,
        "learner.total_env_steps": env_steps,
    }
    decided = {"learner.mode": "train", "learner.resume": False, "actor.role": "train"}
    given = {key: value for key, value in flags.items() if value is not None}
    start: dict[str, Any] = {"learner.checkpoint": None} if resume else {}
    if deterministic:
        start |= {"learner.deterministic": True, "actor.sessions": 1}
    overrides = start | given | parse_assignments(assignments) | decided
    settings = load_settings(file, overrides, {} if has_accelerator() else _SHARED_CORES)
    if resume and settings.learner.checkpoint is not None:
        raise ConfigError(f"learner.checkpoint: expected none with --resume, got {settings.learner.checkpoint}")
    if settings.actor.env_id != env_id:
        raise ConfigError(f"actor.env_id: expected {env_id}, got {settings.actor.env_id!r}")
    num_actors = num_actors or default_num_actors(settings)
    if settings.learner.deterministic and (num_actors, settings.actor.sessions) != (1, 1):
        raise ConfigError(
            "learner.deterministic: expected one actor with actor.sessions=1, "
            f"got {num_actors} with actor.sessions={settings.actor.sessions}"
        )
    num_envs = num_actors * settings.actor.num_envs
    if num_envs > settings.learner.max_envs:
        raise ConfigError(
            f"learner.max_envs: expected at least {num_envs} ({num_actors} actors of {settings.actor.num_envs} "
            f"environments), got {settings.learner.max_envs}"
        )
    return settings


def with_run_dir(settings: Settings, run_dir: Path) -> Settings:
    """The settings for a run in `run_dir`."""
    return settings.model_copy(update={"learner": settings.learner.model_copy(update={"run_dir": run_dir})})


def chosen_run_dir(settings: Settings) -> Path | None:
    """The run directory that file or `--set` name; None when they leave it to the launcher."""
    run_dir = settings.learner.run_dir
    return None if run_dir == LearnerConfig.model_fields["run_dir"].default else run_dir


def eval_settings(
    file: Path, run_dir: Path, *, episodes: int, num_envs: int, seed: int | None, results: Path
) -> Settings:
    """Settings of a greedy evaluation of the run in `run_dir`, whose settings are in `file`."""
    trained = load_settings(file)
    decided: dict[str, Any] = {
        "learner.mode": "serve",
        "learner.run_dir": str(run_dir),
        "learner.checkpoint": None,
        "learner.resume": False,
        "actor.role": "eval",
        # The ports of a training run that may be going on.
        **{f"{service}.metrics_listen": "" for service in ("actor", "broker", "learner")},
        # Its sockets are private, and the files of the run may be gone.
        **{f"access.{role}_token_file": None for role in Role},
        "actor.episodes": episodes,
        "actor.results": str(results),
        "actor.num_envs": min(num_envs, episodes),
        "actor.seed": trained.actor.seed + _EVAL_SEED_OFFSET if seed is None else seed,
        "actor.atari.episodic_life": False,
    }
    return load_settings(file, decided)
