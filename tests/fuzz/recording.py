"""Messages of a real client with real environments: what fuzzing begins from."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from unittest import mock

import space_environments  # noqa: F401  (registers ids)
from fakes import FakeBroker, serve_all

from seedrl_actor.gym_vector import GymVector
from seedrl_client import Session
from seedrl_client.connection import Connection
from seedrl_core.config import ActorConfig
from seedrl_core.spec import EnvironmentSpec
from seedrl_proto.v1 import inference_pb2 as inference

# Leaves of every kind, in observations and in actions.
ENV_ID = "Nested-v0"
NUM_ENVS = 2
TICKS = 20  # two whole episodes


@dataclass(frozen=True)
class Recording:
    """One session's messages as they were sent: Hello, ticks from the first on, Goodbye."""

    spec: EnvironmentSpec
    messages: list[bytes]

    @property
    def hello(self) -> inference.Hello:
        """Its Hello."""
        return inference.ClientMessage.FromString(self.messages[0]).hello

    @property
    def ticks(self) -> list[bytes]:
        """Its ticks, without the message around them."""
        messages = map(inference.ClientMessage.FromString, self.messages)
        return [message.tick.SerializeToString() for message in messages if message.HasField("tick")]


async def record(directory: Path, shared_memory: Literal["auto", "off"]) -> Recording:
    """Plays, with observations in the ticks or in shared memory."""
    environments = GymVector(ActorConfig(env_id=ENV_ID, num_envs=NUM_ENVS), 0, NUM_ENVS)
    messages: list[bytes] = []
    send, part = Connection.send, Connection.part

    async def sending(self: Connection, message: bytes, timeout_s: float) -> None:
        messages.append(message)
        await send(self, message, timeout_s)

    async def parting(self: Connection, message: bytes, timeout_s: float) -> None:
        messages.append(message)
        await part(self, message, timeout_s)

    with mock.patch.object(Connection, "send", sending), mock.patch.object(Connection, "part", parting):
        async with (
            FakeBroker(serve_all).serve(directory) as address,
            Session(address, environments.spec, NUM_ENVS, actor_id="recorded", shared_memory=shared_memory) as session,
        ):
            step = environments.reset()
            for _ in range(TICKS):
                action = await session.tick(step.observation, step.reward, step.flags, step.episodes, 0.5)
                step = environments.step(action)
    return Recording(environments.spec, messages)


def recorded(directory: Path) -> list[Recording]:
    """One of each way."""
    ways: tuple[Literal["auto", "off"], ...] = ("off", "auto")
    return [asyncio.run(record(directory, way)) for way in ways]
