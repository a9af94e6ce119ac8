"""Environments behind a dm_env_rpc server, over a socket: through the actor's environment layer, and through actors."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dm_env_rpc_worlds import Worlds, serving
from fakes import FakeBroker, serve_all

from seedrl_actor import actor, dm_env_rpc_environment, environments
from seedrl_actor.dm_env_rpc_environment import parse_id
from seedrl_actor.environments import Step, VectorEnvironment
from seedrl_core.address import Address
from seedrl_core.codec import FIRST, RESTARTED, TERMINATED, TRUNCATED
from seedrl_core.config import ActorConfig
from seedrl_core.errors import ConfigError
from seedrl_core.spec import Array


def make(address: str, query: str = "", num_envs: int = 2, **env_kwargs: Any) -> VectorEnvironment:
    """Environments of a server, as the actor makes them."""
    config = ActorConfig(env_id=f"dm_env_rpc://{address}{query}", env_kwargs=env_kwargs)
    return environments.make(config, 0, num_envs, 1)


def actions(t: int, num_envs: int = 2) -> tuple[Array, ...]:
    """Those of step t: the leaves `arm.force` and `move`."""
    return np.full((num_envs, 2), t / 8, np.float32), np.full(num_envs, 5 + t % 3, np.int64)


def play(environment: VectorEnvironment, steps: int) -> list[Step]:
    """Flags, rewards and observations of a reset and so many steps, copied."""
    played = [environment.reset()]
    seen = []
    for t in range(steps + 1):
        step = played[-1]
        copy = tuple(leaf.copy() for leaf in step.observation)
        seen.append(Step(copy, step.reward.copy(), step.flags.copy(), step.episodes))
        if t < steps:
            played.append(environment.step(actions(t)))
    return seen


@pytest.fixture
def address(tmp_path: Path) -> str:
    """Of the server."""
    return f"unix:{tmp_path / 'worlds.sock'}"


@pytest.fixture
def worlds(address: str) -> Any:
    """A server that runs."""
    with serving(address) as serves:
        yield serves


def test_the_spec_is_that_of_the_server(address: str, worlds: Worlds) -> None:
    """Names with points become paths; bounds, dtypes and shapes are the server's; the reward is no observation."""
    spec = make(address).spec
    assert [leaf.describe() for leaf in spec.observation] == [
        "observation/clock/even: int64 ()",
        "observation/clock/step: float32 (1,)",
        "observation/last: float32 (3,)",
        "observation/level: int64 ()",
    ]
    assert [(leaf.describe(), leaf.low, leaf.high) for leaf in spec.action] == [
        ("action/arm/force: float32 (2,)", (-1.0, 0.0), (1.0, 0.5)),
        ("action/move: int64 ()", (5.0,), (7.0,)),
    ]
    assert (spec.observation[3].low, spec.observation[3].high) == ((-2.0,), (2.0,))


@pytest.mark.parametrize(("ends", "flag"), [("terminated", TERMINATED), ("interrupted", TRUNCATED)])
def test_episodes_are_the_sequences_of_the_server(address: str, worlds: Worlds, ends: str, flag: int) -> None:
    """Every reward and observation comes once and in order; an interrupted sequence is a truncated episode."""
    seen = play(make(address, f"?length=2&ends={ends}"), 6)
    assert [step.flags.tolist() for step in seen] == [[f, f] for f in (FIRST, 0, flag, FIRST, 0, flag, FIRST)]
    assert [step.reward.tolist() for step in seen] == [[r, r] for r in (0, 1, 2, 0, 1, 2, 0)]
    assert [step.observation[1][1, 0] for step in seen] == [0, 1, 2, 0, 1, 2, 0]
    assert [step.observation[0][0] for step in seen] == [1, 0, 1, 1, 0, 1, 1]
    assert [(episode.episode_return, episode.length) for episode in seen[2].episodes] == [(3.0, 2)] * 2


def test_actions_arrive_at_their_world(address: str, worlds: Worlds) -> None:
    """In the server's types; the action that answers an ending is not applied."""
    play(make(address, "?length=2"), 5)
    assert len(worlds.worlds) == 2
    for world in worlds.worlds:
        assert [taken["move"] for taken in world.taken] == [5, 6, 5, 6]
        np.testing.assert_array_equal(
            [taken["arm.force"] for taken in world.taken], [[t / 8] * 2 for t in (0, 1, 3, 4)]
        )
        assert world.taken[0]["move"].dtype == np.int32


