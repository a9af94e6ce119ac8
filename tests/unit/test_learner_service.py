"""The learner's sessions without gRPC: opens, ticks, repeated ticks, errors, back-pressure, through real inference."""

from __future__ import annotations

import asyncio
import math
import os
import threading
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from held_memory import regions_of

from seedrl_core import codec
from seedrl_core.config import load_settings
from seedrl_core.errors import BadRequest, Overloaded, PeerLost
from seedrl_core.shared_memory import OwnRegion
from seedrl_core.spec import EnvironmentSpec, TensorSpec
from seedrl_learner import service as service_module
from seedrl_learner.batch_request import BatchRequest
from seedrl_learner.run import Run
from seedrl_learner.service import LearnerService, Link
from seedrl_proto.v1 import inference_pb2 as inference
from seedrl_proto.v1 import learner_pb2 as learner

SPEC = EnvironmentSpec(
    "Counter-v0",
    (TensorSpec("observation", np.dtype(np.float32), (2,)),),
    (TensorSpec("action", np.dtype(np.int64), (), (5.0,), (7.0,)),),
)
UNROLL_LENGTH = 4


def make_run(run_dir: Path, **overrides: object) -> Run:
    """A run with short unrolls and a small network."""
    keys: dict[str, object] = {
        "run_dir": str(run_dir),
        "unroll_length": UNROLL_LENGTH,
        "batch_unrolls": 2,
        "queue_unrolls": 2,
        "max_envs": 8,
        "network.mlp_sizes": [8],
        "network.core": "lstm",
        "network.core_size": 4,
        **overrides,
    }
    return Run(load_settings(None, {f"learner.{key}": value for key, value in keys.items()}).learner)


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[LearnerService]:
    """A service whose training is not started."""
    service = LearnerService(make_run(tmp_path / "run"))
    yield service
    service.stop_waiting()
    service.close()


def parsed(request: learner.BatchRequest) -> BatchRequest:
    """A broker's request as it comes from the wire."""
    return BatchRequest.parse(request.SerializeToString())


class Client:
    """Speaks for one session on a link, as the broker would."""

    def __init__(self, service: LearnerService, link: Link, number: int, num_envs: int = 2) -> None:
        self.service, self.link, self.number, self.num_envs = service, link, number, num_envs
        self.session_id = bytes([number]) * 16
        self.sequence = -1

    def hello(self, spec: EnvironmentSpec = SPEC, role: int = inference.ROLE_TRAIN) -> inference.Hello:
        """A valid Hello."""
        return inference.Hello(
            protocol_version=1,
            session_id=self.session_id,
            actor_id=f"actor-{self.number}",
            role=role,  # type: ignore[arg-type]
            num_envs=self.num_envs,
            spec=codec.spec_to_proto(spec),
        )

    async def ask(self, **kind: object) -> learner.SessionReply:
        """Sends one request and returns its one reply."""
        request = learner.BatchRequest(batch_id=1, requests=[learner.SessionRequest(session=self.number, **kind)])  # type: ignore[arg-type]
        (reply,) = [
            reply async for replies in self.service.answer(self.link, parsed(request)) for reply in replies.replies
        ]
        return reply

    def offer(self, pid: int | None = None) -> inference.Hello:
        """A Hello that offers shared memory, which process `pid` is said to hold."""
        self.region = OwnRegion(self.session_id, SPEC.observation, self.num_envs)
        hello = self.hello()
        hello.shared_memory.pid = os.getpid() if pid is None else pid
        hello.shared_memory.fd, hello.shared_memory.num_bytes = self.region.fd, self.region.num_bytes
        return hello

    async def shared_tick(self, flags: int = 0, **change: object) -> learner.SessionReply:
        """The next tick in turn, its observation in shared memory; `change` replaces parts of the reference."""
        tick = self.make_arrays(flags)
        reference = self.region.write(tick.observation, tick.sequence)._replace(**change)
        return await self.ask(tick=b"".join(codec.encode_tick(tick, reference)))

    async def open(self, **hello: object) -> learner.SessionReply:
        """Sends Hello."""
        return await self.ask(open=self.hello(**hello))  # type: ignore[arg-type]

    def make_tick(self, flags: int = 0, sequence: int | None = None, observation: float | None = None) -> bytes:
        """A valid tick, serialized; the next in turn, and observing its number, unless told otherwise."""
        return b"".join(codec.encode_tick(self.make_arrays(flags, sequence, observation)))

    def make_arrays(
        self, flags: int = 0, sequence: int | None = None, observation: float | None = None
    ) -> codec.TickArrays:
        """See make_tick."""
        self.sequence = self.sequence + 1 if sequence is None else sequence
        return codec.TickArrays(
            sequence=self.sequence,
            observation=(
                np.full((self.num_envs, 2), self.sequence if observation is None else observation, np.float32),
            ),
            reward=np.ones(self.num_envs, np.float32),
            flags=np.full(self.num_envs, flags, np.uint8),
        )

    async def tick(self, *args: Any, **kwargs: Any) -> learner.SessionReply:
        """Sends a tick; see make_tick."""
        return await self.ask(tick=self.make_tick(*args, **kwargs))


