"""How many unrolls a replay keeps: by count, by bytes, never more than the machine has memory for."""

from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from seedrl_core.config import GiB, MiB, ReplayConfig
from seedrl_core.errors import ConfigError
from seedrl_learner.replay.capacity import memory_of_machine, replay_capacity

ENOUGH = 64 * GiB


def config(capacity: int, max_bytes: int, min_unrolls: int = 1) -> ReplayConfig:
    """A resolved configuration."""
    return ReplayConfig(capacity_unrolls=capacity, max_bytes=max_bytes, min_unrolls=min_unrolls)


@pytest.mark.parametrize(
    ("capacity", "max_bytes", "expected"), [(1000, GiB, 1000), (5000, GiB, 1024), (1024, GiB, 1024), (9, MiB, 1)]
)
def test_the_smaller_of_count_and_bytes_counts_and_is_told(capacity: int, max_bytes: int, expected: int) -> None:
    """Unrolls of 1 MiB; what they take is logged."""
    with capture_logs() as logs:
        assert replay_capacity(config(capacity, max_bytes), MiB, ENOUGH) == expected
    (line,) = logs
    assert (line["event"], line["unrolls"], line["unroll_bytes"]) == ("replay_sized", expected, MiB)
    assert line["gib"] == round(expected / 1024, 2)


def test_more_than_the_machine_has_is_refused() -> None:
    """2048 unrolls of 1 MiB on a machine of 1 GiB: an error with both sizes; exactly all of it is allowed."""
    with pytest.raises(
        ConfigError, match=r"max_bytes: expected at most the 1\.00 GiB .* got 2048 unrolls .* 2\.00 GiB"
    ):
        replay_capacity(config(2048, 4 * GiB), MiB, GiB)
    assert replay_capacity(config(1024, 4 * GiB), MiB, GiB) == 1024


@pytest.mark.parametrize(("capacity", "max_bytes"), [(10, GiB), (1000, 10 * MiB), (1000, MiB - 1)])
def test_less_than_learning_needs_is_refused(capacity: int, max_bytes: int) -> None:
    """Training would wait for ever for min_unrolls: the error says so before anything starts."""
    with pytest.raises(ConfigError, match=r"expected room for at least min_unrolls=11 unrolls, got (10|0) unrolls"):
        replay_capacity(config(capacity, max_bytes, min_unrolls=11), MiB, ENOUGH)


def test_the_memory_of_a_container_is_its_limit(tmp_path: Path) -> None:
    """A cgroup's number where it is the smaller one; without a limit, or a file, the machine's own memory."""
    limit = tmp_path / "memory.max"
    machine = memory_of_machine(limit)
    assert machine > 64 * MiB
    for text, expected in (("1048576\n", MiB), ("max\n", machine), (f"{machine * 2}\n", machine)):
        limit.write_text(text)
        assert memory_of_machine(limit) == expected
