"""Replay between unrolls and training: flow control, rows, importance weights, new priorities, what is logged."""

from __future__ import annotations

import numpy as np
import pytest
from replays import Feed, make_feed, numbers
from structlog.testing import capture_logs

from seedrl_learner.training_data import TrainingBatch


def next_batch(feed: Feed, calls: int = 100) -> TrainingBatch | None:
    """Asks until there is a batch, or the queue is empty."""
    for _ in range(calls):
        batch = feed.data.next(timeout_s=0.0)
        if batch is not None or not len(feed.queue):
            return batch
    raise AssertionError("unrolls wait, and yet none is taken in")


def check_rows(feed: Feed) -> None:
    """Every row is free, waiting or kept: none lost."""
    assert feed.store.num_free_rows == feed.num_rows - len(feed.queue) - len(feed.data)


@pytest.mark.parametrize("min_unrolls", [1, 6])
@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("ratio", [0.3, 1.0, 1.5, 8.0])
def test_the_replay_ratio_holds_after_every_call(ratio: float, batch: int, min_unrolls: int) -> None:
    """S <= r I and r I < S + B + r from the minimum fill on, in any order of inserting and training; no row is lost."""
    feed = make_feed(capacity=8, batch=batch, ratio=ratio, min_unrolls=min_unrolls)
    rng = np.random.default_rng(0)
    sampled = 0
    for _ in range(250):
        if len(feed.queue) < 40 and rng.random() < 0.5:
            feed.produce(*rng.uniform(0.1, 2.0, rng.integers(1, 6)))
        waiting = len(feed.queue)
        got = feed.data.next(timeout_s=0.0)
        counted = max(0, feed.taken_in - min_unrolls)  # I
        if got is not None:
            assert feed.taken_in >= min_unrolls
            sampled += batch
            feed.data.trained(got, rng.uniform(0.1, 2.0, batch).astype(np.float32))
            assert set(numbers(got.unrolls)) <= set(range(feed.taken_in - len(feed.data), feed.taken_in))
        else:
            needed = sampled + batch > ratio * counted - 1e-9 or feed.taken_in < min_unrolls
            assert needed, "training waits only where it must"
            assert not waiting or len(feed.queue) < waiting, "what is needed and there is taken in"
        assert sampled <= ratio * counted + 1e-9
        assert ratio * counted < sampled + batch + ratio + 1e-9
        check_rows(feed)
    assert sampled > 0


def test_no_more_is_taken_in_than_the_next_batch_needs() -> None:
    """With a full queue, unrolls stay there, so that actors wait for training."""
    feed = make_feed(batch=4, ratio=2.0, min_unrolls=4)
    feed.produce(*[1.0] * 30)
    assert feed.data.next(0.0) is None, "the minimum fill is not counted"
    assert feed.taken_in == 4
    for batches in range(1, 5):
        assert next_batch(feed) is not None
        assert feed.taken_in == 4 + 2 * batches


def test_learning_begins_at_the_minimum_fill() -> None:
    """Not one unroll earlier."""
    feed = make_feed(batch=1, ratio=100.0, min_unrolls=5)
    feed.produce(*[1.0] * 5)
    assert next_batch(feed) is None
    assert len(feed.data) == 5
    feed.produce(1.0)
    assert next_batch(feed) is not None


def test_training_can_be_stopped_while_the_replay_fills() -> None:
    """Each call takes in what is there and returns, although actors deliver faster than it takes."""
    feed = make_feed(min_unrolls=8, batch=1)
    feed.queue.notify_room(lambda: feed.produce(1.0, 1.0))
    feed.produce(1.0, 1.0)
    assert feed.data.next(timeout_s=60.0) is None
    assert len(feed.data) == 2


def test_more_unrolls_than_the_replay_holds_may_wait() -> None:
    """A low ratio takes in more than the capacity for a batch; they pass through it in parts."""
    feed = make_feed(capacity=4, batch=4, ratio=0.1, min_unrolls=4)
    feed.produce(*[1.0] * 60)
    got = next_batch(feed)
    assert got is not None
    assert feed.taken_in == 44
    assert set(numbers(got.unrolls)) <= {40, 41, 42, 43}
    check_rows(feed)


