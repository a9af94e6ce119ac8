"""The seam between an algorithm and the learner: what inference, storage and training ask of an agent."""

from __future__ import annotations

from typing import Protocol

import tensorflow as tf

from seedrl_core.spec import TensorSpec
from seedrl_learner.batch import StepInput, StepOutput, UnrollBatch


class Agent(Protocol):
    """An algorithm: its network, its policy for inference and its loss for training.

    `act` and `loss` are plain functions of tensors and of the network's variables, to be traced into a tf.function.
    Both treat episodes alike: core state, previous action, previous reward and frame stack are clean at every FIRST.

    Attributes:
      overlap: steps that successive unrolls of an environment share.
      stacked: for each observation leaf, whether `frame_stack` frames of it are stacked.
      behaviour: what is stored with each step of the behaviour policy, in order: `StepOutput.behaviour` and
        `UnrollBatch.behaviour` hold it.
      core_state_sizes: size of each vector of the recurrent state; () without a core. The initial state is zeros.
      network: holds the variables that are trained and checkpointed.
    """

    overlap: int
    stacked: tuple[bool, ...]
    behaviour: tuple[TensorSpec, ...]
    core_state_sizes: tuple[int, ...]
    network: tf.Module

    def act(
        self, inputs: StepInput, core_state: tuple[tf.Tensor, ...], greedy: tf.Tensor, seed: tf.Tensor
    ) -> StepOutput:
        """Actions for one step of N environments.

        Args:
          inputs: the step.
          core_state: [N, size] float32 each, before the step.
          greedy: [N] bool, take the best action instead of sampling.
          seed: [2] int32; the same seed samples the same actions.
        """

    def loss(self, batch: UnrollBatch) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Scalar float32 loss of a batch of unrolls, and scalar metrics by name."""

    def after_update(self, batch: UnrollBatch) -> None:
        """Follows a change of the network's variables that `batch` led to; traced into the same tf.function."""
