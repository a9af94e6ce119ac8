"""Unroll assembly: what is written comes out once, in order, with the overlap, clean after every kind of start."""

from __future__ import annotations

import numpy as np
import pytest

from seedrl_core.codec import FIRST, RESTARTED, TERMINATED, TickArrays
from seedrl_core.errors import ConfigError, Overloaded
from seedrl_core.spec import TensorSpec
from seedrl_learner.batch import StepInput, UnrollBatch
from seedrl_learner.slots import SlotPool
from seedrl_learner.unroll_queue import UnrollQueue
from seedrl_learner.unrolls import UnrollLayout, UnrollStore

OBSERVATION = TensorSpec("observation", np.dtype(np.int64), (1,))
ACTION = TensorSpec("action", np.dtype(np.int64), (), (0.0,), (9.0,))


def make_store(length: int = 3, overlap: int = 1, frame_stack: int = 1, slots: int = 4) -> UnrollStore:
    """A store for integer observations with one core state vector and one behaviour value."""
    layout = UnrollLayout(
        observation=(OBSERVATION,),
        action=(ACTION,),
        stacked=(frame_stack > 1,),
        behaviour=(TensorSpec("logits", np.dtype(np.float32), (2,)),),
        core_state_sizes=(1,),
        unroll_length=length,
        overlap=overlap,
        frame_stack=frame_stack,
    )
    return UnrollStore(layout, slots, 4 * slots)


class Driver:
    """Feeds a store with values that name their step: obs = t, reward = t, action = t % 10, core state = t."""

    def __init__(self, store: UnrollStore, slots: list[int], *, keep: bool = True) -> None:
        self.store = store
        self.slots = np.array(slots, np.int32)
        store.open(self.slots, keep=keep)
        self.time = 0
        self.unrolls: list[UnrollBatch] = []
        self.inputs: list[StepInput] = []

    def step(self, flags: int | list[int] = 0) -> None:
        """One tick of all slots; finished unrolls are copied out and their rows released."""
        n = len(self.slots)
        tick = TickArrays(
            sequence=self.time,
            observation=(np.full((n, 1), self.time, np.int64),),
            reward=np.full(n, self.time, np.float32),
            flags=np.broadcast_to(np.array(flags, np.uint8), (n,)).copy(),
        )
        self.store.append([(self.slots, tick)])
        self.inputs.append(self.store.newest(self.slots))
        rows = self.store.complete(
            self.slots,
            (np.full(n, self.time % 10, np.int64),),
            (np.full((n, 2), self.time, np.float32),),
            (np.full((n, 1), self.time, np.float32),),
            policy_version=self.time,
        )
        if rows:
            self.unrolls.append(self.store.gather(rows))
            self.store.release(rows)
        self.time += 1


@pytest.mark.parametrize(("length", "overlap"), [(1, 1), (3, 1), (4, 2), (7, 3)])
def test_unrolls_are_consecutive_and_share_exactly_the_overlap(length: int, overlap: int) -> None:
    """Unroll i holds steps i * length onwards, in every field, for every slot."""
    driver = Driver(make_store(length, overlap), [0, 2])
    driver.step(FIRST)
    for _ in range(24):
        driver.step()
    assert len(driver.unrolls) >= 3
    for i, unroll in enumerate(driver.unrolls):
        expected = i * length + np.arange(length + overlap)
        for slot in range(2):
            assert unroll.observation[0][slot, :, 0].tolist() == expected.tolist()
            assert unroll.action[0][slot].tolist() == (expected % 10).tolist()
            assert unroll.behaviour[0][slot, :, 1].tolist() == expected.tolist()
            assert unroll.policy_version[slot].tolist() == expected.tolist()
            previous = [0 if t == 0 else (t - 1) % 10 for t in expected]
            assert unroll.previous_action[0][slot].tolist() == previous
            assert unroll.reward[slot].tolist() == expected.tolist()
            assert unroll.core_state[0][slot, 0] == expected[0]
            assert unroll.flags[slot].tolist() == [FIRST if t == 0 else 0 for t in expected]


def test_every_reward_reaches_a_transition_exactly_once() -> None:
    """Rewards at steps 1..T of successive unrolls are all rewards after the first, without gap or repetition."""
    driver = Driver(make_store(3), [1])
    driver.step(FIRST)
    for _ in range(12):
        driver.step()
    rewards = np.concatenate([unroll.reward[0, 1:] for unroll in driver.unrolls])
    assert rewards.tolist() == list(range(1, 13))


def test_a_fresh_slot_starts_clean_whatever_its_first_tick_says() -> None:
    """A session reopened in mid-episode: FIRST is set, reward and previous action are zero, the stack is empty."""
    store = make_store(3, frame_stack=3)
    first = Driver(store, [0])
    for _ in range(3):
        first.step(FIRST if first.time == 0 else 0)
    store.close(first.slots)
    again = Driver(store, [0])
    again.time = 50
    for _ in range(4):
        again.step()
    start = again.inputs[0]
    assert start.first.tolist() == [True]
    assert start.reward.tolist() == [0.0]
    assert start.previous_action[0].tolist() == [0]
    assert start.stack_age.tolist() == [0]
    assert [inputs.stack_age[0] for inputs in again.inputs] == [0, 1, 2, 2]
    (unroll,) = again.unrolls
    assert unroll.flags[0].tolist() == [FIRST, 0, 0, 0]
    assert unroll.reward[0].tolist() == [0.0, 51.0, 52.0, 53.0]
    assert unroll.observation[0][0, 2:, 0].tolist() == [50, 51, 52, 53]


