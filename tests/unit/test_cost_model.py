"""The cost model of benchmarks/: bills, what one of each part carries, and where its costs come from."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import cost_model
import pytest
from cost_model import Bill, Costs

COSTS = Costs(
    actor_us=100.0,
    broker_us=20.0,
    learner_us=30.0,
    local_inference_us=350.0,
    training_rate=50_000.0,
    training_only_rate=100_000.0,
    observation_bytes=6_250.0,
    core_hour=0.036,
    accelerator_hour=3.6,
)


def printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *flags: str) -> Any:
    """What the command prints as JSON."""
    monkeypatch.setattr(sys, "argv", ["cost_model.py", "--json", *flags])
    cost_model.main()
    return json.loads(capsys.readouterr().out)


def test_the_bill_of_central_inference() -> None:
    """A step is 150 us of a core at 0.01 a 1000 s, and 1/50,000 s of an accelerator at 1 a 1000 s."""
    bill = cost_model.central(COSTS, rate=100_000.0, frame_skip=4)
    assert asdict(bill) == pytest.approx(asdict(Bill(10.0, 2.0, 3.0, 2.0, 5.0, 1e6 / 150, 250e6 * (1.5e-9 + 20e-9))))


def test_the_bill_of_inference_on_actors() -> None:
    """Each actor pays for inference, there is no broker, and the accelerator trains only."""
    bill = cost_model.on_actors(COSTS, rate=100_000.0, frame_skip=4)
    assert asdict(bill) == pytest.approx(asdict(Bill(45.0, 0.0, 3.0, 1.0, 5.0, 1e6 / 480, 250e6 * (4.8e-9 + 10e-9))))


def test_what_one_of_each_part_carries() -> None:
    """A process a second's microseconds, a link its bits, an accelerator its rate."""
    assert cost_model.carried(COSTS, network_gbit=10.0) == pytest.approx(
        {
            "broker": 50_000.0,
            "learner process": 1e6 / 30,
            "learner's network link": 200_000.0,
            "accelerator": 50_000.0,
        }
    )


@pytest.mark.parametrize(
    ("changed", "network_gbit", "first"),
    [
        ({}, 10.0, "learner process"),
        ({}, 1.0, "learner's network link"),
        ({"broker_us": 40.0}, 10.0, "broker"),
        ({"training_rate": 25_000.0}, 10.0, "accelerator"),
    ],
)
def test_the_part_that_carries_least_breaks_first(changed: dict[str, float], network_gbit: float, first: str) -> None:
    """Whichever of them it is."""
    assert cost_model.breaks_first(cost_model.carried(replace(COSTS, **changed), network_gbit)) == first


def test_costs_come_from_what_was_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where no flag says otherwise."""
    file = tmp_path / "measured.json"
    file.write_text(json.dumps({"steps": {"costs": {"actor_us": 300.0, "broker_us": 10.0, "learner_us": 50.0}}}))
    result = printed(monkeypatch, capsys, "--measured", str(file), "--broker-us", "40", "--rate", "1000")
    bill = result["central inference"]
    assert (bill["actor_cores"], bill["broker_cores"], bill["learner_cores"]) == pytest.approx((0.3, 0.04, 0.05))
    assert result["one_carries"]["learner process"] == 20_000.0


@pytest.mark.parametrize("text", ["", "[]", '{"growth": []}', '{"steps": {"costs": {"actor_us": -1.0}}}'])
def test_a_file_without_costs_is_refused(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By a line that says what was expected, and where."""
    file = tmp_path / "measured.json"
    file.write_text(text)
    with pytest.raises(SystemExit):
        printed(monkeypatch, capsys, "--measured", str(file))
    line = capsys.readouterr().err.splitlines()[-1]
    assert f"--measured: expected the output of step_time.py --part steps --json in {file}" in line
