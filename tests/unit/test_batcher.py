"""The batching rules, with a clock that is a number."""

from __future__ import annotations

from itertools import count

import pytest

from seedrl_broker.batcher import AT_ONCE, NOT_NOW, Batcher

DELAY_S = 0.005


def make_batcher(rows: dict[int, int], max_rows: int = 8, max_bytes: int = 1000, num_credits: int = 2) -> Batcher:
    """A started batcher with the sessions of `rows`, all of them computing."""
    batcher = Batcher(DELAY_S)
    batcher.start(max_rows, max_bytes, num_credits)
    for session, num_rows in rows.items():
        batcher.join(session, num_rows)
    return batcher


def submit(batcher: Batcher, *sessions: int, now: float = 0.0, num_bytes: int = 10) -> None:
    """A tick of each of the sessions."""
    for session in sessions:
        batcher.submit(session, num_bytes, now)


def take(batcher: Batcher, batch_id: int = 1) -> list[int]:
    """The sessions in the next batch."""
    return [tick.session for tick in batcher.take(batch_id)]


def test_nothing_is_due_without_ticks():
    """An empty queue is never due, however many sessions there are."""
    assert make_batcher({}).due_at() == NOT_NOW
    assert make_batcher({1: 1, 2: 1}).due_at() == NOT_NOW


def test_a_batch_waits_for_sessions_that_compute_until_the_oldest_tick_is_due():
    """While another session computes, the first tick sets the time; a later one does not move it."""
    batcher = make_batcher({1: 1, 2: 1, 3: 1})
    submit(batcher, 1, now=1.0)
    submit(batcher, 2, now=1.004)
    assert batcher.due_at() == 1.0 + DELAY_S
    assert take(batcher) == [1, 2]


def test_a_batch_is_due_once_every_session_waits():
    """The last computing session's tick makes the batch due at once."""
    batcher = make_batcher({1: 1, 2: 1})
    submit(batcher, 1)
    assert batcher.due_at() != AT_ONCE
    submit(batcher, 2)
    assert batcher.due_at() == AT_ONCE


def test_sessions_in_flight_are_not_waited_for():
    """A session whose tick is at the learner cannot send another, so nobody waits for it."""
    batcher = make_batcher({1: 1, 2: 1})
    submit(batcher, 1)
    assert take(batcher) == [1]
    submit(batcher, 2)
    assert batcher.due_at() == AT_ONCE


def test_an_answered_session_is_waited_for_again():
    """A session that has its actions is computing, and its next tick may join the batch."""
    batcher = make_batcher({1: 1, 2: 1})
    submit(batcher, 1)
    take(batcher, 1)
    submit(batcher, 2, now=1.0)
    assert batcher.answered(1, 1)
    assert batcher.due_at() == 1.0 + DELAY_S


def test_a_full_batch_is_due_at_once():
    """Rows count, not sessions."""
    batcher = make_batcher({1: 4, 2: 4, 3: 1})
    submit(batcher, 1)
    assert batcher.due_at() != AT_ONCE
    submit(batcher, 2)
    assert batcher.due_at() == AT_ONCE


def test_a_batch_full_of_bytes_is_due_at_once():
    """Large observations fill a message before its rows do, and are split."""
    batcher = make_batcher({1: 1, 2: 1, 3: 1}, max_bytes=1000)
    submit(batcher, 1, 2, num_bytes=600)
    assert batcher.due_at() == AT_ONCE
    assert take(batcher) == [1]


def test_nothing_is_due_without_a_credit():
    """A batch waits for a credit, whatever else holds, and is due when one comes back."""
    batcher = make_batcher({1: 1, 2: 1}, num_credits=1)
    submit(batcher, 1)
    take(batcher, 7)
    submit(batcher, 2)
    assert batcher.due_at() == NOT_NOW
    assert batcher.answered(1, 7)
    assert batcher.return_credit(7) == []
    assert batcher.due_at() == DELAY_S


