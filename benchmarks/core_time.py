"""Shares out all core time of a machine while it trains: among its processes, and within the learner by what it does.

A launcher is watched from outside, from the first record of the learner's metrics that has seen an update to the last
one before the end. What each process and thread used is read from /proc (`processor_time.py`).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import processor_time

_GRPC_THREADS = ("event_engine", "grpc", "lifeguard")
_SERVING, _OTHERS = "learner, serving", "other processes"
_POLL_S = 0.05
_TOLERANCE = 0.01  # of the whole: processor time is counted in ticks


@dataclass(frozen=True)
class Moment:
    """A record of the learner's metrics, and what had been used by then.

    Attributes:
      record: as in metrics.jsonl.
      began, ended: when the rest was read, of perf_counter.
      used_s: processor seconds by who used them and the number of the process; of the learner's main thread and those
        of gRPC, which are counted with the process, too, by their own numbers.
    """

    record: dict[str, Any]
    began: float
    ended: float
    used_s: dict[tuple[str, int], float]

    @property
    def services(self) -> set[tuple[str, int]]:
        """The processes of the run."""
        return {(name, number) for name, number in self.used_s if name not in (_SERVING, _OTHERS)}


def watch_training(command: Sequence[str], directory: Path, env_steps: int) -> list[Moment]:
    """Trains to the end with a launcher whose run directory is `run` in `directory`; returns the moments."""
    log = directory / "launcher.log"
    with log.open("wb") as file:
        launcher = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=file)
    try:
        records = _records(launcher, directory / "run" / "metrics.jsonl")
        during = (record for record in records if record["policy_version"] and record["env_steps"] < env_steps)
        moments = [_moment(record, launcher.pid) for record in during]
    finally:
        launcher.terminate()
        launcher.wait()
    if launcher.returncode:
        sys.exit(f"training failed:\n{log.read_text()[-2000:]}")
    if len(moments) < 2:
        sys.exit(f"--env-steps: expected enough for two records of metrics while it trains, got {len(moments)}")
    if moments[0].services != moments[-1].services:
        sys.exit("expected the same processes from the first update to the end, but one was started again")
    return moments


def share_out(moments: Sequence[Moment], unrolls_us: float) -> tuple[float, dict[str, float]]:
    """Environment steps a second from the first moment to the last, and core-microseconds of one, by row.

    `unrolls_us` is what the learner spends on unrolls, of which nothing in /proc tells.
    """
    first, last = moments[0], moments[-1]
    steps = last.record["env_steps"] - first.record["env_steps"]
    rate = steps / (last.record["time"] - first.record["time"])
    used_us = defaultdict[str, float](float)
    for (name, number), seconds in last.used_s.items():
        used_s = seconds - first.used_s.get((name, number), 0.0)
        used_us[name] += 1e6 * used_s / (last.ended - first.began) / rate
    network_us = used_us["learner"] - used_us[_SERVING] - unrolls_us
    inference_s, training_s = (_busy_s(moments, f"{part}/busy_share") for part in ("inference", "train"))
    inference_us = network_us * inference_s / (inference_s + training_s)
    rows = {
        "actors": used_us["actor"],
        "broker": used_us["broker"],
        _SERVING: used_us[_SERVING],
        "learner, unrolls": unrolls_us,
        "learner, inference": inference_us,
        "learner, training": network_us - inference_us,
        "launcher": used_us["launcher"],
        _OTHERS: used_us[_OTHERS],
    }
    whole = 1e6 * (os.cpu_count() or 1) / rate
    idle = whole - sum(rows.values())
    if min(*rows.values(), idle) < -_TOLERANCE * whole:
        sys.exit(f"expected rows of at least 0 that add up to {whole:.1f} us, got {rows} and {idle:.1f} us idle")
    return rate, rows | {"idle": max(0.0, idle)}


def _busy_s(moments: Sequence[Moment], name: str) -> float:
    """A share in a record is of the time since the record before."""
    total_s = 0.0
    for before, after in pairwise(moments):
        total_s += after.record.get(name, 0.0) * (after.record["time"] - before.record["time"])
    return total_s


def _records(launcher: subprocess.Popen[bytes], file: Path) -> Iterator[dict[str, Any]]:
    """Each as soon as the learner has written it."""
    read = 0
    while launcher.poll() is None:
        lines = file.read_text().splitlines() if file.exists() else []
        yield from map(json.loads, lines[read:])
        read = len(lines)
        time.sleep(_POLL_S)


def _moment(record: dict[str, Any], launcher: int) -> Moment:
    began, used_s = time.perf_counter(), dict[tuple[str, int], float]()
    for process in processor_time.of_processes():
        name = _OTHERS
        if process.number == launcher:
            name = "launcher"
        elif process.parent == launcher:
            name = _service(process.number)
        used_s[name, process.number] = process.seconds
        if name == "learner":
            for thread in processor_time.of_threads(process.number):
                if thread.number == process.number or thread.name.startswith(_GRPC_THREADS):
                    used_s[_SERVING, thread.number] = thread.seconds
    return Moment(record, began, time.perf_counter(), used_s)


def _service(pid: int) -> str:
    """`actor` of `python -m seedrl_actor`."""
    return Path(f"/proc/{pid}/cmdline").read_text().split("\0")[2].removeprefix("seedrl_")