def actions_of(reply: learner.SessionReply) -> list[int]:
    """The actions in a reply."""
    assert reply.WhichOneof("kind") == "actions", reply
    message = inference.Actions.FromString(reply.actions)
    return codec.decode_leaves(message.action, SPEC.action, 2)[0].tolist()


async def test_a_session_opens_and_each_tick_gets_actions_of_the_spec(service: LearnerService) -> None:
    """Welcome, then actions inside the bounds, answered under the tick's sequence number; steps are counted."""
    client = Client(service, Link("test"), 1)
    assert (await client.open()).welcome.run_id == "run"
    for flags in (codec.FIRST, 0, 0):
        reply = await client.tick(flags)
        assert set(actions_of(reply)) <= {5, 6, 7}
        assert inference.Actions.FromString(reply.actions).sequence == client.sequence
    assert service.run.progress.env_steps == 4
    assert (service.num_sessions, service.num_envs) == (1, 2)


async def test_a_repeated_tick_gets_the_same_answer_and_is_counted_once(service: LearnerService) -> None:
    """The same sequence number again: the last reply, no new step; also after the session was closed and reopened."""
    link = Link("first")
    client = Client(service, link, 1)
    await client.open()
    await client.tick(codec.FIRST)
    answered = await client.tick()
    assert await client.tick(sequence=client.sequence) == answered
    assert service.run.progress.env_steps == 2
    await service.disconnect(link)
    again = Client(service, Link("second"), 7)
    again.session_id, again.sequence = client.session_id, client.sequence
    await again.open()
    assert (await again.tick(sequence=client.sequence)).actions == answered.actions
    assert service.run.progress.env_steps == 2
    assert actions_of(await again.tick())
    assert service.run.progress.env_steps == 2, "the first tick of fresh slots completes no step"
    await again.tick()
    assert service.run.progress.env_steps == 4


async def test_a_gap_in_the_sequence_ends_the_session_and_no_other(service: LearnerService) -> None:
    """Errors name expected and got; the session's slots are free again; its neighbour in the batch is served."""
    link = Link("test")
    good, bad = Client(service, link, 1), Client(service, link, 2)
    for client in (good, bad):
        await client.open()
        await client.tick(codec.FIRST)
    request = learner.BatchRequest(
        batch_id=5,
        requests=[
            learner.SessionRequest(session=2, tick=bad.make_tick(sequence=9)),
            learner.SessionRequest(session=1, tick=good.make_tick()),
            learner.SessionRequest(session=3, tick=b""),
        ],
    )
    (replies,) = [replies async for replies in service.answer(link, parsed(request))]
    by_session = {reply.session: reply for reply in replies.replies}
    assert replies.returns_credit
    assert by_session[2].error.message == "tick.sequence: expected 1 (or 0 again), got 9"
    assert by_session[3].error.message == "the session is not open"
    assert actions_of(by_session[1])
    assert (service.num_sessions, service.num_envs) == (1, 2)


async def test_two_ticks_of_one_session_in_a_request_end_it(service: LearnerService) -> None:
    """A session has one answer outstanding at most."""
    client = Client(service, Link("test"), 1)
    await client.open()
    tick = client.make_tick(codec.FIRST)
    request = learner.BatchRequest(batch_id=1, requests=[learner.SessionRequest(session=1, tick=tick)] * 2)
    (replies,) = [replies async for replies in service.answer(client.link, parsed(request))]
    assert [reply.error.message for reply in replies.replies] == [
        "expected one tick of a session in a request, got two"
    ]
    assert service.num_sessions == 0


@pytest.mark.parametrize("tick", [b"\xff\xff\xff", inference.Tick(sequence=0).SerializeToString()])
async def test_a_malformed_tick_is_an_error_reply(service: LearnerService, tick: bytes) -> None:
    """Bytes that are no tick, and a tick without its leaves."""
    client = Client(service, Link("test"), 1)
    await client.open()
    reply = await client.ask(tick=tick)
    assert reply.error.code == 3
    assert "expected" in reply.error.message


