"""A complete binary tree of sums: changes weights and samples in proportion to them, in O(log n), for many at once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from seedrl_core.spec import Array

Indices = npt.NDArray[np.int64]


class SumTree:
    """`capacity` weights >= 0, float64. Each inner node is the sum of its two children, so no error accumulates."""

    def __init__(self, capacity: int) -> None:
        """All weights are 0."""
        self.capacity = capacity
        self._num_leaves = 1 << max(0, capacity - 1).bit_length()
        # The root is node 1; the children of node i are 2i and 2i + 1.
        self._nodes = np.zeros(2 * self._num_leaves)

    @property
    def total(self) -> float:
        """The sum of all weights."""
        return float(self._nodes[1])

    def weights(self, indices: Indices) -> Array:
        """The weights at `indices` [n]."""
        return self._nodes[self._num_leaves + indices]

    def set(self, indices: Indices, weights: Array) -> None:
        """Sets the weights at `indices` [n]; where an index stands twice, its last weight counts."""
        assert np.all(np.isfinite(weights) & (weights >= 0)), "expected finite weights of at least 0"
        node = self._num_leaves + indices
        self._nodes[node] = weights
        while len(node) and node[0] > 1:
            node = np.unique(node // 2)
            self._nodes[node] = self._nodes[2 * node] + self._nodes[2 * node + 1]

    def find(self, mass: Array) -> Indices:
        """For each of `mass` [n], 0 <= mass < total, the index at which the running sum of weights passes it.

        Never one with weight 0.
        """
        assert self.total > 0, "nothing to sample"
        mass = np.array(mass, np.float64)
        node = np.ones(len(mass), np.int64)
        while node[0] < self._num_leaves:
            left = self._nodes[2 * node]
            # By rounding, `mass` can reach the end of what is left of the tree; an empty half is never entered.
            go_right = (mass >= left) & (self._nodes[2 * node + 1] > 0)
            mass -= np.where(go_right, left, 0.0)
            node = 2 * node + go_right
        return node - self._num_leaves
