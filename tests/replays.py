"""A small replay of real storage and a real queue, fed by hand: each unroll holds its number and its priority."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

from seedrl_core.config import LearnerConfig
from seedrl_core.metrics import Metrics
from seedrl_core.spec import TensorSpec
from seedrl_learner.batch import UnrollBatch
from seedrl_learner.replay.replayed_unrolls import ReplayedUnrolls
from seedrl_learner.unroll_queue import UnrollQueue
from seedrl_learner.unrolls import UnrollLayout, UnrollStore

IMAGE = TensorSpec("camera", np.dtype(np.uint8), (6, 5))
NUMBER = TensorSpec("number", np.dtype(np.float64), ())
ACTION = TensorSpec("action", np.dtype(np.int64), (), (0.0,), (3.0,))


def layout(unroll_length: int = 4) -> UnrollLayout:
    """Two observation leaves, one of them stacked, a core state, a burn-in of one step."""
    return UnrollLayout(
        observation=(IMAGE, NUMBER),
        action=(ACTION,),
        stacked=(True, False),
        behaviour=(TensorSpec("q_max", np.dtype(np.float32), ()),),
        core_state_sizes=(3, 3),
        unroll_length=unroll_length,
        overlap=2,
        frame_stack=3,
    )


class PriorityInReward:
    """An agent whose initial priority of an unroll is its first reward, read without any observation."""

    def initial_priority(self, batch: UnrollBatch) -> tf.Tensor:
        assert batch.observation == (), "initial priorities must not copy observations"
        return batch.reward[:, 0]


@dataclass
class Feed:
    """A ReplayedUnrolls and what is before it: `produce` finishes unrolls as inference would."""

    data: ReplayedUnrolls
    store: UnrollStore
    queue: UnrollQueue
    metrics: Metrics
    num_rows: int
    time: list[float]
    priorities: list[float] = field(default_factory=list)

    def produce(self, *priorities: float) -> None:
        """One unroll for each priority, numbered from 0 in its second reward; every other byte is random."""
        for priority in priorities:
            (row,) = self.store.acquire(1)
            rng = np.random.default_rng(len(self.priorities))
            for name, (dtype, shape) in self.store.layout.fields.items():
                self.store.field(name, int(row))[0] = rng.integers(0, 100, shape).astype(dtype)
            self.store.field("reward", int(row))[0, :2] = priority, len(self.priorities)
            self.priorities.append(priority)
            assert self.queue.put([int(row)])

    @property
    def taken_in(self) -> int:
        """Unrolls that left the queue."""
        return len(self.priorities) - len(self.queue)


def numbers(unrolls: UnrollBatch) -> list[int]:
    """Which of a feed's unrolls these are."""
    return [int(number) for number in np.asarray(unrolls.reward)[:, 1]]


def make_feed(*, capacity: int = 8, batch: int = 4, unroll_length: int = 4, num_rows: int = 200, **replay: Any) -> Feed:
    """A feed on a clock that stands still until `time[0]` is changed."""
    settings = {"min_unrolls": 4, "ratio": 1.0} | replay
    config = LearnerConfig.model_validate({"agent": "r2d2", "batch_unrolls": batch, "replay": settings})
    store = UnrollStore(layout(unroll_length), 1, num_rows)
    queue, metrics, time = UnrollQueue(10_000), Metrics(), [0.0]
    data = ReplayedUnrolls(PriorityInReward(), store, queue, capacity, config, metrics, clock=lambda: time[0])  # type: ignore[arg-type]
    return Feed(data, store, queue, metrics, num_rows, time)
