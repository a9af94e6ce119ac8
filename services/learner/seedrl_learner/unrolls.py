"""Assembles unrolls in preallocated arrays: each slot writes into a row, and a full row is an unroll.

The next row starts with the last `overlap` steps. Rows move between inference, queue and training by number, so an
observation is written once.

All methods but `gather` and `release` belong to the inference thread; those two belong to the training thread.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

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
      unroll_length: transitions of an unroll that belong to no other.
      overlap: steps that successive unrolls of a slot share; an unroll has T + 1 = unroll_length + overlap steps.
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
        if self.overlap > self.unroll_length:
            raise ConfigError(
                f"learner.unroll_length: expected at least {self.overlap}, the steps that successive unrolls share, "
                f"got {self.unroll_length}"
            )

    @property
    def num_steps(self) -> int:
        """Steps of an unroll, T + 1."""
        return self.unroll_length + self.overlap

    @property
    def fields(self) -> dict[str, tuple[np.dtype[Any], tuple[int, ...]]]:
        """What is stored of an unroll: name -> dtype and shape."""
        steps, number = self.num_steps, np.dtype(np.float32)
        fields: dict[str, tuple[np.dtype[Any], tuple[int, ...]]] = {
            "reward": (number, (steps,)),
            "flags": (np.dtype(np.uint8), (steps,)),
            "policy_version": (np.dtype(np.int64), (steps,)),
            "stack_age": (np.dtype(np.int32), ()),
        }
        for i, leaf in enumerate(self.observation):
            fields[f"observation/{i}"] = leaf.dtype, (self.history(i) + steps, *leaf.shape)
        for i, leaf in enumerate(self.action):
            # Index t holds a_{t-1}; the last index holds a_T.
            fields[f"action/{i}"] = leaf.dtype, (steps + 1, *leaf.shape)
        for i, leaf in enumerate(self.behaviour):
            fields[f"behaviour/{i}"] = leaf.dtype, (steps, *leaf.shape)
        for i, size in enumerate(self.core_state_sizes):
            fields[f"core_state/{i}"] = number, (size,)
        return fields

    @property
    def unroll_bytes(self) -> int:
        """Bytes of an unroll."""
        return sum(dtype.itemsize * math.prod(shape) for dtype, shape in self.fields.values())

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
        # One more row, the last, is that of the slots that are not open.
        try:
            self._fields = {
                name: np.empty((num_rows + 1, *shape), dtype) for name, (dtype, shape) in layout.fields.items()
            }
        except (MemoryError, ValueError) as error:  # more than there is, or than a number of bytes can be
            gib = num_rows * layout.unroll_bytes / 2**30
            raise ConfigError(
                f"unrolls of learner.max_envs environments need {gib:.1f} GiB: lower learner.max_envs or "
                "learner.unroll_length"
            ) from error

        def leaves(kind: str) -> tuple[Array, ...]:
            return tuple(array for name, array in self._fields.items() if name.startswith(f"{kind}/"))

        self._observation, self._action = leaves("observation"), leaves("action")
        self._behaviour, self._core_state = leaves("behaviour"), leaves("core_state")
        self._reward, self._flags = self._fields["reward"], self._fields["flags"]
        self._version, self._stack_age = self._fields["policy_version"], self._fields["stack_age"]
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
        self._row[slots] = self.acquire(len(slots))
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
            slot=slots,
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

    def gather(self, rows: Sequence[int], *, with_observation: bool = True) -> UnrollBatch:
        """Copies B whole unrolls into one batch, or all but their observations."""
        steps = self.layout.num_steps
        actions = tuple(stored[rows] for stored in self._action)
        return UnrollBatch(
            observation=tuple(stored[rows] for stored in self._observation) if with_observation else (),
            reward=self._reward[rows],
            flags=self._flags[rows],
            previous_action=tuple(action[:, :steps] for action in actions),
            action=tuple(action[:, 1:] for action in actions),
            behaviour=tuple(stored[rows] for stored in self._behaviour),
            stack_age=self._stack_age[rows],
            core_state=tuple(stored[rows] for stored in self._core_state),
            policy_version=self._version[rows],
            weight=np.ones(len(rows), np.float32),
        )

    def field(self, name: str, row: int) -> Array:
        """One field, named as in `UnrollLayout.fields`, of one unroll [1, ...]: a view, for the owner of the row."""
        return self._fields[name][row : row + 1]

    def acquire(self, count: int) -> Rows:
        """[count] free rows; they belong to the caller until `release`."""
        with self._free_lock:
            assert len(self._free) >= count, "fewer rows than slots, queue and replay can hold"
            return np.array([self._free.pop() for _ in range(count)], np.int32)

    def release(self, rows: Sequence[int]) -> None:
        """Takes rows back that are no longer needed."""
        with self._free_lock:
            self._free.extend(rows)

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
        new[of_use] = self.acquire(int(of_use.sum()))
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
