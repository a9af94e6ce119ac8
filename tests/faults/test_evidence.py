"""The check on what was written down of a run finds what must not be."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from faults.evidence import Evidence, Line

from seedrl_core.codec import FIRST, TERMINATED

EPISODE = 3
LINES = 12
UNROLL = 5


def diary(life: int) -> list[Line]:
    """Episodes of three steps."""
    lines = []
    for position in range(LINES):
        episode, step = divmod(position, EPISODE + 1)
        lines.append(
            {
                "observation": [life, 0, episode, step],
                "action": position % 3 if step else None,
                "reward": float(position if step else 0),
                "terminated": step == EPISODE,
                "truncated": False,
            }
        )
    return lines


def unroll(life: int, first: int) -> Line:
    """What training gets of the diary from a line on, as it should be."""
    lines = diary(life)[first : first + UNROLL]
    following = diary(life)[first + 1 : first + UNROLL + 1]
    return {
        "observation": [line["observation"] for line in lines],
        "action": [0 if line["action"] is None else line["action"] for line in following],
        "reward": [line["reward"] for line in lines],
        "flags": [FIRST * (line["action"] is None) | TERMINATED * line["terminated"] for line in lines],
    }


class Written:
    """Files of two lives and of one learner."""

    def __init__(self, directory: Path) -> None:
        self.diaries, self.unrolls = directory / "diaries", directory / "unrolls"
        for path in (self.diaries, self.unrolls):
            path.mkdir()
        for life in range(2):
            (self.diaries / f"{life}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in diary(life)))
        self.evidence = Evidence(self.diaries, self.unrolls)

    def train_on(self, *unrolls: Line, learner: int = 1) -> None:
        """Writes unrolls down as a learner does, and checks all."""
        with (self.unrolls / f"{learner}.jsonl").open("a") as file:
            file.writelines(json.dumps(line) + "\n" for line in unrolls)
        self.evidence.check()


@pytest.fixture
def written(tmp_path: Path) -> Iterator[Written]:
    """See Written."""
    files = Written(tmp_path)
    yield files
    files.evidence.close()


def test_what_is_in_order_passes(written: Written) -> None:
    """Unrolls that share their ends have no gap between them, whichever learner got them; one that is left out has."""
    written.train_on(unroll(0, 0), unroll(1, 0))
    written.train_on(unroll(0, 4), learner=2)
    assert (written.evidence.num_gaps([0]), written.evidence.lives[0].trained_to) == (0, 8)
    written.train_on(unroll(1, 6))
    assert written.evidence.num_gaps([0, 1]) == 1


def test_a_session_that_was_opened_again_begins_with_first_and_no_reward(written: Written) -> None:
    """The learner marks its first step so, and nothing else may be so marked."""
    reopened = unroll(0, 1)
    reopened["flags"][0] |= FIRST
    with pytest.raises(AssertionError, match="flags and reward"):
        written.train_on(reopened)
    reopened["reward"][0] = 0.0
    again = written.diaries.parent / "again"
    again.mkdir()
    written = Written(again)
    written.train_on(reopened)


def spoil(field: str, value: Any, index: int = 2) -> Callable[[Line], None]:
    """Changes one value of an unroll."""

    def change(line: Line) -> None:
        line[field][index] = value

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (spoil("observation", [1, 0, 0, 2]), r"an unroll of the lives \[0, 1\]"),
        (spoil("observation", [0, 0, 1, 2]), "an unroll of the diary's lines"),
        (spoil("reward", 0.5), "flags and reward"),
        (spoil("flags", FIRST), "flags and reward"),
        (spoil("action", 7, 0), "the environment was given 1, stored is 7"),
    ],
)
def test_what_the_environment_never_emitted_is_found(
    written: Written, change: Callable[[Line], None], words: str
) -> None:
    """Another life, another step, another reward, an ending that is none, an action that was not taken."""
    wrong = unroll(0, 0)
    change(wrong)
    with pytest.raises(AssertionError, match=words):
        written.train_on(wrong)


def test_a_transition_that_is_trained_on_twice_is_found(written: Written) -> None:
    """Also by two learners."""
    written.train_on(unroll(0, 0))
    with pytest.raises(AssertionError, match="life 0: transitions in two unrolls"):
        written.train_on(unroll(0, 3), learner=2)
