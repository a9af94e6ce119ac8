"""The broker between a real gRPC client and a real, fake-hearted learner, all in one event loop."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
from fakes_learner import RUN_ID, FakeLearner, learner_at
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from ports import free_port

from seedrl_broker.server import serve
from seedrl_core.config import load_settings
from seedrl_proto.v1 import inference_pb2 as inference
from seedrl_proto.v1 import inference_pb2_grpc as inference_grpc
from seedrl_proto.v1 import learner_pb2 as learner
from seedrl_proto.v1 import spec_pb2

TIMEOUT_S = 30.0
SPEC = spec_pb2.EnvironmentSpec(
    environment_id="Counter-v0",
    observation=[spec_pb2.TensorSpec(path="observation", dtype=spec_pb2.DTYPE_UINT8, shape=[4])],
    action=[spec_pb2.TensorSpec(path="action", dtype=spec_pb2.DTYPE_INT64, low=[0], high=[1])],
    action_repeat=1,
)
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


def hello(session: int = 1, num_envs: int = 2, **fields: object) -> inference.Hello:
    """A valid Hello of session number `session`, but for `fields`."""
    values: dict[str, object] = {
        "protocol_version": 1,
        "session_id": bytes([session]) * 16,
        "actor_id": f"actor-{session}",
        "role": inference.ROLE_TRAIN,
        "num_envs": num_envs,
        "spec": SPEC,
    }
    return inference.Hello(**(values | fields))


class Client:
    """One stream to the broker; reads have a deadline."""

    def __init__(self, stub: inference_grpc.InferenceStub) -> None:
        self.call = stub.Session(wait_for_ready=True)
        self.waiting: list[inference.Waiting] = []

    async def send(self, **kind: object) -> None:
        async with asyncio.timeout(TIMEOUT_S):
            await self.call.write(inference.ClientMessage(**kind))

    async def tick(self, sequence: int) -> None:
        await self.send(tick=inference.Tick(sequence=sequence, observation=[bytes(8)], flags=bytes(2)))

    async def read(self) -> inference.ServerMessage:
        """The next message that is not Waiting; those are kept."""
        async with asyncio.timeout(TIMEOUT_S):
            while (message := await self.call.read()) is not grpc.aio.EOF:
                if message.WhichOneof("kind") != "waiting":
                    return message
                self.waiting.append(message.waiting)
        return message

    async def until_waiting(self, words: str) -> inference.Waiting:
        """The next sign of life whose reason has `words`; nothing else may come before."""
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                message = await self.call.read()
                assert message is not grpc.aio.EOF and message.WhichOneof("kind") == "waiting"
                if words in message.waiting.reason:
                    return message.waiting

    async def step(self, sequence: int) -> None:
        await self.tick(sequence)
        await self.expect_actions(sequence)

    async def expect_actions(self, sequence: int) -> None:
        message = await self.read()
        assert message.actions.sequence == sequence
        assert list(message.actions.action) == [str(sequence).encode()]

    async def expect_drain(self, code: int) -> None:
        """Drain comes, and the stream ends with OK once the client has said all."""
        assert (await self.read()).drain.code == code
        await self.call.done_writing()
        assert await self.read() is grpc.aio.EOF

    async def expect_error(self, code: grpc.StatusCode, words: str) -> None:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await self.read()
        assert caught.value.code() is code
        assert words in caught.value.details()


class Broker:
    """A broker in this event loop, and clients of it."""

    def __init__(self, listen: str, channel: grpc.aio.Channel, stop: asyncio.Event) -> None:
        self.listen = listen
        self.channel = channel
        self.stop = stop
        self.stub = inference_grpc.InferenceStub(channel)

    def client(self) -> Client:
        return Client(self.stub)

    async def session(self, session: int = 1, num_envs: int = 2) -> Client:
        """A client that has its Welcome."""
        client = self.client()
        await client.send(hello=hello(session, num_envs))
        assert (await client.read()).welcome.run_id == RUN_ID
        return client

    async def describe(self) -> inference.DescribeReply:
        return await self.stub.Describe(inference.DescribeRequest(), timeout=TIMEOUT_S, wait_for_ready=True)

    async def until_health(self, service: str, status: int) -> None:
        request = health_pb2.HealthCheckRequest(service=service)
        async with asyncio.timeout(TIMEOUT_S):
            async for reply in health_pb2_grpc.HealthStub(self.channel).Watch(request, wait_for_ready=True):
                if reply.status == status:
                    return


@asynccontextmanager
async def broker_at(directory: Path, **settings: object) -> AsyncIterator[Broker]:
    """A broker whose learner is at unix:DIRECTORY/learner; it stops in order at the end."""
    keys = {
        "listen": f"unix:{directory / 'broker'}",
        "learner": f"unix:{directory / 'learner'}",
        "max_delay_ms": 2.0,
        "waiting_interval_s": 0.1,
        "drain_grace_s": 0.2,
        **settings,
    }
    config = load_settings(None, {f"broker.{key}": value for key, value in keys.items()}).broker
    stop = asyncio.Event()
    serving = asyncio.create_task(serve(config, stop))
    async with grpc.aio.insecure_channel(config.listen) as channel:
        try:
            yield Broker(config.listen, channel, stop)
        finally:
            stop.set()
            async with asyncio.timeout(TIMEOUT_S):
                assert await serving == 0


@asynccontextmanager
async def broker_and_learner(
    directory: Path, fake: FakeLearner | None = None, **settings: object
) -> AsyncIterator[tuple[Broker, FakeLearner]]:
    """Both, the learner first."""
    fake = fake or FakeLearner()
    async with learner_at(f"unix:{directory / 'learner'}", fake), broker_at(directory, **settings) as broker:
        yield broker, fake


async def test_a_session_steps_and_parts(tmp_path):
    """Hello gets Welcome, each Tick its Actions, Goodbye ends the stream with OK and closes the session."""
    async with broker_and_learner(tmp_path) as (broker, fake):
        client = await broker.session()
        for sequence in range(5):
            await client.step(sequence)
        await client.send(goodbye=inference.Goodbye())
        assert await client.read() is grpc.aio.EOF
        await fake.until(lambda: fake.closed == [bytes([1]) * 16])
        assert fake.batches == [[(bytes([1]) * 16, sequence)] for sequence in range(5)]
        assert (await broker.describe()).sessions == 0


async def test_ticks_that_wait_together_share_a_batch(tmp_path):
    """Two sessions whose ticks arrive while the only credit is spent go out in one request."""
    async with broker_and_learner(tmp_path, FakeLearner(num_credits=1)) as (broker, fake):
        fake.holding = True
        clients = [await broker.session(number) for number in (1, 2, 3)]
        await clients[0].tick(0)
        await fake.until(lambda: len(fake.batches) == 1)
        for client in clients[1:]:
            await client.tick(0)
            await client.until_waiting("has not answered")  # so the broker has the tick
        fake.release()
        for client in clients:
            await client.expect_actions(0)
    assert [len(batch) for batch in fake.batches] == [1, 2]


async def test_batches_keep_the_smaller_limit_of_rows(tmp_path):
    """The learner's limit holds where it is below the broker's own: the fake refuses a larger request."""
    async with broker_and_learner(tmp_path, FakeLearner(num_credits=1, max_batch_rows=4)) as (broker, fake):
        clients = [await broker.session(number, num_envs=3) for number in range(1, 5)]
        fake.holding = True
        for client in clients:
            await client.tick(0)
        await fake.until(lambda: len(fake.batches) == 1)
        fake.release()
        for client in clients:
            await client.expect_actions(0)
        assert len(fake.batches) == 4
        too_large = broker.client()
        await too_large.send(hello=hello(9, num_envs=5))
        await too_large.expect_error(grpc.StatusCode.INVALID_ARGUMENT, "num_envs: expected at most 4")


@pytest.mark.parametrize(
    ("fields", "code", "words"),
    [
        ({"protocol_version": 2}, grpc.StatusCode.FAILED_PRECONDITION, "protocol_version: expected 1, got 2"),
        ({"session_id": b"short"}, grpc.StatusCode.INVALID_ARGUMENT, "session_id: expected 16 bytes, got 5"),
        ({"num_envs": 0}, grpc.StatusCode.INVALID_ARGUMENT, "num_envs"),
        ({"num_envs": 513}, grpc.StatusCode.INVALID_ARGUMENT, "num_envs: expected at most 512"),
    ],
)
async def test_a_hello_that_is_not_allowed_is_refused(tmp_path, fields, code, words):
    """The error names the field, what was expected and what was got, learner or not."""
    async with broker_at(tmp_path) as broker:
        client = broker.client()
        await client.send(hello=hello(**fields))
        await client.expect_error(code, words)


async def test_messages_in_the_wrong_order_end_the_session(tmp_path):
    """A tick before hello, a second hello, an empty message and bytes that are no message are refused."""
    async with broker_and_learner(tmp_path) as (broker, fake):
        tick_first = broker.client()
        await tick_first.tick(0)
        await tick_first.expect_error(grpc.StatusCode.INVALID_ARGUMENT, "expected hello first, got tick")

        hello_twice = await broker.session(2)
        await hello_twice.send(hello=hello(2))
        await hello_twice.expect_error(grpc.StatusCode.INVALID_ARGUMENT, "expected tick or goodbye, got hello")

        empty = await broker.session(3)
        await empty.send()
        await empty.expect_error(grpc.StatusCode.INVALID_ARGUMENT, "empty message")

        raw = broker.channel.stream_stream("/seedrl_proto.v1.Inference/Session")()
        await raw.write(b"\xff\xff\xff")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await raw.read()
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        await fake.until(lambda: len(fake.closed) == 2)


async def test_a_second_unanswered_tick_ends_the_session(tmp_path):
    """A client that does not wait for its actions is refused with INVALID_ARGUMENT; others are not touched."""
    async with broker_and_learner(tmp_path) as (broker, fake):
        bystander = await broker.session(2)
        client = await broker.session(1)
        fake.holding = True
        await client.tick(0)
        await client.tick(1)
        await client.expect_error(grpc.StatusCode.INVALID_ARGUMENT, "one unanswered message")
        await fake.until(lambda: fake.closed == [bytes([1]) * 16])
        fake.release()
        await bystander.step(0)


async def test_a_tick_before_the_welcome_ends_the_session(tmp_path):
    """Hello is a message that waits for its answer like any other."""
    async with broker_at(tmp_path) as broker:
        client = broker.client()
        await client.send(hello=hello())
        await client.tick(0)
        await client.expect_error(grpc.StatusCode.INVALID_ARGUMENT, "one unanswered message")


async def test_one_session_too_many_is_refused(tmp_path):
    """max_sessions holds, and a place is free again when a session leaves."""
    async with broker_and_learner(tmp_path, max_sessions=1) as (broker, fake):
        first = await broker.session(1)
        second = broker.client()
        await second.send(hello=hello(2))
        await second.expect_error(grpc.StatusCode.RESOURCE_EXHAUSTED, "max_sessions")
        first.call.cancel()
        await fake.until(lambda: fake.closed == [bytes([1]) * 16])
        await (await broker.session(3)).step(0)


async def test_a_tick_larger_than_the_learner_takes_is_refused(tmp_path):
    """One oversized tick ends its session with an error, not the link with everybody on it."""
    async with broker_and_learner(tmp_path) as (broker, fake):
        bystander, client = await broker.session(1), await broker.session(2)
        await client.send(tick=inference.Tick(observation=[bytes(fake.welcome.max_message_bytes)]))
        await client.expect_error(grpc.StatusCode.INVALID_ARGUMENT, "tick: expected at most")
        await bystander.step(0)
        assert len(fake.links) == 1


async def test_clients_wait_for_a_learner_that_comes_later(tmp_path):
    """Without a learner a client hears why it waits; when the learner arrives it is welcome."""
    async with broker_at(tmp_path) as broker:
        client = broker.client()
        await client.send(hello=hello())
        waiting = await client.until_waiting("learner is not there")
        assert waiting.waited_s > 0
        assert not (await broker.describe()).learner_ready
        async with learner_at(f"unix:{tmp_path / 'learner'}", FakeLearner()):
            assert (await client.read()).welcome.run_id == RUN_ID
            await client.step(0)


async def test_a_lost_link_costs_a_client_nothing_but_time(tmp_path):
    """With the learner killed and replaced, sessions are opened again, each once, and unanswered ticks sent again."""
    address = f"unix:{tmp_path / 'learner'}"
    async with broker_at(tmp_path) as broker:
        async with learner_at(address, FakeLearner()) as first:
            waiting, idle = await broker.session(1), await broker.session(2)
            await waiting.step(0)
            first.holding = True
            await waiting.tick(1)
            await first.until(lambda: len(first.batches) == 2)
        await waiting.until_waiting("learner is not there")
        async with learner_at(address, FakeLearner()) as second:
            await waiting.expect_actions(1)
            await waiting.step(2)
            await idle.step(0)
            assert sorted(second.opened) == [bytes([1]) * 16, bytes([2]) * 16]
            assert [tick for batch in second.batches for tick in batch] == [
                (bytes([1]) * 16, 1),
                (bytes([1]) * 16, 2),
                (bytes([2]) * 16, 0),
            ]


async def test_a_tick_sent_while_the_learner_is_away_is_answered_by_the_next(tmp_path):
    """A tick that no learner has seen waits in the broker."""
    address = f"unix:{tmp_path / 'learner'}"
    async with broker_at(tmp_path) as broker:
        async with learner_at(address, FakeLearner()):
            client = await broker.session()
            await client.step(0)
        await broker.until_health("seedrl_proto.v1.Inference", NOT_SERVING)
        await client.tick(1)
        await client.until_waiting("learner is not there")
        async with learner_at(address, FakeLearner()):
            await client.expect_actions(1)


async def test_sessions_survive_a_learner_that_restarts_in_order(tmp_path):
    """Drain RESTARTING from the learner is a link loss: clients are not told."""
    async with broker_and_learner(tmp_path) as (broker, fake):
        client = await broker.session()
        await client.step(0)
        fake.send(learner.BatchReply(drain=inference.Drain(code=inference.Drain.RESTARTING)))
        await fake.until(lambda: len(fake.opened) == 2)
        await client.step(1)


async def test_a_finished_run_parts_with_everybody(tmp_path):
    """Drain FINISHED reaches open sessions and later ones, until another learner is there."""
    address = f"unix:{tmp_path / 'learner'}"
    drain = inference.Drain(code=inference.Drain.FINISHED, reason="training is complete")
    async with broker_at(tmp_path) as broker:
        async with learner_at(address, FakeLearner()) as fake:
            clients = [await broker.session(1), await broker.session(2)]
            fake.holding = True
            await clients[0].tick(0)
            await fake.until(lambda: len(fake.batches) == 1)
            fake.send(learner.BatchReply(drain=drain))
            for client in clients:
                await client.expect_drain(inference.Drain.FINISHED)
        late = broker.client()
        await late.send(hello=hello(3))
        await late.expect_drain(inference.Drain.FINISHED)
        async with learner_at(address, FakeLearner()):
            await broker.until_health("seedrl_proto.v1.Inference", SERVING)
            await (await broker.session(4)).step(0)


async def test_a_broker_that_connects_to_a_finished_learner_parts_with_everybody(tmp_path):
    """Drain in place of LinkWelcome: the run is over for clients that waited for a learner."""
    address = f"unix:{tmp_path / 'learner'}"
    fake = FakeLearner()
    fake.greeting = learner.BatchReply(drain=inference.Drain(code=inference.Drain.FINISHED, reason="complete"))
    async with broker_at(tmp_path) as broker:
        client = broker.client()
        await client.send(hello=hello(1))
        async with learner_at(address, fake):
            await client.expect_drain(inference.Drain.FINISHED)


async def test_a_client_that_comes_back_replaces_its_half_open_session(tmp_path):
    """The new connection is served at once, the learner sees the old session closed first, the old stream ends."""
    async with broker_and_learner(tmp_path) as (broker, fake):
        old = await broker.session(1)
        fake.holding = True
        await old.tick(0)
        await fake.until(lambda: len(fake.batches) == 1)
        new = await broker.session(1)
        await old.expect_error(grpc.StatusCode.INVALID_ARGUMENT, "opened again")
        fake.release()
        await new.step(0)
        assert fake.closed == [bytes([1]) * 16]


async def test_a_client_that_vanishes_is_closed_and_the_rest_go_on(tmp_path):
    """A cancelled stream with a tick in flight closes the session at the learner; its answer is nobody's."""
    async with broker_and_learner(tmp_path) as (broker, fake):
        fake.holding = True
        vanishing, staying = await broker.session(1), await broker.session(2)
        await vanishing.tick(0)
        await fake.until(lambda: len(fake.batches) == 1)
        vanishing.call.cancel()
        await fake.until(lambda: fake.closed == [bytes([1]) * 16])
        fake.release()
        for sequence in range(3):
            await staying.step(sequence)


