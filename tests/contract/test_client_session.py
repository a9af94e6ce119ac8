"""The session client against a scripted broker: reconnects, signs of life, Drain, errors, closing."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import grpclib.exceptions
import numpy as np
import pytest
from fakes import Call, FakeBroker, fail, serve_all
from grpclib.const import Status
from held_memory import regions_of

from seedrl_client import Session, patience
from seedrl_core import codec
from seedrl_core.errors import BadRequest, Overloaded, PeerLost, RunFinished, SpecMismatch
from seedrl_core.spec import Array, EnvironmentSpec, TensorSpec
from seedrl_proto.v1 import inference_pb2 as inference

SPEC = EnvironmentSpec(
    "Counter-v0",
    (TensorSpec("observation", np.dtype(np.float32), (2,)),),
    (TensorSpec("action", np.dtype(np.int64), (), (5.0,), (7.0,)),),
)
NUM_ENVS = 3
REWARD = np.zeros(NUM_ENVS, np.float32)


@pytest.fixture(autouse=True)
def _quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "FIRST_DELAY_S", 0.001)
    monkeypatch.setattr(patience, "MAX_DELAY_S", 0.02)


def make_session(address: str, **overrides: Any) -> Session:
    """A session of NUM_ENVS environments that loses patience soon."""
    return Session(address, SPEC, NUM_ENVS, **({"peer_timeout_s": 5.0, "silence_s": 2.0} | overrides))


async def tick(session: Session, t: int) -> tuple[Array, ...]:
    """Tick number t of environments that never end."""
    flags = np.full(NUM_ENVS, codec.FIRST if t == 0 else 0, np.uint8)
    return await session.tick(np.full((NUM_ENVS, 2), t, np.float32), REWARD, flags)


async def open_and_tick(session: Session) -> None:
    """A session's shortest life."""
    async with session:
        await tick(session, 0)


async def test_answers_come_in_turn_and_goodbye_ends_the_session(tmp_path: Path) -> None:
    """Ticks are numbered from 0, actions arrive in the spec's dtype and can be written to, and the end is orderly."""
    broker = FakeBroker(serve_all)
    async with broker.serve(tmp_path) as address, make_session(address) as session:
        assert (session.run_id, session.policy_version) == ("run", 1)
        for t in range(3):
            (action,) = await tick(session, t)
            np.testing.assert_array_equal(action, np.full(NUM_ENVS, 5 + t % 2))
            assert action.dtype == np.int64
            action[:] = 0
            assert session.policy_version == 2 + t
        await session.aclose()
    assert [received.sequence for received in broker.ticks] == [0, 1, 2]
    np.testing.assert_array_equal(broker.ticks[2].observation[0], np.full((NUM_ENVS, 2), 2.0))
    assert broker.goodbyes == ["done"]


async def test_a_lost_connection_repeats_the_unanswered_tick_with_its_number(tmp_path: Path) -> None:
    """After a cut the same session comes back and sends the same tick, and the caller only waits longer."""

    async def cut_on_second_tick(call: Call) -> None:
        await call.welcome()
        first = await call.tick()
        assert first is not None
        await call.answer(first)
        await call.tick()
        call.drop()

    broker = FakeBroker(cut_on_second_tick, serve_all)
    async with broker.serve(tmp_path) as address, make_session(address) as session:
        for t in range(3):
            await tick(session, t)
    assert [received.sequence for received in broker.ticks] == [0, 1, 1, 2]
    assert len(broker.hellos) == 2
    for hello in broker.hellos:
        hello.ClearField("shared_memory")  # each connection has a region of its own
    assert broker.hellos[0] == broker.hellos[1]


async def test_a_connection_that_ends_in_two_ways_at_once_is_one_loss(tmp_path: Path) -> None:
    """A reset and a GOAWAY that arrive together interrupt the waiting tick once, and it is sent again."""

    async def end_on_second_tick(call: Call) -> None:
        await call.welcome()
        first = await call.tick()
        assert first is not None
        await call.answer(first)
        await call.tick()
        call.end_in_two_ways()

    broker = FakeBroker(end_on_second_tick, serve_all)
    task = asyncio.current_task()
    assert task is not None
    async with broker.serve(tmp_path) as address, make_session(address) as session:
        for t in range(3):
            await tick(session, t)
        assert task.cancelling() == 0
    assert [received.sequence for received in broker.ticks] == [0, 1, 1, 2]


