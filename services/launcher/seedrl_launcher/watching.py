"""An actor that plays for people to watch: with the policy behind a broker, recorded, nothing trained."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seedrl_core.config import Settings, load_settings, write_settings
from seedrl_core.errors import ConfigError
from seedrl_launcher.kept_process import KeptProcess, RestartBudget
from seedrl_launcher.services import Addresses, actor_process
from seedrl_launcher.status import connect
from seedrl_proto.v1 import inference_pb2 as inference

_GRACE_S = 5.0


def recorded_settings(settings: Settings, episodes: int, recording: Path) -> Settings:
    """`settings` for an actor that plays whole episodes greedily, one after the other, and records them."""
    decided = {
        "role": "eval",
        "num_envs": 1,
        "sessions": 1,
        "envs_per_process": 0,
        "env_recycle_episodes": 0,
        "episodes": episodes,
        "recording": recording,
        "metrics_listen": "",
        "atari": settings.actor.atari.model_copy(update={"episodic_life": False}),
    }
    return settings.model_copy(update={"actor": settings.actor.model_copy(update=decided)})


async def broker_settings(
    address: str, file: Path | None, assignments: Mapping[str, Any], seed: int | None
) -> Settings:
    """Settings for an actor at a broker, whose learner knows the environment's id; a fresh seed where it is None.

    Raises:
      ConfigError: this is no broker's address, or its learner knows no environment yet.
      PeerLost: nobody answers.
    """
    access = load_settings(file, assignments).access
    async with connect(address, access) as client:
        reply = await client.any_service()
    if not isinstance(reply, inference.DescribeReply):
        raise ConfigError(f"{address}: expected the address of a broker, got a learner's")
    decided = {"actor.broker": address, "actor.seed": secrets.randbits(31) if seed is None else seed}
    settings = load_settings(file, {**assignments, **decided}, {"actor.env_id": reply.spec.environment_id})
    if not settings.actor.env_id:
        raise ConfigError(f"{address}: the learner knows no environment yet; expected --set actor.env_id=ID")
    return settings


class Watching:
    """One actor process at a broker that runs already."""

    def __init__(self, settings: Settings, directory: Path) -> None:
        """`settings` are those of `recorded_settings`; `directory` is private and short-lived."""
        config_file = directory / "config.toml"
        write_settings(settings, config_file)
        addresses = Addresses(learner="", broker=settings.actor.broker)
        process = actor_process(config_file, addresses, directory, settings.actor, settings.actor.actor_index)
        self._actor = KeptProcess(process, lambda: False, lambda _: None, RestartBudget(limit=0))

    async def run(self, stop: asyncio.Event) -> bool:
        """Plays the episodes; False when `stop` was set before the end. Raises ServiceFailed when the actor fails."""
        playing, stopping = asyncio.create_task(self._actor.run()), asyncio.create_task(stop.wait())
        try:
            await asyncio.wait((playing, stopping), return_when=asyncio.FIRST_COMPLETED)
            if not playing.done():
                return False
            playing.result()
            return True
        finally:
            stopping.cancel()
            await self._actor.stop(0.0, _GRACE_S)
            await asyncio.gather(playing, stopping, return_exceptions=True)

    def kill(self) -> None:
        """Ends the actor at once."""
        self._actor.kill()
