"""An exported policy acts as the learner's own greedy inference does."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from policies import POLICIES, STACK, N, trained_run

from seedrl_core.codec import FIRST, TERMINATED, TickArrays
from seedrl_core.errors import CheckpointError, ConfigError
from seedrl_learner.export.saved_model import POLICY_FILE, export

STEPS = 12


@pytest.mark.parametrize("name", POLICIES)
def test_the_exported_policy_acts_as_the_learner_does(name: str, tmp_path: Path) -> None:
    """Step by step over several episodes, from the SavedModel alone, with as many rows as are given."""
    spec, settings = POLICIES[name]
    run = trained_run(tmp_path / "run", spec, settings)
    machinery = run.machinery
    assert machinery is not None
    export(tmp_path / "run", tmp_path / "model")
    act = tf.saved_model.load(str(tmp_path / "model")).signatures["serving_default"]
    names = set(act.structured_input_signature[1])
    described = json.loads((tmp_path / "model" / POLICY_FILE).read_text())
    assert described["env_steps"] == 1234
    assert set(described["inputs"]) == names
    slots = machinery.inference.open(N, greedy=True)
    rng = np.random.default_rng(1)
    leaf = spec.observation[0]
    stacked = machinery.agent.stacked[0]
    window = np.zeros((N, STACK, *leaf.shape), leaf.dtype)
    previous = [np.zeros((N, *one.shape), one.dtype) for one in spec.action]
    memory = {f"core_state_{i}": np.zeros((N, size)) for i, size in enumerate(machinery.agent.core_state_sizes)}
    chosen = set()
    for step in range(STEPS):
        observation = (rng.normal(size=(N, *leaf.shape)) * 50 + 50).astype(leaf.dtype)
        reward = rng.normal(size=N).astype(np.float32)
        # Environment i has episodes of i + 2 steps.
        place = np.array([step % (i + 2) for i in range(N)])
        first, last = place == 0, place == np.arange(N) + 1
        flags = (first * FIRST + last * TERMINATED).astype(np.uint8)
        expected = machinery.inference.run([(slots, TickArrays(step, (observation,), reward, flags))])[0].action
        window = np.concatenate([window[:, 1:], observation[:, np.newaxis]], axis=1)
        window[first] = observation[first, np.newaxis]
        given = {
            leaf.path.replace("/", "_"): window if stacked else observation,
            "first": first,
            "reward": reward,
            **{f"previous_{one.path.replace('/', '_')}": x for one, x in zip(spec.action, previous, strict=True)},
            **memory,
        }
        outputs = act(
            **{k: tf.constant(v, act.structured_input_signature[1][k].dtype) for k, v in given.items() if k in names}
        )
        for one, value in zip(spec.action, expected, strict=True):
            np.testing.assert_allclose(outputs[one.path.replace("/", "_")].numpy(), value, rtol=1e-5, atol=1e-5)
        memory = {k: outputs[k].numpy() for k in memory}
        previous = list(expected)
        chosen |= {tuple(np.ravel(row)) for row in expected[0]}
    assert len(chosen) > 1


def test_only_what_the_network_reads_is_asked_for(tmp_path: Path) -> None:
    """A policy without memory needs nothing but the observation."""
    trained_run(tmp_path / "run", *POLICIES["vector"])
    export(tmp_path / "run", tmp_path / "model")
    described = json.loads((tmp_path / "model" / POLICY_FILE).read_text())
    assert described["inputs"] == {"observation_position": {"dtype": "float32", "shape": [None, 3]}}
    assert described["outputs"] == {"action": {"dtype": "int64", "shape": [None]}}


def test_nothing_to_export_and_nothing_overwritten(tmp_path: Path) -> None:
    """A run without a checkpoint and a directory that exists are refused by name."""
    with pytest.raises(CheckpointError, match="no checkpoint in"):
        export(tmp_path / "run", tmp_path / "model")
    (tmp_path / "there").mkdir()
    with pytest.raises(ConfigError, match="there exists already"):
        export(tmp_path / "run", tmp_path / "there")