async def test_the_learners_refusal_of_a_session_passes_through(tmp_path):
    """The client gets the code and the message that the learner gave, at Hello and at a tick."""
    async with broker_and_learner(tmp_path) as (broker, fake):
        fake.refuse_tick = learner.SessionError(code=3, message="reward: expected finite values, got nan")
        client = await broker.session(1)
        await client.tick(0)
        await client.expect_error(grpc.StatusCode.INVALID_ARGUMENT, "reward: expected finite values, got nan")
        fake.refuse_open = learner.SessionError(code=9, message="environment spec differs: expected that, got this")
        client = broker.client()
        await client.send(hello=hello(2))
        await client.expect_error(grpc.StatusCode.FAILED_PRECONDITION, "expected that, got this")
        assert fake.closed == []


@pytest.mark.parametrize(
    "reply",
    [
        learner.BatchReply(),
        learner.BatchReply(replies=learner.Replies(batch_id=77, returns_credit=True)),
        learner.BatchReply(replies=learner.Replies(replies=[learner.SessionReply(session=1, actions=b"")])),
    ],
    ids=["empty", "unknown credit", "unasked actions"],
)
async def test_a_learner_that_breaks_the_contract_is_left(tmp_path, reply):
    """Instead of stalling, the broker starts over with a new link, and its sessions go on."""
    async with broker_and_learner(tmp_path) as (broker, fake):
        client = await broker.session()
        fake.send(reply)
        await fake.until(lambda: len(fake.opened) == 2)
        await client.step(0)


