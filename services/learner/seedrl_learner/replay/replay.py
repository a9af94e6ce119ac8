"""Prioritized replay (Schaul et al., arXiv 1511.05952) of things known by number: here, the storage rows of unrolls.

Belongs to one thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from seedrl_core.spec import Array
from seedrl_learner.replay.sum_tree import Indices, SumTree

# So that every item is sampled some day.
_LEAST_PRIORITY = 1e-6


class Sample(NamedTuple):
    """n items drawn with replacement.

    Attributes:
      items: [n] int64, by number of insertion.
      rows: [n] int32.
      probability: [n] float64, with which each draw gives that item.
    """

    items: Indices
    rows: Array
    probability: Array


class Replay:
    """The newest `capacity` items. An item is its number of insertion, so a late change never hits a newer one."""

    def __init__(self, capacity: int, priority_exponent: float, rng: np.random.Generator) -> None:
        """An item is sampled with probability proportional to priority^priority_exponent."""
        self.capacity = capacity
        self.num_inserted = 0
        self._num_held = 0
        self._exponent = priority_exponent
        self._rng = rng
        self._tree = SumTree(capacity)
        self._rows = np.full(capacity, -1, np.int32)

    def __len__(self) -> int:
        """Items held."""
        return self._num_held

    @property
    def items(self) -> Indices:
        """The items held, oldest first."""
        return np.arange(self.num_inserted - len(self), self.num_inserted)

    def rows(self, items: Indices) -> Array:
        """The rows [n] int32 of items [n] that are held."""
        return self._rows[items % self.capacity]

    def weights(self, items: Indices) -> Array:
        """priority^priority_exponent [n] float64 of items [n] that are held."""
        return self._tree.weights(items % self.capacity)

    def restore(self, num_inserted: int, rows: Sequence[int], weights: Array) -> None:
        """Fills an empty replay with the newest items of `num_inserted`, oldest first, as `weights` gave them."""
        assert self.num_inserted == 0 and len(rows) <= self.capacity
        self.num_inserted = num_inserted
        positions = np.arange(num_inserted - len(rows), num_inserted) % self.capacity
        self._num_held = len(rows)
        self._rows[positions] = rows
        self._tree.set(positions, weights)

    def insert(self, rows: Sequence[int], priority: Array) -> list[int]:
        """Adds items; returns the rows of the oldest ones, which had to go.

        Args:
          rows: of at most `capacity` items.
          priority: [n] of them.
        """
        assert len(rows) <= self.capacity
        items = np.arange(self.num_inserted, self.num_inserted + len(rows))
        positions = items % self.capacity
        evicted = self._rows[positions]
        self._rows[positions] = rows
        self.num_inserted += len(rows)
        self._num_held = min(self.capacity, self._num_held + len(rows))
        self._set(positions, priority)
        return [int(row) for row in evicted if row >= 0]

    def sample(self, count: int) -> Sample:
        """Draws one item from each of `count` equal parts of the priorities' mass."""
        total = self._tree.total
        mass = (np.arange(count) + self._rng.random(count)) * (total / count)
        positions = self._tree.find(np.minimum(mass, np.nextafter(total, 0.0)))
        newest = self.num_inserted - 1
        items = newest - (newest - positions) % self.capacity
        return Sample(items, self._rows[positions], self._tree.weights(positions) / total)

    def update(self, items: Indices, priority: Array) -> int:
        """Sets priorities [n]; what is not held any more is skipped. Returns how many were."""
        held = items >= self.num_inserted - len(self)
        if held.any():
            self._set(items[held] % self.capacity, priority[held])
        return int(np.count_nonzero(~held))

    def _set(self, positions: Indices, priority: Array) -> None:
        assert np.all(np.isfinite(priority)), "expected finite priorities"
        self._tree.set(positions, np.maximum(priority.astype(np.float64), _LEAST_PRIORITY) ** self._exponent)