async def test_a_stream_that_ends_between_ticks_is_opened_again(tmp_path: Path) -> None:
    """The server may end the stream while the environments step; the next tick notices and reconnects."""
    gone = asyncio.Event()

    async def one_tick(call: Call) -> None:
        await call.welcome()
        received = await call.tick()
        assert received is not None
        await call.answer(received)
        call.drop()
        gone.set()

    broker = FakeBroker(one_tick, serve_all)
    async with broker.serve(tmp_path) as address, make_session(address) as session:
        await tick(session, 0)
        await gone.wait()
        await tick(session, 1)
        await session.aclose()
    assert [received.sequence for received in broker.ticks][-1] == 1
    assert broker.connections == 2


async def test_restarting_broker_is_waited_for(tmp_path: Path) -> None:
    """Drain RESTARTING makes the client come back with the tick that was not answered."""

    async def restart(call: Call) -> None:
        await call.welcome()
        await call.tick()
        await call.drain(inference.Drain.RESTARTING)

    broker = FakeBroker(restart, serve_all)
    async with broker.serve(tmp_path) as address, make_session(address) as session:
        await tick(session, 0)
        await session.aclose()
    assert [received.sequence for received in broker.ticks] == [0, 0]


async def test_finished_run_raises_run_finished(tmp_path: Path) -> None:
    """Drain FINISHED ends the session for good, also as the answer to Hello."""

    async def finish(call: Call) -> None:
        await call.welcome()
        await call.tick()
        await call.drain(inference.Drain.FINISHED)

    async def finished_before(call: Call) -> None:
        await call.hello()
        await call.drain(inference.Drain.FINISHED)

    broker = FakeBroker(finish, finished_before)
    async with broker.serve(tmp_path) as address:
        with pytest.raises(RunFinished):
            await open_and_tick(make_session(address))
        with pytest.raises(RunFinished):
            await make_session(address).open()
    assert broker.connections == 2


async def test_drain_that_came_while_nobody_read_is_seen(tmp_path: Path) -> None:
    """A Drain and the end of the stream may both come between two ticks; the Drain still counts."""
    over = asyncio.Event()

    async def finish_unasked(call: Call) -> None:
        await call.welcome()
        received = await call.tick()
        assert received is not None
        await call.answer(received)
        await call.drain(inference.Drain.FINISHED)
        over.set()
        raise grpclib.exceptions.GRPCError(Status.UNAVAILABLE, "the stream is reset")

    broker = FakeBroker(finish_unasked, fail(Status.INTERNAL, "came back"))
    async with broker.serve(tmp_path) as address:
        session = make_session(address)
        await session.open()
        await tick(session, 0)
        await over.wait()
        for _ in range(100):  # lets the client's loop see the end of the stream
            await asyncio.sleep(0)
        with pytest.raises(RunFinished):
            await tick(session, 1)
        await session.aclose()


@pytest.mark.parametrize("with_status", [False, True], ids=["ok", "error status"])
async def test_drain_just_before_the_end_of_a_grpcio_stream_is_seen(tmp_path: Path, with_status: bool) -> None:
    """Grpcio resets a stream right after its last message; that message still counts."""

    async def session_handler(
        requests: AsyncIterator[inference.ClientMessage], context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[inference.ServerMessage]:
        await anext(requests)
        yield inference.ServerMessage(welcome=inference.Welcome())
        await anext(requests)
        yield inference.ServerMessage(drain=inference.Drain(code=inference.Drain.FINISHED))
        if with_status:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "over")

    handler = grpc.stream_stream_rpc_method_handler(
        session_handler, inference.ClientMessage.FromString, inference.ServerMessage.SerializeToString
    )
    server = grpc.aio.server()
    server.add_generic_rpc_handlers(
        [grpc.method_handlers_generic_handler("seedrl_proto.v1.Inference", {"Session": handler})]
    )
    address = f"unix:{tmp_path / 'broker.sock'}"
    server.add_insecure_port(address)
    await server.start()
    try:
        for _ in range(10):
            session = make_session(address)
            await session.open()
            with pytest.raises(RunFinished):
                await tick(session, 0)
            await session.aclose()
    finally:
        await server.stop(None)


