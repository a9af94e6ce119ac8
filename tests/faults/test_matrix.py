"""The table of the faults: what stands in it, and where."""

from __future__ import annotations

from pathlib import Path

import pytest
from faults.matrix import BEGIN, END, Result, table, write
from faults.scenarios import FAULTS, Cost, Fault, Recovery

OPERATIONS = Path(__file__).parents[2] / "docs" / "operations.md"


def fault_of(where: str) -> Fault:
    """The first one there."""
    return next(fault for fault in FAULTS if fault.where == where)


def test_rows_tell_what_came_of_each_fault() -> None:
    """Its cost and its seconds; that it took too long, failed, or was not tried."""
    fault = fault_of("broker")
    results = [
        Result(fault, Recovery(Cost.REOPENED, 1.25)),
        Result(fault, Recovery(Cost.NOTHING, 5.1)),
        Result(fault, failure="processes left behind"),
        Result(fault, skipped="no disk"),
    ]
    assert [result.is_late for result in results] == [False, True, False, False]
    begin = f"| {fault.what} | broker |"
    assert table(results).splitlines()[2:] == [
        f"{begin} sessions are opened again, environments go on mid-episode | 1.2 s |",
        f"{begin} nothing is lost | 5.1 s, more than 5 s |",
        f"{begin} **fails** |  |",
        f"{begin} not tried: no disk |  |",
    ]


def test_every_service_and_link_is_struck() -> None:
    """In at least four ways each."""
    for where in ("actor", "broker", "learner", "actor-broker", "broker-learner"):
        assert sum(fault.where == where for fault in FAULTS) >= 4


def test_the_table_goes_between_its_marks(tmp_path: Path) -> None:
    """What is around them stays, also the second time; the page of operations has them."""
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\n{END}\nafter\n")
    for text in ("| one |", "| two |"):
        write(text, page)
        assert page.read_text() == f"before\n{BEGIN}\n{text}\n{END}\nafter\n"
    page.write_text("neither\n")
    with pytest.raises(SystemExit, match="expected a line"):
        write("| one |", page)
    operations = OPERATIONS.read_text()
    assert operations.count(BEGIN) == operations.count(END) == 1
