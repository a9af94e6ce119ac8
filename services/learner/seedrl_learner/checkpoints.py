"""Checkpoints on disk: written whole or not at all, the newest few kept.

A checkpoint is a directory `step-<env_steps>-update-<policy_version>` with TensorFlow's variable files and `state.json`
(counters, environment spec, learner configuration), the replay where that is kept, and a manifest of all these. It is
written under another name, flushed and renamed, and never written again, so a directory of that name was whole once;
whether it still is, its manifest tells.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tensorflow as tf
from google.protobuf import json_format

from seedrl_core import logs
from seedrl_core.codec import spec_from_proto, spec_to_proto
from seedrl_core.config import LearnerConfig
from seedrl_core.errors import BadRequest, CheckpointDamaged, CheckpointError
from seedrl_core.spec import EnvironmentSpec
from seedrl_learner import manifest
from seedrl_learner.progress import Progress
from seedrl_proto.v1 import spec_pb2

FORMAT_VERSION = 3
# The versions before. Until 2, `vtrace.normalize_values` kept mean squares of values in place of variances.
_WITH_SQUARES = 2
_WITHOUT_MANIFEST = 1
_TEMPORARY = ".tmp-"
_STATE = "state.json"
_VARIABLES = "variables"
_REPLAY = "replay"
_DAMAGED = "damaged-"

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
        self._saving = threading.Lock()

    @property
    def exist(self) -> bool:
        """True when there is one, be it whole or not."""
        return bool(self._all())

    def newest(self, *, set_aside: bool) -> CheckpointState:
        """The newest whole checkpoint; damaged ones after it are passed over with a warning.

        `set_aside`: they get another name, so that what the run saves from now on is not mistaken for older than they.

        Raises:
          CheckpointError: there is none, none is whole, or the newest is of another version.
        """
        damages: dict[Path, CheckpointDamaged] = {}
        for path in reversed(self._all()):
            try:
                state = read_state(path)
                break
            except CheckpointDamaged as damage:
                damages[path] = damage
        else:
            if not damages:
                raise CheckpointError(f"no checkpoint in {self.directory}: there is nothing to start from")
            first = next(iter(damages.values()))
            raise CheckpointError(
                f"none of the {len(damages)} checkpoints in {self.directory} is whole; the newest: {first}"
            )
        for path, error in damages.items():
            _log.warning("checkpoint_damaged", path=str(path), error=str(error), instead=str(state.path))
            if set_aside:
                _rename(path, self.directory / f"{_DAMAGED}{path.name}")
        return state

    def save(
        self,
        trackables: Mapping[str, Any],
        progress: Progress,
        spec: EnvironmentSpec,
        config: LearnerConfig,
        *,
        between_updates: threading.Lock,
        save_replay: Callable[[Path], None] | None = None,
    ) -> Path:
        """Writes variables, state and the replay by `save_replay`, unless this policy version is there already.

        `between_updates` is held while they are written, and not while they are summed up and flushed to the disk. A
        save waits for the one before.

        Returns the checkpoint's directory.

        Raises:
          CheckpointError: the disk refused; earlier checkpoints are untouched.
        """
        with self._saving:
            with between_updates:
                progress = replace(progress)  # inference goes on counting
                final = self.directory / f"step-{progress.env_steps:012d}-update-{progress.policy_version:09d}"
                if final.exists():
                    return final
                temporary = self.directory / f"{_TEMPORARY}{final.name}"
                with _translated(final, temporary):
                    shutil.rmtree(temporary, ignore_errors=True)
                    temporary.mkdir(parents=True)
                    tf.train.Checkpoint(**trackables).write(str(temporary / _VARIABLES))
                    (temporary / _STATE).write_text(json.dumps(_state_to_json(progress, spec, config), indent=1))
                    if save_replay is not None:
                        save_replay(temporary / _REPLAY)
            with _translated(final, temporary):
                manifest.write(temporary)
                for path in (*temporary.rglob("*"), temporary):
                    _flush(path)
                temporary.rename(final)
                _flush(self.directory)
            # A save that was killed leaves its directory behind.
            for old in (*self._all()[: -self._keep], *self.directory.glob(f"{_TEMPORARY}*")):
                shutil.rmtree(old, ignore_errors=True)
        _log.info("checkpoint_saved", path=str(final), env_steps=progress.env_steps)
        return final

    def _all(self) -> list[Path]:
        return sorted(path for path in self.directory.glob("step-*") if path.is_dir())


def read_state(path: Path) -> CheckpointState:
    """What a checkpoint says besides its variables, once all of it is found to be what was written.

    Raises:
      CheckpointDamaged: it is not.
      CheckpointError: there is no checkpoint, or it is of another version.
    """
    if not path.is_dir():
        raise CheckpointError(f"no checkpoint at {path}: there is no such directory")
    has_manifest = (path / manifest.NAME).is_file()
    if has_manifest:
        manifest.verify(path)
    try:
        state = json.loads((path / _STATE).read_text())
    except FileNotFoundError as error:
        raise CheckpointDamaged(f"no checkpoint at {path}: it has no {_STATE}") from error
    except (OSError, ValueError) as error:
        raise CheckpointDamaged(f"checkpoint {path} cannot be read: {error}") from error
    try:
        _check_version(path, state["format_version"], has_manifest)
        config = LearnerConfig.model_validate(state["config"])
        _check_statistics(path, state["format_version"], config)
        return CheckpointState(
            path=path,
            spec=spec_from_proto(json_format.ParseDict(state["spec"], spec_pb2.EnvironmentSpec())),
            config=config,
            env_steps=int(state["env_steps"]),
            policy_version=int(state["policy_version"]),
            episodes=int(state["episodes"]),
            returns=tuple(state["returns"]),
        )
    except (ValueError, KeyError, TypeError, BadRequest, json_format.ParseError) as error:
        raise CheckpointError(f"checkpoint {path} cannot be read: {error}") from error


def _check_version(path: Path, version: Any, has_manifest: bool) -> None:
    if version == _WITHOUT_MANIFEST:
        _log.warning(
            "checkpoint_without_sums", path=str(path), reason="an earlier version wrote it: damage may go unseen"
        )
    elif version not in (_WITH_SQUARES, FORMAT_VERSION):
        raise CheckpointError(f"checkpoint {path}: expected format_version {FORMAT_VERSION}, got {version}")
    elif not has_manifest:
        raise CheckpointDamaged(f"checkpoint {path} has no {manifest.NAME}")


def _check_statistics(path: Path, version: int, config: LearnerConfig) -> None:
    if version <= _WITH_SQUARES and config.agent == "vtrace" and config.vtrace.normalize_values:
        raise CheckpointError(
            f"checkpoint {path}: expected format_version {FORMAT_VERSION} with learner.vtrace.normalize_values, got "
            f"{version}: an earlier version wrote it, with other statistics of values"
        )


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


@contextmanager
def _translated(final: Path, temporary: Path) -> Iterator[None]:
    """Errors of the disk as CheckpointError; nothing half-written stays behind then."""
    try:
        yield
    except (OSError, tf.errors.OpError) as error:
        shutil.rmtree(temporary, ignore_errors=True)
        raise CheckpointError(f"cannot write checkpoint {final}: {error}") from error


def _rename(path: Path, to: Path) -> None:
    try:
        shutil.rmtree(to, ignore_errors=True)
        path.rename(to)
    except OSError as error:
        raise CheckpointError(f"cannot set the damaged checkpoint {path} aside: {error}") from error


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
