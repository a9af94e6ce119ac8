"""Assembles unrolls in preallocated arrays: each slot writes into a row, and a full row is an unroll.

The next row starts with the last `overlap` steps. Rows move between inference, queue and training by number, so an
observation is written once.

All methods but `gather` and `release` belong to the inference thread; those two belong to the training thread.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from seedrl_core.codec import FIRST, RESTARTED, TickArrays
from seedrl_core.errors import ConfigError
from seedrl_core.spec import Array, TensorSpec
from seedrl_learner.batch import StepInput, UnrollBatch
from seedrl_learner.slots import Slots

Rows = npt.NDArray[np.int32]


@dataclass(frozen=True)
class UnrollLayout:
    """What an unroll consists of.

    Attributes:
      observation, action: leaves of the environment.
      stacked: for each observation leaf, whether frames before the unroll are kept for stacking.
      behaviour: what training needs to know of the behaviour policy at each step.
      core_state_sizes: size of each vector of the recurrent state.
      unroll_length: T; an unroll has T + 1 steps.
      overlap: steps that successive unrolls of a slot share.
      frame_stack: K; K - 1 earlier frames of stacked leaves are kept before the first step.
    """

    observation: tuple[TensorSpec, ...]
    action: tuple[TensorSpec, ...]
    stacked: tuple[bool, ...]
    behaviour: tuple[TensorSpec, ...]
    core_state_sizes: tuple[int, ...]
    unroll_length: int
    overlap: int = 1
    frame_stack: int = 1

    def __post_init__(self) -> None:
        """Raises ConfigError when an unroll would be shorter than what it shares with its neighbours."""
        if 2 * self.overlap > self.num_steps:
            raise ConfigError(
                f"learner.unroll_length: expected at least {2 * self.overlap - 1} for an overlap of {self.overlap} "
                f"steps, got {self.unroll_length}"
            )

    @property
    def num_steps(self) -> int:
        """Steps of an unroll, T + 1."""
        return self.unroll_length + 1

    def history(self, leaf: int) -> int:
        """Frames kept before step 0 of an observation leaf."""
        return self.frame_stack - 1 if self.stacked[leaf] else 0


class UnrollStore:
    """The rows of all unrolls: being filled, waiting and in training.

    Attributes:
      layout: of the rows.
      padding_slot: a slot that is never opened; what it holds is zeros, and FIRST.
    """

    def __init__(self, layout: UnrollLayout, num_slots: int, num_rows: int) -> None:
        """Reserves `num_rows` rows for `num_slots` slots. Memory becomes resident only when a row is first used."""
        self.layout = layout
        self.padding_slot = num_slots
        steps = layout.num_steps
        # One more row, the last, is that of the slots that are not open.
        shape = (num_rows + 1, steps)
        try:
            self._observation = tuple(
                np.empty((num_rows + 1, layout.history(i) + steps, *leaf.shape), leaf.dtype)
                for i, leaf in enumerate(layout.observation)
            )
            # Index t holds a_{t-1}; the last index holds a_T.
            self._action = tuple(np.empty((num_rows + 1, steps + 1, *leaf.shape), leaf.dtype) for leaf in layout.action)
            self._behaviour = tuple(np.empty((*shape, *leaf.shape), leaf.dtype) for leaf in layout.behaviour)
        except MemoryError as error:
            size = num_rows * steps * sum(leaf.num_bytes for leaf in layout.observation)
            raise ConfigError(
                f"unrolls of learner.max_envs environments need {size / 2**30:.1f} GiB: lower learner.max_envs or "
                "learner.unroll_length"
            ) from error
        self._reward = np.empty(shape, np.float32)
        self._flags = np.empty(shape, np.uint8)
        self._version = np.empty(shape, np.int64)
        self._stack_age = np.empty(num_rows + 1, np.int32)
        self._core_state = tuple(np.empty((num_rows + 1, size), np.float32) for size in layout.core_state_sizes)
        for stored in (*self._observation, *self._action, self._reward):
            stored[-1] = 0
        self._flags[-1] = FIRST

        self._free_lock = threading.Lock()
        self._free = list(range(num_rows - 1, -1, -1))
        # Of each slot, the padding slot last: its row, the step to be written next, the earlier frames of its episode,
        # whether its unrolls are of use, and what the next unroll will start from.
        self._row = np.full(num_slots + 1, -1, np.int32)
        self._position = np.zeros(num_slots + 1, np.int32)
        self._age = np.zeros(num_slots + 1, np.int32)
        self._fresh = np.zeros(num_slots + 1, np.bool_)
        self._kept = np.zeros(num_slots + 1, np.bool_)
        self._next_age = np.zeros(num_slots + 1, np.int32)
        self._next_core_state = tuple(np.zeros((num_slots + 1, size), np.float32) for size in layout.core_state_sizes)

    @property
    def num_free_rows(self) -> int:
        """Rows that hold nothing."""
        return len(self._free)

    def open(self, slots: Slots, *, keep: bool = True) -> None:
        """Starts empty unrolls; nothing of a slot's earlier user remains. `keep`: whole unrolls are of use."""
        self._row[slots] = self._acquire(len(slots))
        self._position[slots] = 0
        self._fresh[slots] = True
        self._kept[slots] = keep

    def close(self, slots: Slots) -> None:
        """Drops the partial unrolls of `slots`."""
        self.release(self._row[slots].tolist())
        self._row[slots] = -1

    def append(self, ticks: Sequence[tuple[Slots, TickArrays]]) -> Slots:
        """Writes obs_t, reward_t, flags_t of the slots of some sessions; `complete` must follow.

        The first tick of a fresh slot counts as FIRST with reward 0, whatever it says: a session that reopens in the
        middle of an episode starts with clean core state, previous action, previous reward and frame stack. RESTARTED
        drops the slot's partial unroll.

        Returns:
          The slots of all ticks, one after the other.
        """
        slots = np.concatenate([slots for slots, _ in ticks])
        flags = np.concatenate([tick.flags for _, tick in ticks])
        restarted = (flags & RESTARTED) != 0
        if restarted.any():
            self._position[slots[restarted]] = 0
            self._fresh[slots[restarted]] = True
        fresh = self._fresh[slots]
        first = fresh | ((flags & FIRST) != 0)
        rows, position = self._row[slots], self._position[slots]
        self._age[slots] = np.where(first, 0, np.minimum(self._age[slots] + 1, self.layout.frame_stack - 1))
        self._fresh[slots] = False
        for action in self._action:
            action[rows[fresh], 0] = 0
        reward = np.concatenate([tick.reward for _, tick in ticks])
        self._reward[rows, position] = np.where(first, np.float32(0.0), reward)
        self._flags[rows, position] = np.where(first, flags | np.uint8(FIRST), flags)
        for i, stored in enumerate(self._observation):
            at, begin = position + self.layout.history(i), 0
            for session_slots, tick in ticks:
                part = slice(begin, begin := begin + len(session_slots))
                stored[rows[part], at[part]] = tick.observation[i]
        return slots

    def newest(self, slots: Slots) -> StepInput:
        """The steps just appended to N slots, copied into one batch."""
        rows, position = self._row[slots], self._position[slots]
        return StepInput(
            observation=tuple(self._window(i, rows, position) for i in range(len(self._observation))),
            reward=self._reward[rows, position],
            first=(self._flags[rows, position] & FIRST) != 0,
            previous_action=tuple(action[rows, position] for action in self._action),
            stack_age=self._age[slots],
        )

    def complete(
        self,
        slots: Slots,
        action: Sequence[Array],
        behaviour: Sequence[Array],
        core_state: Sequence[Array],
        policy_version: int,
    ) -> list[int]:
        """Writes a_t and the behaviour policy of the step just appended; returns the rows that became whole unrolls.

        Args:
          slots: [N], those of one or more calls of `append`.
          action: leaves [N, *shape].
          behaviour: [N, *shape] each, in the layout's order.
          core_state: [N, size] each: the recurrent state before step t.
          policy_version: of the policy that acted.
        """
        rows, position = self._row[slots], self._position[slots]
        for stored, leaf in zip(self._action, action, strict=True):
            stored[rows, position + 1] = leaf
        for stored, value in zip(self._behaviour, behaviour, strict=True):
            stored[rows, position] = value
        self._version[rows, position] = policy_version
        self._keep_initial_state(slots, rows, position, core_state)
        self._position[slots] = position + 1
        full = slots[position + 1 == self.layout.num_steps]
        return self._roll_over(full) if len(full) else []

    def gather(self, rows: Sequence[int]) -> UnrollBatch:
        """Copies B whole unrolls into one batch."""
        steps = self.layout.num_steps
        actions = tuple(stored[rows] for stored in self._action)
        return UnrollBatch(
            observation=tuple(stored[rows] for stored in self._observation),
            reward=self._reward[rows],
            flags=self._flags[rows],
            previous_action=tuple(action[:, :steps] for action in actions),
            action=tuple(action[:, 1:] for action in actions),
            behaviour=tuple(stored[rows] for stored in self._behaviour),
            stack_age=self._stack_age[rows],
            core_state=tuple(stored[rows] for stored in self._core_state),
            policy_version=self._version[rows],
        )

    def release(self, rows: Sequence[int]) -> None:
        """Takes rows back that are no longer needed."""
        with self._free_lock:
            self._free.extend(rows)

    def _acquire(self, count: int) -> Rows:
        with self._free_lock:
            assert len(self._free) >= count, "fewer rows than slots and queue can hold"
            return np.array([self._free.pop() for _ in range(count)], np.int32)

    def _keep_initial_state(self, slots: Slots, rows: Rows, position: Rows, core_state: Sequence[Array]) -> None:
        """Keeps state and stack age before step 0 of this unroll, and before the step that the next will start with."""
        starts = position == 0
        if starts.any():
            self._stack_age[rows[starts]] = self._age[slots[starts]]
            for stored, state in zip(self._core_state, core_state, strict=True):
                stored[rows[starts]] = state[starts]
        next_starts = position == self.layout.num_steps - self.layout.overlap
        if next_starts.any():
            self._next_age[slots[next_starts]] = self._age[slots[next_starts]]
            for kept, state in zip(self._next_core_state, core_state, strict=True):
                kept[slots[next_starts]] = state[next_starts]

    def _roll_over(self, slots: Slots) -> list[int]:
        """Gives full slots a row that begins with the last `overlap` steps; returns the old rows of use.

        A slot whose unrolls are of no use goes on in its row.
        """
        old, of_use = self._row[slots], self._kept[slots]
        new = old.copy()
        new[of_use] = self._acquire(int(of_use.sum()))
        overlap = self.layout.overlap
        begin = self.layout.num_steps - overlap
        # Observations have their history before step 0, actions have a_{t-1} there: all that follows `begin` is shared.
        fields: tuple[Array, ...] = (*self._observation, *self._action, *self._behaviour)
        for stored in (*fields, self._reward, self._flags, self._version):
            stored[new, : stored.shape[1] - begin] = stored[old, begin:]
        self._stack_age[new] = self._next_age[slots]
        for stored, kept in zip(self._core_state, self._next_core_state, strict=True):
            stored[new] = kept[slots]
        self._row[slots] = new
        self._position[slots] = overlap
        whole: list[int] = old[of_use].tolist()
        return whole

    def _window(self, leaf: int, rows: Rows, position: Rows) -> Array:
        """[N, K, *shape], oldest first, for a stacked leaf, otherwise [N, *shape]."""
        frames = self.layout.history(leaf) + 1
        if frames == 1:
            window: Array = self._observation[leaf][rows, position]
        else:
            window = self._observation[leaf][rows[:, None], position[:, None] + np.arange(frames)]
        return window
