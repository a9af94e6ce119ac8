"""Seeds of environments: distinct for every actor, environment and restart, and the same in every run."""

from __future__ import annotations

import socket
import zlib

import numpy as np

from seedrl_core.config import ActorConfig


def environment_seed(config: ActorConfig, env_index: int, restart: int = 0) -> int:
    """A seed in 0..2^31 - 1 for an environment of an actor, independent of those of other actors and arguments."""
    actor = zlib.crc32(socket.gethostname().encode()) if config.seed_by_host else config.actor_index
    sequence = np.random.SeedSequence((config.seed, actor, env_index, restart))
    return int(sequence.generate_state(1, np.uint32)[0] >> 1)