async def test_another_environment_is_refused_by_leaf(service: LearnerService) -> None:
    """The first session teaches the spaces; a later one that differs is told how (FAILED_PRECONDITION)."""
    link = Link("test")
    await Client(service, link, 1).open()
    other = replace(SPEC, observation=(replace(SPEC.observation[0], shape=(3,)),))
    reply = await Client(service, link, 2).open(spec=other)
    assert reply.error.code == 9
    assert (
        reply.error.message
        == "environment spec differs: expected observation: float32 (2,), got observation: float32 (3,)"
    )


async def test_a_full_learner_says_so_and_has_room_after_a_close(service: LearnerService) -> None:
    """More environments than learner.max_envs: RESOURCE_EXHAUSTED; closing gives the slots back."""
    link = Link("test")
    await Client(service, link, 1, num_envs=6).open()
    reply = await Client(service, link, 2, num_envs=3).open()
    assert reply.error.code == 8
    assert "3 environments asked for, 2 of learner.max_envs=8 free" in reply.error.message
    await service.disconnect(link)
    assert (await Client(service, link, 2, num_envs=3).open()).HasField("welcome")


async def test_a_request_has_only_so_many_environments(tmp_path: Path) -> None:
    """Ticks of more than max_batch_rows environments end the link, before any of them is decoded."""
    service = LearnerService(make_run(tmp_path / "run", max_batch_rows=3))
    link = Link("test")
    clients = [Client(service, link, number) for number in (1, 2)]
    for client in clients:
        await client.open()
    ticks = [learner.SessionRequest(session=one.number, tick=one.make_tick(codec.FIRST)) for one in clients]
    with pytest.raises(Overloaded, match=r"at most 3 environments in a request \(max_batch_rows\), got 4"):
        await anext(service.answer(link, parsed(learner.BatchRequest(batch_id=1, requests=ticks))))
    assert actions_of(await clients[0].ask(tick=ticks[0].tick))
    service.close()


async def test_an_environment_cannot_make_up_metrics_without_end(service: LearnerService) -> None:
    """Names in an episode's info beyond the first 256 are left out, those known before go on."""
    client = Client(service, Link("test"), 1)
    await client.open()
    await client.tick(codec.FIRST)
    for names in (range(200), range(200, 400), range(1)):
        info = {str(name): 1.0 for name in names}
        arrays = replace(client.make_arrays(), episodes=(codec.Episode(0, 1.0, 1, info),))
        actions_of(await client.ask(tick=b"".join(codec.encode_tick(arrays))))
    totals = service.run.metrics.totals()
    told = {name for name in totals.weights if name.startswith("episode/info/")}
    assert told == {f"episode/info/{name}" for name in range(256)}
    assert totals.weights["episode/info/0"] == 2.0


async def test_a_replacement_takes_over_from_a_half_open_session(service: LearnerService) -> None:
    """The same session id on a new link closes the old session, so that slots are not used twice."""
    old = Client(service, Link("old"), 1)
    await old.open()
    new = Client(service, Link("new"), 1)
    await new.open()
    assert (service.num_sessions, service.num_envs) == (1, 2)
    assert not old.link.sessions
    assert actions_of(await new.tick(codec.FIRST))
    await service.disconnect(old.link)
    assert service.num_sessions == 1


async def test_a_full_queue_holds_ticks_back_until_training_takes_unrolls(service: LearnerService) -> None:
    """Back-pressure: no answer while `waiting >= limit`; taking unrolls out releases it; greedy sessions go on."""
    client, greedy = Client(service, Link("train"), 1), Client(service, Link("eval"), 2)
    await client.open()
    await greedy.open(role=inference.ROLE_EVAL)
    machinery = service.run.machinery
    assert machinery is not None
    await client.tick(codec.FIRST)
    while machinery.queue.has_room:
        await client.tick()
    held = asyncio.create_task(client.tick())
    for _ in range(2 * UNROLL_LENGTH):
        assert actions_of(await greedy.tick(codec.FIRST if greedy.sequence < 0 else 0))
    assert not held.done()
    assert len(machinery.queue) == 2, "greedy sessions add no unrolls"
    machinery.queue.take(2, timeout_s=0.0)
    assert actions_of(await held)


