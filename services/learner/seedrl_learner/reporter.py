"""Where a run's numbers go: TensorBoard events, `metrics.jsonl`, `summary.json`, and the latest values for Status."""

from __future__ import annotations

import errno
import json
import math
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import tensorflow as tf

from seedrl_core import logs
from seedrl_core.files import write_whole
from seedrl_learner.batch_pictures import MOST_ROWS, batch_pictures
from seedrl_learner.bottleneck import STARTING, name_bottleneck
from seedrl_learner.run import Run

_PICTURES_EVERY_S = 60.0
_log = logs.get(__name__)


class Reporter:
    """Turns windows of metrics into records. A report waits for the one before, which another thread may be writing."""

    def __init__(self, run: Run) -> None:
        """Writes under the run's directory, unless the run only serves."""
        self._run = run
        self._directory: Path | None = None if run.serves_only else run.config.run_dir
        self._writer: Any = None
        self._pictures_due = -math.inf
        self._began: tuple[float, int] | None = None
        self.latest: dict[str, float] = {}
        self.bottleneck = STARTING
        self._reporting = threading.Lock()

    def report(self, num_envs: int) -> dict[str, float]:
        """Closes the metrics window and writes it out, at the current number of env steps.

        A full disk is an error line, not the end of the run.
        """
        with self._reporting:
            return self._report(num_envs)

    def _report(self, num_envs: int) -> dict[str, float]:
        run = self._run
        values = run.metrics.collect()
        if self._began is None and values.get("env_steps_per_s", 0.0) > 0:
            self._began = (time.monotonic(), run.progress.env_steps)
        values["learner/idle_share"] = 1.0 - values.pop("learner/busy_share", 0.0)
        values["learner/num_envs"] = float(num_envs)
        if run.machinery is not None:
            values["frames_per_s"] = values.get("env_steps_per_s", 0.0) * run.machinery.spec.action_repeat
            values["train/queue_unrolls"] = float(len(run.machinery.queue))
        if run.progress.returns:
            values["episode/mean_return_100"] = run.progress.mean_return
        if (score := run.human_normalized_score) is not None:
            values["episode/human_normalized_score"] = score
        self.bottleneck = name_bottleneck(values)
        self.latest = values
        if run.machinery is not None and self._directory is not None:
            try:
                self._write(self._directory, values)
            except (OSError, tf.errors.OpError) as error:
                # What follows half a record of TensorBoard's is never read: the next one goes into a new file.
                self._writer = None
                _log.error("metrics_not_written", error=str(error))
        return values

    def write_summary(self) -> None:
        """Writes `summary.json`: what the run came to, from its first step in this process.

        A full disk is an error line.
        """
        if self._directory is None:
            return
        run = self._run
        mean_return = run.progress.mean_return
        summary = {
            "env_steps": run.progress.env_steps,
            "frames": run.progress.env_steps * (run.machinery.spec.action_repeat if run.machinery else 1),
            "env_steps_per_s": self._env_steps_per_s(),
            "episodes": run.progress.episodes,
            "mean_return": mean_return if run.progress.returns else None,
            "human_normalized_score": run.human_normalized_score,
            "policy_version": run.progress.policy_version,
            "checkpoint": str(run.last_checkpoint) if run.last_checkpoint else None,
            "run_dir": str(self._directory),
            "seconds": time.monotonic() - run.started,
        }
        try:
            write_whole(self._directory / "summary.json", json.dumps(summary) + "\n")
        except OSError as error:
            _log.error("summary_not_written", error=str(error))

    def _env_steps_per_s(self) -> float:
        """From the end of the first window with env steps, so that the start does not count; in a run that was over by
        then, from the start of this process.
        """
        run = self._run
        began, steps = self._began or (run.started, run.first_env_steps)
        if steps == run.progress.env_steps:
            began, steps = run.started, run.first_env_steps
        return (run.progress.env_steps - steps) / (time.monotonic() - began)

    def _write(self, directory: Path, values: dict[str, float]) -> None:
        progress = self._run.progress
        record = {
            "time": time.time(),
            "env_steps": progress.env_steps,
            "policy_version": progress.policy_version,
            "episodes": progress.episodes,
            "bottleneck": self.bottleneck,
            **values,
        }
        _append(directory / "metrics.jsonl", json.dumps(record) + "\n")
        if not self._run.config.tensorboard:
            return
        if self._writer is None:
            self._writer = tf.summary.create_file_writer(str(directory / "tensorboard"))
        with self._writer.as_default(step=progress.env_steps), _closed_on_failure(self._writer):
            for name, value in values.items():
                tf.summary.scalar(name, value)
            self._write_pictures()
            self._writer.flush()

    def _write_pictures(self) -> None:
        """What training sees now, once in a while."""
        machinery = self._run.machinery
        if machinery is None or machinery.trainer.newest is None or time.monotonic() < self._pictures_due:
            return
        self._pictures_due = time.monotonic() + _PICTURES_EVERY_S
        agent, batch = machinery.agent, machinery.trainer.newest
        for path, picture in batch_pictures(batch, machinery.spec, agent.stacked).items():
            tf.summary.image(path, picture, max_outputs=MOST_ROWS)


@contextmanager
def _closed_on_failure(writer: Any) -> Iterator[None]:
    """Within `as_default`, whose own flush at its end must not fail: the writer would stay default, its file open."""
    try:
        yield
    except tf.errors.OpError:
        with suppress(tf.errors.OpError):
            writer.close()
        raise


def _append(path: Path, line: str) -> None:
    """Adds the whole line to a file, or nothing: half a line would spoil the next one. OSError on a full disk."""
    encoded = line.encode()
    with path.open("ab", buffering=0) as file:
        end = file.tell()
        if file.write(encoded) < len(encoded):
            file.truncate(end)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
