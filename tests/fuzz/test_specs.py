"""The first session's spec comes from outside, and a network is built for it: whatever it is, the learner stays."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seedrl_core.config import load_settings
from seedrl_core.errors import BadRequest, ConfigError, ExpectedError
from seedrl_core.spec import EnvironmentSpec, TensorSpec
from seedrl_learner.agents.actions import ActionSpace, DiscreteActions
from seedrl_learner.networks.layers import orthogonal
from seedrl_learner.networks.leaves import leaf_layer
from seedrl_learner.run import Run

OBSERVATION = TensorSpec("observation", np.dtype(np.float32), (2,))
ACTION = TensorSpec("action", np.dtype(np.int64), (), (0.0,), (1.0,))


def make_run(directory: Path, agent: str = "vtrace") -> Run:
    """A run that knows no environment yet."""
    keys = {"run_dir": str(directory), "network.mlp_sizes": [2], "max_envs": 4, "agent": agent, "unroll_length": 20}
    return Run(load_settings(None, {f"learner.{key}": value for key, value in keys.items()}).learner)


def spec_of(observation: TensorSpec = OBSERVATION, action: TensorSpec = ACTION) -> EnvironmentSpec:
    """A spec of one leaf each."""
    return EnvironmentSpec("Bomb-v0", (observation,), (action,))


_dtypes = st.sampled_from(["bool", "uint8", "int32", "int64", "float32", "float64"])
_sizes = st.sampled_from([1, 2, 3, 40, 2**13, 2**20, 2**26])
_values = st.sampled_from([0.0, -1.0, 1.0, 255.0, 1e6, 2.0**52, -(2.0**52), 1e38, 1e300, -1e300, math.inf, -math.inf])
_bounds = st.tuples(*(st.lists(_values, max_size=1).map(tuple) for _ in range(2)))
_usual_bounds = st.sampled_from([((), ()), ((0.0,), (1.0,)), ((-1.0,), (1.0,)), ((0.0,), (255.0,))])


def _leaf(path: str) -> st.SearchStrategy[tuple[object, ...]]:
    sizes = st.lists(_sizes, max_size=3).map(tuple)
    return st.tuples(st.just(path), _dtypes, sizes, _usual_bounds | _bounds).map(lambda leaf: (*leaf[:3], *leaf[3]))


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(_leaf("observation"), _leaf("action"), st.sampled_from(["vtrace", "r2d2"]))
def test_any_spec_is_built_or_refused(
    tmp_path: Path, observation: tuple[object, ...], action: tuple[object, ...], agent: str
) -> None:
    """By an error of ours, in a sentence, at either place: where it is read or where the network is built."""
    words = "it is built"
    try:
        leaves = [
            TensorSpec(path, np.dtype(dtype), *rest)  # type: ignore[arg-type]
            for path, dtype, *rest in (observation, action)
        ]
        make_run(tmp_path, agent).build(spec_of(*leaves))
    except ExpectedError as refused:
        words = str(refused)
    assert len(words) > 10


@pytest.mark.parametrize(
    ("leaf", "words"),
    [
        (replace(ACTION, high=(1e12,)), "at most 65536 values"),
        (replace(ACTION, shape=(70_000,)), "at most 65536 elements"),
        (replace(ACTION, shape=(2,), high=(0.0, 60_000.0)), ""),
        (TensorSpec("action", np.dtype(np.int64), (5000,), (0.0,), (0.0,) * 4999 + (1.0,)), "at most 4096"),
        (
            TensorSpec("action", np.dtype(np.int64), (100,), (0.0,), (0.0,) * 99 + (20_000.0,)),
            "1048576 values when all",
        ),
        (TensorSpec("action", np.dtype(np.float64), (), (-1e308,), (1e308,)), "expected finite bounds"),
        (TensorSpec("action", np.dtype(np.float64), (), (1.0,), (1.0 + 1e-12,)), "expected finite bounds"),
    ],
)
def test_action_bombs_are_refused_by_leaf(leaf: TensorSpec, words: str) -> None:
    """Too many values or elements, choices that would be filled up too far, bounds that float32 cannot tell apart."""
    if not words:
        ActionSpace(spec_of(action=leaf))
        return
    with pytest.raises(ConfigError, match=f"action: .*{words}"):
        ActionSpace(spec_of(action=leaf))


def test_bounds_of_integer_actions_must_be_integers_that_travel_exactly() -> None:
    """Infinite ones, ones that float64 does not hold, and reversed ones are refused where the spec is read."""
    for bound in (math.inf, 2.0**53):
        with pytest.raises(BadRequest, match="action: expected bounds of an integer action within"):
            spec_of(action=replace(ACTION, high=(bound,)))
    with pytest.raises(BadRequest, match="observation: expected low <= high"):
        replace(OBSERVATION, low=(1.0,), high=(2.0, 0.0))
    with pytest.raises(ConfigError, match="expected 1 to 65536 actions"):
        DiscreteActions.of(spec_of(action=replace(ACTION, high=(1e9,))), "r2d2")


def test_observation_bombs_are_refused_before_a_layer_is_made() -> None:
    """A leaf of millions of numbers, and a kernel that would be larger than any network's."""
    with pytest.raises(ConfigError, match="observation: expected at most 262144 elements"):
        leaf_layer(replace(OBSERVATION, shape=(1 << 19,)), np.random.default_rng(0), np.float32)
    with pytest.raises(ConfigError, match="expected layers of at most 67108864 numbers, got one of 1048576 x 65"):
        orthogonal(np.random.default_rng(0), (1 << 20, 65), 1.0)