async def test_silence_counts_as_a_dead_connection(tmp_path: Path) -> None:
    """A broker that says nothing while an answer is due is left for a new connection."""
    never = asyncio.Event()

    async def hang(call: Call) -> None:
        await call.welcome()
        await call.tick()
        await never.wait()

    broker = FakeBroker(hang, serve_all)
    async with broker.serve(tmp_path) as address, make_session(address, silence_s=0.1) as session:
        await tick(session, 0)
        await session.aclose()
        never.set()
    assert [received.sequence for received in broker.ticks] == [0, 0]


async def test_a_busy_learner_is_waited_for_without_limit(tmp_path: Path) -> None:
    """Waiting for a busy learner, to be welcomed or to get actions, does not use up the patience for lost peers."""

    async def slow(call: Call) -> None:
        await call.hello()
        for _ in range(6):
            await asyncio.sleep(0.05)
            await call.waiting("the learner has not answered for 1.0 s")
        await call.greet()
        received = await call.tick()
        assert received is not None
        for _ in range(12):
            await asyncio.sleep(0.05)
            await call.waiting("the learner has not answered for 1.0 s")
        await call.answer(received)
        await call.answer_all()

    broker = FakeBroker(slow)
    async with broker.serve(tmp_path) as address:
        await open_and_tick(make_session(address, peer_timeout_s=0.2, silence_s=0.4))
    assert broker.connections == 1


@pytest.mark.parametrize("welcomed", [True, False], ids=["for actions", "for a welcome"])
async def test_an_absent_learner_uses_up_patience(tmp_path: Path, welcomed: bool) -> None:
    """A broker without a learner is borne for peer_timeout_s; then the error says what the broker said."""
    over = asyncio.Event()

    async def without_learner(call: Call) -> None:
        if welcomed:
            await call.welcome()
            await call.tick()
        else:
            await call.hello()
        while not over.is_set():
            await call.waiting("learner is not there: connection refused")
            await asyncio.sleep(0.02)

    broker = FakeBroker(without_learner)
    async with broker.serve(tmp_path) as address:
        session = make_session(address, peer_timeout_s=0.3)
        with pytest.raises(PeerLost, match=r"gave up after 0.3 s: .*learner is not there: connection refused"):
            await open_and_tick(session)
        over.set()
    assert broker.connections == 1


async def test_an_absent_broker_is_given_up(tmp_path: Path) -> None:
    """Where nobody listens, the client tries again until its patience ends, and names the address."""
    with pytest.raises(PeerLost, match=r"gave up after 0.1 s: .*nobody\.sock"):
        await make_session(f"unix:{tmp_path / 'nobody.sock'}", peer_timeout_s=0.1).open()


async def test_the_next_broker_takes_over_from_one_that_is_gone(tmp_path: Path) -> None:
    """Of several addresses they are tried in turn; the session goes on, with its unanswered tick, where one answers."""

    async def leave_on_second_tick(call: Call) -> None:
        await call.welcome()
        first = await call.tick()
        assert first is not None
        await call.answer(first)
        await call.tick()
        call.drop()

    first, second = FakeBroker(leave_on_second_tick), FakeBroker(serve_all)
    nobody = f"unix:{tmp_path / 'nobody.sock'}"
    async with (
        first.serve(tmp_path, "first") as one,
        second.serve(tmp_path, "second") as other,
        make_session(f"{nobody},{one}, {other}") as session,
    ):
        for t in range(3):
            await tick(session, t)
    assert [received.sequence for received in first.ticks] == [0, 1]
    assert [received.sequence for received in second.ticks] == [1, 2]
    assert first.hellos == second.hellos


