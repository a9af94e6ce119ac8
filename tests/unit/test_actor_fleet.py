"""Actors of a run: restarts with back-off, budgets, and ends that another start cannot help."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from seedrl_core.errors import ServiceFailed
from seedrl_launcher.actor_fleet import ActorFleet
from seedrl_launcher.kept_process import KeptProcess, RestartBudget
from seedrl_launcher.processes import Process

SLEEPS = "import time; time.sleep(60)"


class QuickBudget(RestartBudget):
    """A budget without waiting."""

    def next_delay_s(self) -> float | None:
        return None if super().next_delay_s() is None else 0.0


def actor(tmp_path: Path, code: str, index: int = 0) -> Process:
    """An actor that runs `code`."""
    return Process(f"actor-{index}", [sys.executable, "-c", code], tmp_path / f"actor-{index}.log")


def fleet(actors: list[Process], *, begun: bool = True, limit: int = 3) -> tuple[ActorFleet, list[str]]:
    """A fleet that restarts at once, and what it tells."""
    told: list[str] = []
    kept = [KeptProcess(actor, lambda: begun, told.append, QuickBudget(limit=limit)) for actor in actors]
    return ActorFleet(kept, told.append), told


def fails_times(path: Path, times: int) -> str:
    """Code that exits with 1 the first `times` times it is run, and with 0 after that."""
    return f"import sys; open({str(path)!r}, 'a').write('x'); sys.exit(len(open({str(path)!r}).read()) <= {times})"


def test_delays_double_up_to_a_limit_and_the_budget_ends():
    """Delays are 1, 2, 4, ... 30 seconds; then the budget is spent, until the first restarts are long ago."""
    now = 0.0
    budget = RestartBudget(limit=7, window_s=600.0, clock=lambda: now)
    assert [budget.next_delay_s() for _ in range(8)] == [1, 2, 4, 8, 16, 30, 30, None]
    now = 601.0
    assert budget.next_delay_s() == 1


async def test_an_actor_that_dies_is_started_again(tmp_path):
    """Two failures are two restarts, each told; the success after them ends the fleet."""
    actors, told = fleet([actor(tmp_path, fails_times(tmp_path / "count", 2))])
    await actors.run()
    assert actors.restarts == 2
    assert [line.split(" (log")[0] for line in told] == ["actor-0 ended with exit code 1"] * 2


async def test_the_rest_goes_on_when_one_actor_is_given_up(tmp_path):
    """An actor with a spent budget leaves the others running; its first failure is told."""
    broken = actor(tmp_path, "import sys, time; sys.exit(f'error: {time.time_ns()}')")
    actors, told = fleet([broken, actor(tmp_path, SLEEPS, 1)], limit=1)
    running = asyncio.create_task(actors.run())
    async with asyncio.timeout(20):
        while len(told) < 2:
            await asyncio.sleep(0.02)
    first_error = broken.log_file.read_text().splitlines()[0].removeprefix("error: ")
    assert told[-1].startswith("actor-0 is given up: it failed 2 times")
    assert told[-1].endswith(first_error)
    assert actors.alive == 1
    assert not running.done()
    await actors.stop(patience_s=0.0, grace_s=20.0)
    with pytest.raises(ServiceFailed, match=first_error):
        await running


async def test_no_actor_left_is_a_failure(tmp_path):
    """When all budgets are spent the fleet ends with the first failure."""
    actors, _ = fleet(
        [actor(tmp_path, "import sys; sys.exit('error: no display')", index) for index in (0, 1)], limit=1
    )
    with pytest.raises(ServiceFailed, match="no display"):
        await actors.run()
    assert actors.restarts == 2


async def test_an_error_that_needs_a_person_is_not_retried(tmp_path):
    """Exit code 2 ends the fleet at once, with the actor's own words and exit code."""
    wrong = actor(tmp_path, "import sys; print('error: unknown env id', file=sys.stderr); sys.exit(2)")
    actors, _ = fleet([wrong, actor(tmp_path, SLEEPS, 1)])
    with pytest.raises(ServiceFailed, match="unknown env id") as caught:
        await actors.run()
    assert caught.value.exit_code == 2
    assert actors.restarts == 0
    await actors.stop(patience_s=0.0, grace_s=20.0)
    assert actors.alive == 0


async def test_a_failure_before_the_first_step_is_not_retried(tmp_path):
    """An actor that fails before the run has made any step ends the fleet, since it would fail again."""
    actors, _ = fleet([actor(tmp_path, fails_times(tmp_path / "count", 1))], begun=False)
    with pytest.raises(ServiceFailed):
        await actors.run()


async def test_a_killed_actor_is_started_again_even_before_the_first_step(tmp_path):
    """A signal from outside is no error of the actor's own: it is started again at any time."""
    mark = tmp_path / "mark"
    code = (
        f"import os, pathlib; p = pathlib.Path({str(mark)!r}); e = p.exists(); p.touch(); e or os.kill(os.getpid(), 9)"
    )
    actors, _ = fleet([actor(tmp_path, code)], begun=False)
    await actors.run()
    assert actors.restarts == 1


async def test_stopping_ends_a_pause_before_a_restart(tmp_path):
    """An actor that waits for its restart is not started any more."""
    told: list[str] = []
    process = actor(tmp_path, "raise SystemExit(1)")
    actors = ActorFleet([KeptProcess(process, lambda: True, told.append, RestartBudget())], told.append)
    running = asyncio.create_task(actors.run())
    async with asyncio.timeout(20):
        while not told:
            await asyncio.sleep(0.02)
    pid = process.pid
    await actors.stop(patience_s=0.0, grace_s=0.0)
    await running
    assert process.pid == pid
