"""An exported policy acts as the learner's own greedy inference does."""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import tensorflow as tf
from policies import POLICIES, STACK, N, trained_run

from seedrl_core.codec import FIRST, TERMINATED, TickArrays
from seedrl_core.errors import CheckpointError, ConfigError
from seedrl_core.spec import TensorSpec
from seedrl_learner.export import Format
from seedrl_learner.export.model_files import ONNX_FILE, POLICY_FILE, export

STEPS = 12
Arrays = dict[str, np.ndarray]


def loaded(model: Path, format_: Format) -> Callable[[Arrays], Arrays]:
    """The model as a function of arrays by name, run by what runs its format; it asks for no others."""
    inputs = json.loads((model / POLICY_FILE).read_text())["inputs"]
    if format_ is Format.ONNX:
        session = onnxruntime.InferenceSession(model / ONNX_FILE)
        assert {one.name for one in session.get_inputs()} == set(inputs)
        names = [one.name for one in session.get_outputs()]
        return lambda given: dict(zip(names, session.run(None, given), strict=True))
    act = tf.saved_model.load(str(model)).signatures["serving_default"]
    assert set(act.structured_input_signature[1]) == set(inputs)
    return lambda given: {
        name: x.numpy() for name, x in act(**{name: tf.constant(x) for name, x in given.items()}).items()
    }


@pytest.mark.parametrize("format_", Format)
@pytest.mark.parametrize("name", POLICIES)
def test_the_exported_policy_acts_as_the_learner_does(name: str, format_: Format, tmp_path: Path) -> None:
    """Step by step over several episodes, from the model's files alone, with as many rows as are given."""
    spec, settings = POLICIES[name]
    run = trained_run(tmp_path / "run", spec, settings)
    machinery = run.machinery
    assert machinery is not None
    export(tmp_path / "run", tmp_path / "model", format_)
    act = loaded(tmp_path / "model", format_)
    described = json.loads((tmp_path / "model" / POLICY_FILE).read_text())
    assert described["env_steps"] == 1234
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
        outputs = act({k: given[k].astype(one["dtype"]) for k, one in described["inputs"].items()})
        assert {k: x.dtype.name for k, x in outputs.items()} == {
            k: one["dtype"] for k, one in described["outputs"].items()
        }
        for one, value in zip(spec.action, expected, strict=True):
            np.testing.assert_allclose(outputs[one.path.replace("/", "_")], value, rtol=1e-5, atol=1e-5)
        memory = {k: outputs[f"next_{k}"] for k in memory}
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


def test_onnx_needs_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without tf2onnx the error says what to install, and no directory is left."""
    trained_run(tmp_path / "run", *POLICIES["vector"])
    monkeypatch.setitem(sys.modules, "tf2onnx", None)
    with pytest.raises(ConfigError, match=r"--format onnx needs tf2onnx: pip install 'seedrl\[onnx\]'"):
        export(tmp_path / "run", tmp_path / "model", Format.ONNX)
    assert not (tmp_path / "model").exists()


class Bitcast(tf.Module):
    """Does what ONNX has no word for: it takes the bits of a float for an integer."""

    output_size = 3

    def __init__(self, leaves: tuple[TensorSpec, ...], seed: int) -> None:
        super().__init__()
        self.weight = tf.Variable(1.0)

    def __call__(self, leaves: tuple[tf.Tensor, ...]) -> tf.Tensor:
        return self.weight * tf.cast(tf.bitcast(leaves[0], tf.int32), tf.float32)


def test_a_network_that_onnx_cannot_say_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the operation; the SavedModel takes it."""
    torsos = types.ModuleType("odd_torsos")
    torsos.build = Bitcast  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "odd_torsos", torsos)
    spec, settings = POLICIES["vector"]
    trained_run(tmp_path / "run", spec, settings | {"network.torso": "odd_torsos:build"})
    with pytest.raises(ConfigError, match="this network cannot be written as ONNX: .*Bitcast"):
        export(tmp_path / "run", tmp_path / "model", Format.ONNX)
    assert not (tmp_path / "model").exists()
    export(tmp_path / "run", tmp_path / "model")
