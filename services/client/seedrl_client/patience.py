"""How long a client bears with a peer that is away, and how often it tries again."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from seedrl_core import logs
from seedrl_core.errors import PeerLost

FIRST_DELAY_S = 0.1
MAX_DELAY_S = 3.0
_TELL_EVERY_S = 10.0
_log = logs.get(__name__)


class GaveUp(PeerLost):
    """Patience is over; the message says what was heard last."""


class Patience:
    """Runs out `limit_s` seconds after the last good news."""

    def __init__(self, limit_s: float, clock: Callable[[], float], rng: random.Random) -> None:
        """`clock` returns seconds; `rng` spreads the attempts of many clients."""
        self._limit_s = limit_s
        self._clock = clock
        self._rng = rng
        self._good_news = clock()
        self._told = clock()
        self._attempts = 0

    def renew(self) -> None:
        """Good news: the peer answers."""
        self._good_news = self._told = self._clock()
        self._attempts = 0

    def bear(self, reason: str) -> None:
        """The peer is well, but takes its time: tells about it every 10 s."""
        self._good_news = self._clock()
        self._tell(reason)

    def hear(self, reason: str) -> None:
        """Bad news: tells about it every 10 s; GaveUp when there was nothing else for too long."""
        if self._clock() - self._good_news >= self._limit_s:
            raise GaveUp(f"gave up after {self._limit_s:g} s: {reason}")
        self._tell(reason)

    async def pause(self) -> None:
        """Sleeps before the next attempt: twice as long each time, jittered, and no longer than patience lasts."""
        most = min(MAX_DELAY_S, FIRST_DELAY_S * 2.0 ** min(self._attempts, 10))
        self._attempts += 1
        remaining = self._good_news + self._limit_s - self._clock()
        await asyncio.sleep(min(most * self._rng.uniform(0.5, 1.0), max(0.0, remaining)))

    def _tell(self, reason: str) -> None:
        now = self._clock()
        if now - self._told >= _TELL_EVERY_S:
            self._told = now
            _log.info("still_waiting", waiting_for=reason, without_good_news_s=round(now - self._good_news, 1))
