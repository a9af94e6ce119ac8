"""A run's greedy policy in files that other programs load: a TensorFlow SavedModel, or ONNX.

The model takes and gives tensors by name, [N, ...] each with any N; `policy.json` beside it lists them. tf2onnx, which
not everybody needs, is imported when ONNX is asked for.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf

from seedrl_core.errors import ConfigError
from seedrl_learner.checkpoints import Checkpoints
from seedrl_learner.export import Format
from seedrl_learner.export.greedy_policy import GreedyPolicy

POLICY_FILE = "policy.json"
ONNX_FILE = "policy.onnx"
_OPSET = 18  # the newest that tf2onnx writes


def export(run_dir: Path, out: Path, format_: Format = Format.SAVEDMODEL) -> Path:
    """Writes the newest checkpoint of `run_dir` into the new directory `out`; returns that checkpoint.

    Raises:
      CheckpointError: there is none, or it cannot be used.
      ConfigError: `out` exists; or ONNX cannot be written, because of the network or since tf2onnx is not installed.
    """
    if out.exists():
        raise ConfigError(f"{out} exists already: choose another directory for the model")
    write = {Format.SAVEDMODEL: _write_saved_model, Format.ONNX: _write_onnx}[format_]
    state = Checkpoints(run_dir / "checkpoints", 1).newest(set_aside=False)
    # What runs ONNX on CPUs has no kernels for bfloat16.
    policy = GreedyPolicy(state, "float32" if format_ is Format.ONNX else None)
    outputs = write(policy, out)
    description = {
        "environment": state.spec.environment_id,
        "env_steps": state.env_steps,
        "policy_version": state.policy_version,
        "inputs": _described(policy.inputs),
        "outputs": _described(outputs),
    }
    (out / POLICY_FILE).write_text(json.dumps(description, indent=1) + "\n")
    return state.path


def _write_saved_model(policy: GreedyPolicy, out: Path) -> Mapping[str, Any]:
    """With the one signature `serving_default`; returns the outputs by name."""
    policy.act = tf.function(lambda **given: policy(given), autograph=False)
    signature = policy.act.get_concrete_function(**policy.inputs)
    tf.saved_model.save(policy, str(out), signatures={"serving_default": signature})
    outputs: Mapping[str, Any] = signature.structured_outputs
    return outputs


def _write_onnx(policy: GreedyPolicy, out: Path) -> Mapping[str, Any]:
    try:
        import onnx
        import tf2onnx
    except ImportError as error:
        raise ConfigError(f"--format onnx needs {error.name}: pip install 'seedrl[onnx]'") from error

    def act(*values: tf.Tensor) -> dict[str, tf.Tensor]:
        # ONNX cannot move bytes as parts of words, which is done with those of uint8 alone.
        wider = [tf.cast(value, tf.int32) if value.dtype == tf.uint8 else value for value in values]
        return policy(dict(zip(policy.inputs, wider, strict=True)))

    traced = tf.function(act, input_signature=[*policy.inputs.values()], autograph=False)
    concrete = traced.get_concrete_function()
    model, _ = tf2onnx.convert.from_function(traced, traced.input_signature, opset=_OPSET)
    _make_constant(model.graph, {inside.name: outside for outside, inside in concrete.graph.captures})
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "N"
    try:
        onnx.checker.check_model(model, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise ConfigError(f"this network cannot be written as ONNX: {error}") from error
    out.mkdir(parents=True)
    onnx.save(model, str(out / ONNX_FILE))
    outputs: Mapping[str, Any] = concrete.structured_outputs
    return outputs


def _make_constant(graph: Any, values: Mapping[str, tf.Tensor]) -> None:
    """What the function holds besides its variables, which tf2onnx takes for inputs, becomes constants."""
    import onnx

    for held in [one for one in graph.input if one.name in values]:
        graph.input.remove(held)
        graph.initializer.append(onnx.numpy_helper.from_array(values[held.name].numpy(), held.name))


def _described(tensors: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    return {name: {"dtype": x.dtype.name, "shape": [*x.shape.as_list()]} for name, x in tensors.items()}
