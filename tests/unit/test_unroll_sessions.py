"""Sequences of many sessions that come and go: each holds the steps of one environment, in order, from one session."""

from __future__ import annotations

import numpy as np
import pytest

from seedrl_core.codec import FIRST, RESTARTED, TERMINATED, TickArrays
from seedrl_core.spec import TensorSpec
from seedrl_learner.slots import SlotPool, Slots
from seedrl_learner.unrolls import UnrollLayout, UnrollStore

MAX_ENVS, FRAME_STACK = 12, 3


def make_store(length: int, overlap: int, num_rows: int) -> UnrollStore:
    """A store whose observation is (environment, step); core state and action name the step too."""
    layout = UnrollLayout(
        observation=(TensorSpec("observation", np.dtype(np.int64), (2,)),),
        action=(TensorSpec("action", np.dtype(np.int64), ()),),
        stacked=(True,),
        behaviour=(TensorSpec("q_max", np.dtype(np.float32), ()),),
        core_state_sizes=(2,),
        unroll_length=length,
        overlap=overlap,
        frame_stack=FRAME_STACK,
    )
    return UnrollStore(layout, MAX_ENVS, num_rows)


class Session:
    """Environments with numbers that no other session has; episodes end and environments restart at random."""

    def __init__(self, slots: Slots, environments: np.ndarray, rng: np.random.Generator) -> None:
        self.slots, self.environments, self.rng = slots, environments, rng
        self.step = 0
        self.begins = np.ones(len(slots), bool)
        self.episode_start = np.zeros(len(slots), np.int64)
        self.starts = {int(environment): [0] for environment in environments}  # FIRST steps
        self.restarts = {int(environment): [0] for environment in environments}  # where sequences begin anew

    def tick(self, store: UnrollStore) -> list[int]:
        n, t = len(self.slots), self.step
        restarted = (self.rng.random(n) < 0.02) & (t > 0)
        first = self.begins | restarted
        last = ~first & (self.rng.random(n) < 0.15)
        flags = FIRST * (first & ((self.rng.random(n) < 0.5) | (t > 0))) + TERMINATED * last + RESTARTED * restarted
        for environment, begins, anew in zip(self.environments, first, restarted, strict=True):
            if begins and t:
                self.starts[int(environment)].append(t)
            if anew:
                self.restarts[int(environment)].append(t)
        names = np.stack([self.environments, np.full(n, t)], axis=1)
        tick = TickArrays(t, (names,), np.full(n, t, np.float32), flags.astype(np.uint8))
        store.append([(self.slots, tick)])
        rows = store.complete(
            self.slots, (names.sum(axis=1),), (names[:, 1].astype(np.float32),), (names.astype(np.float32),), t
        )
        self.begins = last
        self.step += 1
        return rows


@pytest.mark.parametrize(("length", "overlap"), [(4, 1), (5, 3), (6, 6), (10, 7)])
def test_a_sequence_is_of_one_environment_whatever_sessions_do(length: int, overlap: int) -> None:
    """Slots are used again by others, in mid-unroll, with restarts: steps are consecutive, of one environment of one
    session; state, stack age, previous actions and flags are those of its steps; no transition is trained on twice.
    """
    rng = np.random.default_rng(length)
    num_rows = MAX_ENVS * 3
    store, pool = make_store(length, overlap, num_rows), SlotPool(MAX_ENVS)
    sessions: list[Session] = []
    all_sessions: dict[int, Session] = {}
    trained: dict[int, list[int]] = {}
    environments = slot_users = 0
    for _ in range(1500):
        if sessions and rng.random() < 0.02:
            closing = sessions.pop(int(rng.integers(len(sessions))))
            store.close(closing.slots)
            pool.release(closing.slots)
        if (count := int(rng.integers(1, 5))) <= MAX_ENVS - pool.num_used and rng.random() < 0.1:
            slots = pool.acquire(count)
            store.open(slots)
            numbers = 1000 * (1 + environments + np.arange(count))
            environments, slot_users = environments + count, slot_users + count
            session = Session(slots, numbers, rng)
            sessions.append(session)
            all_sessions |= dict.fromkeys(numbers.tolist(), session)
        if not sessions:
            continue
        session = sessions[int(rng.integers(len(sessions)))]
        if not (rows := session.tick(store)):
            continue
        batch = store.gather(rows)
        store.release(rows)
        for i in range(len(rows)):
            names = batch.observation[0][i]
            environment, start = names[-1, 0], int(batch.policy_version[i, 0])
            steps = start + np.arange(length + overlap)
            owner = all_sessions[int(environment)]
            firsts = owner.starts[int(environment)]
            assert owner is session
            assert names[FRAME_STACK - 1 :, 0].tolist() == [environment] * len(steps)
            assert names[FRAME_STACK - 1 :, 1].tolist() == steps.tolist()
            assert ((batch.flags[i] & FIRST) != 0).tolist() == [step in firsts for step in steps]
            assert batch.core_state[0][i].tolist() == [environment, start]
            assert batch.action[0][i].tolist() == (environment + steps).tolist()
            assert batch.previous_action[0][i, 1:].tolist() == (environment + steps[:-1]).tolist()
            assert batch.policy_version[i].tolist() == steps.tolist()
            age = min(FRAME_STACK - 1, start - max(first for first in firsts if first <= start))
            assert batch.stack_age[i] == age
            if age:
                assert names[FRAME_STACK - 1 - age : FRAME_STACK - 1, 0].tolist() == [environment] * age
            begin = max(anew for anew in owner.restarts[int(environment)] if anew <= start)
            assert (start - begin) % length == 0, "sequences follow each other without a gap"
            trained.setdefault(int(environment), []).extend(steps[overlap - 1 : -1].tolist())
    assert slot_users > 3 * MAX_ENVS
    assert sum(map(len, trained.values())) > 1000
    for steps in trained.values():
        assert len(set(steps)) == len(steps)
    for session in sessions:
        store.close(session.slots)
    assert store.num_free_rows == num_rows
