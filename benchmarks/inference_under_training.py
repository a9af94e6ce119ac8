"""How much training and replay slow inference: the latency of an inference batch with and without them, in one process.

Atari observations, R2D2 with its defaults, the learner's own inference, replay and training; no services.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
from measuring import Figure, image_spec, parse_arguments, show

from seedrl_core.codec import TickArrays
from seedrl_core.config import LearnerConfig
from seedrl_core.metrics import Metrics
from seedrl_learner.compute import configure_tensorflow

_WARM_UP_BATCHES = 20


def main() -> None:
    """Measures, prints."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--envs", type=int, default=32, help="environments of a batch (default: %(default)s)")
    parser.add_argument("--agent", default="r2d2", help="algorithm (default: %(default)s)")
    arguments = parse_arguments(__doc__, parser)
    configure_tensorflow()
    alone: list[list[float]] = []
    beside: list[list[float]] = []
    updates: list[float] = []
    with tempfile.TemporaryDirectory() as directory:
        learner = _Learner(Path(directory), arguments.agent, arguments.envs)
        learner.warm_up()
        for _ in range(arguments.repetitions):
            alone.append(learner.latencies_ms(arguments.seconds))
            with learner.training() as count_updates:
                beside.append(learner.latencies_ms(arguments.seconds))
                updates.append(count_updates() / arguments.seconds)
        learner.close()
    figures = [
        Figure(
            f"latency of a batch of {arguments.envs}, {name}, training beside it",
            "ms",
            [float(np.percentile(times, percentile)) for times in beside],
            "inference alone",
            [float(np.percentile(times, percentile)) for times in alone],
        )
        for name, percentile in (("p50", 50), ("p99", 99))
    ]
    show(figures, arguments.json, updates_per_s=[round(value, 2) for value in updates])


class _Training:
    """Trains while it is entered."""

    def __init__(self, trainer: Any, progress: Any) -> None:
        self._trainer, self._progress = trainer, progress

    def __enter__(self) -> Any:
        before = self._progress.policy_version
        self._trainer.set_enabled(True)
        return lambda: self._progress.policy_version - before

    def __exit__(self, *_: object) -> None:
        self._trainer.set_enabled(False)
        with self._trainer.between_updates:
            pass


class _Learner:
    """The learner's objects, fed with the same observation again and again."""

    def __init__(self, run_dir: Path, agent: str, num_envs: int) -> None:
        from seedrl_learner.progress import Progress
        from seedrl_learner.run import Machinery

        replay = {"min_unrolls": 64, "ratio": 1000.0}  # training never waits for new unrolls
        config = LearnerConfig.model_validate(
            {"run_dir": run_dir, "agent": agent, "replay": replay, "max_envs": num_envs}
        )
        self.progress = Progress()
        machinery: Any = Machinery(config, image_spec(84, 84), self.progress, Metrics())
        self._inference, self._queue, self._trainer = machinery.inference, machinery.queue, machinery.trainer
        self._store = machinery.store
        self._slots = self._inference.open(num_envs, greedy=False)
        frames = np.random.default_rng(0).integers(0, 256, (num_envs, 84, 84), np.uint8)
        self._tick = TickArrays(0, (frames,), np.zeros(num_envs, np.float32), np.zeros(num_envs, np.uint8))
        self._trainer.set_enabled(False)
        self._thread = threading.Thread(target=self._trainer.run)
        self._thread.start()

    def warm_up(self) -> None:
        """Fills the replay until a first update has been made."""
        self._trainer.set_enabled(True)
        while self.progress.policy_version < 2:
            self._infer()
        self._trainer.set_enabled(False)
        for _ in range(_WARM_UP_BATCHES):
            self._infer()

    def training(self) -> _Training:
        """A context in which the learner trains."""
        return _Training(self._trainer, self.progress)

    def latencies_ms(self, seconds: float) -> list[float]:
        """Milliseconds of each batch over a window."""
        times = []
        deadline = time.perf_counter() + seconds
        while time.perf_counter() < deadline:
            began = time.perf_counter()
            self._infer()
            times.append(1000.0 * (time.perf_counter() - began))
        return times

    def close(self) -> None:
        """Ends the training thread."""
        self._trainer.stop()
        self._queue.close()
        self._thread.join()

    def _infer(self) -> None:
        """One batch; unrolls beyond what the queue may hold are dropped, as nobody waits for room here."""
        self._inference.run([(self._slots, self._tick)])
        if not self._queue.has_room and (rows := self._queue.take(1, 0.0)):
            self._store.release(rows)


if __name__ == "__main__":
    main()
