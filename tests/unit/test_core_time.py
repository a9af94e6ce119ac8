"""How benchmarks/core_time.py shares out the core time of a training run."""

from __future__ import annotations

import os
from typing import Any

import processor_time
import pytest
from core_time import Moment, share_out

# 10 s, 2,000 env steps at 200 a second: a core-second in all is 500 us a step.
BEFORE = {
    ("launcher", 1): 1.0,
    ("learner", 2): 10.0,
    ("learner, serving", 2): 4.0,
    ("broker", 3): 5.0,
    ("actor", 4): 2.0,
    ("actor", 5): 3.0,
    ("other processes", 6): 100.0,
    ("other processes", 7): 50.0,
}


def moment(seconds: float, used_s: dict[tuple[str, int], float], **record: Any) -> Moment:
    """One `seconds` after the first, whose record is as old."""
    return Moment(
        {"time": 1e9 + seconds, "env_steps": int(200 * seconds), **record}, 50.0 + seconds, 50.0 + seconds, used_s
    )


def shares(inference: float, training: float) -> dict[str, float]:
    """Of a record."""
    return {"inference/busy_share": inference, "train/busy_share": training}


def watched(after: dict[tuple[str, int], float]) -> list[Moment]:
    """Inference busy for 4 * 0.5 + 6 * 0.5 = 5 s, training for 6 * 0.25 = 1.5 s; the first record's are from before."""
    halfway = moment(4.0, {}, **shares(0.5, 0.0))
    return [moment(0.0, BEFORE, **shares(0.9, 0.9)), halfway, moment(10.0, after, **shares(0.5, 0.25))]


def test_the_rows_add_up_to_all_core_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two cores for 10 s: what processes used, and the rest is idle. One of the others has ended, one begun."""
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    after = {
        ("launcher", 1): 1.2,
        ("learner", 2): 17.5,
        ("learner, serving", 2): 4.6,
        ("learner, serving", 20): 0.2,
        ("broker", 3): 5.8,
        ("actor", 4): 4.0,
        ("actor", 5): 6.0,
        ("other processes", 7): 51.0,
        ("other processes", 8): 0.5,
    }
    rate, rows = share_out(watched(after), unrolls_us=100.0)
    assert rate == pytest.approx(200.0)
    assert rows == pytest.approx(
        {
            "actors": 2500.0,
            "broker": 400.0,
            "learner, serving": 400.0,
            "learner, unrolls": 100.0,
            "learner, inference": 3250.0 * 5.0 / 6.5,
            "learner, training": 3250.0 * 1.5 / 6.5,
            "launcher": 100.0,
            "other processes": 750.0,
            "idle": 2500.0,
        }
    )
    assert sum(rows.values()) == pytest.approx(2e6 / rate)


def test_more_than_the_cores_have_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that do not add up are no result."""
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    with pytest.raises(SystemExit, match="expected rows of at least 0 that add up to 5000.0 us"):
        share_out(watched(BEFORE | {("learner", 2): 21.0}), unrolls_us=100.0)


def test_processor_time_of_this_process() -> None:
    """It is among all processes, a child of its parent, and its threads used no more than it did."""
    own = next(process for process in processor_time.of_processes() if process.number == os.getpid())
    assert own.parent == os.getppid()
    assert os.getpid() in {thread.number for thread in processor_time.of_threads(own.number)}
    threads_s = sum(thread.seconds for thread in processor_time.of_threads(own.number))
    assert 0.0 < threads_s <= processor_time.of_process(own.number).seconds + 0.1
