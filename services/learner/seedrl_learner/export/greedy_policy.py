"""A checkpoint's greedy policy as one function of named tensors, for models that need neither a service nor a slot.

Recurrent state is in the hands of the caller.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import tensorflow as tf

from seedrl_core.config import NetworkConfig
from seedrl_core.spec import EnvironmentSpec, TensorSpec
from seedrl_learner import defaults
from seedrl_learner.agents import make_agent
from seedrl_learner.agents.base import Agent
from seedrl_learner.batch import StepInput
from seedrl_learner.checkpoints import CheckpointState, restore_variables

_FIRST, _REWARD, _CORE_STATE, _PREVIOUS = "first", "reward", "core_state", "previous_"


class GreedyPolicy(tf.Module):
    """The policy of a checkpoint; only what its network reads is asked for.

    Takes:
    - each observation leaf, named by its path with `_` for `/`: [N, *shape], or [N, K, *shape] where K frames are
      stacked, oldest first; at an episode's start its first frame stands for those before.
    - `first` [N] bool, the observation comes from a reset: with a recurrent core, a previous action or reward.
    - `previous_` and each action leaf: [N, *shape]; `reward` [N] float32: where the network has them as inputs.
    - `core_state_0`, ... [N, size] float32, zeros at first: with a recurrent core.

    Gives each action leaf [N, *shape], and `next_core_state_0`, ... for the next step.

    Attributes:
      inputs: what it takes, by name.
    """

    def __init__(self, state: CheckpointState, compute_dtype: Literal["float32"] | None = None) -> None:
        """`compute_dtype`: another one than that of the run.

        Raises:
          CheckpointError: the checkpoint does not fit its own configuration.
        """
        super().__init__()
        config = defaults.resolve(state.config, state.spec)
        if compute_dtype is not None:
            config = config.model_copy(update={"compute_dtype": compute_dtype})
        self._agent = make_agent(config, state.spec)
        restore_variables(state.path, {"network": self._agent.network}, partial=True)
        self.network = self._agent.network
        self._spec = state.spec
        assert config.frame_stack is not None, "configuration not resolved"
        self._frame_stack = config.frame_stack
        self.inputs = _inputs(state.spec, self._agent, config.network, config.frame_stack)

    def __call__(self, given: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """The step of N environments; to be traced into a tf.function."""
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
        output = self._agent.act(inputs, core_state, greedy=None, seed=tf.zeros([2], tf.int32))
        named = {_name(leaf): value for leaf, value in zip(spec.action, output.action, strict=True)}
        return named | {f"next_{_CORE_STATE}_{index}": value for index, value in enumerate(output.core_state)}


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
