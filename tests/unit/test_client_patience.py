"""How long a client bears with an absent peer."""

from __future__ import annotations

import asyncio
import random

import pytest

from seedrl_client.patience import FIRST_DELAY_S, MAX_DELAY_S, GaveUp, Patience


class Clock:
    """Seconds that pass when told to."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_patience_runs_out_after_the_last_good_news() -> None:
    """Bad news is borne for the limit; good news and a busy peer start it anew."""
    clock = Clock()
    patience = Patience(10.0, clock, random.Random(0))
    for good_news in (patience.renew, lambda: patience.bear("busy")):
        clock.now += 9.0
        patience.hear("away")
        good_news()
    clock.now += 9.9
    patience.hear("away")
    clock.now += 0.1
    with pytest.raises(GaveUp, match="gave up after 10 s: connection refused"):
        patience.hear("connection refused")


async def test_pauses_grow_jittered_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each pause is at most twice the one before, at least half of its most, and good news resets them."""
    pauses: list[float] = []

    async def record(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", record)
    patience = Patience(1e9, Clock(), random.Random(0))
    for _ in range(12):
        await patience.pause()
    most = [min(MAX_DELAY_S, FIRST_DELAY_S * 2**attempt) for attempt in range(12)]
    assert all(limit / 2 <= pause <= limit for pause, limit in zip(pauses, most, strict=True))
    assert len(set(pauses)) == len(pauses)
    patience.renew()
    await patience.pause()
    assert pauses[-1] <= FIRST_DELAY_S


async def test_a_pause_never_outlasts_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last attempt comes when patience ends, not after."""
    pauses: list[float] = []

    async def record(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", record)
    clock = Clock()
    patience = Patience(1.0, clock, random.Random(0))
    clock.now = 0.99
    await patience.pause()
    clock.now = 2.0
    await patience.pause()
    assert pauses == [pytest.approx(0.01), 0.0]
