"""The actor against a scripted broker: what it sends, what it plays, and how its process ends."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakes import Act, Call, FakeBroker, fail, serve_all
from grpclib.const import Status

from seedrl_actor import actor
from seedrl_core.codec import FIRST, LAST, RESTARTED
from seedrl_core.config import ActorConfig
from seedrl_core.errors import ConfigError, PeerLost
from seedrl_proto.v1 import inference_pb2 as inference


def settings(address: str, **overrides: Any) -> ActorConfig:
    """Counter environments for a broker."""
    return ActorConfig(broker=address, env_id="Counter-v0", env_import="counter_environment", **overrides)


async def test_evaluation_plays_the_same_number_of_episodes_everywhere(tmp_path: Path) -> None:
    """Whole episodes are written to the results, evenly over environments, and reported to the broker."""
    broker = FakeBroker(serve_all)
    results = tmp_path / "results.jsonl"
    async with broker.serve(tmp_path) as address:
        config = settings(address, num_envs=3, sessions=2, role="eval", episodes=7, results=results)
        assert await actor.run(config, asyncio.Event()) == 0
    lines = [json.loads(line) for line in results.read_text().splitlines()]
    assert sorted(line["env"] for line in lines) == [0, 0, 0, 1, 1, 2, 2]
    assert all((line["return"], line["length"]) == (10.0, 4) for line in lines)
    assert {hello.role for hello in broker.hellos} == {inference.ROLE_EVAL}
    assert sorted(hello.num_envs for hello in broker.hellos) == [1, 2]
    assert len({hello.session_id for hello in broker.hellos}) == 2
    assert sum(len(tick.episodes) for tick in broker.ticks) == 7
    assert broker.goodbyes == ["done", "done"]


async def test_every_observation_and_reward_is_sent_once_in_order(tmp_path: Path) -> None:
    """The counter's own numbers arrive, with an ending's observation and the reset's in ticks of their own."""
    broker = FakeBroker(serve_all)
    async with broker.serve(tmp_path) as address:
        assert await actor.run(settings(address, num_envs=2, sessions=1, episodes=4), asyncio.Event()) == 0
    assert [tick.observation[0][0, 0] for tick in broker.ticks] == [0, 1, 2, 3, 4, 0, 1, 2, 3, 4]
    np.testing.assert_array_equal([tick.reward[1] for tick in broker.ticks], [0, 1, 2, 3, 4, 0, 1, 2, 3, 4])
    assert [bool(tick.flags[0] & FIRST) for tick in broker.ticks] == [t % 5 == 0 for t in range(10)]
    assert [bool(tick.flags[0] & LAST) for tick in broker.ticks] == [t % 5 == 4 for t in range(10)]


async def test_a_finished_run_ends_the_actor_with_success(tmp_path: Path) -> None:
    """One session's Drain FINISHED is enough, even when another session's broker has nothing to say."""
    over = asyncio.Event()

    async def finish(call: Call) -> None:
        await call.welcome()
        await call.tick()
        await call.drain(inference.Drain.FINISHED)

    async def hang(call: Call) -> None:
        await call.welcome()
        await call.tick()
        await over.wait()

    broker = FakeBroker(finish, hang)
    async with broker.serve(tmp_path) as address:
        assert await actor.run(settings(address, num_envs=2, sessions=2), asyncio.Event()) == 0
        over.set()


async def test_stop_parts_from_a_broker_that_does_not_answer(tmp_path: Path) -> None:
    """A stop during an unanswered tick says Goodbye and ends with success."""
    received, stop = asyncio.Event(), asyncio.Event()

    async def hang(call: Call) -> None:
        await call.welcome()
        await call.tick()
        received.set()
        assert await call.tick() is None

    broker = FakeBroker(hang)
    async with broker.serve(tmp_path) as address:
        running = asyncio.create_task(actor.run(settings(address, num_envs=1), stop))
        await received.wait()
        stop.set()
        assert await running == 0
    assert len(broker.goodbyes) == 1


async def test_errors_of_a_session_end_the_actor(tmp_path: Path) -> None:
    """A missing environment id and an absent broker are errors that say so."""
    with pytest.raises(ConfigError, match=r"actor\.env_id"):
        await actor.run(ActorConfig(), asyncio.Event())
    lonely = settings(f"unix:{tmp_path / 'nobody.sock'}", num_envs=1, peer_timeout_s=0.05)
    with pytest.raises(BaseExceptionGroup) as caught:
        await actor.run(lonely, asyncio.Event())
    assert caught.group_contains(PeerLost, match="gave up after 0.05 s")


