"""Batches from replayed unrolls: takes finished ones in, samples by priority, keeps collecting and training in step."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import tensorflow as tf

from seedrl_core import logs
from seedrl_core.aio import SLOW_WAIT_S
from seedrl_core.config import LearnerConfig
from seedrl_core.metrics import Metrics
from seedrl_core.spec import Array
from seedrl_learner.agents.base import ReplayAgent
from seedrl_learner.replay import snapshot
from seedrl_learner.replay.replay import Replay
from seedrl_learner.training_data import TrainingBatch
from seedrl_learner.unroll_queue import UnrollQueue
from seedrl_learner.unrolls import UnrollStore

_log = logs.get(__name__)


class ReplayedUnrolls:
    """A TrainingData over a Replay of the store's rows.

    Flow control: let I be the unrolls taken in since the replay held `min_unrolls`, S those sampled, B a batch and r
    the replay ratio; a resumed run counts from 0. A batch is sampled only when

        S + B <= r I,

    so training waits for the actors where they are slower. No more than what the next batch needs is taken in, so

        r I < S + B + r

    at any time, and the actors wait, by the bounded queue before this, where training is slower. Each transition is
    thus trained on r times on average.
    """

    def __init__(
        self,
        agent: ReplayAgent,
        store: UnrollStore,
        queue: UnrollQueue,
        capacity: int,
        config: LearnerConfig,
        metrics: Metrics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Keeps `capacity` unrolls of `store`. Takes a resolved configuration; `clock` returns seconds."""
        replay = config.replay
        assert config.batch_unrolls is not None, "configuration not resolved"
        assert replay.ratio is not None and replay.min_unrolls is not None, "configuration not resolved"
        self._replay = Replay(capacity, replay.priority_exponent, np.random.default_rng(config.seed))
        self._lock = threading.Lock()  # held while the replay changes
        self._store = store
        self._queue = queue
        # Batches of new unrolls differ in size.
        self._initial_priority = tf.function(agent.initial_priority, autograph=False, reduce_retracing=True)
        self._ratio = replay.ratio
        self._min_unrolls = replay.min_unrolls
        self._importance_exponent = replay.importance_exponent
        self._batch_unrolls = config.batch_unrolls
        self._metrics = metrics
        self._clock = clock
        self._taken_in = self._sampled = 0
        self._waiting_since: float | None = None

    def __len__(self) -> int:
        """Unrolls held."""
        return len(self._replay)

    def save(self, directory: Path) -> None:
        """Writes all of it into a new directory; training waits meanwhile. Raises OSError."""
        with self._lock:
            snapshot.write(directory, self._replay, self._store)

    def restore(self, directory: Path) -> None:
        """Takes over what `save` wrote, before anything else is taken in. Raises CheckpointError.

        The counts of the flow control start anew: they must not hold up training, or let it loose, when the run goes
        on with another replay ratio.
        """
        snapshot.read(directory, self._replay, self._store)

    def next(self, timeout_s: float) -> TrainingBatch | None:
        """See TrainingData."""
        if (missing := self._missing()) > 0:
            # What the queue holds, where it holds any: nobody waits for unrolls that are still to come.
            rows = self._queue.take(min(missing, max(1, len(self._queue)), self._replay.capacity), timeout_s)
            if rows is not None:
                self._take_in(rows)
        if (missing := self._missing()) > 0:
            self._tell_slow(missing)
            return None
        self._waiting_since = None
        return self._sample()

    def trained(self, batch: TrainingBatch, priority: Array | None) -> None:
        """See TrainingData."""
        assert priority is not None, "an agent that replays gives priorities"
        with self._lock:
            overwritten = self._replay.update(batch.items, priority)
        self._metrics.observe("replay/priority", float(priority.mean()))
        self._metrics.count("replay/overwritten_per_s", overwritten)

    def _missing(self) -> int:
        """Unrolls to take in before the next batch may be sampled."""
        filling = self._min_unrolls - len(self._replay)
        if filling > 0:
            return filling
        return int(np.ceil((self._sampled + self._batch_unrolls) / self._ratio - self._taken_in))

    def _take_in(self, rows: list[int]) -> None:
        unrolls = self._store.gather(rows, with_observation=False)
        priority = self._initial_priority(unrolls).numpy()
        with self._lock:
            if len(self._replay) >= self._min_unrolls:
                self._taken_in += len(rows)
            self._store.release(self._replay.insert(rows, priority))
        self._metrics.observe("replay/initial_priority", float(priority.mean()), weight=len(rows))
        self._metrics.count("replay/inserted_per_s", len(rows))
        self._metrics.observe("replay/fill", len(self._replay) / self._replay.capacity)

    def _sample(self) -> TrainingBatch:
        replay = self._replay
        sample = replay.sample(self._batch_unrolls)
        self._sampled += self._batch_unrolls
        weight = (len(replay) * sample.probability) ** -self._importance_exponent
        self._metrics.observe("replay/age_unrolls", float((replay.num_inserted - 1 - sample.items).mean()))
        self._metrics.observe("replay/ratio", self._sampled / self._taken_in)
        self._metrics.count("replay/sampled_per_s", self._batch_unrolls)
        unrolls = self._store.gather(sample.rows.tolist())
        return TrainingBatch(unrolls._replace(weight=(weight / weight.max()).astype(np.float32)), sample.items)

    def _tell_slow(self, missing: int) -> None:
        now = self._clock()
        if self._waiting_since is None:
            self._waiting_since = now
        elif now - self._waiting_since > SLOW_WAIT_S:
            self._waiting_since = now
            filling = len(self._replay) < self._min_unrolls
            _log.info(
                "training_waits_for_actors",
                missing_unrolls=missing,
                reason="the replay fills to replay.min_unrolls" if filling else "replay.ratio allows no more training",
            )