def test_a_closed_queue_ends_training() -> None:
    """After close there is no batch, whatever still waits."""
    feed = make_feed(min_unrolls=2)
    feed.produce(1.0, 1.0, 1.0)
    feed.queue.close()
    assert feed.data.next(timeout_s=60.0) is None
    assert len(feed.data) == 0


def test_rows_are_freed_once() -> None:
    """After many times the capacity, all rows that are not kept are free, each of them once."""
    feed = make_feed(capacity=5, batch=2, ratio=2.0, min_unrolls=3)
    rng = np.random.default_rng(1)
    for _ in range(60):
        feed.produce(*rng.uniform(0.1, 1.0, 3))
        while (got := next_batch(feed)) is not None:
            feed.data.trained(got, rng.uniform(0.1, 1.0, 2).astype(np.float32))
    assert len(feed.data) == 5
    check_rows(feed)
    free = feed.store.acquire(feed.store.num_free_rows)
    assert len(set(free.tolist())) == len(free) == feed.num_rows - 5


def test_a_batch_is_what_was_stored() -> None:
    """Every field of a sampled unroll, byte by byte, and again when it is sampled again."""
    feed = make_feed(capacity=8, batch=4, ratio=4.0)
    feed.produce(*[1.0] * 12)
    for _ in range(8):
        got = next_batch(feed)
        assert got is not None
        for i, number in enumerate(numbers(got.unrolls)):
            rng = np.random.default_rng(number)
            stored = {
                name: rng.integers(0, 100, shape).astype(dtype)
                for name, (dtype, shape) in feed.store.layout.fields.items()
            }
            np.testing.assert_array_equal(got.unrolls.observation[0][i], stored["observation/0"])
            np.testing.assert_array_equal(got.unrolls.observation[1][i], stored["observation/1"])
            np.testing.assert_array_equal(got.unrolls.action[0][i], stored["action/0"][1:])
            np.testing.assert_array_equal(got.unrolls.previous_action[0][i], stored["action/0"][:-1])
            np.testing.assert_array_equal(got.unrolls.core_state[1][i], stored["core_state/1"])
            np.testing.assert_array_equal(got.unrolls.reward[i, 2:], stored["reward"][2:])
            assert got.unrolls.policy_version[i].tolist() == stored["policy_version"].tolist()
            assert got.items[i] == number


@pytest.mark.parametrize("exponent", [0.0, 0.6, 1.0])
def test_importance_weights_undo_the_preference(exponent: float) -> None:
    """(N P(i))^-beta over the largest of the batch, with P from the priorities to the power alpha."""
    feed = make_feed(
        capacity=8, batch=16, ratio=100.0, min_unrolls=8, priority_exponent=0.9, importance_exponent=exponent
    )
    feed.produce(*[0.1, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0])
    got = next_batch(feed)
    assert got is not None
    held = np.array(feed.priorities)[-8:] ** 0.9
    probability = held / held.sum()
    chosen = np.array(numbers(got.unrolls)) - 1
    weight = (8 * probability[chosen]) ** -exponent
    np.testing.assert_allclose(got.unrolls.weight, weight / weight.max(), rtol=1e-5)
    assert got.unrolls.weight.dtype == np.float32
    assert len(set(chosen.tolist())) > 2


def test_new_priorities_change_who_is_sampled() -> None:
    """An unroll with a new priority of nearly 0 is hardly seen again; one with a large one nearly always."""
    feed = make_feed(capacity=4, batch=4, ratio=1000.0, min_unrolls=4)
    feed.produce(*[1.0] * 5)
    seen: set[int] = set()
    while seen != {1, 2, 3, 4}:
        got = next_batch(feed)
        assert got is not None
        drawn = numbers(got.unrolls)
        seen |= set(drawn)
        feed.data.trained(got, np.array([1e6 if number == 2 else 0.0 for number in drawn], np.float32))
    for _ in range(10):
        got = next_batch(feed)
        assert got is not None
        assert numbers(got.unrolls) == [2, 2, 2, 2]