async def test_describe_tells_the_spec_and_the_load(tmp_path):
    """The spec is the learner's, the counts are the broker's."""
    async with broker_and_learner(tmp_path, FakeLearner(spec=SPEC), max_message_bytes=1 << 20) as (broker, _):
        await broker.session(1, num_envs=3)
        await broker.session(2, num_envs=4)
        reply = await broker.describe()
    assert reply.spec == SPEC
    assert (reply.protocol_version, reply.learner_ready) == (1, True)
    assert (reply.sessions, reply.num_envs, reply.max_message_bytes) == (2, 7, 1 << 20)


async def test_health_follows_the_learner(tmp_path):
    """The process is always healthy, the service only while the learner is connected."""
    async with broker_at(tmp_path) as broker:
        await broker.until_health("seedrl_proto.v1.Inference", NOT_SERVING)
        async with learner_at(f"unix:{tmp_path / 'learner'}", FakeLearner()):
            await broker.until_health("seedrl_proto.v1.Inference", SERVING)
        await broker.until_health("seedrl_proto.v1.Inference", NOT_SERVING)
        await broker.until_health("", SERVING)


async def test_reflection_lists_the_services(tmp_path):
    """A generic client finds the services by name and the contract's messages."""
    async with broker_at(tmp_path) as broker:
        stub = reflection_pb2_grpc.ServerReflectionStub(broker.channel)
        requests = [
            reflection_pb2.ServerReflectionRequest(list_services=""),
            reflection_pb2.ServerReflectionRequest(file_containing_symbol="seedrl_proto.v1.Inference"),
        ]
        replies = stub.ServerReflectionInfo(iter(requests), timeout=TIMEOUT_S, wait_for_ready=True)
        listed, found = [reply async for reply in replies]
    names = {service.name for service in listed.list_services_response.service}
    assert {"seedrl_proto.v1.Inference", "grpc.health.v1.Health"} <= names
    assert found.file_descriptor_response.file_descriptor_proto


