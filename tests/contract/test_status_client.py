"""The status client against real servers in this process: a learner, a broker, and servers that do not answer."""

from __future__ import annotations

import asyncio
import math
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import h2.config
import h2.connection
import h2.events
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


# Message bytes of a reply that ends with the status OK.
NO_REPLIES = {
    "none": b"",
    "a length cut off": b"\0\0",
    "a message cut off": b"\0\0\0\0\x20abc",
    "a message that is none": b"\0\0\0\0\x03\xff\xff\xff",
    "a compressed message": b"\1\0\0\0\x03abc",
}


@pytest.mark.parametrize("reply", NO_REPLIES.values(), ids=NO_REPLIES)
async def test_a_server_that_sends_no_reply_is_lost(tmp_path, reply):
    """Whatever it is that answers there, and however far it came: a run goes on without its status."""

    async def answer(reader, writer) -> None:
        peer = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
        peer.initiate_connection()
        writer.write(peer.data_to_send())
        while data := await reader.read(65536):
            for event in peer.receive_data(data):
                if isinstance(event, h2.events.StreamEnded):
                    peer.send_headers(event.stream_id, [(":status", "200"), ("content-type", "application/grpc+proto")])
                    peer.send_data(event.stream_id, reply)
                    peer.send_headers(event.stream_id, [("grpc-status", "0")], end_stream=True)
            writer.write(peer.data_to_send())
        writer.close()

    server = await asyncio.start_unix_server(answer, str(tmp_path / "s"))
    async with server, status.connect(f"unix:{tmp_path / 's'}") as client:
        with pytest.raises(PeerLost, match=f"nobody answers at unix:{tmp_path}"):
            await client.learner()
