"""When a batch goes to the learner, and which ticks are in it. Pure bookkeeping: no gRPC, no clock of its own.

A session is *computing* (its environments step), then its tick is *queued*, then *in flight*, and so on. A batch is due
as soon as a credit is free and any of these holds: a full batch is queued; no session is computing, so that nobody is
worth waiting for; the oldest queued tick has waited `max_delay_s`. Sessions that left are never waited for.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass

AT_ONCE = -math.inf
NOT_NOW = math.inf


@dataclass(frozen=True)
class QueuedTick:
    """A tick that waits for a batch."""

    session: int
    rows: int
    num_bytes: int
    queued_at: float


class Batcher:
    """The queue of one link to the learner. Bounded: a session has at most one tick here."""

    def __init__(self, max_delay_s: float) -> None:
        """`max_delay_s`: longest a tick waits for others while a credit is free, seconds."""
        self._max_delay_s = max_delay_s
        self.stop()

    def start(self, max_rows: int, max_bytes: int, credits: int) -> None:
        """A link is there that takes `credits` unanswered batches, each of `max_rows` rows and `max_bytes` bytes."""
        self._max_rows = max_rows
        self._max_bytes = max_bytes
        self._credits = credits

    def stop(self) -> None:
        """The link is gone, and with it everything that was queued or in flight."""
        self._max_rows = self._max_bytes = self._credits = 0
        self._rows: dict[int, int] = {}
        self._queue: OrderedDict[int, QueuedTick] = OrderedDict()
        self._batches: dict[int, list[QueuedTick]] = {}
        self._in_flight: dict[int, int] = {}  # session -> batch
        self._queued_rows = self._queued_bytes = 0

    def join(self, session: int, rows: int) -> None:
        """The session is welcome at the learner; its environments are computing."""
        self._rows[session] = rows

    def is_member(self, session: int) -> bool:
        """True from join to leave."""
        return session in self._rows

    def leave(self, session: int) -> None:
        """The session is over; its queued tick is dropped, one in flight keeps its credit until the learner answers."""
        self._rows.pop(session, None)
        self._in_flight.pop(session, None)
        if (tick := self._queue.pop(session, None)) is not None:
            self._forget(tick)

    def submit(self, session: int, num_bytes: int, now: float) -> None:
        """Queues the tick of a session that is computing."""
        assert session not in self._queue
        assert session not in self._in_flight
        tick = QueuedTick(session, self._rows[session], num_bytes, now)
        self._queue[session] = tick
        self._queued_rows += tick.rows
        self._queued_bytes += tick.num_bytes

    def due_at(self) -> float:
        """When the next batch is due if nothing else happens: AT_ONCE, a time of the caller's clock, or NOT_NOW."""
        if not self._queue or self._credits <= 0:
            return NOT_NOW
        computing = len(self._rows) - len(self._queue) - len(self._in_flight)
        if computing == 0 or self._queued_rows >= self._max_rows or self._queued_bytes >= self._max_bytes:
            return AT_ONCE
        return self._oldest().queued_at + self._max_delay_s

    def take(self, batch_id: int) -> list[QueuedTick]:
        """The next batch, oldest first, within the limits; spends a credit. To be called once a batch is due."""
        self._credits -= 1
        batch = self._batches[batch_id] = []
        rows = num_bytes = 0
        while self._queue:
            tick = self._oldest()
            rows += tick.rows
            num_bytes += tick.num_bytes
            if batch and (rows > self._max_rows or num_bytes > self._max_bytes):
                break
            del self._queue[tick.session]
            self._forget(tick)
            self._in_flight[tick.session] = batch_id
            batch.append(tick)
        return batch

    def answered(self, session: int, batch_id: int) -> bool:
        """The session has its actions and is computing; False when the batch has no unanswered tick of it."""
        if self._in_flight.get(session) != batch_id:
            return False
        del self._in_flight[session]
        return True

    def return_credit(self, batch_id: int) -> list[int]:
        """The learner is done with a batch; returns the sessions of it that it owes an answer still.

        Raises:
          KeyError: there is no such batch.
        """
        batch = self._batches.pop(batch_id)
        self._credits += 1
        return [tick.session for tick in batch if self._in_flight.get(tick.session) == batch_id]

    def _oldest(self) -> QueuedTick:
        return next(iter(self._queue.values()))

    def _forget(self, tick: QueuedTick) -> None:
        self._queued_rows -= tick.rows
        self._queued_bytes -= tick.num_bytes
