"""The table of DMLab-30."""

from __future__ import annotations

from seedrl_core.dmlab30 import DMLAB30, LEVELS


def test_thirty_levels_with_scores_of_people_above_those_of_random_play() -> None:
    """Each has two scores, in this order; the kinds of levels are as many as in the paper."""
    assert len(LEVELS) == 30
    assert all(random < human for random, human in DMLAB30.values())
    kinds = [level.partition("_")[0] for level in LEVELS]
    assert {kind: kinds.count(kind) for kind in kinds} == {
        "rooms": 5,
        "language": 4,
        "lasertag": 4,
        "natlab": 3,
        "skymaze": 2,
        "psychlab": 4,
        "explore": 8,
    }


def test_held_out_levels_have_the_scores_of_those_that_are_trained_on() -> None:
    """Two of the thirty have a twin, and nothing else is in the table."""
    twins = {level.replace("_train", "_test"): level for level in LEVELS if level.endswith("_train")}
    assert set(DMLAB30) == set(LEVELS) | set(twins)
    assert len(twins) == 2
    assert all(DMLAB30[twin] == DMLAB30[level] for twin, level in twins.items())
