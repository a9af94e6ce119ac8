"""What an actor is called."""

from __future__ import annotations

import socket

from seedrl_core.config import ActorConfig


def actor_id(config: ActorConfig) -> str:
    """The actor's name in logs and metrics, its own and those of the servers."""
    return config.actor_id or f"{socket.gethostname()}-{config.actor_index}"
