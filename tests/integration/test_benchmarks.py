"""Each benchmark runs and prints figures; what they are is not looked at."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.timeout(250)]

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
SHORT = ("--repetitions", "1", "--seconds", "0.2")
# Those of long training runs take minutes.
COMMANDS = {
    "cost_model": (),
    "data_path": (*SHORT, "--transport", "tcp", "--shape", "1x4"),
    "inference_under_training": (*SHORT, "--agent", "vtrace", "--envs", "2"),
    "latency": (*SHORT, "--transport", "unix"),
    "operations": ("--calls", "1", "--batch-unrolls", "8"),
    "replay": (*SHORT, "--unrolls", "64"),
    "step_time steps": (*SHORT, "--part", "steps", "--env-steps", "6000", "--set", "learner.log_every_s=0.2"),
    "step_time growth": (
        *(*SHORT, "--part", "growth"),
        *("--environments", "64", "--frame-sizes", "84", "--batches", "32"),
    ),
}


@pytest.mark.parametrize("what", COMMANDS)
def test_a_benchmark_prints_figures(what: str) -> None:
    """As one JSON object on the last line."""
    name = what.partition(" ")[0]
    command = [sys.executable, BENCHMARKS / f"{name}.py", "--json", *COMMANDS[what]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1])
