"""Central inference: a batch of ticks -> actions. Owns slots, unrolls being filled, recurrent state on the device.

Everything here runs in one thread, the service's inference executor. Training changes the same variables meanwhile, so
each batch uses the newest policy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from seedrl_core.codec import TickArrays
from seedrl_core.metrics import Metrics
from seedrl_core.spec import Array, EnvironmentSpec, TensorSpec
from seedrl_learner.agents.base import Agent
from seedrl_learner.batch import StepInput
from seedrl_learner.progress import Progress
from seedrl_learner.slots import SlotPool, Slots
from seedrl_learner.unroll_queue import UnrollQueue
from seedrl_learner.unrolls import StepArrays, UnrollStore


@dataclass(frozen=True)
class SlotTick:
    """A decoded tick of one session and the slots of its environments; greedy ones are not trained on."""

    slots: Slots
    tick: TickArrays
    greedy: bool


def bucket(rows: int) -> int:
    """The padded batch size for `rows`: 1, 2, 4, 8, then steps of a quarter of the power of two below."""
    if rows <= 8:
        return 1 << (rows - 1).bit_length()
    step = 1 << ((rows - 1).bit_length() - 3)
    return -(-rows // step) * step


class Inference:
    """Runs the agent's policy for batches of ticks and feeds the unrolls."""

    def __init__(
        self,
        agent: Agent,
        spec: EnvironmentSpec,
        store: UnrollStore,
        slots: SlotPool,
        queue: UnrollQueue,
        progress: Progress,
        metrics: Metrics,
        seed: int,
    ) -> None:
        """`store` must have a row for every slot, see `Run`."""
        self._agent = agent
        self._store = store
        self._slots = slots
        self._queue = queue
        self._progress = progress
        self._metrics = metrics
        self._seed = seed
        self._batches = 0
        # The last row belongs to no slot: padding reads and writes it.
        self._padding_slot = slots.capacity
        self._core_state = tuple(
            tf.Variable(tf.zeros([slots.capacity + 1, size]), trainable=False) for size in agent.core_state_sizes
        )
        self._step = self._make_step(spec)

    def open(self, num_envs: int) -> Slots:
        """Slots [num_envs] for a new session, with clean state; Overloaded when there are too few."""
        slots = self._slots.acquire(num_envs)
        self._store.open(slots)
        return slots

    def close(self, slots: Slots) -> None:
        """Returns slots; their partial unrolls are dropped."""
        self._store.close(slots)
        self._slots.release(slots)

    def run(self, ticks: Sequence[SlotTick]) -> list[tuple[Array, ...]]:
        """Actions for each tick: leaves [N, *shape] in the spec's dtypes. May finish unrolls, which go to the queue."""
        version = self._progress.policy_version
        inputs = [self._store.append(tick.slots, tick.tick) for tick in ticks]
        slots = np.concatenate([tick.slots for tick in ticks])
        greedy = np.concatenate([np.full(len(tick.slots), tick.greedy) for tick in ticks])
        action, behaviour, core_state = self._compute(slots, _concatenate(inputs), greedy)
        replies = []
        begin = 0
        for tick, step in zip(ticks, inputs, strict=True):
            part = slice(begin, begin := begin + len(tick.slots))
            self._finish(
                tick,
                step,
                [x[part] for x in action],
                [x[part] for x in behaviour],
                [x[part] for x in core_state],
                version,
            )
            replies.append(tuple(leaf[part] for leaf in action))
        return replies

    def _finish(
        self,
        tick: SlotTick,
        step: StepArrays,
        action: Sequence[Array],
        behaviour: Sequence[Array],
        core_state: Sequence[Array],
        version: int,
    ) -> None:
        finished = self._store.complete(tick.slots, action, behaviour, core_state, version)
        if tick.greedy or not self._queue.put(finished):
            self._store.release(finished)
        if tick.greedy or self._queue.is_closed:
            return
        steps = len(tick.slots) - int(np.count_nonzero(step.first))
        self._progress.env_steps += steps
        self._metrics.count("env_steps_per_s", steps)

    def _compute(self, slots: Slots, inputs: StepArrays, greedy: Array) -> tuple[list[Array], list[Array], list[Array]]:
        """Pads to a bucket, runs the step on the device, cuts the padding off again."""
        rows = len(slots)
        padding = bucket(rows) - rows

        def padded(array: Array, value: int = 0) -> Array:
            if not padding:
                return array
            return np.concatenate([array, np.full((padding, *array.shape[1:]), value, array.dtype)])

        step_input = StepInput(
            observation=tuple(map(padded, inputs.observation)),
            reward=padded(inputs.reward),
            first=padded(inputs.first, 1),
            previous_action=tuple(map(padded, inputs.previous_action)),
            stack_age=padded(inputs.stack_age),
        )
        self._batches += 1
        seed = np.array([self._seed, self._batches], np.int32)
        with self._metrics.busy("inference/busy_share", "inference/step_ms"):
            outputs = self._step(padded(slots, self._padding_slot), step_input, padded(greedy), seed)
            action, behaviour, core_state = ([part.numpy()[:rows] for part in group] for group in outputs)
        return action, behaviour, core_state

    def _make_step(self, spec: EnvironmentSpec) -> Callable[..., Any]:
        """The traced step: core state from the device, policy, core state back to the device."""
        agent, variables = self._agent, self._core_state

        def step(
            slots: tf.Tensor, inputs: StepInput, greedy: tf.Tensor, seed: tf.Tensor
        ) -> tuple[tuple[tf.Tensor, ...], ...]:
            before = tuple(tf.gather(variable, slots) for variable in variables)
            output = agent.act(inputs, before, greedy, seed)
            for variable, state in zip(variables, output.core_state, strict=True):
                variable.scatter_update(tf.IndexedSlices(state, slots))
            return output.action, output.behaviour, before

        signature = [
            tf.TensorSpec([None], tf.int32),
            self._input_signature(spec),
            tf.TensorSpec([None], tf.bool),
            tf.TensorSpec([2], tf.int32),
        ]
        traced: Callable[..., Any] = tf.function(step, input_signature=signature, autograph=False)
        return traced

    def _input_signature(self, spec: EnvironmentSpec) -> StepInput:
        """StepInput of any number of rows, so that nothing retraces."""

        def rows(leaf: TensorSpec, frames: int = 1) -> tf.TensorSpec:
            return tf.TensorSpec([None, *([frames] if frames > 1 else []), *leaf.shape], leaf.dtype.name)

        history = self._store.layout.history
        return StepInput(
            observation=tuple(rows(leaf, history(i) + 1) for i, leaf in enumerate(spec.observation)),
            reward=tf.TensorSpec([None], tf.float32),
            first=tf.TensorSpec([None], tf.bool),
            previous_action=tuple(rows(leaf) for leaf in spec.action),
            stack_age=tf.TensorSpec([None], tf.int32),
        )


def _concatenate(steps: Sequence[StepArrays]) -> StepArrays:
    """One batch of the inputs of several sessions."""
    if len(steps) == 1:
        return steps[0]
    return StepArrays(
        observation=tuple(np.concatenate(leaves) for leaves in zip(*(s.observation for s in steps), strict=True)),
        reward=np.concatenate([s.reward for s in steps]),
        first=np.concatenate([s.first for s in steps]),
        previous_action=tuple(np.concatenate(leaf) for leaf in zip(*(s.previous_action for s in steps), strict=True)),
        stack_age=np.concatenate([s.stack_age for s in steps]),
    )
