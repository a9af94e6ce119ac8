"""The maths of R2D2 against arrays frozen in r2d2.json: whoever changes a number here changes what the agent learns."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from seedrl_learner.rl.exploration import epsilon_ladder
from seedrl_learner.rl.returns import n_step_return
from seedrl_learner.rl.value_rescaling import rescale, unrescale

GOLDEN = json.loads(Path(__file__).with_name("r2d2.json").read_text())


@pytest.mark.parametrize("n", [1, 2, 5])
def test_n_step_returns_are_the_frozen_ones(n: int) -> None:
    """A sequence that terminates, then is truncated; one the other way round; one without an end."""
    case = GOLDEN["n_step_return"]
    inputs = {
        name: tf.constant(values, tf.bool if name == "valid" else tf.float32) for name, values in case["inputs"].items()
    }
    np.testing.assert_allclose(n_step_return(**inputs, n=n), case["returns"][f"n={n}"], rtol=1e-5, atol=1e-5)


def test_rescaled_values_are_the_frozen_ones() -> None:
    """Computed to sixty digits with epsilon 1e-3, in both directions."""
    case = GOLDEN["rescale"]
    x, y, epsilon = case["x"], case["y"], case["epsilon"]
    np.testing.assert_allclose(rescale(tf.constant(x, tf.float32), epsilon), y, rtol=1e-6)
    np.testing.assert_allclose(unrescale(tf.constant(y, tf.float32), epsilon), x, rtol=1e-6)


def test_exploration_rates_are_the_frozen_ones_in_their_order() -> None:
    """The order is frozen too: it says which slot explores how much."""
    case = GOLDEN["epsilon_ladder"]
    assert epsilon_ladder(case["levels"], case["base"], case["exponent"]) == pytest.approx(case["rates"])
