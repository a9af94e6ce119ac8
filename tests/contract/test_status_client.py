"""The status client against real servers in this process: a learner, a broker, and servers that do not answer."""

from __future__ import annotations

import asyncio
import math
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
from grpclib import GRPCError, Status
from grpclib.server import Server

from seedrl_core.errors import PeerLost
from seedrl_launcher import status
from seedrl_proto.v1 import inference_pb2 as inference
from seedrl_proto.v1 import inference_pb2_grpc, learner_grpc, spec_pb2
from seedrl_proto.v1 import learner_pb2 as learner

SPEC = spec_pb2.EnvironmentSpec(environment_id="CartPole-v1", action_repeat=1)


class FakeLearner(learner_grpc.LearnerBase):
    """Answers Status; everything else is not for the launcher."""

    async def Status(self, stream) -> None:
        assert isinstance(await stream.recv_message(), learner.StatusRequest)
        reply = learner.StatusReply(env_steps=1 << 40, mean_return=math.nan, metrics={"b": 2.0, "a": 1.0}, spec=SPEC)
        await stream.send_message(reply)

    async def Infer(self, stream) -> None:
        raise GRPCError(Status.UNAVAILABLE)

    Checkpoint = SetTraining = Shutdown = Infer


class FakeBroker(inference_pb2_grpc.InferenceServicer):
    """Answers Describe, on the library that the broker uses."""

    async def Describe(self, request, context) -> inference.DescribeReply:
        return inference.DescribeReply(protocol_version=1, sessions=4, metrics={"rows": 64.0})


@asynccontextmanager
async def serving_learner(tmp_path: Path):
    """A learner's address."""
    server = Server([FakeLearner()])
    await server.start(path=str(tmp_path / "s"))
    try:
        yield f"unix:{tmp_path / 's'}"
    finally:
        server.close()
        await server.wait_closed()


@asynccontextmanager
async def serving_broker(tmp_path: Path):
    """A broker's address."""
    server = grpc.aio.server()
    inference_pb2_grpc.add_InferenceServicer_to_server(FakeBroker(), server)
    server.add_insecure_port(f"unix:{tmp_path / 's'}")
    await server.start()
    try:
        yield f"unix:{tmp_path / 's'}"
    finally:
        await server.stop(grace=0.0)


async def test_a_learner_is_described_in_plain_values(tmp_path):
    """Large counters stay numbers, a missing mean return is None, and the spec is there."""
    async with serving_learner(tmp_path) as address, status.connect(address) as client:
        values = status.plain_values(await client.any_service())
    assert (values["service"], values["env_steps"], values["mean_return"]) == ("learner", 1 << 40, None)
    assert values["metrics"] == {"a": 1.0, "b": 2.0}
    assert values["spec"]["environment_id"] == "CartPole-v1"


async def test_a_broker_is_asked_to_describe_itself(tmp_path):
    """A server without the learner's calls is asked as a broker."""
    async with serving_broker(tmp_path) as address, status.connect(address) as client:
        values = status.plain_values(await client.any_service())
    assert (values["service"], values["sessions"], values["spec"]) == ("broker", 4, None)


async def test_a_client_can_wait_for_its_server(tmp_path):
    """The same client that found nobody gets an answer once the server is up."""
    async with status.connect(f"unix:{tmp_path / 's'}") as client:
        with pytest.raises(PeerLost):
            await client.learner()
        async with serving_learner(tmp_path):
            assert (await client.learner()).env_steps == 1 << 40


@pytest.mark.parametrize("reads", [True, False])
async def test_a_server_that_says_nothing_is_given_up(tmp_path, monkeypatch, reads):
    """A peer that accepts and then stays silent, or closes at once, is lost, and the error names the address."""
    monkeypatch.setattr(status, "TIMEOUT_S", 0.2)

    async def silent(reader, writer) -> None:
        if reads:
            await reader.read()
        writer.close()

    server = await asyncio.start_unix_server(silent, str(tmp_path / "s"))
    async with server, status.connect(f"unix:{tmp_path / 's'}") as client:
        with pytest.raises(PeerLost, match=str(tmp_path)):
            await client.any_service()
