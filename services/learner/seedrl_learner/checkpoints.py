"""Checkpoints on disk: written whole or not at all, the newest few kept.

A checkpoint is a directory `step-<env_steps>-update-<policy_version>` with TensorFlow's variable files and `state.json`
(counters, environment spec, learner configuration). It is written under another name, flushed and renamed, and never
written again, so a directory of that name is always whole.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tensorflow as tf
from google.protobuf import json_format

from seedrl_core import logs
from seedrl_core.codec import spec_from_proto, spec_to_proto
from seedrl_core.config import LearnerConfig
from seedrl_core.errors import BadRequest, CheckpointError
from seedrl_core.spec import EnvironmentSpec
from seedrl_learner.progress import Progress
from seedrl_proto.v1 import spec_pb2

FORMAT_VERSION = 1
_TEMPORARY = ".tmp-"
_STATE = "state.json"
_VARIABLES = "variables"
_REPLAY = "replay"

_log = logs.get(__name__)


@dataclass(frozen=True)
class CheckpointState:
    """What a checkpoint says besides its variables."""

    path: Path
    spec: EnvironmentSpec
    config: LearnerConfig
    env_steps: int
    policy_version: int
    episodes: int
    returns: tuple[float, ...]

    @property
    def replay(self) -> Path | None:
        """The directory of the saved replay; None when there is none."""
        path = self.path / _REPLAY
        return path if path.is_dir() else None

    def restore_progress(self, progress: Progress) -> None:
        """Sets the counters."""
        progress.env_steps = self.env_steps
        progress.policy_version = self.policy_version
        progress.episodes = self.episodes
        progress.returns.extend(self.returns)


class Checkpoints:
    """The checkpoints of one run, under `directory`."""

    def __init__(self, directory: Path, keep: int) -> None:
        """`keep` is how many of the newest remain."""
        self.directory = directory
        self._keep = keep

    def newest(self) -> Path | None:
        """The newest whole checkpoint."""
        found = self._all()
        return found[-1] if found else None

    def save(
        self,
        trackables: Mapping[str, Any],
        progress: Progress,
        spec: EnvironmentSpec,
        config: LearnerConfig,
        save_replay: Callable[[Path], None] | None = None,
    ) -> Path:
        """Writes variables, state and the replay by `save_replay`, unless this policy version is there already.

        Returns the checkpoint's directory.

        Raises:
          CheckpointError: the disk refused; earlier checkpoints are untouched.
        """
        progress = replace(progress)  # inference goes on counting
        final = self.directory / f"step-{progress.env_steps:012d}-update-{progress.policy_version:09d}"
        if final.exists():
            return final
        temporary = self.directory / f"{_TEMPORARY}{final.name}"
        try:
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir(parents=True)
            tf.train.Checkpoint(**trackables).write(str(temporary / _VARIABLES))
            (temporary / _STATE).write_text(json.dumps(_state_to_json(progress, spec, config), indent=1))
            if save_replay is not None:
                save_replay(temporary / _REPLAY)
            for path in (*temporary.rglob("*"), temporary):
                _flush(path)
            temporary.rename(final)
            _flush(self.directory)
        except (OSError, tf.errors.OpError) as error:
            shutil.rmtree(temporary, ignore_errors=True)
            raise CheckpointError(f"cannot write checkpoint {final}: {error}") from error
        # A save that was killed leaves its directory behind.
        for old in (*self._all()[: -self._keep], *self.directory.glob(f"{_TEMPORARY}*")):
            shutil.rmtree(old, ignore_errors=True)
        _log.info("checkpoint_saved", path=str(final), env_steps=progress.env_steps)
        return final

    def _all(self) -> list[Path]:
        return sorted(path for path in self.directory.glob("step-*") if (path / _STATE).is_file())


def read_state(path: Path) -> CheckpointState:
    """What a checkpoint says besides its variables; CheckpointError when it is none."""
    try:
        state = json.loads((path / _STATE).read_text())
        if state["format_version"] != FORMAT_VERSION:
            raise CheckpointError(
                f"checkpoint {path}: expected format_version {FORMAT_VERSION}, got {state['format_version']}"
            )
        return CheckpointState(
            path=path,
            spec=spec_from_proto(json_format.ParseDict(state["spec"], spec_pb2.EnvironmentSpec())),
            config=LearnerConfig.model_validate(state["config"]),
            env_steps=int(state["env_steps"]),
            policy_version=int(state["policy_version"]),
            episodes=int(state["episodes"]),
            returns=tuple(state["returns"]),
        )
    except FileNotFoundError as error:
        raise CheckpointError(f"no checkpoint at {path}: it has no {_STATE}") from error
    except (OSError, ValueError, KeyError, TypeError, BadRequest, json_format.ParseError) as error:
        raise CheckpointError(f"checkpoint {path} cannot be read: {error}") from error


def restore_variables(path: Path, trackables: Mapping[str, Any], *, partial: bool = False) -> None:
    """Sets the variables of `trackables` to those of the checkpoint.

    Args:
      path: the checkpoint's directory.
      trackables: name -> trackable, as given to `save`.
      partial: leave parts of the checkpoint unused (the optimizer, when serving).

    Raises:
      CheckpointError: the checkpoint holds other variables or shapes.
    """
    try:
        status = tf.train.Checkpoint(**trackables).read(str(path / _VARIABLES))
        status.assert_existing_objects_matched()
        if partial:
            status.expect_partial()  # or else a warning for each part at the end of the process
        else:
            status.assert_consumed()
    except (AssertionError, ValueError, tf.errors.OpError) as error:
        reason = str(error).strip().splitlines()[0]
        raise CheckpointError(f"checkpoint {path} does not fit this network: {reason}") from error


def _state_to_json(progress: Progress, spec: EnvironmentSpec, config: LearnerConfig) -> dict[str, Any]:
    return {
        "format_version": FORMAT_VERSION,
        "env_steps": progress.env_steps,
        "frames": progress.env_steps * spec.action_repeat,
        "policy_version": progress.policy_version,
        "episodes": progress.episodes,
        "returns": list(progress.returns),
        "spec": json_format.MessageToDict(spec_to_proto(spec), preserving_proto_field_name=True),
        "config": config.model_dump(mode="json"),
    }


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