def test_worlds_are_destroyed_at_the_end(address: str, worlds: Worlds) -> None:
    """Closing leaves nothing behind on the server."""
    environment = make(address)
    environment.reset()
    environment.close()
    assert worlds.destroyed == 2


def test_a_world_that_breaks_is_replaced(address: str, worlds: Worlds) -> None:
    """An error of the server in a step restarts that environment in a world of its own."""
    seen = play(make(address, "?fails_at=2"), 3)
    assert [step.flags.tolist() for step in seen[:3]] == [[FIRST] * 2, [0, 0], [FIRST | RESTARTED] * 2]
    assert len(worlds.worlds) == 4


def test_a_server_that_is_started_again_is_connected_to(address: str) -> None:
    """A connection that breaks costs the episode and nothing else."""
    with serving(address):
        environment = make(address, num_envs=1)
        environment.reset()
        environment.step(actions(0, 1))
    with serving(address) as again:
        assert environment.step(actions(1, 1)).flags.tolist() == [FIRST | RESTARTED]
        assert environment.step(actions(2, 1)).flags.tolist() == [0]
        environment.close()
    assert len(again.worlds) == 1


@pytest.mark.parametrize(
    ("query", "env_kwargs", "message"),
    [
        ("?lenght=3", {}, "no such setting: lenght"),
        ("?bounds=false", {}, r"action move: expected bounds; set actor.env_kwargs.action_bounds.move=\[LOW,HIGH\]"),
        ("?title=true", {}, "observation/title: expected numbers of a fixed shape, got"),
        ("", {"observations": ["nose"]}, "nose"),
        ("?length", {}, r"expected dm_env_rpc://ADDRESS\?name=value&..., got"),
        ("", {"speed": 2}, "speed"),
    ],
)
def test_what_cannot_be_used_is_told(
    address: str, worlds: Worlds, query: str, env_kwargs: dict[str, Any], message: str
) -> None:
    """One error that names what is wrong, whether server or settings say so."""
    with pytest.raises(ConfigError, match=message):
        make(address, query, **env_kwargs)
    assert worlds.destroyed == len(worlds.worlds)


def test_worlds_are_destroyed_when_another_cannot_be_made(
    address: str, worlds: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None of a vector that is not complete is left on the server."""
    monkeypatch.setattr(worlds, "most_worlds", 2)
    with pytest.raises(ConfigError, match="no room for another world"):
        make(address, num_envs=3)
    assert len(worlds.worlds) == worlds.destroyed == 2


def test_bounds_and_observations_may_be_chosen(address: str, worlds: Worlds) -> None:
    """Bounds where the server has none, and fewer observations than it has."""
    spec = make(address, "?bounds=false&title=true", action_bounds={"move": [0, 3]}, observations=["last"]).spec
    assert [leaf.path for leaf in spec.observation] == ["observation/last"]
    assert (spec.action[1].low, spec.action[1].high) == ((0.0,), (3.0,))


def test_nobody_answers(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that is not there is an error that names it."""
    monkeypatch.setattr(dm_env_rpc_environment, "_CONNECT_S", 0.05)
    with pytest.raises(ConfigError, match=f"nobody answers at {address}"):
        make(address)


def test_the_package_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says what to install."""
    monkeypatch.setitem(sys.modules, "seedrl_actor.dm_env_rpc_environment", None)
    with pytest.raises(ConfigError, match=r"pip install 'seedrl\[dm-env-rpc\]'"):
        make("localhost:1")


def test_settings_in_the_id() -> None:
    """Numbers and truth values are what they look like, all else is a text."""
    address, settings = parse_id(
        "dm_env_rpc://[::1]:9000?n=3&x=0.5&on=true&name=easy%20one&digits=%227%22&empty=&nest=[1]"
    )
    assert address == Address("::1", 9000)
    assert settings == {"n": 3, "x": 0.5, "on": True, "name": "easy one", "digits": "7", "empty": "", "nest": "[1]"}


async def test_an_actor_plays_them(tmp_path: Path, address: str, worlds: Worlds) -> None:
    """Whole episodes go to the broker and into the results."""
    broker, results = FakeBroker(serve_all), tmp_path / "results.jsonl"
    async with broker.serve(tmp_path) as broker_address:
        config = ActorConfig(
            broker=broker_address, env_id=f"dm_env_rpc://{address}", num_envs=2, episodes=4, results=results
        )
        assert await actor.run(config, asyncio.Event()) == 0
    lines = [json.loads(line) for line in results.read_text().splitlines()]
    assert [(line["return"], line["length"]) for line in lines] == [(6.0, 3)] * 4
    assert worlds.destroyed == 2
