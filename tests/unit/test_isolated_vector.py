"""Environments in processes of their own: real processes, and all that environments can do to them."""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seedrl_actor import environments
from seedrl_actor.environment_process import EnvironmentProcess, Job
from seedrl_actor.environments import Step, VectorEnvironment
from seedrl_actor.isolated_vector import IsolatedVector
from seedrl_core.codec import FIRST, RESTARTED, TERMINATED, TRUNCATED
from seedrl_core.config import ActorConfig
from seedrl_core.errors import BadRequest, EnvironmentFailed, SeedrlError

PATIENCE_S = 100.0


def config(env_id: str = "Counter-v0", **settings: Any) -> ActorConfig:
    """Of environments with a process each, unless told otherwise."""
    return ActorConfig(env_id=env_id, env_import="counter_environment", **{"envs_per_process": 1, **settings})


@contextmanager
def isolated(num_envs: int, **settings: Any) -> Iterator[IsolatedVector]:
    """Environments in processes, which end with the block."""
    vector = environments.make(config(**settings), 0, num_envs, 1)
    assert isinstance(vector, IsolatedVector)
    try:
        yield vector
    finally:
        vector.close()


def act(vector: VectorEnvironment) -> Step:
    """One step, copied."""
    return copied(vector.step((np.full(vector.num_envs, 5, np.int64),)))


def copied(step: Step) -> Step:
    """A step that outlives the next."""
    leaves = tuple(leaf.copy() for leaf in step.observation)
    return Step(leaves, step.reward.copy(), step.flags.copy(), step.episodes, step.restarts)


def play_until(vector: VectorEnvironment, fact: Any) -> list[Step]:
    """Steps up to the one that the fact is true of; how many it takes until a process is up is not known."""
    deadline = time.monotonic() + PATIENCE_S
    steps: list[Step] = []
    while not steps or not fact(steps[-1]):
        assert time.monotonic() < deadline, [step.flags for step in steps[-5:]]
        steps.append(act(vector))
    return steps


