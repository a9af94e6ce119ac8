"""A replay on disk: everything comes back, and nothing damaged or foreign is taken over."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgpack
import numpy as np
import pytest
from replays import make_feed

from seedrl_core.errors import CheckpointError
from seedrl_core.spec import Array
from seedrl_learner.replay import snapshot
from seedrl_learner.replay.replay import Replay
from seedrl_learner.unrolls import UnrollStore


def filled(capacity: int, count: int) -> tuple[Replay, UnrollStore]:
    """A replay after `count` insertions with priorities 1, 2, ..., and its store."""
    feed = make_feed(num_rows=capacity + count)
    replay = Replay(capacity, 0.9, np.random.default_rng(3))
    for number in range(count):
        feed.produce(float(number + 1))
        (row,) = feed.queue.take(1, 0.0) or []
        feed.store.release(replay.insert([row], np.array([number + 1.0])))
    return replay, feed.store


def empty(capacity: int, unroll_length: int = 4) -> tuple[Replay, UnrollStore]:
    """A replay that could take over the other's unrolls."""
    return Replay(capacity, 0.9, np.random.default_rng(3)), make_feed(unroll_length=unroll_length).store


def fields(replay: Replay, store: UnrollStore) -> dict[str, list[bytes]]:
    """All bytes of all items held, oldest first."""
    rows = replay.rows(replay.items)
    return {name: [store.field(name, int(row)).tobytes() for row in rows] for name in store.layout.fields}


@pytest.mark.parametrize("count", [3, 8, 21])
def test_everything_comes_back(tmp_path: Path, count: int) -> None:
    """Items, weights and every byte of the unrolls, after wrap-around too; both then sample the same."""
    replay, store = filled(8, count)
    snapshot.write(tmp_path / "replay", replay, store)
    restored, other = empty(8)
    free = other.num_free_rows
    snapshot.read(tmp_path / "replay", restored, other)
    assert restored.items.tolist() == replay.items.tolist()
    assert other.num_free_rows == free - len(replay)
    np.testing.assert_array_equal(restored.weights(restored.items), replay.weights(replay.items))
    assert fields(restored, other) == fields(replay, store)
    for _ in range(20):
        one, same = replay.sample(16), restored.sample(16)
        np.testing.assert_array_equal(one.items, same.items)
        np.testing.assert_array_equal(one.probability, same.probability)


@pytest.mark.parametrize("capacity", [3, 20])
def test_another_capacity_keeps_the_newest(tmp_path: Path, capacity: int) -> None:
    """A smaller replay takes the newest unrolls, a larger one all; insertion goes on behind them."""
    replay, store = filled(8, 21)
    snapshot.write(tmp_path / "replay", replay, store)
    restored, other = empty(capacity)
    snapshot.read(tmp_path / "replay", restored, other)
    count = min(8, capacity)
    assert restored.items.tolist() == replay.items.tolist()[-count:]
    assert fields(restored, other) == {name: kept[-count:] for name, kept in fields(replay, store).items()}
    evicted = [row for _ in range(capacity) for row in restored.insert([99], np.ones(1))]
    assert len(evicted) == count
    assert restored.num_inserted == 21 + capacity


def test_an_empty_replay_comes_back_empty(tmp_path: Path) -> None:
    """A checkpoint written before the first unroll is a valid one."""
    snapshot.write(tmp_path / "replay", *empty(8))
    replay, store = empty(8)
    snapshot.read(tmp_path / "replay", replay, store)
    assert len(replay) == 0


def rewrite(key: str, change: Callable[[Array], object]) -> Callable[[Path], None]:
    """A damage: one entry of the index is another."""

    def damage(directory: Path) -> None:
        index = msgpack.unpackb((directory / "index.msgpack").read_bytes())
        index[key] = change(index[key])
        (directory / "index.msgpack").write_bytes(msgpack.packb(index))

    return damage


