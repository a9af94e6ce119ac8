"""What an agent gets, as its network takes it: one step or whole unrolls, with actions as indices."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from seedrl_learner.agents.actions import DiscreteActions
from seedrl_learner.batch import StepInput, UnrollBatch
from seedrl_learner.networks.trunk import NetworkInput


def of_step(inputs: StepInput, stacked: Sequence[bool], actions: DiscreteActions, reward_clip: float) -> NetworkInput:
    """N environments' step as N sequences of one step; `stacked` as in Agent."""
    observation = tuple(
        leaf if is_stacked else leaf[:, tf.newaxis]
        for leaf, is_stacked in zip(inputs.observation, stacked, strict=True)
    )
    return NetworkInput(
        observation=observation,
        stack_age=inputs.stack_age,
        first=inputs.first[:, tf.newaxis],
        previous_action=actions.to_index(inputs.previous_action)[:, tf.newaxis],
        reward=clip_reward(inputs.reward, reward_clip)[:, tf.newaxis],
    )


def of_unrolls(batch: UnrollBatch, actions: DiscreteActions, reward_clip: float) -> NetworkInput:
    """All T + 1 steps of a batch."""
    return NetworkInput(
        observation=batch.observation,
        stack_age=batch.stack_age,
        first=batch.first,
        previous_action=actions.to_index(batch.previous_action),
        reward=clip_reward(batch.reward, reward_clip),
    )


def clip_reward(reward: tf.Tensor, clip: float) -> tf.Tensor:
    """Rewards as training sees them: within +-clip, or as they are where `clip` is 0."""
    return tf.clip_by_value(reward, -clip, clip) if clip else reward
