"""The bounded queue of finished unrolls between inference and training: where back-pressure comes from."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence


class UnrollQueue:
    """First in, first out, of the storage rows of finished unrolls.

    Flow control: the ticks of an inference batch are taken in only while

        waiting < limit,

    and may then finish at most one unroll for each of their R rows, so at any time

        waiting <= limit - 1 + R,    R = environments of one inference batch.

    Otherwise the reply to the batch waits, its actors wait for their actions, and nothing else grows. An unroll thus
    waits for at most ceil((limit - 1 + R) / B) training updates of B unrolls, which bounds the policy lag.

    Where they alternate, inference and training take turns besides: training's turn begins with the ticks taken in, and
    ends when it finds fewer unrolls than it wants. What each sees of the other then depends on no clock.
    """

    def __init__(self, limit: int, *, alternate: bool = False) -> None:
        """`limit` is the number of waiting unrolls at which inference stops taking ticks in."""
        self.limit = limit
        self._alternate = alternate
        self._training_is_next = False
        self._rows: deque[int] = deque()
        self._changed = threading.Condition()
        self._on_room: Callable[[], object] | None = None
        self._closed = False

    def most_waiting(self, most_rows: int) -> int:
        """Most unrolls that wait at a time, where an inference batch has at most `most_rows` environments."""
        return self.limit - 1 + most_rows

    def __len__(self) -> int:
        """Unrolls waiting."""
        return len(self._rows)

    @property
    def has_room(self) -> bool:
        """True while ticks may be taken in."""
        return self._closed or (len(self._rows) < self.limit and not self._training_is_next)

    @property
    def is_closed(self) -> bool:
        """True once nobody trains any more."""
        return self._closed

    def notify_room(self, callback: Callable[[], object]) -> None:
        """`callback` is called, in the training thread, each time there may be room again."""
        self._on_room = callback

    def put(self, rows: Sequence[int], when_taken_in: Callable[[], object] = lambda: None) -> bool:
        """Adds the unrolls that ticks have finished, and never blocks (see the inequality).

        Calls `when_taken_in` before training can see them; returns False after `close`, when nobody wants them.
        """
        with self._changed:
            if self._closed:
                return False
            self._rows.extend(rows)
            when_taken_in()
            self._training_is_next = self._alternate
            if rows or self._alternate:  # most ticks finish no unroll, and training need not wake for them
                self._changed.notify_all()
        return True

    def take(self, count: int, timeout_s: float) -> list[int] | None:
        """The `count` oldest unrolls; None when there are not that many within `timeout_s`, or after `close`.

        Where inference and training alternate, None also at the end of training's turn: it never waits within one.
        """
        with self._changed:
            if self._alternate and len(self._rows) < count:
                self._wait_for_turn(timeout_s)
                return None
            self._changed.wait_for(lambda: self._closed or len(self._rows) >= count, timeout_s)
            if self._closed or len(self._rows) < count:
                return None
            taken = [self._rows.popleft() for _ in range(count)]
        if self._on_room is not None:
            self._on_room()
        return taken

    def close(self) -> None:
        """Wakes everybody: training gets None, inference always has room (its unrolls are no longer trained on)."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._on_room is not None:
            self._on_room()

    def _wait_for_turn(self, timeout_s: float) -> None:
        """Ends training's turn, if it is that, and waits for the next one."""
        if self._training_is_next:
            self._training_is_next = False
            if self._on_room is not None:
                self._on_room()
        self._changed.wait_for(lambda: self._closed or self._training_is_next, timeout_s)
