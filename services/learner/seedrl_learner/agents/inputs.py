"""What an agent gets, as its network takes it: one step or whole unrolls, with actions as features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import tensorflow as tf

from seedrl_learner.batch import StepInput, UnrollBatch
from seedrl_learner.networks.trunk import NetworkInput


class ActionFeatures(Protocol):
    """An action space that knows its actions as inputs of a network."""

    def features(self, values: tuple[tf.Tensor, ...], /) -> tf.Tensor:
        """The environment's action leaves [...] as [..., F] float32."""


def of_step(inputs: StepInput, stacked: Sequence[bool], actions: ActionFeatures, reward_clip: float) -> NetworkInput:
    """N environments' step as N sequences of one step; `stacked` as in Agent."""
    observation = tuple(
        leaf if is_stacked else leaf[:, tf.newaxis]
        for leaf, is_stacked in zip(inputs.observation, stacked, strict=True)
    )
    return NetworkInput(
        observation=observation,
        stack_age=inputs.stack_age,
        first=inputs.first[:, tf.newaxis],
        previous_action=actions.features(inputs.previous_action)[:, tf.newaxis],
        reward=clip_reward(inputs.reward, reward_clip)[:, tf.newaxis],
    )


def of_unrolls(batch: UnrollBatch, actions: ActionFeatures, reward_clip: float) -> NetworkInput:
    """All T + 1 steps of a batch."""
    return NetworkInput(
        observation=batch.observation,
        stack_age=batch.stack_age,
        first=batch.first,
        previous_action=actions.features(batch.previous_action),
        reward=clip_reward(batch.reward, reward_clip),
    )


def newest_steps(batch: UnrollBatch, count: int) -> tuple[tf.Tensor, ...]:
    """The observations of the last `count` steps, leaves [B, count, *shape]: those that no earlier unroll held."""
    return tuple(leaf[:, -count:] for leaf in batch.observation)


def clip_reward(reward: tf.Tensor, clip: float) -> tf.Tensor:
    """Rewards as training sees them: within +-clip, or as they are where `clip` is 0."""
    return tf.clip_by_value(reward, -clip, clip) if clip else reward
