"""Where training gets its batches from. Everything here runs in the training thread."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from seedrl_core.spec import Array
from seedrl_learner.batch import UnrollBatch
from seedrl_learner.unroll_queue import UnrollQueue
from seedrl_learner.unrolls import UnrollStore


class TrainingBatch(NamedTuple):
    """B unrolls to train on.

    Attributes:
      unrolls: what they hold.
      items: [B] int64, which items of a replay they are; empty for fresh unrolls.
    """

    unrolls: UnrollBatch
    items: Array


class TrainingData(Protocol):
    """A source of batches."""

    def next(self, timeout_s: float) -> TrainingBatch | None:
        """The next batch; None when there is none within `timeout_s`, or none any more."""

    def trained(self, batch: TrainingBatch, priority: Array | None) -> None:
        """`batch` has been trained on, and has these new priorities [B] float32 where the agent gives any."""


class FreshUnrolls:
    """Each unroll once, in the order in which they were finished."""

    def __init__(self, store: UnrollStore, queue: UnrollQueue, batch_unrolls: int) -> None:
        """`batch_unrolls` unrolls a batch."""
        self._store = store
        self._queue = queue
        self._batch_unrolls = batch_unrolls

    def next(self, timeout_s: float) -> TrainingBatch | None:
        """See TrainingData."""
        rows = self._queue.take(self._batch_unrolls, timeout_s)
        if rows is None:
            return None
        unrolls = self._store.gather(rows)
        self._store.release(rows)
        return TrainingBatch(unrolls, np.zeros(0, np.int64))

    def trained(self, batch: TrainingBatch, priority: Array | None) -> None:
        """See TrainingData: nothing is kept."""
