"""Inference by itself, of a run that a test has built."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from seedrl_core.codec import FIRST, TickArrays
from seedrl_core.config import load_settings
from seedrl_core.spec import EnvironmentSpec, TensorSpec
from seedrl_learner.inference import Inference
from seedrl_learner.run import Run

SPEC = EnvironmentSpec(
    "Counter-v0",
    (TensorSpec("observation", np.dtype(np.float32), (2,)),),
    (TensorSpec("action", np.dtype(np.int64), (), (0.0,), (1.0,)),),
)
NUM_ENVS = 64


def make(run_dir: Path, seed: int = 0) -> Inference:
    """Of a small network."""
    keys = {"run_dir": str(run_dir), "network.mlp_sizes": [4], "max_envs": NUM_ENVS, "seed": seed}
    settings = load_settings(None, {f"learner.{key}": value for key, value in keys.items()})
    return Run(settings.learner).build(SPEC).inference


def actions(inference: Inference, batches: int) -> list[list[int]]:
    """Those of so many batches that are all alike."""
    slots = inference.open(NUM_ENVS, greedy=False)
    observation, reward = (np.zeros((NUM_ENVS, 2), np.float32),), np.zeros(NUM_ENVS, np.float32)
    tick = TickArrays(0, observation, reward, np.full(NUM_ENVS, FIRST, np.uint8))
    return [inference.run([(slots, tick)])[0].action[0].tolist() for _ in range(batches)]


@pytest.mark.parametrize("seed", [0, 3_000_000_000])
def test_sampling_goes_on_after_billions_of_batches(tmp_path: Path, seed: int) -> None:
    """A month at a thousand a second: the numbers of batches begin anew where int32 ends. So may a seed be large."""
    inference = make(tmp_path, seed)
    inference._batches = 2**31 - 2
    sampled = actions(inference, 3)
    assert len({tuple(batch) for batch in sampled}) == 3
