"""Seeds of environments: distinct for every actor, environment and restart, and the same in every run."""

from __future__ import annotations

import numpy as np


def environment_seed(seed: int, actor_index: int, env_index: int, restart: int = 0) -> int:
    """A seed in 0..2^31 - 1, independent of those for other arguments."""
    sequence = np.random.SeedSequence((seed, actor_index, env_index, restart))
    return int(sequence.generate_state(1, np.uint32)[0] >> 1)
