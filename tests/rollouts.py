"""Unrolls as the learner's inference would make them, through an agent's real act()."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from seedrl_core.codec import FIRST
from seedrl_core.spec import Array, TensorSpec
from seedrl_learner.agents.base import Agent
from seedrl_learner.batch import StepInput, UnrollBatch


def rollout(
    agent: Agent, leaf: TensorSpec, action: TensorSpec, flags: Array, *, frame_stack: int = 1, seed: int = 0
) -> UnrollBatch:
    """Runs act() on random observations of `leaf` with flags [B, steps] and keeps what unrolls keep.

    Rewards, as in a real stream, are 0 at FIRST; core states and frames from before are random.
    """
    rng = np.random.default_rng(seed)
    (num_unrolls, steps), history = flags.shape, frame_stack - 1
    shape = (num_unrolls, history + steps, *leaf.shape)
    frames = rng.integers(0, 256, shape, np.uint8) if leaf.is_integer else rng.normal(size=shape).astype(leaf.dtype)
    first = (flags & FIRST) != 0
    reward = np.where(first, 0, rng.normal(size=flags.shape)).astype(np.float32)
    age = np.where(first[:, 0], 0, history).astype(np.int32)
    initial_age = age
    initial_state = state = tuple(
        tf.constant(rng.normal(size=(num_unrolls, size)), tf.float32) for size in agent.core_state_sizes
    )
    last_action: tuple[tf.Tensor, ...] = (tf.fill([num_unrolls], tf.constant(int(action.low[0]), action.dtype)),)
    previous, actions, behaviour = [], [], []
    for t in range(steps):
        if t:
            age = np.where(first[:, t], 0, np.minimum(age + 1, history)).astype(np.int32)
        step = StepInput(
            observation=(tf.constant(frames[:, t : t + history + 1] if history else frames[:, t]),),
            reward=tf.constant(reward[:, t]),
            first=tf.constant(first[:, t]),
            previous_action=last_action,
            stack_age=tf.constant(age),
            slot=tf.range(num_unrolls),
        )
        previous.append(last_action[0])
        output = agent.act(step, state, tf.zeros([num_unrolls], tf.bool), tf.constant([seed, t]))
        last_action, state = output.action, output.core_state
        actions.append(last_action[0])
        behaviour.append(output.behaviour)
    return UnrollBatch(
        observation=(tf.constant(frames),),
        reward=tf.constant(reward),
        flags=tf.constant(flags),
        previous_action=(tf.stack(previous, axis=1),),
        action=(tf.stack(actions, axis=1),),
        behaviour=tuple(tf.stack(values, axis=1) for values in zip(*behaviour, strict=True)),
        stack_age=tf.constant(initial_age),
        core_state=initial_state,
        policy_version=tf.zeros(flags.shape, tf.int64),
        weight=tf.ones([num_unrolls]),
    )
