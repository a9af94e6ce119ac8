"""The numbers behind the batching: what a batch was like, how long ticks waited for it, how long the learner took."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from seedrl_broker.batcher import QueuedTick
from seedrl_core.metrics import Metrics, Totals

_MS = 1000.0


class BatchingMetrics:
    """Observed batch by batch; `values` are those of the last closed window."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock` returns seconds; times given to the methods are its."""
        self.values: dict[str, float] = {}
        self._metrics = Metrics(clock)
        self._longest_wait_s = 0.0
        self._sent_at: dict[int, float] = {}

    def batch_sent(self, batch_id: int, ticks: Sequence[QueuedTick], max_rows: int, now: float) -> float:
        """A batch of at least one tick goes out, where `max_rows` would have fitted; returns its mean wait in ms."""
        rows = sum(tick.rows for tick in ticks)
        waits_s = [now - tick.queued_at for tick in ticks]
        self._sent_at[batch_id] = now
        self._longest_wait_s = max(self._longest_wait_s, *waits_s)
        self._metrics.observe("batch_rows", rows)
        self._metrics.observe("batch_fill", rows / max_rows)
        mean_wait_ms = _MS * sum(waits_s) / len(waits_s)
        self._metrics.observe("queue_wait_ms", mean_wait_ms, weight=len(waits_s))
        self._metrics.count("batches_per_s")
        self._metrics.count("rows_per_s", rows)
        return mean_wait_ms

    def batch_answered(self, batch_id: int, now: float) -> None:
        """The learner has returned the batch's credit."""
        self._metrics.observe("learner_round_trip_ms", _MS * (now - self._sent_at.pop(batch_id)))

    def link_lost(self) -> None:
        """What is in flight will not be answered."""
        self._sent_at.clear()

    def totals(self) -> Totals:
        """Everything since the broker began."""
        return self._metrics.totals()

    @property
    def known(self) -> dict[str, float]:
        """The newest value of each number that a closed window has had."""
        return self._metrics.known | self.values

    def close_window(self) -> dict[str, float]:
        """Ends the window, keeps its values and returns them."""
        self.values = self._metrics.collect() | {"queue_wait_max_ms": _MS * self._longest_wait_s}
        self._longest_wait_s = 0.0
        return self.values
