"""The project's client in the test's process, as `seedrl check-client` starts it; its environments are clocks."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from seedrl_client import Session
from seedrl_core.codec import FIRST, TERMINATED, Episode
from seedrl_core.errors import RunFinished
from seedrl_core.spec import Array, EnvironmentSpec, TensorSpec
from seedrl_launcher.conformance.client import Ending

NUM_ENVS = 2
EPISODE_TICKS = 5  # reset, three steps, end
SPEC = EnvironmentSpec(
    "Clock-v0",
    (
        TensorSpec("observation/time", np.dtype(np.float32), (2,)),
        TensorSpec("observation/day", np.dtype(np.bool_), ()),
        TensorSpec("observation/action_mask", np.dtype(np.int8), (3,)),
    ),
    (TensorSpec("action", np.dtype(np.int64), (), (5.0,), (7.0,)),),
)


def observe(t: int) -> tuple[tuple[Array, ...], Array, Array, tuple[Episode, ...]]:
    """Observation, reward, flags and episodes of tick t, the same in all environments; the mask allows one action."""
    step = t % EPISODE_TICKS
    last = step == EPISODE_TICKS - 1
    mask = np.zeros((NUM_ENVS, 3), np.int8)
    mask[:, t % 3] = 1
    observation = (np.full((NUM_ENVS, 2), t, np.float32), np.full(NUM_ENVS, step % 2 == 0), mask)
    flags = np.full(NUM_ENVS, FIRST if step == 0 else TERMINATED if last else 0, np.uint8)
    episodes = (Episode(0, 4.0, 4, {"score": 1.0}),) if last else ()
    return observation, np.full(NUM_ENVS, float(step > 0), np.float32), flags, episodes


@dataclass
class OwnClient:
    """Runs sessions one after the other.

    Attributes:
      address: of the broker.
      ticks: of each session; None is without end.
      arguments: of Session, besides the usual.
      starts: how often it was started.
    """

    address: str
    ticks: tuple[int | None, ...] = (None,)
    arguments: dict[str, Any] = field(default_factory=dict)
    starts: int = 0

    def start(self) -> asyncio.Task[Ending]:
        """Starts a task."""
        self.starts += 1
        self._running = asyncio.create_task(self._play_all())
        return asyncio.create_task(self._ending())

    @property
    def stopped(self) -> bool:
        """It was started and runs no more."""
        return self._running.done()

    async def stop(self) -> None:
        """Cancels it."""
        self._running.cancel()
        await asyncio.wait((self._running,))

    async def play(self, ticks: int | None) -> None:
        """One session; it says Goodbye at its end."""
        async with Session(self.address, SPEC, NUM_ENVS, **self.arguments) as session:
            for t in itertools.count() if ticks is None else range(ticks):
                observation, reward, flags, episodes = observe(t)
                (action,) = await session.tick(observation, reward, flags, episodes)
                assert flags[0] & TERMINATED or (action == 5 + t % 3).all(), "an action that the mask forbids"

    async def _play_all(self) -> None:
        try:
            for ticks in self.ticks:
                await self.play(ticks)
        except RunFinished:
            pass

    async def _ending(self) -> Ending:
        await asyncio.wait((self._running,))
        error = asyncio.CancelledError() if self._running.cancelled() else self._running.exception()
        return Ending(error is None, f"it ended with {error!r}")