async def test_a_broker_without_a_learner_is_left_for_another(tmp_path: Path) -> None:
    """Where there is another broker, one whose learner has been away for 10 s counts as gone, and not before."""
    over = asyncio.Event()

    async def lose_the_learner(call: Call) -> None:
        await call.welcome()
        await call.tick()
        for waited_s in (1.0, 9.9, 10.0):
            await call.waiting("learner is not there: connection refused", waited_s)
        await over.wait()

    first, second = FakeBroker(lose_the_learner), FakeBroker(serve_all)
    async with first.serve(tmp_path, "first") as one, second.serve(tmp_path, "second") as other:
        async with make_session(f"{one},{other}") as session:
            await tick(session, 0)
        over.set()
    assert [received.sequence for received in second.ticks] == [0]


async def test_a_full_learner_is_tried_again(tmp_path: Path) -> None:
    """RESOURCE_EXHAUSTED on Hello is retried until there is room."""
    broker = FakeBroker(
        fail(Status.RESOURCE_EXHAUSTED, "no free slots"), fail(Status.RESOURCE_EXHAUSTED, "no free slots"), serve_all
    )
    async with broker.serve(tmp_path) as address, make_session(address) as session:
        await tick(session, 0)
        await session.aclose()
    assert broker.connections == 3


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (Status.INVALID_ARGUMENT, BadRequest),
        (Status.FAILED_PRECONDITION, SpecMismatch),
        (Status.UNIMPLEMENTED, BadRequest),
        (Status.OUT_OF_RANGE, RunFinished),
    ],
)
async def test_refusals_are_raised_at_once(tmp_path: Path, status: Status, error: type[Exception]) -> None:
    """A status that another try cannot help becomes its error."""
    broker = FakeBroker(fail(status, "because"))
    async with broker.serve(tmp_path) as address:
        with pytest.raises(error, match="because|not a broker"):
            await make_session(address).open()
    assert broker.connections == 1


async def test_errors_for_a_tick_are_raised_at_once(tmp_path: Path) -> None:
    """A tick that the learner refuses raises its error, and the session is over."""

    async def refuse(call: Call) -> None:
        await call.welcome()
        await call.tick()
        raise grpclib.exceptions.GRPCError(Status.RESOURCE_EXHAUSTED, "message too large")

    broker = FakeBroker(refuse)
    async with broker.serve(tmp_path) as address:
        session = make_session(address)
        await session.open()
        with pytest.raises(Overloaded, match="message too large"):
            await tick(session, 0)
        with pytest.raises(BadRequest, match="the session is over"):
            await tick(session, 0)
        await session.aclose()
    assert broker.connections == 1


@pytest.mark.parametrize("status", [Status.UNAVAILABLE, Status.UNKNOWN, Status.NOT_FOUND, Status.ABORTED])
async def test_other_statuses_are_tried_again(tmp_path: Path, status: Status) -> None:
    """UNAVAILABLE means: come back; so does every status that the protocol does not name."""
    broker = FakeBroker(fail(status, "starting"), serve_all)
    async with broker.serve(tmp_path) as address, make_session(address) as session:
        await tick(session, 0)
        await session.aclose()
    assert broker.connections == 2


async def test_cancellation_leaves_a_tick_at_once(tmp_path: Path) -> None:
    """A cancelled tick raises CancelledError, and closing still says Goodbye."""
    received = asyncio.Event()

    async def hang(call: Call) -> None:
        await call.welcome()
        await call.tick()
        received.set()
        assert await call.tick() is None

    broker = FakeBroker(hang)
    async with broker.serve(tmp_path) as address:
        task = asyncio.create_task(open_and_tick(make_session(address)))
        await received.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert len(broker.goodbyes) == 1


async def test_wrong_arguments_never_reach_the_broker(tmp_path: Path) -> None:
    """A wrong observation raises before it is sent, and the session goes on."""
    broker = FakeBroker(serve_all)
    async with broker.serve(tmp_path) as address, make_session(address) as session:
        with pytest.raises(BadRequest, match=r"observation: expected float32 \(3, 2\), got float64 \(3, 2\)"):
            await session.tick(np.zeros((NUM_ENVS, 2)), REWARD, np.full(NUM_ENVS, codec.FIRST, np.uint8))
        await tick(session, 0)
        await session.aclose()
    assert len(broker.ticks) == 1