def test_a_batch_never_exceeds_the_limit_and_is_served_oldest_first():
    """Ticks leave in the order in which they came, a large one included, and the rest follows."""
    batcher = make_batcher({1: 3, 2: 6, 3: 1}, max_rows=8)
    submit(batcher, 3, 2, 1)
    assert take(batcher, 1) == [3, 2]
    assert batcher.due_at() == AT_ONCE
    assert take(batcher, 2) == [1]


def test_an_old_tick_is_not_overtaken_by_newer_ones():
    """With one credit and more rows than a batch takes, every session gets its turn."""
    sessions = dict.fromkeys(range(1, 6), 4)
    batcher = make_batcher(sessions, max_rows=8, num_credits=1)
    submit(batcher, *sessions)
    served = []
    for batch_id in range(1, 6):
        batch = take(batcher, batch_id)
        served += batch
        for session in batch:
            assert batcher.answered(session, batch_id)
        batcher.return_credit(batch_id)
        submit(batcher, *batch)  # the fast ones are back at once
    assert served == [1, 2, 3, 4, 5, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("vanished", range(1, 8))
def test_sessions_that_vanish_are_never_waited_for(vanished):
    """Of 8 sessions some leave while computing, queued or in flight: the rest go on without any delay."""
    batcher = make_batcher(dict.fromkeys(range(8), 1), max_rows=100)
    batch_ids = count(1)
    submit(batcher, 0, 1, 2)
    take(batcher, next(batch_ids))  # 0, 1, 2 in flight
    submit(batcher, 3, 4, 5)  # queued; 6 and 7 are computing
    for session in (6, 3, 0, 7, 4, 1, 5)[:vanished]:
        batcher.leave(session)
    left = [session for session in range(8) if batcher.is_member(session)]
    for session in (0, 1, 2):
        assert batcher.answered(session, 1) == (session in left)
    assert batcher.return_credit(1) == []
    queued = [session for session in (3, 4, 5) if session in left]
    submit(batcher, *[session for session in left if session not in queued])
    assert batcher.due_at() == AT_ONCE
    assert sorted(take(batcher, next(batch_ids))) == left


def test_the_last_computing_session_leaving_makes_the_batch_due():
    """A queued tick does not sit out its delay for a session that has gone."""
    batcher = make_batcher({1: 1, 2: 1})
    submit(batcher, 1)
    batcher.leave(2)
    assert batcher.due_at() == AT_ONCE


def test_the_ticks_of_a_session_that_left_take_no_room():
    """A queued tick that is dropped counts neither as rows nor as bytes."""
    batcher = make_batcher({1: 8, 2: 1, 3: 1}, max_rows=8)
    submit(batcher, 1, 2)
    batcher.leave(1)
    assert batcher.due_at() == DELAY_S
    assert take(batcher) == [2]


def test_a_batch_with_unanswered_ticks_names_their_sessions():
    """A credit that comes back too early tells which sessions were forgotten, without those that left."""
    batcher = make_batcher({1: 1, 2: 1, 3: 1})
    submit(batcher, 1, 2, 3)
    take(batcher, 1)
    assert batcher.answered(1, 1)
    batcher.leave(3)
    assert batcher.return_credit(1) == [2]


def test_answers_and_credits_of_unknown_batches_are_told_apart():
    """An answer counts only in the batch that carries the tick, and a credit only once."""
    batcher = make_batcher({1: 1})
    submit(batcher, 1)
    take(batcher, 1)
    assert not batcher.answered(1, 2)
    assert batcher.answered(1, 1)
    assert not batcher.answered(1, 1)
    batcher.return_credit(1)
    with pytest.raises(KeyError):
        batcher.return_credit(1)


def test_a_new_link_starts_empty():
    """What was queued or in flight at a lost link is forgotten, and the credits are the new ones."""
    batcher = make_batcher({1: 1, 2: 1}, num_credits=1)
    submit(batcher, 1)
    take(batcher)
    submit(batcher, 2)
    batcher.stop()
    assert batcher.due_at() == NOT_NOW
    batcher.start(8, 1000, 1)
    batcher.join(1, 1)
    submit(batcher, 1)
    assert batcher.due_at() == AT_ONCE
    assert take(batcher) == [1]
