"""Levels of DeepMind Lab through real actors, on a stand-in for its module: a process for each, and how they end."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest
from fakes import FakeBroker, serve_all
from in_process_training import InProcess

from seedrl_actor import environments
from seedrl_actor.dmlab_environment import word_ids
from seedrl_actor.gym_vector import GymVector
from seedrl_actor.isolated_vector import IsolatedVector
from seedrl_core.config import ActorConfig
from seedrl_core.spec import INSTRUCTION

FAKE = Path(__file__).parents[1] / "fake_deepmind_lab"
INSTRUCTED = "dmlab/language_select_located_object"
WORDS = "pick up the red ball then hat"  # of its instruction, each once


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that are started find the stand-in."""
    monkeypatch.setenv("PYTHONPATH", str(FAKE), prepend=os.pathsep)


async def run_actor(address: str, env_id: str, *flags: str) -> tuple[int | None, str]:
    """Exit code and standard error of a real `seedrl-actor`."""
    command = [sys.executable, "-m", "seedrl_actor", "--broker", address, "--env-id", env_id, *flags]
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    _, stderr = await process.communicate()
    return process.returncode, stderr.decode()


@pytest.mark.usefixtures("installed")
async def test_an_actor_plays_a_level(tmp_path: Path) -> None:
    """Whole episodes, with action repeat and instruction in the spec, go to the broker and into the results."""
    broker, results = FakeBroker(serve_all), tmp_path / "results.jsonl"
    async with broker.serve(tmp_path) as address:
        flags = ("--num-envs", "2", "--episodes", "4", "--results", str(results), "--set", "actor.sessions=1")
        code, stderr = await run_actor(address, INSTRUCTED, *flags)
    assert code == 0, stderr
    lines = [json.loads(line) for line in results.read_text().splitlines()]
    assert [(line["return"], line["length"]) for line in lines] == [(55.0, 3)] * 4
    (hello,) = broker.hellos
    assert hello.spec.action_repeat == 4
    instruction = [leaf.path for leaf in hello.spec.observation].index(INSTRUCTION)
    first = broker.ticks[0].observation[instruction]
    assert np.count_nonzero(first) == 2 * 9
    assert all((tick.observation[instruction] == first).all() for tick in broker.ticks)


@pytest.mark.usefixtures("installed")
async def test_a_missing_map_is_told(tmp_path: Path) -> None:
    """The Lab ends its process without a word: the actor's last line has the exit code, the reason and the level."""
    async with FakeBroker(serve_all).serve(tmp_path) as address:
        kwargs = ("--set", "actor.env_kwargs={instruction=true}")
        code, stderr = await run_actor(address, "dmlab/tests/no_map", "--num-envs", "1", *kwargs)
    assert code == 1, stderr
    (line,) = [line for line in stderr.splitlines() if line.startswith("error: ")]
    assert "its process ended with exit code 1, as DeepMind Lab does where it has no map of the level" in line
    assert "dmlab/tests/no_map" in line
    assert "Traceback" not in stderr


@pytest.mark.usefixtures("installed")
def test_the_words_of_an_instruction_are_learned() -> None:
    """The default network takes image and instruction; training changes the vectors of the words that were read."""
    settings = {"actor__env_kwargs": {"width": 40, "height": 36}, "learner__unroll_length": 4}
    run = InProcess(INSTRUCTED, 64, 2, learner__batch_unrolls=2, **settings)
    network = run.machinery.agent.network
    assert len(network.core_state_sizes) == 2
    (vectors,) = [variable for variable in network.trainable_variables if variable.shape == [1000, 20]]
    before = vectors.numpy()
    run.train()
    changed = np.flatnonzero((vectors.numpy() != before).any(axis=1))
    assert set(changed) == set(word_ids(WORDS)) - {0}


@pytest.mark.usefixtures("installed")
def test_each_level_has_a_process_unless_told_otherwise() -> None:
    """So that one which ends it costs itself alone; actor.envs_per_process decides where it is set."""
    apart = environments.make(ActorConfig(env_id="dmlab/rooms_watermaze"), 0, 2, 1)
    try:
        assert isinstance(apart, IsolatedVector)
        assert len(set(apart.pids)) == 2
    finally:
        apart.close()


@pytest.mark.parametrize(
    ("env_id", "setting", "size"),
    [
        ("dmlab/lt_chasm", None, 1),
        ("dmlab_gym/lt_chasm-v0", None, 1),
        ("dmlab/lt_chasm", 0, 0),
        ("dmlab/lt_chasm", 4, 4),
        ("CartPole-v1", None, 0),
        ("CartPole-v1", 1, 1),
    ],
)
def test_environments_in_a_process(env_id: str, setting: int | None, size: int) -> None:
    """One of DeepMind Lab, none of others; what is set stays."""
    assert environments.envs_per_process(ActorConfig(env_id=env_id, envs_per_process=setting)) == size


def test_other_environments_stay_in_the_process_of_the_actor() -> None:
    """As before, where nothing is set."""
    vector = environments.make(ActorConfig(env_id="CartPole-v1"), 0, 1, 1)
    assert isinstance(vector, GymVector)
    assert vector.spec.action_repeat == 1
    vector.close()
