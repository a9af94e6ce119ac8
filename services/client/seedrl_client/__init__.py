"""The session client: what the actor and any other environment service imports to get actions for observations."""

from seedrl_client.session import Session

__all__ = ["Session"]
