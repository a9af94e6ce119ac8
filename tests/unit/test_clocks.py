"""No deadline and no duration comes from a clock that somebody may set."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

SERVICES = Path(__file__).parents[2] / "services"
WALL_CLOCKS = {"time.time", "time.time_ns", "datetime.now", "datetime.utcnow", "datetime.today", "date.today"}
# Where the time of day is what is wanted: the stamp of a line of metrics.jsonl.
ALLOWED = ["seedrl_learner/reporter.py"]


def wall_clocks_in(source: str) -> Iterator[int]:
    """Lines that name a wall clock, called or not, by any of its usual spellings."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and ast.unparse(node).endswith(tuple(WALL_CLOCKS)):
            yield node.lineno
        elif isinstance(node, ast.ImportFrom) and node.module == "time":
            yield from (node.lineno for alias in node.names if alias.name in ("time", "time_ns"))


def test_only_time_stamps_read_the_wall_clock() -> None:
    """A clock that jumps moves no deadline, and makes no rate negative or infinite."""
    found = [
        str(path.relative_to(SERVICES).relative_to(path.relative_to(SERVICES).parts[0]))
        for path in sorted(SERVICES.rglob("*.py"))
        for _ in wall_clocks_in(path.read_text())
    ]
    assert found == ALLOWED


def test_the_usual_spellings_are_found() -> None:
    """What this test looks for it finds."""
    for source in ("import time; x = time.time()", "from time import time", "clock = datetime.datetime.now"):
        assert list(wall_clocks_in(source)), source
    assert not list(wall_clocks_in("import time; x = time.monotonic()"))
