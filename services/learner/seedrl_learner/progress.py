"""How far a run has come: the counters that checkpoints keep and that pace schedules."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

RETURNS_WINDOW = 100


@dataclass
class Progress:
    """Counters of a run. Each has one writer: inference counts steps, the service episodes, training its updates."""

    env_steps: int = 0
    policy_version: int = 0
    episodes: int = 0
    returns: deque[float] = field(default_factory=lambda: deque(maxlen=RETURNS_WINDOW))

    @property
    def mean_return(self) -> float:
        """Mean raw return of the last 100 episodes; NaN before the first."""
        return sum(self.returns) / len(self.returns) if self.returns else math.nan

    def add_episode(self, episode_return: float) -> None:
        """Counts one whole episode of a TRAIN session."""
        self.episodes += 1
        self.returns.append(episode_return)
