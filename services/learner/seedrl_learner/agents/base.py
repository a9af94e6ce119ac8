"""The seam between an algorithm and the learner: what inference, storage and training ask of an agent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol, runtime_checkable

import tensorflow as tf

from seedrl_core.spec import TensorSpec
from seedrl_learner.batch import StepExplanation, StepInput, StepOutput, UnrollBatch


class Loss(NamedTuple):
    """What a batch of B unrolls comes to.

    Attributes:
      total: scalar float32, to be minimized.
      metrics: scalar float32 each, by name.
      priority: [B] float32, the new priority of each unroll; None where nothing is replayed.
      value_target: [T, B] float32, what values were trained towards, and [T, B] bool, where they count; None for
        an agent whose `after_update` does not need it.
    """

    total: tf.Tensor
    metrics: dict[str, tf.Tensor]
    priority: tf.Tensor | None = None
    value_target: tuple[tf.Tensor, tf.Tensor] | None = None


class Agent(Protocol):
    """An algorithm: its network, its policy for inference and its loss for training.

    All methods of a step or a batch are plain functions of tensors and of the agent's variables, to be traced into a
    tf.function. Episodes are kept apart: core state, previous action, previous reward and frame stack are clean at
    every FIRST.

    Attributes:
      overlap: steps that successive unrolls of an environment share.
      stacked: for each observation leaf, whether `frame_stack` frames of it are stacked.
      behaviour: what is stored with each step of the behaviour policy, in order: `StepOutput.behaviour` and
        `UnrollBatch.behaviour` hold it.
      core_state_sizes: size of each vector of the recurrent state; () without a core. The initial state is zeros.
      network: the variables that act and that are trained.
      training_state: what else training needs and checkpoints keep, by name.
    """

    overlap: int
    stacked: tuple[bool, ...]
    behaviour: tuple[TensorSpec, ...]
    core_state_sizes: tuple[int, ...]
    network: tf.Module
    training_state: Mapping[str, tf.Module]

    def act(
        self, inputs: StepInput, core_state: tuple[tf.Tensor, ...], greedy: tf.Tensor | None, seed: tf.Tensor
    ) -> StepOutput:
        """Actions for one step of N environments.

        Args:
          inputs: the step.
          core_state: [N, size] float32 each, before the step.
          greedy: [N] bool, act as well as possible instead of exploring; None: all do, and nothing is drawn at random.
          seed: [2] int32; the same seed samples the same actions.
        """

    def explain(self, inputs: StepInput, core_state: tuple[tf.Tensor, ...]) -> StepExplanation:
        """What stands behind the greedy actions of `act` for the same arguments."""

    def loss(self, batch: UnrollBatch, done: tf.Tensor | float = 0.0) -> Loss:
        """The loss of a batch of unrolls, with gradients to the network's variables.

        `done`: scalar, the share of the run that is over, 0..1; for what changes in its course.
        """

    def after_update(self, batch: UnrollBatch, loss: Loss, updates: tf.Tensor) -> dict[str, tf.Tensor]:
        """Follows the `updates`-th (int64 scalar, from 1) change of the network's variables, by the `loss` of `batch`.

        Returns scalar metrics.
        """


@runtime_checkable
class ReplayAgent(Agent, Protocol):
    """An agent that learns from replayed unrolls."""

    def initial_priority(self, batch: UnrollBatch) -> tf.Tensor:
        """[B] float32 priorities of new unrolls, from what inference stored: no network is run."""
