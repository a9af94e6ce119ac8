"""The learner over a real socket: the link of a broker, the operator's controls, and how it ends."""

from __future__ import annotations

import asyncio
import json
import sys
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc
import numpy as np
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from seedrl_core import codec
from seedrl_core.config import load_settings
from seedrl_core.errors import AddressInUse, CheckpointError
from seedrl_core.spec import EnvironmentSpec, TensorSpec
from seedrl_learner.server import serve
from seedrl_learner.service import LearnerService
from seedrl_proto.v1 import inference_pb2 as inference
from seedrl_proto.v1 import learner_pb2 as learner
from seedrl_proto.v1.learner_pb2_grpc import LearnerStub

SPEC = EnvironmentSpec(
    "Counter-v0",
    (TensorSpec("observation", np.dtype(np.float32), (2,)),),
    (TensorSpec("action", np.dtype(np.int64), (), (0.0,), (1.0,)),),
)
NUM_ENVS = 4
DEADLINE_S = 60.0


@dataclass
class Running:
    """A learner being served, and a channel to it."""

    stub: LearnerStub
    channel: grpc.aio.Channel
    stop: asyncio.Event
    task: asyncio.Task[int]
    run_dir: Path


@asynccontextmanager
async def running(run_dir: Path, socket: str = "learner.sock", **overrides: object) -> AsyncIterator[Running]:
    """Serves a learner with a small network on a Unix socket."""
    address = f"unix:{run_dir.parent / socket}"
    keys = {
        "listen": address,
        "run_dir": str(run_dir),
        "unroll_length": 4,
        "batch_unrolls": 4,
        "max_envs": 8,
        "network.mlp_sizes": [4],
        "drain_grace_s": 5.0,
        "log_every_s": 0.2,
        **overrides,
    }
    config = load_settings(None, {f"learner.{key}": value for key, value in keys.items()}).learner
    stop = asyncio.Event()
    task = asyncio.create_task(serve(config, stop))
    async with grpc.aio.insecure_channel(address) as channel:
        ready = asyncio.create_task(channel.channel_ready())
        await asyncio.wait((ready, task), timeout=DEADLINE_S, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            ready.cancel()
            task.result()
        try:
            yield Running(LearnerStub(channel), channel, stop, task, run_dir)
        finally:
            stop.set()
            await asyncio.wait((task,), timeout=DEADLINE_S)
    assert task.done()


class Link:
    """A broker's side of Infer with one session."""

    def __init__(self, stub: LearnerStub) -> None:
        self.call = stub.Infer(timeout=DEADLINE_S)
        self.sequence = -1
        self.batch_id = 0

    async def read(self) -> learner.BatchReply:
        """The next message of the learner."""
        reply = await self.call.read()
        assert reply is not grpc.aio.EOF
        return reply

    async def open(self, role: int = inference.ROLE_TRAIN) -> learner.SessionReply:
        """Reads LinkWelcome, sends Hello as session 1, returns the answer."""
        assert (await self.read()).link_welcome.credits == 2
        hello = inference.Hello(
            protocol_version=1,
            session_id=bytes(16),
            actor_id="a",
            role=role,  # type: ignore[arg-type]
            num_envs=NUM_ENVS,
            spec=codec.spec_to_proto(SPEC),
        )
        await self.call.write(learner.BatchRequest(requests=[learner.SessionRequest(session=1, open=hello)]))
        reply = (await self.read()).replies
        assert not reply.returns_credit
        return reply.replies[0]

    async def tick(self, flags: int = 0) -> learner.BatchReply:
        """Sends the next tick and returns the learner's next message."""
        self.sequence += 1
        self.batch_id += 1
        tick = codec.TickArrays(
            self.sequence,
            (np.ones((NUM_ENVS, 2), np.float32),),
            np.ones(NUM_ENVS, np.float32),
            np.full(NUM_ENVS, flags, np.uint8),
        )
        item = learner.SessionRequest(session=1, tick=b"".join(codec.encode_tick(tick)))
        await self.call.write(learner.BatchRequest(batch_id=self.batch_id, requests=[item]))
        return await self.read()


async def test_a_link_opens_ticks_trains_and_drains_when_complete(tmp_path: Path) -> None:
    """From LinkWelcome over many updates to Drain FINISHED, a checkpoint and a summary, with exit code 0."""
    async with running(tmp_path / "run", total_env_steps=400) as up:
        link = Link(up.stub)
        assert (await link.open()).HasField("welcome")
        reply = await link.tick(codec.FIRST)
        while reply.HasField("replies"):
            assert reply.replies.batch_id == link.batch_id
            assert reply.replies.returns_credit
            reply = await link.tick()
        assert reply.drain.code == inference.Drain.FINISHED
        await link.call.done_writing()
        assert await asyncio.wait_for(up.task, DEADLINE_S) == 0
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    assert 400 <= summary["env_steps"] <= 400 + NUM_ENVS * 8
    assert summary["policy_version"] >= 400 // (4 * 4) - 2
    assert (Path(summary["checkpoint"]) / "state.json").is_file()
    records = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert records[-1]["env_steps"] == summary["env_steps"]
    assert list((tmp_path / "run/tensorboard").iterdir())


async def test_status_checkpoint_and_pause_tell_and_do_what_they_say(tmp_path: Path) -> None:
    """Controls before the first session are refused with a sentence; afterwards they work."""
    async with running(tmp_path / "run") as up:
        status = await up.stub.Status(learner.StatusRequest())
        assert (status.state, status.run_id, status.num_envs) == ("waiting for a first session", "run", 0)
        for call in (
            up.stub.Checkpoint(learner.CheckpointRequest()),
            up.stub.SetTraining(learner.SetTrainingRequest()),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await call
            assert refused.value.details()
        link = Link(up.stub)
        await link.open()
        for i in range(6):
            await link.tick(codec.FIRST if i == 0 else 0)
        status = await up.stub.Status(learner.StatusRequest())
        assert (status.state, status.num_envs, status.env_steps) == ("training", NUM_ENVS, 5 * NUM_ENVS)
        assert codec.spec_from_proto(status.spec) == SPEC
        await up.stub.SetTraining(learner.SetTrainingRequest(enabled=False))
        assert (await up.stub.Status(learner.StatusRequest())).state == "paused"
        await up.stub.SetTraining(learner.SetTrainingRequest(enabled=True))
        saved = await up.stub.Checkpoint(learner.CheckpointRequest())
        assert (Path(saved.path) / "state.json").is_file()


async def test_shutdown_saves_and_asks_brokers_to_come_back(tmp_path: Path) -> None:
    """An operator's Shutdown: checkpoint, Drain RESTARTING to the link, exit code 0."""
    async with running(tmp_path / "run") as up:
        link = Link(up.stub)
        await link.open()
        await link.tick(codec.FIRST)
        await up.stub.Shutdown(learner.ShutdownRequest(reason="test"))
        assert (await link.read()).drain.code == inference.Drain.RESTARTING
        late = Link(up.stub)
        assert (await late.read()).drain.code == inference.Drain.RESTARTING, "a late broker is not welcomed"
        await link.call.done_writing()
        assert await asyncio.wait_for(up.task, DEADLINE_S) == 0
    assert len(list((tmp_path / "run/checkpoints").iterdir())) == 1


async def test_a_broker_stays_within_its_credits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request with ticks beyond them ends the link with RESOURCE_EXHAUSTED and a sentence."""

    async def never(*_: object) -> AsyncIterator[learner.Replies]:
        await asyncio.Event().wait()
        yield learner.Replies()

    async with running(tmp_path / "run", inference_credits=2) as up:
        link = Link(up.stub)
        await link.open()
        monkeypatch.setattr(LearnerService, "answer", never)
        for number in range(1, 4):
            tick = learner.SessionRequest(session=1, tick=b"\x08\x00")
            await link.call.write(learner.BatchRequest(batch_id=number, requests=[tick]))
        with pytest.raises(grpc.aio.AioRpcError, match="within the link's credits") as refused:
            await link.read()
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_a_learner_has_only_so_many_links(tmp_path: Path) -> None:
    """One more broker is refused with RESOURCE_EXHAUSTED until another has left."""
    async with running(tmp_path / "run", max_links=1) as up:
        first = Link(up.stub)
        await first.read()
        with pytest.raises(grpc.aio.AioRpcError, match="expected at most 1 brokers") as refused:
            await Link(up.stub).read()
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        await first.call.done_writing()
        assert await first.call.read() is grpc.aio.EOF
        assert (await Link(up.stub).read()).HasField("link_welcome")


async def test_a_vanished_broker_gives_its_slots_back(tmp_path: Path) -> None:
    """A cancelled stream closes its sessions, and the next broker has all slots."""
    async with running(tmp_path / "run") as up:
        for _ in range(3):
            link = Link(up.stub)
            await link.open()
            await link.tick(codec.FIRST)
            link.call.cancel()
            async with asyncio.timeout(DEADLINE_S):
                while (await up.stub.Status(learner.StatusRequest())).num_envs:
                    await asyncio.sleep(0.01)


async def test_a_broker_that_sends_no_requests_is_told_so(tmp_path: Path) -> None:
    """Bytes that are none, and too many in one message, end its stream with a sentence; others are served."""
    async with running(tmp_path / "run") as up:
        link = Link(up.stub)
        await link.open()
        for message, words in (
            (b"\xff\xff\xff", "expected a protobuf message"),
            (b"\x12\x00" * 70_000, "65536 fields"),
        ):
            raw = up.channel.stream_stream("/seedrl_proto.v1.Learner/Infer")(timeout=DEADLINE_S)
            await raw.read()
            await raw.write(message)
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await raw.read()
            assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert words in (refused.value.details() or "")
        assert (await link.tick(codec.FIRST)).HasField("replies")


async def test_health_says_serving(tmp_path: Path) -> None:
    """grpc.health.v1 answers for the server and for the Learner service."""
    async with running(tmp_path / "run") as up:
        stub = health_pb2_grpc.HealthStub(up.channel)
        for name in ("", "seedrl_proto.v1.Learner"):
            reply = await stub.Check(health_pb2.HealthCheckRequest(service=name))
            assert reply.status == health_pb2.HealthCheckResponse.SERVING


async def test_a_second_learner_on_the_address_is_refused(tmp_path: Path) -> None:
    """The port or socket in use is an error, and the first learner keeps serving."""
    async with running(tmp_path / "run") as up:
        with pytest.raises(AddressInUse, match="a server already listens on unix:"):
            async with running(tmp_path / "run2"):
                pass
        assert (await up.stub.Status(learner.StatusRequest())).run_id == "run"


async def test_a_learner_that_is_restarted_goes_on_with_its_run(tmp_path: Path) -> None:
    """`resume_or_start` begins a run in a new directory, and continues the one that it finds there later."""
    async with running(tmp_path / "run", resume_or_start=True) as up:
        link = Link(up.stub)
        await link.open()
        saved = await up.stub.Checkpoint(learner.CheckpointRequest())
    async with running(tmp_path / "run", resume_or_start=True) as up:
        status = await up.stub.Status(learner.StatusRequest())
        assert Path(status.last_checkpoint).parent == Path(saved.path).parent
        assert status.HasField("spec")


async def test_a_learner_that_should_resume_from_nothing_does_not_start(tmp_path: Path) -> None:
    """Resuming without a checkpoint is an error before anything is served."""
    with pytest.raises(CheckpointError, match="there is nothing to start from"):
        async with running(tmp_path / "run", resume=True):
            pass


def is_training() -> bool:
    """True while some thread is in Trainer.run."""
    stacks = [traceback.extract_stack(frame) for frame in sys._current_frames().values()]
    return any(entry.name == "run" and entry.filename.endswith("trainer.py") for stack in stacks for entry in stack)


async def test_a_failed_part_ends_the_learner_while_it_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug in a background task ends the process with its error, and the training thread with it."""

    def bug(*_: object) -> None:
        raise ZeroDivisionError

    async with running(tmp_path / "run") as up:
        await Link(up.stub).open()
        async with asyncio.timeout(DEADLINE_S):
            while not is_training():
                await asyncio.sleep(0.01)
        monkeypatch.setattr("seedrl_learner.reporter.Reporter.report", bug)
        await asyncio.wait((up.task,), timeout=DEADLINE_S)
        with pytest.raises(ExceptionGroup) as failure:
            up.task.result()
        assert failure.group_contains(ZeroDivisionError)
        async with asyncio.timeout(DEADLINE_S):
            while is_training():
                await asyncio.sleep(0.01)


async def test_a_full_disk_stops_neither_training_nor_the_parting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unwritten metrics are an error line; an unwritten last checkpoint is the end, once the brokers have left."""

    def no_space(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("seedrl_learner.checkpoints._flush", no_space)
    async with running(tmp_path / "run", total_env_steps=200) as up:
        (up.run_dir / "metrics.jsonl").mkdir()
        link = Link(up.stub)
        await link.open()
        reply = await link.tick(codec.FIRST)
        while reply.HasField("replies"):
            reply = await link.tick()
        assert reply.drain.code == inference.Drain.FINISHED
        await link.call.done_writing()
        with pytest.raises(CheckpointError, match="No space left on device"):
            await asyncio.wait_for(up.task, DEADLINE_S)
