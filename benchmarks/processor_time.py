"""Processor seconds of processes and threads, as Linux counts them in /proc: user and kernel, in ticks of 10 ms."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Usage:
    """Of a process, or of a thread.

    Attributes:
      number: its own.
      name: of its program, or the one that it gave itself.
      parent: the number of the process that started it.
      seconds: used so far; of a process, those of all its threads.
    """

    number: int
    name: str
    parent: int
    seconds: float


def of_process(pid: int) -> Usage:
    """FileNotFoundError when there is none."""
    return _read(Path(f"/proc/{pid}/stat"))


def of_processes() -> Iterator[Usage]:
    """All of this machine."""
    return _read_all(Path("/proc"))


def of_threads(pid: int) -> Iterator[Usage]:
    """All of a process that are alive; the number of the main one is `pid`."""
    return _read_all(Path(f"/proc/{pid}/task"))


def _read_all(directory: Path) -> Iterator[Usage]:
    for stat in directory.glob("[0-9]*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):  # ended meanwhile
            yield _read(stat)


def _read(stat: Path) -> Usage:
    number, _, rest = stat.read_text().partition(" (")
    name, _, after = rest.rpartition(") ")
    fields = after.split()
    return Usage(int(number), name, int(fields[1]), (int(fields[11]) + int(fields[12])) / _CLOCK_TICKS)