async def test_a_stopping_broker_sends_its_clients_elsewhere(tmp_path):
    """Every session gets Drain RESTARTING and the end of its stream, answered or not."""
    async with broker_and_learner(tmp_path) as (broker, fake):
        fake.holding = True
        idle, waiting = await broker.session(1), await broker.session(2)
        await waiting.tick(0)
        await fake.until(lambda: len(fake.batches) == 1)
        broker.stop.set()
        for client in (idle, waiting):
            await client.expect_drain(inference.Drain.RESTARTING)


async def test_a_client_that_does_not_leave_is_left(tmp_path):
    """After drain_grace_s the broker ends the stream by itself; a tick that crossed the Drain is no error."""
    async with broker_and_learner(tmp_path) as (broker, _):
        client = await broker.session()
        broker.stop.set()
        assert (await client.read()).drain.code == inference.Drain.RESTARTING
        await client.tick(0)
        with contextlib.suppress(grpc.aio.AioRpcError):  # the process may be gone first
            assert await client.read() is grpc.aio.EOF


def command(listen: str, learner_address: str) -> list[str]:
    """How a broker process is started."""
    return [sys.executable, "-m", "seedrl_broker", "--listen", listen, "--learner", learner_address]


async def test_a_broker_stops_together_with_its_learner(tmp_path):
    """Both end in the same instant, as when a whole host is shut down, and the broker does not wait for a new one."""
    keys = {"broker.listen": f"unix:{tmp_path / 'broker'}", "broker.learner": f"unix:{tmp_path / 'learner'}"}
    fake = FakeLearner()
    stop = asyncio.Event()
    serving = asyncio.create_task(serve(load_settings(None, keys).broker, stop))
    async with asyncio.timeout(TIMEOUT_S):
        async with learner_at(keys["broker.learner"], fake):
            while not fake.links:
                await asyncio.sleep(0.01)
        stop.set()
        assert await serving == 0


