"""Counts of whole episodes: raw returns and lengths, and how many episodes each environment still owes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from seedrl_core.codec import Episode
from seedrl_core.spec import Array


class EpisodeCounter:
    """Sums up raw rewards of N environments until their episodes end."""

    def __init__(self, num_envs: int) -> None:
        """All start at an episode's beginning."""
        self._return = np.zeros(num_envs, np.float64)
        self._length = np.zeros(num_envs, np.int64)

    def restart(self, envs: Array) -> None:
        """Forgets the running episodes of the environments in a boolean mask [N] or index."""
        self._return[envs] = 0.0
        self._length[envs] = 0

    def count(self, reward: Array, stepped: Array, ended: Array) -> tuple[Episode, ...]:
        """Adds one step.

        Args:
          reward: [N] raw rewards; must be 0 where an environment was reset.
          stepped: [N] bool: an action was taken, it was not a reset.
          ended: [N] bool: the episode ended with this step.

        Returns:
          The episodes that ended.
        """
        self._return += reward
        self._length += stepped
        if not ended.any():
            return ()
        episodes = tuple(
            Episode(int(env), float(self._return[env]), int(self._length[env])) for env in np.flatnonzero(ended)
        )
        self.restart(ended)
        return episodes


class EpisodeQuota:
    """Equally many episodes from each environment, so that short ones do not count more often than long ones."""

    def __init__(self, episodes: int, num_envs: int, first_env: int, num_all_envs: int) -> None:
        """The share of environments `first_env`, ... of `episodes` over `num_all_envs` environments; 0: no limit."""
        self._limited = episodes > 0
        each, extra = divmod(episodes, num_all_envs)
        self._owed = [each + (env < extra) for env in range(first_env, first_env + num_envs)]

    @property
    def done(self) -> bool:
        """True when no environment owes an episode."""
        return self._limited and not any(self._owed)

    def take(self, episodes: Sequence[Episode]) -> tuple[Episode, ...]:
        """Those of `episodes` that were owed."""
        if not self._limited:
            return tuple(episodes)
        return tuple(episode for episode in episodes if self._take_one(episode.env))

    def _take_one(self, env: int) -> bool:
        owed = self._owed[env] > 0
        self._owed[env] -= owed
        return owed
