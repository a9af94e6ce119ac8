"""The numbers of an actor, for Prometheus: what its environments did and how long it waited for actions."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from seedrl_actor.environments import Step
from seedrl_core.codec import FIRST, RESTARTED
from seedrl_core.exporter import Readings
from seedrl_core.metrics import Metrics, Totals


class SteppingMetrics:
    """Observed step by step, over all sessions of the actor."""

    def __init__(self, info: dict[str, str]) -> None:
        """`info` are words that name the actor; the run's name is added when a session has learned it."""
        self._metrics = Metrics()
        self._info = {**info, "run": ""}
        self._sessions = 0
        self._envs = 0

    @contextmanager
    def session(self, num_envs: int, run_id: str) -> Iterator[None]:
        """Counts a session while it is open."""
        self._info["run"] = run_id
        self._sessions += 1
        self._envs += num_envs
        try:
            yield
        finally:
            self._sessions -= 1
            self._envs -= num_envs

    def stepped(self, step: Step, env_ms: float) -> None:
        """The environments have made a step."""
        resets = int(np.count_nonzero(step.flags & FIRST))
        self._metrics.observe("environment/step_ms", env_ms)
        self._metrics.count("env_steps_per_s", len(step.flags) - resets)
        self._metrics.count("episodes_per_s", len(step.episodes))
        self._metrics.count("restarted_rows_per_s", int(np.count_nonzero(step.flags & RESTARTED)))
        self._metrics.count("environment_restarts_per_s", step.restarts)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Counts the time inside as time spent waiting for actions."""
        began = time.monotonic()
        yield
        self._metrics.observe("answer_wait_ms", 1000.0 * (time.monotonic() - began))

    def totals(self) -> Totals:
        """Everything since the actor began."""
        return self._metrics.totals()

    def readings(self) -> Readings:
        """The actor now."""
        return Readings({"sessions": self._sessions, "num_envs": self._envs}, self._info)