@pytest.mark.parametrize("kind", ["unix", "tcp"])
async def test_a_terminated_process_drains_and_exits_with_success(tmp_path, kind):
    """SIGTERM: an open session gets its Drain, the process ends with 0; a second broker on the port never starts."""
    listen = f"unix:{tmp_path / 'broker'}" if kind == "unix" else f"127.0.0.1:{free_port()}"
    learner_address = f"unix:{tmp_path / 'learner'}"
    async with learner_at(learner_address, FakeLearner()):
        process = await asyncio.create_subprocess_exec(*command(listen, learner_address), stderr=subprocess.DEVNULL)
        try:
            async with grpc.aio.insecure_channel(listen) as channel:
                client = await Broker(listen, channel, asyncio.Event()).session()
                await client.step(0)
                second = await asyncio.create_subprocess_exec(*command(listen, learner_address), stderr=subprocess.PIPE)
                async with asyncio.timeout(TIMEOUT_S):
                    _, stderr = await second.communicate()
                assert second.returncode == 1
                assert stderr.decode().splitlines()[-1] == f"error: a server already listens on {listen}"
                await client.step(1)
                process.send_signal(signal.SIGTERM)
                await client.expect_drain(inference.Drain.RESTARTING)
            async with asyncio.timeout(TIMEOUT_S):
                assert await process.wait() == 0
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


async def test_a_second_sigterm_ends_a_process_at_once(tmp_path):
    """While it waits for a client that does not leave; the exit code is that of a process ended by the signal."""
    listen, learner_address = (f"unix:{tmp_path / name}" for name in ("broker", "learner"))
    patient = [*command(listen, learner_address), "--set", "broker.drain_grace_s=3600"]
    async with learner_at(learner_address, FakeLearner()):
        process = await asyncio.create_subprocess_exec(*patient, stderr=subprocess.DEVNULL)
        try:
            async with grpc.aio.insecure_channel(listen) as channel:
                client = await Broker(listen, channel, asyncio.Event()).session()
                process.send_signal(signal.SIGTERM)
                assert (await client.read()).drain.code == inference.Drain.RESTARTING
                process.send_signal(signal.SIGTERM)
                async with asyncio.timeout(TIMEOUT_S):
                    assert await process.wait() == 128 + signal.SIGTERM
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
