"""Numbers of a process: means, rates and busy shares over a window of time, and totals. Nothing is exported here."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field


def _zeros(names: Iterable[str] = ()) -> dict[str, float]:
    return defaultdict(float, dict.fromkeys(names, 0.0))


@dataclass(frozen=True)
class Totals:
    """Sums over some time, by name.

    Attributes:
      sums, weights: of what was observed; their quotient is the weighted mean.
      counts: of what was counted.
      busy_s: seconds inside `busy`.
    """

    sums: dict[str, float] = field(default_factory=_zeros)
    weights: dict[str, float] = field(default_factory=_zeros)
    counts: dict[str, float] = field(default_factory=_zeros)
    busy_s: dict[str, float] = field(default_factory=_zeros)

    def __add__(self, other: Totals) -> Totals:
        """Both times together."""
        return Totals(
            _added(self.sums, other.sums),
            _added(self.weights, other.weights),
            _added(self.counts, other.counts),
            _added(self.busy_s, other.busy_s),
        )


def _added(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    result = defaultdict(float, one)
    for name, value in other.items():
        result[name] += value
    return result


class Metrics:
    """Collects observations from any thread; `collect` closes the window and opens the next.

    Names are `group/quantity_unit`, e.g. `inference/compute_ms`.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` returns seconds."""
        self._clock = clock
        self._lock = threading.Lock()
        self._opened = clock()
        self._window = Totals()
        self._closed = Totals()
        self._known: dict[str, float] = {}
        self._settled: dict[str, float] = {}
        self._active: dict[str, int] = defaultdict(int)

    def observe(self, name: str, value: float, weight: float = 1.0) -> None:
        """Adds to the weighted mean `name` of the window."""
        with self._lock:
            self._window.sums[name] += value * weight
            self._window.weights[name] += weight

    def observe_all(self, values: Mapping[str, float]) -> None:
        """`observe` for several names."""
        for name, value in values.items():
            self.observe(name, value)

    def count(self, name: str, amount: float = 1.0) -> None:
        """Adds to the rate `name`, reported a second."""
        with self._lock:
            self._window.counts[name] += amount

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
            self._window.busy_s[name] += now - self._settled[name]
        self._settled[name] = now

    def collect(self) -> dict[str, float]:
        """Means, rates and busy shares since the last call; a mean without observations is left out."""
        with self._lock:
            now = self._clock()
            elapsed = max(now - self._opened, 1e-9)
            for name in self._active:
                self._settle(name)
            window = self._window
            self._closed += window
            # A rate stays in sight when it falls to 0.
            self._window = Totals(counts=_zeros(window.counts), busy_s=_zeros(window.busy_s))
            self._opened = now
        values = {name: window.sums[name] / weight for name, weight in window.weights.items() if weight > 0}
        values |= {name: count / elapsed for name, count in window.counts.items()}
        values |= {name: min(1.0, busy_s / elapsed) for name, busy_s in window.busy_s.items()}
        self._known = self._known | values
        return values

    @property
    def known(self) -> dict[str, float]:
        """The newest value of every name that a closed window has had."""
        return self._known

    def totals(self) -> Totals:
        """Everything since the beginning; no window is closed by it."""
        with self._lock:
            for name in self._active:
                self._settle(name)
            return self._closed + self._window
