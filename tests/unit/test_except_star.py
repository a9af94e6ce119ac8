"""A rule that linters do not know: what `except*` raises depends on the patch release of Python."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SERVICES = Path(__file__).parents[2] / "services"


def raises_inside_except_star(source: str) -> list[int]:
    """Lines that raise something new inside an `except*`; a bare `raise` is the same everywhere."""
    handlers = [
        handler for node in ast.walk(ast.parse(source)) if isinstance(node, ast.TryStar) for handler in node.handlers
    ]
    return [
        node.lineno
        for handler in handlers
        for node in ast.walk(handler)
        if isinstance(node, ast.Raise) and node.exc is not None
    ]


def test_nothing_new_is_raised_inside_except_star() -> None:
    """Before Python 3.11.4 such an error leaves as a group, which the caller's `except` does not catch."""
    found = {
        str(path): lines for path in SERVICES.rglob("*.py") if (lines := raises_inside_except_star(path.read_text()))
    }
    assert found == {}


@pytest.mark.parametrize(
    ("what", "lines"), [("raise KeyError() from group", [4]), ("raise", []), ("error = group", [])]
)
def test_the_rule_tells_the_cases_apart(what: str, lines: list[int]) -> None:
    """It finds what it is for, and nothing else."""
    assert raises_inside_except_star(f"try:\n    pass\nexcept* ValueError as group:\n    {what}\n") == lines
