"""Replay of Atari sequences: unrolls a second taken in and sampled beside copying memory, and the memory of one."""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from measuring import Figure, image_spec, parse_arguments, show

from seedrl_core.codec import TickArrays
from seedrl_core.config import LearnerConfig
from seedrl_core.metrics import Metrics
from seedrl_learner.compute import configure_tensorflow

NUM_ENVS = 64
BATCH_UNROLLS = 32
_WARM_UP_BATCHES = 3


def main() -> None:
    """Measures, prints."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--unrolls", type=int, default=4000, help="unrolls that fill the replay (default: %(default)s)")
    arguments = parse_arguments(__doc__, parser)
    configure_tensorflow()
    taken_in: list[float] = []
    sampled: list[float] = []
    copied: list[float] = []
    memory: list[float] = []
    for _ in range(arguments.repetitions):
        with tempfile.TemporaryDirectory() as directory:
            replay = _Replay(Path(directory), arguments.unrolls)
            copied.append(copies_per_s(replay.unroll_bytes, arguments.seconds))
            before = resident_bytes()
            taken_in.append(replay.fill())
            memory.append((resident_bytes() - before) / arguments.unrolls)
            sampled.append(replay.sample(arguments.seconds))
    needed = [float(replay.unroll_bytes)] * arguments.repetitions
    show(
        [
            Figure("taken in, initial priority included", "unrolls/s", taken_in, "copies of an unroll", copied),
            Figure("sampled, priority update included", "unrolls/s", sampled, "copies of an unroll", copied),
            Figure("resident memory of an unroll", "bytes", memory, "bytes it holds", needed, goal=1.05, at_most=True),
        ],
        arguments.json,
    )


class _Replay:
    """The learner's own replay, filled by its own unroll assembly. Nothing is inferred or trained."""

    def __init__(self, run_dir: Path, capacity: int) -> None:
        from seedrl_learner.progress import Progress
        from seedrl_learner.run import Machinery

        config = LearnerConfig.model_validate(
            {
                "run_dir": run_dir,
                "agent": "r2d2",
                "batch_unrolls": BATCH_UNROLLS,
                "max_envs": NUM_ENVS,
                "queue_unrolls": NUM_ENVS,
                # Full before it is sampled, and then as often as asked for.
                "replay": {"capacity_unrolls": capacity, "min_unrolls": capacity, "ratio": 1e9, "max_bytes": 1 << 40},
            }
        )
        self._spec = image_spec(84, 84)
        machinery: Any = Machinery(config, self._spec, Progress(), Metrics())
        self._queue, self._data, self._store = machinery.queue, machinery.replay, machinery.store
        self._agent = machinery.agent
        self._capacity = capacity
        self.unroll_bytes: int = self._store.layout.unroll_bytes

    def fill(self) -> float:
        """Unrolls a second into the replay, while the assembly of unrolls is not counted."""
        slots = np.arange(NUM_ENVS, dtype=np.int32)
        self._store.open(slots)
        seconds = 0.0
        tick, batch = self._tick(), None
        while batch is None:  # until it is full
            self._store.append([(slots, tick)])
            self._queue.put(self._store.complete(slots, *self._outputs(), policy_version=0))
            if len(self._queue):
                began = time.perf_counter()
                batch = self._data.next(timeout_s=0.0)
                seconds += time.perf_counter() - began
        self._store.close(slots)
        return self._capacity / seconds

    def sample(self, seconds: float) -> float:
        """Unrolls a second out of the replay, as training batches that come back with new priorities."""
        rng = np.random.default_rng(0)
        count = 0
        began = time.perf_counter()
        while time.perf_counter() < began + seconds:
            batch = self._data.next(timeout_s=0.0)
            self._data.trained(batch, rng.random(BATCH_UNROLLS).astype(np.float32))
            count += BATCH_UNROLLS
        return count / (time.perf_counter() - began)

    def _tick(self) -> TickArrays:
        rng = np.random.default_rng(0)
        frames = rng.integers(0, 256, (NUM_ENVS, 84, 84), np.uint8)
        return TickArrays(0, (frames,), np.zeros(NUM_ENVS, np.float32), np.zeros(NUM_ENVS, np.uint8))

    def _outputs(self) -> tuple[Any, ...]:
        """What inference would answer: actions, behaviour, core state."""
        actions = (np.zeros(NUM_ENVS, np.int64),)
        behaviour = tuple(np.zeros((NUM_ENVS, *leaf.shape), leaf.dtype) for leaf in self._agent.behaviour)
        return (
            actions,
            behaviour,
            tuple(np.zeros((NUM_ENVS, size), np.float32) for size in self._agent.core_state_sizes),
        )


def copies_per_s(num_bytes: int, seconds: float) -> float:
    """Copies a second of `num_bytes` bytes between two places that no cache holds."""
    source = np.ones((256, num_bytes), np.uint8)
    target = np.zeros_like(source)
    count = 0
    began = time.perf_counter()
    while time.perf_counter() < began + seconds:
        target[count % 256] = source[(count * 7) % 256]
        count += 1
    return count / (time.perf_counter() - began)


def resident_bytes() -> int:
    """Memory of this process that is resident now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    main()