@asynccontextmanager
async def actor_process(address: str, *flags: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A real `seedrl-actor`."""
    command = [sys.executable, "-m", "seedrl_actor", "--broker", address, *flags]
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


COUNTER = ("--env-id", "Counter-v0", "--env-import", "counter_environment", "--num-envs", "2")


@pytest.mark.parametrize(
    ("flags", "act", "code", "message"),
    [
        (("--env-id", "CartPol-v1"), serve_all, 2, "error: actor.env_id: "),
        (("--set", "actor.num_env=3"), serve_all, 2, "error: actor.num_env: unknown key (did you mean num_envs?)"),
        (COUNTER, fail(Status.FAILED_PRECONDITION, "environment spec differs"), 2, "error: environment spec differs"),
        ((*COUNTER, "--set", "actor.peer_timeout_s=0.01"), fail(Status.UNAVAILABLE, "away"), 1, "error: gave up after"),
        ((*COUNTER, "--episodes", "2"), serve_all, 0, ""),
    ],
)
async def test_exit_codes(tmp_path: Path, flags: tuple[str, ...], act: Act, code: int, message: str) -> None:
    """0 for success, 2 where somebody has to change something, 1 otherwise, with one line that says why."""
    async with FakeBroker(act).serve(tmp_path) as address, actor_process(address, *flags) as process:
        _, stderr = await process.communicate()
        assert process.returncode == code, stderr.decode()
        assert message in stderr.decode()
        assert "Traceback" not in stderr.decode()


async def test_an_environment_that_crashes_costs_its_own_slot(tmp_path: Path) -> None:
    """Each has a process: one slot is RESTARTED, the session lives on, all episodes are played."""
    broker = FakeBroker(serve_all)
    kwargs = f'actor.env_kwargs={{how="crash",directory="{tmp_path}"}}'
    flags = ("--env-id", "Faulty-v0", "--env-import", "counter_environment", "--num-envs", "3", "--episodes", "6")
    more = ("--set", kwargs, "--set", "actor.sessions=1", "--set", "actor.envs_per_process=1")
    async with broker.serve(tmp_path) as address, actor_process(address, *flags, *more) as process:
        _, stderr = await process.communicate()
        assert process.returncode == 0, stderr.decode()
    assert len(broker.hellos) == 1
    restarted = {int(env) for tick in broker.ticks for env in np.flatnonzero(tick.flags & RESTARTED)}
    assert len(restarted) == 1
    assert sum(len(tick.episodes) for tick in broker.ticks) == 6
    assert b"was ended by SIGSEGV" in stderr


async def test_sigterm_says_goodbye_even_while_an_environment_hangs(tmp_path: Path) -> None:
    """The process ends by itself with success; the hanging thread does not hold it."""
    received = asyncio.Event()

    async def one_answer(call: Call) -> None:
        await call.welcome()
        tick = await call.tick()
        assert tick is not None
        await call.answer(tick)
        received.set()
        await call.answer_all()

    broker = FakeBroker(one_answer)
    flags = ("--env-id", "Misbehaving-v0", "--env-import", "counter_environment", "--num-envs", "1")
    hang = ("--set", 'actor.env_kwargs={how="hang",at=1}')
    async with broker.serve(tmp_path) as address, actor_process(address, *flags, *hang) as process:
        await received.wait()
        process.send_signal(signal.SIGTERM)
        assert process.stderr is not None
        await process.stderr.read()
        assert await process.wait() == 0
    assert len(broker.goodbyes) == 1


async def test_the_example_environment_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The module of examples/custom_environment registers its id, and its episodes come to an end."""
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "examples" / "custom_environment")
    config = {"env_id": "Corridor-v0", "env_import": "corridor", "env_kwargs": {"length": 3}}
    broker = FakeBroker(serve_all)
    results = tmp_path / "results.jsonl"
    async with broker.serve(tmp_path) as address:
        settings = ActorConfig(broker=address, num_envs=1, episodes=1, results=results, **config)
        assert await actor.run(settings, asyncio.Event()) == 0
    # Alternating actions never arrive: the time limit cuts the episode.
    assert json.loads(results.read_text()) == {"env": 0, "return": pytest.approx(-2.0), "length": 200}
