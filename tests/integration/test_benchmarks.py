"""Each benchmark runs and prints figures; what they are is not looked at."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
SHORT = ("--repetitions", "1", "--seconds", "0.2")
# Those of whole training runs take minutes.
COMMANDS = {
    "cost_model": (),
    "data_path": (*SHORT, "--transport", "tcp", "--shape", "1x4"),
    "inference_under_training": (*SHORT, "--agent", "vtrace", "--envs", "2"),
    "latency": (*SHORT, "--transport", "unix"),
    "operations": ("--calls", "1", "--batch-unrolls", "8"),
    "replay": (*SHORT, "--unrolls", "64"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_benchmark_prints_figures(name: str) -> None:
    """As one JSON object on the last line."""
    command = [sys.executable, BENCHMARKS / f"{name}.py", "--json", *COMMANDS[name]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1])
