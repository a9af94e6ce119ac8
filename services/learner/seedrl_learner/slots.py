"""Slots: the numbers under which the learner keeps the state of each environment. Owned by inference."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from seedrl_core.errors import Overloaded

Slots = npt.NDArray[np.int32]


class SlotPool:
    """Hands out slot numbers 0 .. capacity-1, the lowest free ones first, so that touched memory stays small."""

    def __init__(self, capacity: int) -> None:
        """`capacity` is the most environments at a time."""
        self.capacity = capacity
        self._free = np.ones(capacity, np.bool_)

    @property
    def num_used(self) -> int:
        """Slots handed out."""
        return self.capacity - int(self._free.sum())

    def acquire(self, count: int) -> Slots:
        """`count` free slots [count] int32; Overloaded when there are not that many."""
        (free,) = np.nonzero(self._free)
        if len(free) < count:
            raise Overloaded(
                f"the learner is full: {count} environments asked for, {len(free)} of learner.max_envs="
                f"{self.capacity} free"
            )
        slots = free[:count].astype(np.int32)
        self._free[slots] = False
        return slots

    def release(self, slots: Slots) -> None:
        """Takes slots back."""
        assert not self._free[slots].any(), "slot released twice"
        self._free[slots] = True