async def test_episodes_of_training_sessions_make_the_mean_return(service: LearnerService) -> None:
    """Episode numbers come from the environment; those of EVAL sessions are kept apart."""
    train, greedy = Client(service, Link("train"), 1), Client(service, Link("eval"), 2)
    await train.open()
    await greedy.open(role=inference.ROLE_EVAL)
    for client, value in ((train, 3.0), (greedy, 100.0)):
        message = inference.Tick.FromString(client.make_tick(codec.FIRST))
        message.episodes.add(env=1, episode_return=value, length=5)
        await client.ask(tick=message.SerializeToString())
    assert (service.run.progress.episodes, service.run.progress.mean_return) == (1, 3.0)
    metrics = service.run.metrics.collect()
    assert (metrics["episode/return"], metrics["evaluation/return"]) == (3.0, 100.0)


async def test_a_serving_learner_refuses_training_sessions(tmp_path: Path) -> None:
    """Mode serve starts from a checkpoint, answers EVAL sessions and nothing else."""
    run = make_run(tmp_path / "run")
    run.build(SPEC)
    run.save_checkpoint()
    serving = LearnerService(make_run(tmp_path / "run", mode="serve"))
    client = Client(serving, Link("test"), 1)
    assert (await client.open()).error.message == "this learner only serves: expected role ROLE_EVAL, got ROLE_TRAIN"
    await client.open(role=inference.ROLE_EVAL)
    first = [actions_of(await client.tick(codec.FIRST, observation=1.0)) for _ in range(3)]
    assert first[0] == first[1] == first[2], "greedy actions of one observation in a fresh episode never vary"
    serving.close()


@pytest.mark.parametrize(
    ("num_credits", "expected"), [(1, ["inference", "MainThread", "inference"]), (2, ["inference"] * 3)]
)
async def test_the_event_loop_makes_quick_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_credits: int, expected: list[str]
) -> None:
    """Where a broker has one credit; the first batch is never known to be quick."""
    service = LearnerService(make_run(tmp_path / "run", inference_credits=num_credits, queue_unrolls=8))
    client = Client(service, Link("test"), 1)
    await client.open()
    assert service.run.machinery is not None
    run, threads = service.run.machinery.inference.run, []

    def record_thread(ticks: Any) -> Any:
        threads.append(threading.current_thread().name)
        return run(ticks)

    monkeypatch.setattr(service.run.machinery.inference, "run", record_thread)
    for quick_s in (math.inf, math.inf, 0.0):
        monkeypatch.setattr(service_module, "_QUICK_BATCH_S", quick_s)
        assert actions_of(await client.tick(0 if threads else codec.FIRST))
    assert threads == expected
    service.close()


