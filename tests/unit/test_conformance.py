"""Parts of `seedrl check-client`: the list of rules, the actions it chooses, the report."""

from __future__ import annotations

import io
import re
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from seedrl_core.spec import EnvironmentSpec, TensorSpec
from seedrl_launcher.conformance.action_choice import ActionChooser, allows_a_value
from seedrl_launcher.conformance.report import as_table, as_values
from seedrl_launcher.conformance.rules import RULES, Findings, Verdict

PROTOCOL = Path(__file__).parents[2] / "docs" / "protocol.md"
SIZES = TensorSpec("action/sizes", np.dtype(np.int32), (2,), (1.0, -1.0), (3.0, 0.0))
FORCE = TensorSpec("action/force", np.dtype(np.float32), (3,), (-0.1, 0.0, 5.0), (0.1, 1e-3, 6.0))
MASK = TensorSpec("observation/action_mask/sizes", np.dtype(np.int8), (5,))
SPEC = EnvironmentSpec("", (MASK,), (SIZES, FORCE))


def test_rules_are_those_of_the_protocol() -> None:
    """docs/protocol.md lists each rule under its name and in the same words."""
    listed = re.findall(r"^\| ([A-Z]\d) \| (.*) \|$", PROTOCOL.read_text(), re.MULTILINE)
    assert listed == list(RULES.items())


def test_chosen_actions_lie_within_bounds_and_use_all_of_them() -> None:
    """Every value of an integer is chosen at some time, and no number beyond a bound of its own element."""
    sizes, force = ActionChooser(SPEC, 500, np.random.default_rng(0)).choose(None)
    assert (sizes.dtype, sizes.shape, force.dtype, force.shape) == (np.int32, (500, 2), np.float32, (500, 3))
    assert [set(column) for column in sizes.T.tolist()] == [{1, 2, 3}, {-1, 0}]
    low, high = FORCE.bounds
    assert (force >= low.astype(np.float32)).all()
    assert (force <= high.astype(np.float32)).all()
    assert (np.ptp(force, axis=0) > 0.9 * (high - low)).all()


def test_masked_actions_are_not_chosen() -> None:
    """Of each element only allowed values come; where nothing is allowed, anything may."""
    mask = np.tile(np.array([0, 1, 1, 0, 1], np.int8), (300, 1))
    mask[0] = 0
    sizes, _ = ActionChooser(SPEC, 300, np.random.default_rng(0)).choose((mask,))
    assert set(sizes[1:, 0].tolist()) == {2, 3}
    assert set(sizes[1:, 1].tolist()) == {0}
    assert sizes[0, 0] in (1, 2, 3)


@pytest.mark.parametrize(
    ("mask", "allows"), [([0, 1, 0, 1, 0], True), ([1, 1, 1, 0, 0], False), ([0, 0, 0, 1, 1], False)]
)
def test_a_mask_must_allow_a_value_of_each_element(mask: list[int], allows: bool) -> None:
    """Three values of the first element, two of the second."""
    assert allows_a_value(np.array([mask]) != 0, SIZES).tolist() == [allows]


def test_a_rule_broken_once_is_broken() -> None:
    """However often it was kept; the first breaches are told in words, the others counted."""
    findings = Findings()
    findings.keep("T1")
    for number in range(5):
        findings.judge("T1", False, "tick 3", f"tick {number}")
    findings.judge("S1", True, "", "")
    assert findings.rules(Verdict.BROKEN) == ["T1"]
    assert findings.rules(Verdict.KEPT) == ["S1"]
    values = as_values(findings)
    assert (values["kept"], values["broken"], values["not_exercised"]) == (1, 1, len(RULES) - 2)
    assert values["rules"]["T1"]["times_broken"] == 5
    assert values["rules"]["T1"]["breaches"][2] == {"expected": "tick 3", "got": "tick 2"}
    out = io.StringIO()
    Console(file=out, width=100).print(as_table(findings))
    assert "expected tick 3; got tick 0" in out.getvalue()
    assert "and 2 times more" in out.getvalue()
    assert f"1 kept, 1 broken, {len(RULES) - 2} not exercised" in out.getvalue()