def test_the_update_of_an_overwritten_unroll_is_dropped() -> None:
    """Priorities that come after their unrolls left: counted, and the unrolls in their place keep their own."""
    feed = make_feed(capacity=2, batch=2, ratio=1.0, min_unrolls=2)
    feed.produce(*[1.0] * 4)
    late = next_batch(feed)
    assert late is not None
    feed.produce(1.0, 1.0)
    assert next_batch(feed) is not None
    feed.data.trained(late, np.array([1e9, 1e9], np.float32))
    feed.produce(1.0, 1.0)
    metrics = feed.metrics.collect()
    assert metrics["replay/overwritten_per_s"] > 0
    draws: list[int] = []
    for _ in range(40):
        feed.produce(1.0, 1.0)
        got = next_batch(feed)
        assert got is not None
        draws += [number - feed.taken_in for number in numbers(got.unrolls)]
    assert set(draws) == {-1, -2}


def test_metrics_tell_fill_age_ratio_and_priorities() -> None:
    """From one batch that is known beforehand."""
    feed = make_feed(capacity=10, batch=4, ratio=2.0, min_unrolls=5)
    feed.produce(*[3.0] * 7)
    got = next_batch(feed)
    assert got is not None
    feed.data.trained(got, np.full(4, 0.5, np.float32))
    metrics = feed.metrics.collect()
    assert metrics["replay/initial_priority"] == pytest.approx(3.0)
    assert metrics["replay/priority"] == pytest.approx(0.5)
    assert metrics["replay/ratio"] == 2.0
    assert 0.5 <= metrics["replay/fill"] <= 0.7
    assert metrics["replay/age_unrolls"] == 6 - np.mean(numbers(got.unrolls))
    rates = [metrics[f"replay/{name}_per_s"] for name in ("inserted", "sampled", "overwritten")]
    assert rates[0] / rates[1] == pytest.approx(7 / 4)
    assert rates[2] == 0.0


def test_a_long_wait_says_who_waits_and_why() -> None:
    """Every ten seconds, once, with what is missing: first for the minimum fill, later for the ratio."""
    feed = make_feed(batch=4, ratio=1.0, min_unrolls=4)
    with capture_logs() as logs:
        for feed.time[0] in (0.0, 9.0, 10.5, 11.0, 20.6):
            assert feed.data.next(0.0) is None
        assert [line["event"] for line in logs] == ["training_waits_for_actors"] * 2
        assert (logs[0]["missing_unrolls"], logs[0]["log_level"]) == (4, "info")
        assert "min_unrolls" in logs[0]["reason"]
        logs.clear()
        feed.produce(*[1.0] * 8)
        assert next_batch(feed) is not None
        feed.time[0] = 100.0
        assert feed.data.next(0.0) is None
        assert not logs, "a new wait has just begun"
        feed.time[0] = 111.0
        assert feed.data.next(0.0) is None
    (line,) = logs
    assert (line["missing_unrolls"], line["reason"]) == (4, "replay.ratio allows no more training")


def test_the_wait_is_told_while_unrolls_trickle_in() -> None:
    """A slow fill is told too, although every call takes something in."""
    feed = make_feed(capacity=50, min_unrolls=40)
    with capture_logs() as logs:
        for feed.time[0] in range(0, 30, 2):
            feed.produce(1.0)
            assert feed.data.next(0.0) is None
    assert [line["missing_unrolls"] for line in logs] == [33, 27]


def test_batches_of_new_unrolls_of_any_size_share_one_trace() -> None:
    """Priorities of 1 to 8 new unrolls at a time need no new graph after the second."""
    feed = make_feed(capacity=50, min_unrolls=50)
    for count in range(1, 9):
        feed.produce(*[1.0] * count)
        feed.data.next(0.0)
    assert len(feed.data) == 36
    assert feed.data._initial_priority.experimental_get_tracing_count() <= 2