def remove(key: str) -> Callable[[Path], None]:
    """A damage: the index lacks an entry."""

    def damage(directory: Path) -> None:
        index = msgpack.unpackb((directory / "index.msgpack").read_bytes())
        del index[key]
        (directory / "index.msgpack").write_bytes(msgpack.packb(index))

    return damage


def shorten(name: str) -> Callable[[Path], None]:
    """A damage: the last byte of a file is missing."""

    def damage(directory: Path) -> None:
        (directory / name).write_bytes((directory / name).read_bytes()[:-1])

    return damage


def weights(*values: float) -> bytes:
    """Eight weights, the first ones as given."""
    return np.array([*values, *np.ones(8 - len(values))]).astype("<f8").tobytes()


DAMAGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "no index": (lambda directory: (directory / "index.msgpack").unlink(), "cannot be read"),
    "truncated index": (shorten("index.msgpack"), "cannot be read"),
    "not msgpack": (lambda directory: (directory / "index.msgpack").write_bytes(b"\xc1\xc1"), "cannot be read"),
    "a number": (lambda directory: (directory / "index.msgpack").write_bytes(b"\x07"), "cannot be read"),
    "another format": (rewrite("format_version", lambda _: 2), "expected format_version 1, got 2"),
    "no counter": (remove("num_inserted"), "cannot be read"),
    "infinite counter": (rewrite("num_inserted", lambda _: np.inf), "cannot be read"),
    "fewer inserted than held": (rewrite("num_inserted", lambda _: 7), "unrolls that were inserted"),
    "negative count": (rewrite("num_unrolls", lambda _: -1), "unrolls that were inserted"),
    "other count": (rewrite("num_unrolls", lambda n: n - 1), "expected 7 weights, got 8"),
    "part of a weight": (rewrite("weights", lambda value: value[:-3]), "cannot be read"),
    "text for weights": (rewrite("weights", lambda _: "x" * 64), "cannot be read"),
    "negative weight": (rewrite("weights", lambda _: weights(-1.0)), "weights above 0"),
    "weight that is none": (rewrite("weights", lambda _: weights(np.nan)), "weights above 0"),
    "no field": (lambda directory: (directory / "observation-0.raw").unlink(), "cannot be read"),
    "truncated field": (shorten("observation-0.raw"), "expected 1920 bytes, got 1919"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_an_error_that_changes_nothing(tmp_path: Path, name: str) -> None:
    """One sentence with the path; the replay is empty and every row free as before."""
    directory = tmp_path / "replay"
    snapshot.write(directory, *filled(8, 11))
    damage, message = DAMAGES[name]
    damage(directory)
    replay, store = empty(8)
    free, flags = store.num_free_rows, store.field("flags", 0).copy()
    with pytest.raises(CheckpointError, match=message) as raised:
        snapshot.read(directory, replay, store)
    assert str(directory) in str(raised.value)
    assert (len(replay), replay.num_inserted, store.num_free_rows) == (0, 0, free)
    np.testing.assert_array_equal(store.field("flags", 0), flags)


def test_unrolls_of_another_layout_are_refused(tmp_path: Path) -> None:
    """A run that goes on with longer unrolls: the error has both layouts."""
    snapshot.write(tmp_path / "replay", *filled(8, 11))
    replay, store = empty(8, unroll_length=5)
    with pytest.raises(CheckpointError, match=r"expected unrolls of \{'reward': \['<f4', \[7\]\].*got .*\[6\]"):
        snapshot.read(tmp_path / "replay", replay, store)
    assert len(replay) == 0


def test_a_snapshot_is_not_written_over_another(tmp_path: Path) -> None:
    """The directory must be new: two saves never mix."""
    replay, store = filled(2, 3)
    snapshot.write(tmp_path / "replay", replay, store)
    with pytest.raises(OSError, match="exists"):
        snapshot.write(tmp_path / "replay", replay, store)
