"""Which processes hold shared memory of a session, as the system sees it."""

from __future__ import annotations

import os
from pathlib import Path

_NAME = "/memfd:seedrl "


def regions_of(pid: int | str = "self") -> set[int]:
    """The regions (by inode) that a process has mapped or open."""
    process = Path("/proc") / str(pid)
    regions = {int(line.split()[4]) for line in (process / "maps").read_text().splitlines() if _NAME in line}
    for descriptor in (process / "fd").iterdir():
        try:
            if os.readlink(descriptor).startswith(_NAME):
                regions.add(descriptor.stat().st_ino)
        except FileNotFoundError:
            continue  # the descriptor of this listing
    return regions