def test_restarted_drops_the_partial_unroll_of_its_slot_only() -> None:
    """RESTARTED in one of two slots: its unroll begins there, the other's goes on."""
    driver = Driver(make_store(3), [0, 1])
    driver.step(FIRST)
    driver.step()
    driver.step([0, FIRST | RESTARTED])
    driver.step()
    driver.step()
    driver.step()
    whole, restarted = driver.unrolls[:2]
    assert whole.observation[0][:, :, 0].tolist() == [[0, 1, 2, 3]]
    assert restarted.observation[0][:, :, 0].tolist() == [[2, 3, 4, 5]]
    assert restarted.previous_action[0][0, 0] == 0


def test_window_holds_the_latest_frames_and_the_age_stops_at_first() -> None:
    """Inference sees the last K frames, oldest first; after FIRST only the new episode's frames count."""
    driver = Driver(make_store(3, frame_stack=3), [0])
    for t in range(9):
        driver.step(FIRST if t in (0, 5) else TERMINATED if t == 4 else 0)
    for t in range(2, 9):
        assert driver.inputs[t].observation[0][0, :, 0].tolist() == [t - 2, t - 1, t]
    assert [int(inputs.stack_age[0]) for inputs in driver.inputs] == [0, 1, 2, 2, 2, 0, 1, 2, 2]


def test_unrolls_keep_the_frames_before_their_first_step() -> None:
    """An unroll with stacking starts with K - 1 earlier frames and says how many belong to the episode."""
    driver = Driver(make_store(3, frame_stack=3), [0])
    for t in range(7):
        driver.step(FIRST if t == 0 else 0)
    second = driver.unrolls[1]
    assert second.observation[0][0, :, 0].tolist() == [1, 2, 3, 4, 5, 6]
    assert second.stack_age.tolist() == [2]
    assert driver.unrolls[0].stack_age.tolist() == [0]


def test_rows_return_to_their_level() -> None:
    """Opening, stepping and closing leaves every row free again."""
    store = make_store()
    before = store.num_free_rows
    driver = Driver(store, [0, 1, 2])
    for _ in range(10):
        driver.step()
    store.close(driver.slots)
    assert store.num_free_rows == before


def test_unrolls_of_no_use_take_no_row() -> None:
    """A slot that is not kept needs one row for ever, hands out nothing, and its inputs are those of a kept one."""
    store = make_store(frame_stack=3)
    kept, other = Driver(store, [0]), Driver(store, [1], keep=False)
    free = store.num_free_rows
    for t in range(12):
        for driver in (kept, other):
            driver.step(FIRST if t in (0, 5) else TERMINATED if t == 4 else 0)
    assert kept.unrolls
    assert not other.unrolls
    assert store.num_free_rows == free
    for one, same in zip(kept.inputs, other.inputs, strict=True):
        age = one.stack_age[0]
        assert (one.first, age, one.reward) == (same.first, same.stack_age[0], same.reward)
        assert one.previous_action[0] == same.previous_action[0]
        assert one.observation[0][0, 2 - age :].tolist() == same.observation[0][0, 2 - age :].tolist()


def test_padding_reads_a_first_step_of_zeros() -> None:
    """The padding slot joins any batch, before and after real slots were used, and is always FIRST and zero."""
    store = make_store(frame_stack=3)
    driver = Driver(store, [0])
    for _ in range(5):
        driver.step()
        inputs = store.newest(np.array([0, store.padding_slot], np.int32))
        assert inputs.first[1]
        assert not any(np.any(value[1]) for value in (*inputs.observation, inputs.reward, inputs.stack_age))
        assert not inputs.previous_action[0][1]


def test_an_unroll_shorter_than_its_overlap_is_refused() -> None:
    """A step must not be in three unrolls at a time."""
    with pytest.raises(ConfigError, match="unroll_length: expected at least 5, .* got 4"):
        make_store(length=4, overlap=5)


def test_slots_are_lowest_first_and_a_full_pool_says_so() -> None:
    """Released numbers are used again; too many are refused with both numbers."""
    pool = SlotPool(4)
    first = pool.acquire(3)
    pool.release(first[:2])
    assert pool.acquire(2).tolist() == [0, 1]
    with pytest.raises(Overloaded, match="2 environments asked for, 1 of learner.max_envs=4 free"):
        pool.acquire(2)
    assert pool.num_used == 3


def test_queue_has_room_below_its_limit_and_wakes_on_take() -> None:
    """has_room follows the inequality; taking unrolls calls the room callback; after close nothing is kept."""
    queue = UnrollQueue(2)
    woken: list[int] = []
    queue.notify_room(lambda: woken.append(len(queue)))
    assert queue.put([1])
    assert queue.has_room
    assert queue.put([2, 3])
    assert not queue.has_room
    assert queue.take(2, timeout_s=0.0) == [1, 2]
    assert woken == [1]
    assert queue.has_room
    assert queue.take(2, timeout_s=0.0) is None
    queue.close()
    assert queue.has_room
    assert not queue.put([4])
