"""Central inference: a batch of ticks -> actions. Owns slots, unrolls being filled, recurrent state on the device.

One call at a time, which is the service's to see to. Training changes the same variables meanwhile, so each batch uses
the newest policy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from seedrl_core.codec import Explanation, TickArrays
from seedrl_core.metrics import Metrics
from seedrl_core.spec import Array, TensorSpec
from seedrl_learner.agents.base import Agent
from seedrl_learner.batch import StepInput, Tensor
from seedrl_learner.progress import Progress
from seedrl_learner.slots import SlotPool, Slots
from seedrl_learner.traced import Traced
from seedrl_learner.unroll_queue import UnrollQueue
from seedrl_learner.unrolls import UnrollLayout, UnrollStore

_SEEDS = 1 << 31  # that an int32 can be


def bucket(rows: int) -> int:
    """The padded batch size for `rows`: 1, 2, 4, 8, then steps of a quarter of the power of two below."""
    if rows <= 8:
        return 1 << (rows - 1).bit_length()
    step = 1 << ((rows - 1).bit_length() - 3)
    return -(-rows // step) * step


class Answer(NamedTuple):
    """To the tick of a session.

    Attributes:
      action: leaves [N, *shape] in the spec's dtypes.
      explanation: for sessions that asked for it.
    """

    action: tuple[Array, ...]
    explanation: Explanation | None


class Inference:
    """Runs the agent's policy for batches of ticks and feeds the unrolls."""

    def __init__(
        self, agent: Agent, store: UnrollStore, queue: UnrollQueue, progress: Progress, metrics: Metrics, seed: int
    ) -> None:
        """`store` must have rows for all slots besides those that `queue` and training can hold."""
        self._store = store
        self._queue = queue
        self._progress = progress
        self._metrics = metrics
        self._seed = seed
        self._batches = 0
        # Of each slot, the padding slot last.
        num_slots = store.padding_slot + 1
        self._slots = SlotPool(store.padding_slot)
        self._greedy = np.zeros(num_slots, np.bool_)
        self._explained = np.zeros(num_slots, np.bool_)
        self._core_state = tuple(
            tf.Variable(tf.zeros([num_slots, size]), trainable=False) for size in agent.core_state_sizes
        )
        self._step = Traced(_make_step(agent, self._core_state), _step_signature(store.layout))
        self._explain = tf.function(agent.explain, autograph=False)

    def open(self, num_envs: int, *, greedy: bool, explain: bool = False) -> Slots:
        """Slots [num_envs] for a new session, with clean state; Overloaded when there are too few.

        Args:
          num_envs: environments of the session.
          greedy: they take the best actions, and are not trained on.
          explain: answers have an explanation.
        """
        slots = self._slots.acquire(num_envs)
        self._store.open(slots, keep=not greedy)
        self._greedy[slots] = greedy
        self._explained[slots] = explain
        return slots

    def close(self, slots: Slots) -> None:
        """Returns slots; their partial unrolls are dropped."""
        self._store.close(slots)
        self._slots.release(slots)

    def run(self, ticks: Sequence[tuple[Slots, TickArrays]]) -> list[Answer]:
        """Answers the ticks of some sessions. May finish unrolls, which go to the queue."""
        slots = self._store.append(ticks)
        version = self._progress.policy_version
        first, action, behaviour, core_state = self._act(slots)
        ends = np.cumsum([len(own) for own, _ in ticks])
        answers = [
            Answer(tuple(leaf[end - len(own) : end] for leaf in action), self._explanation(own, core_state, end))
            for (own, _), end in zip(ticks, ends, strict=True)
        ]
        finished = self._store.complete(slots, action, behaviour, core_state, version)
        steps = int(np.count_nonzero(~first & ~self._greedy[slots]))
        if not self._queue.put(finished, when_taken_in=lambda: self._count(steps)):
            self._store.release(finished)
        return answers

    def _count(self, steps: int) -> None:
        self._progress.env_steps += steps
        self._metrics.count("env_steps_per_s", steps)

    def _act(self, slots: Slots) -> tuple[Array, list[Array], list[Array], list[Array]]:
        """The policy's step on the device, padded to a bucket: first, action, behaviour, core state before the step."""
        rows = len(slots)
        padded = np.full(bucket(rows), self._store.padding_slot, np.int32)
        padded[:rows] = slots
        inputs = self._store.newest(padded)
        self._batches += 1
        seed = np.array([self._seed % _SEEDS, self._batches % _SEEDS], np.int32)
        with self._metrics.busy("inference/busy_share", "inference/step_ms"):
            outputs = self._step(inputs, self._greedy[padded], seed)
            action, behaviour, core_state = ([part.numpy()[:rows] for part in group] for group in outputs)
        return inputs.first[:rows], action, behaviour, core_state

    def _explanation(self, slots: Slots, core_state: list[Array], end: int) -> Explanation | None:
        """Of one session, whose rows of `core_state` are those before `end`; None where it did not ask."""
        if not self._explained[slots].any():
            return None
        before = tuple(part[end - len(slots) : end] for part in core_state)
        made = self._explain(self._store.newest(slots), before)
        return Explanation(made.value.numpy(), made.preference.numpy())


def _make_step(agent: Agent, variables: tuple[tf.Variable, ...]) -> Callable[..., Any]:
    """Core state from the device, policy, core state back to the device."""

    def step(inputs: StepInput, greedy: Tensor, seed: Tensor) -> tuple[tuple[Tensor, ...], ...]:
        before = tuple(tf.gather(variable, inputs.slot) for variable in variables)
        output = agent.act(inputs, before, greedy, seed)
        for variable, state in zip(variables, output.core_state, strict=True):
            variable.scatter_update(tf.IndexedSlices(state, inputs.slot))
        return output.action, output.behaviour, before

    return step


def _step_signature(layout: UnrollLayout) -> list[Any]:
    """Arguments of a step with any number of rows, so that nothing retraces."""

    def rows(leaf: TensorSpec, *frames: int) -> tf.TensorSpec:
        return tf.TensorSpec([None, *frames, *leaf.shape], leaf.dtype.name)

    windows = (layout.history(i) + 1 for i in range(len(layout.observation)))
    inputs = StepInput(
        observation=tuple(
            rows(leaf, frames) if frames > 1 else rows(leaf)
            for leaf, frames in zip(layout.observation, windows, strict=True)
        ),
        reward=tf.TensorSpec([None], tf.float32),
        first=tf.TensorSpec([None], tf.bool),
        previous_action=tuple(map(rows, layout.action)),
        stack_age=tf.TensorSpec([None], tf.int32),
        slot=tf.TensorSpec([None], tf.int32),
    )
    return [inputs, tf.TensorSpec([None], tf.bool), tf.TensorSpec([2], tf.int32)]
