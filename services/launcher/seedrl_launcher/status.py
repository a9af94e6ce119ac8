"""Asks a learner or a broker what it is doing. The only module of the launcher that calls by gRPC."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from google.protobuf import json_format
from grpclib.client import Channel
from grpclib.const import Status
from grpclib.exceptions import GRPCError

from seedrl_client.channel import CONNECTION_ERRORS, open_channel, refusal
from seedrl_core.access import NO_CREDENTIALS, AccessConfig, Role
from seedrl_core.address import Address
from seedrl_core.errors import PeerLost, error_from_status
from seedrl_proto.v1 import inference_pb2 as inference
from seedrl_proto.v1 import learner_pb2 as learner
from seedrl_proto.v1.inference_grpc import InferenceStub
from seedrl_proto.v1.learner_grpc import LearnerStub

TIMEOUT_S = 4.0

Reply = learner.StatusReply | inference.DescribeReply

_LEARNER_FIELDS = (
    "run_id",
    "state",
    "env_steps",
    "total_env_steps",
    "frames",
    "policy_version",
    "sessions",
    "num_envs",
    "episodes",
    "last_checkpoint",
    "bottleneck",
)
_BROKER_FIELDS = ("protocol_version", "learner_ready", "sessions", "num_envs", "max_message_bytes")


class StatusClient:
    """Calls to one address over one connection, which is made anew when it was lost."""

    def __init__(self, address: Address, access: AccessConfig, channel: Channel) -> None:
        """`channel` leads to `address`, as `access` says; both are for error messages."""
        self._address = address
        self._access = access
        self._channel = channel

    async def learner(self) -> learner.StatusReply:
        """What the learner does; PeerLost when nobody answers within TIMEOUT_S seconds."""
        async with self._translated():
            reply: learner.StatusReply = await LearnerStub(self._channel).Status(
                learner.StatusRequest(), timeout=TIMEOUT_S
            )
        return reply

    async def any_service(self) -> Reply:
        """What the service does, be it a learner or a broker; PeerLost when nobody answers."""
        reply: Reply
        async with self._translated():
            try:
                reply = await LearnerStub(self._channel).Status(learner.StatusRequest(), timeout=TIMEOUT_S)
            except GRPCError as error:
                if error.status is not Status.UNIMPLEMENTED:
                    raise
                reply = await InferenceStub(self._channel).Describe(inference.DescribeRequest(), timeout=TIMEOUT_S)
        return reply

    @asynccontextmanager
    async def _translated(self) -> AsyncIterator[None]:
        try:
            yield
        except GRPCError as error:
            what = f"{self._address}: {error.message or error.status.name}"
            raise error_from_status(error.status.value, what) from error
        except TimeoutError as error:
            raise PeerLost(f"nobody answers at {self._address}: {error or 'no answer in time'}") from error
        except CONNECTION_ERRORS as error:
            silent = PeerLost(f"nobody answers at {self._address}: {error or type(error).__name__}")
            raise refusal(error, self._address, self._access, self._channel) or silent from error


@asynccontextmanager
async def connect(address: str, access: AccessConfig = NO_CREDENTIALS) -> AsyncIterator[StatusClient]:
    """An operator's client for `host:port` or `unix:PATH`; connects at its first call.

    Raises:
      ConfigError: a certificate or a token of `access` is not usable.
    """
    parsed = Address.parse(address)
    channel = open_channel(parsed, access, Role.OPERATOR)
    try:
        yield StatusClient(parsed, access, channel)
    finally:
        channel.close()


def plain_values(reply: Reply) -> dict[str, Any]:
    """What a service does as values that JSON can carry."""
    return learner_values(reply) if isinstance(reply, learner.StatusReply) else broker_values(reply)


def learner_values(reply: learner.StatusReply) -> dict[str, Any]:
    """A learner's status as values that JSON can carry; `mean_return` is None before the first episode."""
    return {
        "service": "learner",
        **{name: getattr(reply, name) for name in _LEARNER_FIELDS},
        "mean_return": None if math.isnan(reply.mean_return) else reply.mean_return,
        "spec": _spec_values(reply),
        "metrics": dict(sorted(reply.metrics.items())),
    }


def broker_values(reply: inference.DescribeReply) -> dict[str, Any]:
    """A broker's description as values that JSON can carry."""
    return {
        "service": "broker",
        **{name: getattr(reply, name) for name in _BROKER_FIELDS},
        "spec": _spec_values(reply),
        "metrics": dict(sorted(reply.metrics.items())),
    }


def _spec_values(reply: Reply) -> dict[str, Any] | None:
    if not reply.HasField("spec"):
        return None
    values: dict[str, Any] = json_format.MessageToDict(reply.spec, preserving_proto_field_name=True)
    return values