async def test_a_large_tick_passes(tmp_path: Path) -> None:
    """64 Atari frames, more than a flow-control window holds, arrive whole."""
    spec = EnvironmentSpec("Frames-v0", (TensorSpec("observation", np.dtype(np.uint8), (84, 84, 1)),), SPEC.action)
    frames = np.random.default_rng(0).integers(0, 256, (64, 84, 84, 1), np.uint8)
    broker = FakeBroker(serve_all)
    async with broker.serve(tmp_path) as address, Session(address, spec, 64) as session:
        await session.tick(frames, np.zeros(64), np.full(64, codec.FIRST, np.uint8))
        await session.aclose()
    np.testing.assert_array_equal(broker.ticks[0].observation[0], frames)


async def map_and_answer(call: Call) -> None:
    """The act of a broker whose learner is on the client's host."""
    await call.welcome(maps_memory=True)
    await call.answer_all()


async def test_observations_go_through_memory_that_the_learner_maps(tmp_path: Path) -> None:
    """They are in no message, and arrive all the same."""
    broker = FakeBroker(map_and_answer)
    async with broker.serve(tmp_path) as address, make_session(address) as session:
        for t in range(3):
            await tick(session, t)
    assert broker.shared == [True] * 3
    assert [float(received.observation[0].mean()) for received in broker.ticks] == [0.0, 1.0, 2.0]


async def test_memory_is_not_offered_when_switched_off(tmp_path: Path) -> None:
    """With shared_memory=off Hello says nothing of it."""
    broker = FakeBroker(serve_all)
    async with broker.serve(tmp_path) as address:
        await open_and_tick(make_session(address, shared_memory="off"))
    assert [hello.HasField("shared_memory") for hello in broker.hellos] == [False]
    assert broker.shared == [False]


async def test_a_system_without_shared_memory_sends_observations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no region can be made the session works as on another host."""

    def fail_to_make(*_: object) -> None:
        raise OSError("none here")

    monkeypatch.setattr("seedrl_client.session.OwnRegion", fail_to_make)
    broker = FakeBroker(serve_all)
    async with broker.serve(tmp_path) as address:
        await open_and_tick(make_session(address))
    assert (broker.hellos[0].HasField("shared_memory"), broker.shared) == (False, [False])


async def test_a_tick_is_sent_again_as_the_new_connection_takes_it(tmp_path: Path) -> None:
    """Answered by reference, then lost, then inline at a learner elsewhere, then in new memory: always the same."""

    async def drop_second(call: Call) -> None:
        await call.welcome(maps_memory=True)
        first = await call.tick()
        assert first is not None
        await call.answer(first)
        await call.tick()
        call.drop()

    async def drop_third(call: Call) -> None:
        await call.welcome()
        second = await call.tick()
        assert second is not None
        await call.answer(second)
        await call.tick()
        call.drop()

    broker = FakeBroker(drop_second, drop_third, map_and_answer)
    async with broker.serve(tmp_path) as address, make_session(address) as session:
        for t in range(3):
            await tick(session, t)
    assert [received.sequence for received in broker.ticks] == [0, 1, 1, 2, 2]
    assert [float(received.observation[0].mean()) for received in broker.ticks] == [0.0, 1.0, 1.0, 2.0, 2.0]
    assert broker.shared == [True, True, False, False, True]


async def test_a_session_leaves_no_memory_behind(tmp_path: Path) -> None:
    """After it has parted its process has neither a mapping nor a descriptor of its region."""
    broker = FakeBroker(map_and_answer)
    async with broker.serve(tmp_path) as address, make_session(address) as session:
        await tick(session, 0)
        region = os.fstat(broker.hellos[0].shared_memory.fd).st_ino
        assert region in regions_of()
        await session.aclose()
        gc.collect()  # the broker's side is in this process too
        assert region not in regions_of()
