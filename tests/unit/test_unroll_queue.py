"""Turns of inference and training: what each sees of the other depends on no clock."""

from __future__ import annotations

import random
import threading
import time

import pytest

from seedrl_learner.unroll_queue import UnrollQueue

TICKS, BATCH = 40, 3


def life(jitter: random.Random, alternate: bool) -> list[str]:
    """What happens, in order, where inference finishes 0, 1 or 2 unrolls a tick and both sides take their time."""
    queue = UnrollQueue(2 * BATCH, alternate=alternate)
    room, over, events = threading.Event(), threading.Event(), []
    queue.notify_room(room.set)

    def train() -> None:
        while not over.is_set():
            rows = queue.take(BATCH, 0.01)
            time.sleep(jitter.uniform(0.0, 0.003))
            if rows is not None:
                events.append(f"train on {rows}")

    trainer = threading.Thread(target=train)
    trainer.start()
    for tick in range(TICKS):
        while not queue.has_room:
            room.clear()
            if not queue.has_room:
                assert room.wait(30)
        time.sleep(jitter.uniform(0.0, 0.003))
        events.append(f"tick {tick}")
        queue.put(list(range(tick * 10, tick * 10 + tick % 3)))
    while not queue.has_room:
        assert room.wait(30)
    over.set()
    trainer.join()
    return events


def test_where_they_alternate_training_comes_before_the_next_tick() -> None:
    """Each tick is followed by training on all whole batches that wait, whatever time either side takes."""
    expected: list[str] = []
    waiting: list[int] = []
    for tick in range(TICKS):
        expected.append(f"tick {tick}")
        waiting += range(tick * 10, tick * 10 + tick % 3)
        while len(waiting) >= BATCH:
            expected.append(f"train on {waiting[:BATCH]}")
            del waiting[:BATCH]
    for seed in range(3):
        assert life(random.Random(seed), alternate=True) == expected


def test_without_turns_their_order_depends_on_time() -> None:
    """The test above can fail: inference runs ahead of a slow training elsewhere."""
    assert len({tuple(life(random.Random(seed), alternate=False)) for seed in range(3)}) > 1


@pytest.mark.parametrize("alternate", [False, True])
def test_what_a_tick_counts_is_counted_before_training_sees_it(alternate: bool) -> None:
    """Schedules follow the env steps: training must not see a tick's unrolls without its steps."""
    queue = UnrollQueue(4, alternate=alternate)
    seen: list[int] = []
    queue.put([1], when_taken_in=lambda: seen.append(len(queue)))
    assert seen == [1]
    queue.close()
    assert not queue.put([2], when_taken_in=lambda: seen.append(len(queue)))
    assert seen == [1], "a closed queue takes nothing in"


def test_a_closed_queue_has_no_turns() -> None:
    """When nobody trains any more, ticks go through and training gets nothing."""
    queue = UnrollQueue(4, alternate=True)
    queue.put([1])
    assert not queue.has_room
    queue.close()
    assert queue.has_room
    assert queue.take(1, 0.0) is None