def is_running(pid: int) -> bool:
    """True for a process that exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def until_gone(pid: int) -> None:
    """Polls until a process has ended."""
    deadline = time.monotonic() + PATIENCE_S
    while is_running(pid):
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("envs_per_process", [1, 2, 5])
def test_they_step_as_they_would_in_the_actor(envs_per_process: int) -> None:
    """The same seeds, observations, rewards, flags and episodes, however they are spread over processes."""
    settings = {"env_kwargs": {"truncates": True}, "seed": 7}
    here = environments.make_here(config(**settings), 0, 5, 1)
    with isolated(5, envs_per_process=envs_per_process, **settings) as vector:
        assert vector.spec == here.spec
        assert len(set(vector.pids)) == -(-5 // envs_per_process)
        for t in range(12):
            one, other = (copied(here.reset()), copied(vector.reset())) if t == 0 else (act(here), act(vector))
            np.testing.assert_array_equal(one.observation, other.observation)
            np.testing.assert_array_equal(one.reward, other.reward)
            np.testing.assert_array_equal(one.flags, other.flags)
            assert one.episodes == other.episodes


@pytest.mark.parametrize("how", ["exit at once", "crash", "hang", "hang in C"])
def test_one_that_takes_its_process_along_costs_its_own_slot(
    tmp_path: Path, how: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """The others miss no step; the lost one begins anew, RESTARTED, with another seed; its episode is not counted."""
    kwargs = {"how": how, "directory": str(tmp_path)}
    with isolated(3, env_id="Faulty-v0", env_kwargs=kwargs, env_timeout_s=10.0 if "hang" in how else 60.0) as vector:
        steps = [copied(vector.reset())]
        before = set(vector.pids)
        steps += play_until(vector, lambda step: step.restarts)
        (lost,) = np.flatnonzero(steps[-1].flags & RESTARTED)
        seed = steps[0].observation[0][lost, 1]
        steps += play_until(vector, lambda step: step.flags[lost] & TERMINATED)
        assert len(set(vector.pids) & before) == 2
        assert sum(step.restarts for step in steps) == 1
    others = [env for env in range(3) if env != lost]
    for t, step in enumerate(steps):
        assert (step.observation[0][others, 0] == t % 5).all()
        assert not (step.flags[others] & RESTARTED).any()
    flags = [int(step.flags[lost]) for step in steps]
    away = flags.count(FIRST | RESTARTED)
    assert flags == [FIRST, 0, *[FIRST | RESTARTED] * away, 0, 0, 0, TERMINATED]
    assert [int(step.observation[0][lost, 0]) for step in steps[-5:]] == [0, 1, 2, 3, 4]
    assert steps[-1].observation[0][lost, 1] != seed
    assert [episode.env for step in steps for episode in step.episodes if episode.env == lost] == [lost]
    told = capfd.readouterr()
    assert f"environment {lost} (Faulty-v0)" in told.out + told.err
    if how == "hang":
        assert "environment_hangs" in told.out
        assert "in fault" in told.out, "the stack of the process that hangs"


@pytest.mark.parametrize("how", ["raise", "exit"])
def test_one_that_raises_is_replaced_within_its_process(tmp_path: Path, how: str) -> None:
    """It costs its slot one step, and no process."""
    with isolated(2, env_id="Faulty-v0", env_kwargs={"how": how, "directory": str(tmp_path)}) as vector:
        vector.reset()
        before = vector.pids
        steps = [act(vector) for _ in range(3)]
        assert sorted(int(flags) for flags in steps[1].flags) == [0, FIRST | RESTARTED]
        assert [step.restarts for step in steps] == [0, 1, 0]
        assert vector.pids == before


def test_the_environments_of_a_process_share_its_end(tmp_path: Path) -> None:
    """Both of a process begin anew, those of another go on."""
    kwargs = {"how": "exit at once", "directory": str(tmp_path)}
    with isolated(4, env_id="Faulty-v0", env_kwargs=kwargs, envs_per_process=2) as vector:
        vector.reset()
        steps = play_until(vector, lambda step: step.restarts)
        assert steps[-1].restarts == 2
        lost = np.flatnonzero(steps[-1].flags & RESTARTED).tolist()
        assert lost in ([0, 1], [2, 3])


def test_a_spent_budget_tells_the_first_end(tmp_path: Path) -> None:
    """After env_restarts processes the environment is given up; no process is left."""
    kwargs = {"how": "exit at once", "directory": str(tmp_path), "times": 9}
    with isolated(1, env_id="Faulty-v0", env_kwargs=kwargs, env_restarts=1) as vector:
        vector.reset()
        (first,) = vector.pids
        with pytest.raises(EnvironmentFailed) as failure:
            play_until(vector, lambda step: False)
        assert vector.pids == []
    assert str(failure.value) == (
        "environment 0 (Faulty-v0) failed 2 times, the first time with its process ended with exit code 3"
    )
    assert not is_running(first)


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"env_id": "Unbuildable-v0", "env_kwargs": {"how": "raise"}}, BadRequest, "making Unbuildable-v0 failed"),
        ({"env_id": "CartPol-v1"}, BadRequest, "actor.env_id: .*CartPol"),
        ({"env_id": "Unbuildable-v0", "env_kwargs": {"how": "crash"}}, EnvironmentFailed, "ended by SIGSEGV"),
        (
            {"env_id": "Unbuildable-v0", "env_kwargs": {"how": "hang"}, "env_start_timeout_s": 5.0},
            EnvironmentFailed,
            r"no answer for 5 s \(actor.env_start_timeout_s\)",
        ),
        (
            {"env_id": "Misbehaving-v0", "env_kwargs": {"how": "shape", "at": 0}},
            EnvironmentFailed,
            "observation: expec",
        ),
    ],
)
def test_what_cannot_be_built_is_an_error_at_once(
    settings: dict[str, Any], error: type[SeedrlError], message: str
) -> None:
    """The first build is not tried again: its error comes out as without processes, and none is left."""
    with pytest.raises(error, match=message):
        environments.make(config(**settings), 0, 2, 1)
    children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
    commands = [Path(f"/proc/{pid}/cmdline").read_text() for pid in children]
    assert not any("environment_worker" in command for command in commands)


def test_a_broken_spec_ends_the_vector() -> None:
    """A reward that is no number needs a person; another process would not help."""
    with isolated(2, env_id="Misbehaving-v0", env_kwargs={"how": "nan"}) as vector:
        vector.reset()
        act(vector)
        with pytest.raises(EnvironmentFailed, match="environment 0 .*expected a finite float32, got nan"):
            act(vector)


@pytest.mark.parametrize("ending", [TERMINATED, TRUNCATED])
def test_a_process_that_has_played_enough_is_replaced_between_episodes(ending: int) -> None:
    """No step, episode or unroll is lost: FIRST follows an ending, and the old process goes."""
    kwargs = {"truncates": ending == TRUNCATED}
    with isolated(2, env_kwargs=kwargs, env_recycle_episodes=3) as vector:
        steps = [copied(vector.reset())]
        (first, second) = vector.pids
        steps += play_until(vector, lambda step: not {first, second} & set(vector.pids))
        until_gone(first)
        until_gone(second)
    assert len(steps) > 15, "three whole episodes of five ticks come first"
    for t, step in enumerate(steps):
        assert (step.observation[0][:, 0] == t % 5).all()
        assert (step.flags == (FIRST if t % 5 == 0 else ending if t % 5 == 4 else 0)).all()
        assert step.restarts == 0
    seeds = {float(seed) for step in steps for seed in step.observation[0][:, 1]}
    assert len(seeds) >= 4, "each process has a seed of its own"


@pytest.mark.parametrize("how", ["", "hang"])
def test_closing_ends_every_process(tmp_path: Path, how: str) -> None:
    """Also one that hangs in a step that nobody waits for any more."""
    kwargs = {"how": how, "directory": str(tmp_path)} if how else {}
    with isolated(2, env_id="Faulty-v0" if how else "Counter-v0", env_kwargs=kwargs) as vector:
        vector.reset()
        act(vector)
        pids = vector.pids
        assert all(map(is_running, pids))
        for group in vector._groups:
            group.act((np.array([5]),))
    assert not any(map(is_running, pids))


def test_no_process_outlives_a_killed_actor(tmp_path: Path) -> None:
    """After kill -9 of who started it, a process goes at once, even in the middle of a step that hangs."""
    starter = (
        "import sys, time, numpy as np\n"
        "from seedrl_actor import environments\n"
        "from seedrl_core.config import ActorConfig\n"
        f"kwargs = {{'how': 'hang', 'directory': {str(tmp_path)!r}}}\n"
        "config = ActorConfig(env_id='Faulty-v0', env_import='counter_environment', env_kwargs=kwargs,"
        " envs_per_process=1)\n"
        "vector = environments.make(config, 0, 1, 1); vector.reset(); vector.step((np.array([5]),))\n"
        "print(*vector.pids, flush=True)\n"
        "vector.step((np.array([5]),))"
    )
    with subprocess.Popen([sys.executable, "-c", starter], stdout=subprocess.PIPE, text=True) as actor:
        assert actor.stdout is not None
        pid = int(actor.stdout.readline())
        deadline = time.monotonic() + PATIENCE_S
        while not (tmp_path / "fault-0").exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        actor.send_signal(signal.SIGKILL)
    until_gone(pid)


def test_a_stack_is_told_where_many_files_are_open() -> None:
    """As those of hundreds of processes are; numbers from 1024 on are too large for select(2)."""
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < 1200:
        pytest.skip("no more than 1024 files may be open")
    files = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    process = EnvironmentProcess(Job("environment 0", config(), 0, 1, 1))
    try:
        process.tick()
        assert "environment_worker.py" in process._ask_for_stack()
    finally:
        process.kill()
        for file in files:
            os.close(file)


def test_no_process_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line that says why; nothing stays open, and the processes that were started end."""
    started: list[int] = []
    start = subprocess.Popen

    def once(*args: Any, **kwargs: Any) -> Any:
        if started:
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        process = start(*args, **kwargs)
        started.append(process.pid)
        return process

    monkeypatch.setattr(subprocess, "Popen", once)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(EnvironmentFailed, match=r"environment 1 \(Counter-v0\): .*Resource temporarily unavailable"):
        environments.make(config(), 0, 2, 1)
    assert len(os.listdir("/proc/self/fd")) == before
    assert not is_running(started[0])
