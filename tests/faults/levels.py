"""What a process holds, as the kernel sees it from outside."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from held_memory import regions_of


@dataclass(frozen=True)
class Level:
    """Attributes:
    descriptors: open files, sockets and pipes, how many of each.
    regions: sessions' regions of shared memory, mapped or open.
    resident_mib: memory.
    """

    descriptors: Counter[str]
    regions: int
    resident_mib: float

    @classmethod
    def of(cls, pid: int) -> Level:
        """Of a process that runs."""
        process = Path("/proc") / str(pid)
        pages = int((process / "statm").read_text().split()[1])
        return cls(_descriptors(process), len(regions_of(pid)), pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20))


def processes_with(marker: str) -> list[int]:
    """Processes that have `marker` (NAME=VALUE) in their environment, this one aside."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "environ").read_bytes().split(b"\0") if entry.name.isdecimal() else []
        except OSError:
            continue
        if marker.encode() in words and int(entry.name) != os.getpid():
            found.append(int(entry.name))
    return sorted(found)


def _descriptors(process: Path) -> Counter[str]:
    """What a process has open, without the numbers of sockets and pipes."""
    found: Counter[str] = Counter()
    for entry in (process / "fd").iterdir():
        try:
            found[os.readlink(entry).partition(":[")[0]] += 1
        except FileNotFoundError:
            continue  # closed meanwhile
    return found