async def test_a_quick_batch_comes_after_what_the_thread_is_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The event loop makes none while the inference thread has the sessions."""
    monkeypatch.setattr(service_module, "_QUICK_BATCH_S", math.inf)
    service = LearnerService(make_run(tmp_path / "run", inference_credits=1))
    client, may_go_on = Client(service, Link("test"), 1), threading.Event()
    await client.open()
    await client.tick(codec.FIRST)
    service._worker.call(may_go_on.wait)
    tick = asyncio.create_task(client.tick())
    await asyncio.sleep(0.1)
    assert not tick.done()
    may_go_on.set()
    assert actions_of(await tick)
    service.close()


async def test_observations_in_shared_memory_make_the_same_unrolls(tmp_path: Path) -> None:
    """The learner maps what a client of its host offers, and stores from there what others send."""
    service = LearnerService(make_run(tmp_path / "run", queue_unrolls=8))
    sharing, sending = Client(service, Link("test"), 1), Client(service, Link("test"), 2)
    assert (await sharing.ask(open=sharing.offer())).welcome.shared_memory
    assert not (await sending.open()).welcome.shared_memory
    for step in range(UNROLL_LENGTH + 1):
        flags = 0 if step else codec.FIRST
        assert actions_of(await sharing.shared_tick(flags))
        assert actions_of(await sending.tick(flags))
    machinery = service.run.machinery
    assert machinery is not None
    rows = machinery.queue.take(4, timeout_s=0.0)
    assert rows is not None
    shared, sent = (machinery.store.gather(part).observation[0] for part in (rows[:2], rows[2:]))
    assert shared[:, :, 0].tolist() == [list(range(UNROLL_LENGTH + 1))] * 2
    np.testing.assert_array_equal(shared, sent)
    service.close()


async def test_shared_memory_that_is_not_here_is_declined(service: LearnerService) -> None:
    """A client of another host, as far as can be seen: it is welcome, and sends its observations."""
    client = Client(service, Link("test"), 1)
    assert not (await client.ask(open=client.offer(pid=2**31 - 1))).welcome.shared_memory
    assert actions_of(await client.tick(codec.FIRST))


async def test_shared_memory_can_be_switched_off(tmp_path: Path) -> None:
    """With learner.shared_memory=off nothing is mapped; a tick that refers to memory must open its session again."""
    service = LearnerService(make_run(tmp_path / "run", shared_memory="off"))
    client = Client(service, Link("test"), 1)
    assert not (await client.ask(open=client.offer())).welcome.shared_memory
    reply = await client.shared_tick(codec.FIRST)
    assert reply.error.code == PeerLost.status
    assert "open the session again" in reply.error.message
    assert service.num_sessions == 0
    service.close()


@pytest.mark.parametrize("change", [{"offsets": (120,)}, {"offsets": (2**64 - 1,)}, {"offsets": ()}, {"generation": 7}])
async def test_a_bad_reference_ends_its_session_and_no_other(
    service: LearnerService, change: dict[str, object]
) -> None:
    """The error names what was expected; the learner goes on."""
    link = Link("test")
    bad, good = Client(service, link, 1), Client(service, link, 2)
    await bad.ask(open=bad.offer())
    await good.ask(open=good.offer())
    reply = await bad.shared_tick(codec.FIRST, **change)
    assert reply.error.code == 3
    assert "shared." in reply.error.message
    assert actions_of(await good.shared_tick(codec.FIRST))
    assert service.num_sessions == 1


async def test_a_closed_session_lets_go_of_the_memory(service: LearnerService) -> None:
    """Nothing of the region is mapped after the client, or its link, has gone."""
    client = Client(service, Link("test"), 1)
    await client.ask(open=client.offer())
    await client.shared_tick(codec.FIRST)
    region = os.fstat(client.region.fd).st_ino
    client.region.close()
    assert region in regions_of()
    await service.disconnect(client.link)
    assert region not in regions_of()


async def test_a_deterministic_run_takes_one_session_at_a_time(tmp_path: Path) -> None:
    """A second one, greedy or not, is refused in one sentence; the same client may come back, and another after it."""
    service = LearnerService(make_run(tmp_path / "run", deterministic=True))
    one, other = Client(service, Link("a"), 1), Client(service, Link("b"), 2)
    assert (await one.open()).HasField("welcome")
    for role in (inference.ROLE_TRAIN, inference.ROLE_EVAL):
        refusal = (await other.open(role=role)).error
        assert refusal.code == BadRequest.status
        assert "expected one actor with actor.sessions=1, got a second session" in refusal.message
    again = Client(service, Link("c"), 1)
    assert (await again.open()).HasField("welcome")
    await service.disconnect(again.link)
    assert (await other.open()).HasField("welcome")
    service.stop_waiting()
    service.close()


async def test_what_could_never_be_sent_is_refused_before_a_network_is_built(tmp_path: Path) -> None:
    """An observation of more bytes than a message may have, for that many environments; the next session is welcome."""
    service = LearnerService(make_run(tmp_path / "run", max_message_bytes=1000))
    client = Client(service, Link("test"), 1)
    large = replace(SPEC, observation=(replace(SPEC.observation[0], shape=(126,)),))
    reply = await client.open(spec=large)
    assert (reply.error.code, service.run.machinery) == (3, None)
    assert "at most 1000 bytes (max_message_bytes), got 1008 for 2 environments" in reply.error.message
    assert (await client.open()).HasField("welcome")
    service.close()


async def test_a_spec_that_breaks_the_building_does_not_break_the_learner(
    service: LearnerService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session is refused with what went wrong, and the next one is served."""

    def overflow(*_: object) -> None:
        raise OverflowError("cannot convert float infinity to integer")

    client = Client(service, Link("test"), 1)
    with monkeypatch.context() as patch:
        patch.setattr("seedrl_learner.run.make_agent", overflow)
        reply = await client.open()
    assert (reply.error.code, reply.error.message) == (
        3,
        "no network can be built for Counter-v0: cannot convert float infinity to integer",
    )
    assert (await client.open()).HasField("welcome")


async def test_names_of_episode_numbers_are_limited(service: LearnerService) -> None:
    """Each becomes a metric for good: 256 of a run, whoever sends how many; those that are known still count."""
    client = Client(service, Link("test"), 1)
    await client.open()
    for begin in range(0, 400, 100):
        info = {f"number {i}": 1.0 for i in (0, *range(begin, begin + 100))}
        tick = replace(client.make_arrays(codec.FIRST), episodes=(codec.Episode(0, 1.0, 2, info),))
        assert actions_of(await client.ask(tick=b"".join(codec.encode_tick(tick))))
    weights = service.run.metrics.totals().weights
    names = [name for name in weights if name.startswith("episode/info/")]
    assert (len(names), weights["episode/info/number 0"]) == (256, 4)
