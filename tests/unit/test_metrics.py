"""Metrics windows: means, rates and busy shares with a clock of the test's own."""

from __future__ import annotations

from seedrl_core.metrics import Metrics


class Clock:
    """Seconds, moved by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """The time now."""
        return self.now


def test_a_window_has_means_rates_and_shares_and_starts_anew() -> None:
    """Weighted means, counts a second, busy time as a share; the next window is empty but keeps rates at 0."""
    clock = Clock()
    metrics = Metrics(clock)
    metrics.observe("rows", 10.0, weight=1)
    metrics.observe("rows", 40.0, weight=2)
    metrics.count("steps", 30)
    with metrics.busy("work", "work_ms"):
        clock.now = 1.0
    clock.now = 4.0
    assert metrics.collect() == {"rows": 30.0, "steps": 7.5, "work": 0.25, "work_ms": 1000.0}
    clock.now = 5.0
    assert metrics.collect() == {"steps": 0.0, "work": 0.0}
    assert metrics.known == {"rows": 30.0, "steps": 0.0, "work": 0.0, "work_ms": 1000.0}


def test_busy_time_overlapping_windows_and_nesting_is_counted_once() -> None:
    """Work that spans two windows counts in each for its part; two workers at once count as one."""
    clock = Clock()
    metrics = Metrics(clock)
    with metrics.busy("work"):
        clock.now = 1.0
        with metrics.busy("work"):
            clock.now = 2.0
            assert metrics.collect() == {"work": 1.0}
        clock.now = 3.0
    clock.now = 6.0
    assert metrics.collect() == {"work": 0.25}
