"""Numbers of a process over a window of time: means, rates, busy shares. Nothing is logged or exported here."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager


class Metrics:
    """Collects observations from any thread; `collect` closes the window and opens the next.

    Names are `group/quantity_unit`, e.g. `inference/compute_ms`.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` returns seconds."""
        self._clock = clock
        self._lock = threading.Lock()
        self._opened = clock()
        self._sums: dict[str, float] = defaultdict(float)
        self._weights: dict[str, float] = defaultdict(float)
        self._totals: dict[str, float] = defaultdict(float)
        self._busy: dict[str, float] = defaultdict(float)
        self._settled: dict[str, float] = {}
        self._active: dict[str, int] = defaultdict(int)

    def observe(self, name: str, value: float, weight: float = 1.0) -> None:
        """Adds to the weighted mean `name` of the window."""
        with self._lock:
            self._sums[name] += value * weight
            self._weights[name] += weight

    def observe_all(self, values: Mapping[str, float]) -> None:
        """`observe` for several names."""
        for name, value in values.items():
            self.observe(name, value)

    def count(self, name: str, amount: float = 1.0) -> None:
        """Adds to the rate `name`, reported a second."""
        with self._lock:
            self._totals[name] += amount

    @contextmanager
    def busy(self, name: str, each_ms: str = "") -> Iterator[None]:
        """Adds the time inside to the share `name`, 0..1 of the window; time inside twice at once counts once.

        Where `each_ms` is given, it gets the mean duration in milliseconds.
        """
        entered = self._clock()
        with self._lock:
            self._settle(name)
            self._active[name] += 1
        try:
            yield
        finally:
            with self._lock:
                self._settle(name)
                self._active[name] -= 1
            if each_ms:
                self.observe(each_ms, 1000.0 * (self._clock() - entered))

    def _settle(self, name: str) -> None:
        now = self._clock()
        if self._active[name]:
            self._busy[name] += now - self._settled[name]
        self._settled[name] = now

    def collect(self) -> dict[str, float]:
        """Means, rates and busy shares since the last call; a mean without observations is left out."""
        with self._lock:
            now = self._clock()
            elapsed = max(now - self._opened, 1e-9)
            for name in self._active:
                self._settle(name)
            values = {name: self._sums[name] / weight for name, weight in self._weights.items() if weight > 0}
            values |= {name: total / elapsed for name, total in self._totals.items()}
            values |= {name: min(1.0, busy / elapsed) for name, busy in self._busy.items()}
            self._sums.clear()
            self._weights.clear()
            for running in (self._totals, self._busy):
                for name in running:
                    running[name] = 0.0
            self._opened = now
        return values
