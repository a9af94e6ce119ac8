"""A run's greedy policy as a TensorFlow SavedModel, which needs neither a service nor this package.

Its one signature, `serving_default`, takes and gives tensors by name, [N, ...] each with any N; `policy.json` beside
the model lists them. Recurrent state is in the hands of the caller.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf

from seedrl_core.config import NetworkConfig
from seedrl_core.errors import ConfigError
from seedrl_core.spec import EnvironmentSpec, TensorSpec
from seedrl_learner import defaults
from seedrl_learner.agents import make_agent
from seedrl_learner.agents.base import Agent
from seedrl_learner.batch import StepInput
from seedrl_learner.checkpoints import Checkpoints, CheckpointState, restore_variables

POLICY_FILE = "policy.json"
_FIRST, _REWARD, _CORE_STATE, _PREVIOUS = "first", "reward", "core_state", "previous_"


class GreedyPolicy(tf.Module):
    """The policy of a checkpoint as one function of named tensors; only what its network reads is asked for.

    - each observation leaf, named by its path with `_` for `/`: [N, *shape], or [N, K, *shape] where K frames are
      stacked, oldest first; at an episode's start its first frame stands for those before.
    - `first` [N] bool, the observation comes from a reset: with a recurrent core, a previous action or reward.
    - `previous_` and each action leaf: [N, *shape]; `reward` [N] float32: where the network has them as inputs.
    - `core_state_0`, ... [N, size] float32, zeros at first: with a recurrent core.
    """

    def __init__(self, state: CheckpointState) -> None:
        """Raises CheckpointError when the checkpoint does not fit its own configuration."""
        super().__init__()
        # Greedy means greedy here: no exploration remains.
        r2d2 = state.config.r2d2.model_copy(update={"eval_epsilon": 0.0})
        config = defaults.resolve(state.config.model_copy(update={"r2d2": r2d2}), state.spec)
        self._agent = make_agent(config, state.spec)
        restore_variables(state.path, {"network": self._agent.network}, partial=True)
        self.network = self._agent.network
        self._spec = state.spec
        assert config.frame_stack is not None, "configuration not resolved"
        self._frame_stack = config.frame_stack
        self.inputs = _inputs(state.spec, self._agent, config.network, config.frame_stack)
        self.act = tf.function(self._act, autograph=False)

    def _act(self, **given: tf.Tensor) -> dict[str, tf.Tensor]:
        spec = self._spec
        rows = tf.shape(given[_name(spec.observation[0])])[0]

        def given_or(name: str, zeros: tf.TensorSpec) -> tf.Tensor:
            return given[name] if name in given else tf.zeros([rows, *zeros.shape[1:]], zeros.dtype)

        inputs = StepInput(
            observation=tuple(given[_name(leaf)] for leaf in spec.observation),
            reward=given_or(_REWARD, tf.TensorSpec([None], tf.float32)),
            first=given_or(_FIRST, tf.TensorSpec([None], tf.bool)),
            previous_action=tuple(given_or(_PREVIOUS + _name(leaf), _rows(leaf)) for leaf in spec.action),
            # The window's frames are as they shall be seen.
            stack_age=tf.fill([rows], self._frame_stack - 1),
            slot=tf.zeros([rows], tf.int32),
        )
        core_state = tuple(given[f"{_CORE_STATE}_{index}"] for index in range(len(self._agent.core_state_sizes)))
        output = self._agent.act(inputs, core_state, tf.fill([rows], True), tf.zeros([2], tf.int32))
        named = {_name(leaf): value for leaf, value in zip(spec.action, output.action, strict=True)}
        return named | {f"{_CORE_STATE}_{index}": value for index, value in enumerate(output.core_state)}


def export(run_dir: Path, out: Path) -> Path:
    """Writes the newest checkpoint of `run_dir` as a SavedModel into the new directory `out`; returns that checkpoint.

    Raises:
      CheckpointError: there is none, or it cannot be used.
      ConfigError: `out` exists.
    """
    if out.exists():
        raise ConfigError(f"{out} exists already: choose another directory for the model")
    state = Checkpoints(run_dir / "checkpoints", 1).newest(set_aside=False)
    policy = GreedyPolicy(state)
    signature = policy.act.get_concrete_function(**policy.inputs)
    tf.saved_model.save(policy, str(out), signatures={"serving_default": signature})
    description = {
        "environment": state.spec.environment_id,
        "env_steps": state.env_steps,
        "policy_version": state.policy_version,
        "inputs": _described(policy.inputs),
        "outputs": _described(signature.structured_outputs),
    }
    (out / POLICY_FILE).write_text(json.dumps(description, indent=1) + "\n")
    return state.path


def _inputs(spec: EnvironmentSpec, agent: Agent, network: NetworkConfig, frame_stack: int) -> dict[str, tf.TensorSpec]:
    """What the network reads, by name."""
    inputs = {
        _name(leaf): _rows(leaf, _name(leaf), *((frame_stack,) if is_stacked else ()))
        for leaf, is_stacked in zip(spec.observation, agent.stacked, strict=True)
    }
    if agent.core_state_sizes or network.previous_action or network.previous_reward:
        inputs[_FIRST] = tf.TensorSpec([None], tf.bool, _FIRST)
    if network.previous_action:
        inputs |= {_PREVIOUS + _name(leaf): _rows(leaf, _PREVIOUS + _name(leaf)) for leaf in spec.action}
    if network.previous_reward:
        inputs[_REWARD] = tf.TensorSpec([None], tf.float32, _REWARD)
    for index, size in enumerate(agent.core_state_sizes):
        name = f"{_CORE_STATE}_{index}"
        inputs[name] = tf.TensorSpec([None, size], tf.float32, name)
    return inputs


def _rows(leaf: TensorSpec, name: str | None = None, *frames: int) -> tf.TensorSpec:
    return tf.TensorSpec([None, *frames, *leaf.shape], leaf.dtype.name, name)


def _name(leaf: TensorSpec) -> str:
    """A leaf's path as a name that Python and TensorFlow take."""
    return leaf.path.replace("/", "_")


def _described(tensors: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    return {name: {"dtype": x.dtype.name, "shape": [*x.shape.as_list()]} for name, x in tensors.items()}
