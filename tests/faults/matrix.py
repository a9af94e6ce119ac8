"""Does every fault to a system of real processes, and tells what came of it and how long it took.

python -m faults.matrix [--only WORDS] [--write docs/operations.md]     (`make faults`)
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from faults.scenarios import FAULTS, Fault, Recovery, suffer
from faults.system import System

BEGIN, END = "<!-- faults: begin, written by `make faults` -->", "<!-- faults: end -->"


@dataclass(frozen=True)
class Result:
    """Of one fault: how the system recovered, or why it did not, or why it was not tried."""

    fault: Fault
    recovery: Recovery | None = None
    failure: str = ""
    skipped: str = ""

    @property
    def is_late(self) -> bool:
        """It took longer than is allowed."""
        return self.recovery is not None and self.recovery.seconds > self.fault.limit_s

    @property
    def row(self) -> str:
        """In Markdown."""
        if self.recovery is None:
            came_of_it, after = f"not tried: {self.skipped}" if self.skipped else "**fails**", ""
        else:
            came_of_it, after = self.recovery.cost.words, f"{self.recovery.seconds:.1f} s"
        late = f", more than {self.fault.limit_s:g} s" if self.is_late else ""
        return f"| {self.fault.what} | {self.fault.where} | {came_of_it} | {after}{late} |"


def table(results: Sequence[Result]) -> str:
    """In Markdown."""
    head = ["| fault | of | what it costs | all as before after |", "|---|---|---|---|"]
    return "\n".join([*head, *(result.row for result in results)])


def write(text: str, file: Path) -> None:
    """Puts `text` between the two marks in a file."""
    before, begin, rest = file.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        sys.exit(f"error: {file}: expected a line {BEGIN} and a line {END}")
    file.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}")


async def run(faults: Sequence[Fault]) -> list[Result]:
    """One fault after the other, in one system as long as that withstands them."""
    results: list[Result] = []
    while len(results) < len(faults):
        with tempfile.TemporaryDirectory(prefix="faults-") as directory:
            await _run_in_one_system(faults, results, Path(directory))
    return results


async def _run_in_one_system(faults: Sequence[Fault], results: list[Result], directory: Path) -> None:
    """Adds to `results` until a fault is too much."""
    system = System(directory)
    try:
        await system.start()
        for fault in faults[len(results) :]:
            results.append(await _try(fault, system))
            print(results[-1].row, flush=True)
            if results[-1].failure:
                print(results[-1].failure, flush=True)
                return
        await system.stop()
    finally:
        await system.abandon()


async def _try(fault: Fault, system: System) -> Result:
    if why := fault.skip(system):
        return Result(fault, skipped=why)
    try:
        return Result(fault, await suffer(fault, system))
    except AssertionError as failure:
        return Result(fault, failure=str(failure))


def main() -> None:
    """Parses the command line; exit code 1 when a fault was too much, or took too long."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="faults whose description or place has these words")
    parser.add_argument("--write", type=Path, help="file to put the table into, between its two marks")
    options = parser.parse_args()
    faults = [fault for fault in FAULTS if options.only in f"{fault.where}: {fault.what}"]
    if not faults:
        sys.exit(f"error: --only: expected words of a fault, got {options.only!r}")
    results = asyncio.run(run(faults))
    if options.write is not None:
        write(table(results), options.write)
    sys.exit(any(result.failure or result.is_late for result in results))


if __name__ == "__main__":
    main()
