"""What flows between storage and agents: one step for inference, whole unrolls for training.

Storage fills these with NumPy arrays, which become tensors at the border of a tf.function.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf

from seedrl_core.codec import FIRST, LAST, TERMINATED

Tensor = Any  # a NumPy array or a tf.Tensor


class StepInput(NamedTuple):
    """Step t of N environments.

    Attributes:
      observation: leaf [N, *shape] in the spec's dtype; a stacked leaf is a window [N, K, *shape], oldest frame first.
      reward: [N] float32, raw reward_t.
      first: [N] bool, obs_t comes from a reset.
      previous_action: leaf [N, *shape], a_{t-1}; its content means nothing where `first`.
      stack_age: [N] int32, how many of the window's K - 1 earlier frames belong to this episode; 0 where `first`.
      slot: [N] int32, the number under which the learner keeps the environment, the same while its session lasts.
    """

    observation: tuple[Tensor, ...]
    reward: Tensor
    first: Tensor
    previous_action: tuple[Tensor, ...]
    stack_age: Tensor
    slot: Tensor


class StepOutput(NamedTuple):
    """What the agent answers to a StepInput.

    Attributes:
      action: leaf [N, *shape] as the environment expects it.
      behaviour: [N, ...] each, in the order of `Agent.behaviour`: what training must know of the behaviour policy.
      core_state: [N, size] float32 each, the recurrent state after step t; () without a core.
    """

    action: tuple[Tensor, ...]
    behaviour: tuple[Tensor, ...]
    core_state: tuple[Tensor, ...]


class StepExplanation(NamedTuple):
    """What the agent made of a StepInput, for people.

    Attributes:
      value: [N] float32, the return that it expects from obs_t on, discounted, of rewards as it is trained on.
      preference: [N, A] float32, the probability of each action, or its value where action values are learned; A is 0
        unless the action is a single Discrete one.
    """

    value: Tensor
    preference: Tensor


class UnrollBatch(NamedTuple):
    """B unrolls of T + 1 steps, batch major as they are stored.

    Attributes:
      observation: leaf [B, T+1, *shape]; a stacked leaf [B, K-1+T+1, *shape], the K - 1 earlier frames first.
      reward: [B, T+1] float32, raw.
      flags: [B, T+1] uint8, bitwise or of the codec's FIRST, TERMINATED, TRUNCATED.
      previous_action: leaf [B, T+1, *shape], a_{t-1}.
      action: leaf [B, T+1, *shape], a_t.
      behaviour: [B, T+1, ...] each, in the order of `Agent.behaviour`.
      stack_age: [B] int32, as in StepInput, of step 0.
      core_state: [B, size] float32 each, the recurrent state before step 0.
      policy_version: [B, T+1] int64, of the policy that chose a_t.
      weight: [B] float32, importance weights of unrolls that a replay did not sample uniformly; else ones.
    """

    observation: tuple[Tensor, ...]
    reward: Tensor
    flags: Tensor
    previous_action: tuple[Tensor, ...]
    action: tuple[Tensor, ...]
    behaviour: tuple[Tensor, ...]
    stack_age: Tensor
    core_state: tuple[Tensor, ...]
    policy_version: Tensor
    weight: Tensor

    @property
    def valid(self) -> Tensor:
        """[B, T] bool: transition t is one of an episode, not the one from a last observation into a reset."""
        return ~(self.last[:, :-1] | self.first[:, 1:])

    def discount(self, gamma: float) -> Tensor:
        """[B, T] float32: gamma, or 0 where obs_{t+1} is terminal."""
        return gamma * tf.cast(~self.terminated[:, 1:], tf.float32)

    @property
    def first(self) -> Tensor:
        """[B, T+1] bool: obs_t comes from a reset."""
        return self._has(FIRST)

    @property
    def terminated(self) -> Tensor:
        """[B, T+1] bool: obs_t is the last of an episode that ended by its own rules."""
        return self._has(TERMINATED)

    @property
    def last(self) -> Tensor:
        """[B, T+1] bool: obs_t is the last of its episode."""
        return self._has(LAST)

    def _has(self, mask: int) -> Tensor:
        return (self.flags & mask) != 0


def time_major(x: tf.Tensor) -> tf.Tensor:
    """[B, T, ...] -> [T, B, ...]."""
    return tf.transpose(x, [1, 0, *range(2, x.shape.rank)])
