"""The broker's link to the learner, without gRPC."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from seedrl_broker.link import LearnerLink
from seedrl_broker.service import BrokerService
from seedrl_core.access import AccessConfig
from seedrl_core.address import Address
from seedrl_core.config import BrokerConfig
from seedrl_core.errors import PeerLost
from seedrl_proto.v1 import learner_pb2 as learner

WELCOME = learner.BatchReply(
    link_welcome=learner.LinkWelcome(credits=1, run_id="run", max_batch_rows=8, max_message_bytes=1 << 20)
)


class LosingCall:
    """A call whose learner is lost after its welcome, in the very moment in which the broker is stopped."""

    def __init__(self) -> None:
        self.stop: asyncio.Task[None]
        self._reads = 0

    async def read(self) -> learner.BatchReply:
        self._reads += 1
        if self._reads == 1:
            return WELCOME
        if self._reads == 2:
            self.stop.cancel()
            raise PeerLost("the connection is gone")
        pytest.fail("the link looks for a learner again")

    def cancel(self) -> None:
        """Nothing is left to end."""


class Channel:
    """A channel to one call."""

    def __init__(self, call: LosingCall) -> None:
        self._call = call

    def stream_stream(self, *_: Any, **__: Any) -> Any:
        return lambda **_: self._call

    def unary_unary(self, *_: Any, **__: Any) -> None:
        """Not called."""


async def no_change() -> None:
    """Nobody wants to know."""


async def test_a_broker_that_is_stopped_while_its_learner_goes_ends() -> None:
    """Both at once, as when a whole system is stopped: the link does not go on looking for a learner."""
    call = LosingCall()
    channel: Any = Channel(call)
    link = LearnerLink(
        BrokerService(BrokerConfig()), channel, Address.parse("unix:/nowhere"), AccessConfig(), no_change
    )
    call.stop = asyncio.create_task(link.run())
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(asyncio.shield(call.stop), 20)
    assert call.stop.cancelled()
