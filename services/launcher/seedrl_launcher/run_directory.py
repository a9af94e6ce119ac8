"""What lies where in a run's directory: resolved configuration, logs, checkpoints, summary. It starts nothing."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seedrl_core.errors import CheckpointError, ConfigError

RUNS = Path("runs")
_MAX_SOCKET_DIRECTORY_BYTES = 90  # a Unix socket's whole path has at most 107 bytes


@dataclass(frozen=True)
class RunDirectory:
    """A run's files."""

    path: Path

    @property
    def config_file(self) -> Path:
        """The resolved settings, as TOML."""
        return self.path / "config.toml"

    @property
    def metrics_file(self) -> Path:
        """The learner's windows of metrics, one JSON object a line."""
        return self.path / "metrics.jsonl"

    @property
    def logs(self) -> Path:
        """One file a service."""
        return self.path / "logs"

    @property
    def has_checkpoint(self) -> bool:
        """True when the learner has saved one."""
        return any(self.path.glob("checkpoints/step-*"))

    def read_summary(self) -> dict[str, Any] | None:
        """What the learner wrote at its end; None when it did not get so far."""
        try:
            summary: dict[str, Any] = json.loads(self._summary_file.read_text())
        except FileNotFoundError:
            return None
        return summary

    def forget_summary(self) -> None:
        """Removes the summary of an earlier part of the run."""
        self._summary_file.unlink(missing_ok=True)

    @property
    def _summary_file(self) -> Path:
        return self.path / "summary.json"


def create(path: Path) -> RunDirectory:
    """A new, empty directory for a run; ConfigError when there is something already."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        occupied = any(path.iterdir())
    except OSError as error:
        raise ConfigError(f"run directory {path}: {error.strerror}") from error
    if occupied:
        raise ConfigError(f"run directory {path} is not empty: add --resume to continue its run, or choose another")
    return RunDirectory(path)


def create_default(env_id: str, agent: str) -> RunDirectory:
    """A new directory under `runs/`, named after environment, agent and time."""
    name = f"{safe_name(env_id)}-{safe_name(agent)}-{time.strftime('%Y%m%d-%H%M%S')}"
    number = 1
    while True:
        path = RUNS / (name if number == 1 else f"{name}-{number}")
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            number += 1
            continue
        except OSError as error:
            raise ConfigError(f"run directory {path}: {error.strerror}") from error
        return RunDirectory(path)


def open_with_checkpoint(path: Path) -> RunDirectory:
    """An existing run's directory.

    Raises:
      ConfigError: it does not exist, or is not a run's.
      CheckpointError: it has no checkpoint.
    """
    run = RunDirectory(path)
    if not path.is_dir():
        raise ConfigError(f"run directory {path} does not exist")
    if not run.config_file.is_file():
        raise ConfigError(f"{path} is not a run's directory: it has no {run.config_file.name}")
    if not run.has_checkpoint:
        raise CheckpointError(f"run directory {path} has no checkpoint")
    return run


def safe_name(text: str) -> str:
    """`text` as part of a file name: `ALE/Pong-v5` -> `ALE-Pong-v5`."""
    return re.sub(r"[^A-Za-z0-9._]+", "-", text).strip("-.") or "run"


@contextmanager
def socket_directory(run: RunDirectory) -> Iterator[Path]:
    """A directory for the run's Unix sockets: its own, or a private temporary one where that path is too long."""
    own = run.path.resolve()
    if len(str(own).encode()) <= _MAX_SOCKET_DIRECTORY_BYTES:
        yield own
        return
    with temporary_directory() as short:
        yield short


@contextmanager
def temporary_directory() -> Iterator[Path]:
    """A private directory that is removed at the end."""
    path = Path(tempfile.mkdtemp(prefix="seedrl-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
