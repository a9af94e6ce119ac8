"""What environments and learners wrote down of a run, read while it goes on, and what must be true of it.

Each environment keeps a diary of all that it emits and is given (`Diary`), each learner writes down the unrolls that it
trains on (`recording_learner`). Both survive kill -9.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from seedrl_core.codec import FIRST, RESTARTED, TERMINATED, TRUNCATED

Line = dict[str, Any]
# Of an observation: the episode's number, and the step in it. No two of a life are alike.
Moment = tuple[int, int]


class _Tail:
    """Whole lines of a growing file, each once."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        self._rest = b""

    def lines(self) -> Iterator[Line]:
        *whole, self._rest = (self._rest + self._file.read()).split(b"\n")
        yield from map(json.loads, whole)

    def close(self) -> None:
        self._file.close()


class Life:
    """One environment, from its first reset on.

    Attributes:
      lines: of its diary.
      trained: (first, last) position of each of its unrolls, in the order of training; they share their ends.
    """

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self.trained: list[tuple[int, int]] = []
        self._at: dict[Moment, int] = {}

    @property
    def trained_to(self) -> int:
        """The newest position in an unroll; -1 before the first."""
        return max((last for _, last in self.trained), default=-1)

    @property
    def num_gaps(self) -> int:
        """How often an unfinished unroll was dropped, and so not trained on."""
        return sum(after[0] > before[1] for before, after in pairwise(sorted(self.trained)))

    def write(self, line: Line) -> None:
        """The next line of its diary."""
        self._at[_moment(line["observation"])] = len(self.lines)
        self.lines.append(line)

    def train_on(self, unroll: Line) -> None:
        """Takes an unroll in; AssertionError unless it is what the environment emitted and was given, in order."""
        positions = [self._at[_moment(observation)] for observation in unroll["observation"]]
        first, last = positions[0], positions[-1]
        assert positions == list(range(first, last + 1)), f"an unroll of the diary's lines {positions}"
        for offset, line in enumerate(self.lines[first : last + 1]):
            self._check_step(unroll, offset, line)
        for action, line in zip(unroll["action"], self.lines[first + 1 : last + 1], strict=False):
            assert line["action"] in (None, action), f"the environment was given {line['action']}, stored is {action}"
        self.trained.append((first, last))

    def check(self) -> None:
        """No transition may stand in two unrolls, whichever learner trained on them."""
        for before, after in pairwise(sorted(self.trained)):
            assert before[1] <= after[0], f"transitions in two unrolls: {before} and {after}"

    @staticmethod
    def _check_step(unroll: Line, offset: int, line: Line) -> None:
        flags, reward = unroll["flags"][offset] & ~RESTARTED, unroll["reward"][offset]
        expected = _flags(line), line["reward"]
        if offset == 0 and not expected[0] & FIRST and flags & FIRST:
            expected = expected[0] | FIRST, 0.0  # the session was opened again here
        assert (flags, reward) == expected, f"flags and reward {flags, reward} of {line}"


class Evidence:
    """All lives and all unrolls so far.

    Attributes:
      lives: by number.
    """

    def __init__(self, diaries: Path, unrolls: Path) -> None:
        """Directories of diaries and of learners' records; they may be filled later."""
        self.lives: dict[int, Life] = {}
        self._diaries = diaries
        self._unrolls = unrolls
        self._tails: dict[Path, _Tail] = {}

    def refresh(self) -> None:
        """Reads what is new; AssertionError for an unroll that must not be."""
        unrolls = [unroll for file in sorted(self._unrolls.glob("*.jsonl")) for unroll in self._tail(file).lines()]
        # Diaries last: they are written before what is trained on.
        for file in sorted(self._diaries.glob("*.jsonl")):
            life = self.lives.setdefault(int(file.stem), Life())
            for line in self._tail(file).lines():
                life.write(line)
        for unroll in unrolls:
            owners = {observation[0] for observation in unroll["observation"]}
            assert len(owners) == 1, f"an unroll of the lives {sorted(owners)}"
            self.lives[owners.pop()].train_on(unroll)

    def check(self) -> None:
        """What must be true of the whole."""
        self.refresh()
        for number, life in self.lives.items():
            try:
                life.check()
            except AssertionError as violation:
                raise AssertionError(f"life {number}: {violation}") from violation

    def num_gaps(self, lives: Iterable[int]) -> int:
        """Of these lives together."""
        return sum(self.lives[life].num_gaps for life in lives)

    def close(self) -> None:
        """Reads no more."""
        for tail in self._tails.values():
            tail.close()

    def _tail(self, path: Path) -> _Tail:
        if path not in self._tails:
            self._tails[path] = _Tail(path)
        return self._tails[path]


def _moment(observation: list[int]) -> Moment:
    _, high, low, step = observation
    return 256 * high + low, step


def _flags(line: Line) -> int:
    return FIRST * (line["action"] is None) | TERMINATED * line["terminated"] | TRUNCATED * line["truncated"]
