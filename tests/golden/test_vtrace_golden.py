"""V-trace against arrays frozen in vtrace.json: whoever changes a number here changes what every agent learns."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from seedrl_learner.rl.vtrace import vtrace

CASES = json.loads(Path(__file__).with_name("vtrace.json").read_text())


@pytest.mark.parametrize("name", CASES)
def test_targets_and_advantages_are_the_frozen_ones(name: str) -> None:
    """Each case gives the frozen targets and advantages."""
    case = CASES[name]
    arrays = {key: np.array(value, np.bool_ if key == "valid" else np.float32) for key, value in case["inputs"].items()}
    result = vtrace(**{key: tf.constant(value) for key, value in arrays.items()}, **case["settings"])
    np.testing.assert_allclose(result.vs, case["vs"], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(result.pg_advantage, case["pg_advantage"], rtol=1e-5, atol=1e-5)
