"""The services of a local run: how they are called, what ends a run, and the order in which they stop."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from seedrl_core.config import load_settings
from seedrl_core.errors import ConfigError, ServiceFailed
from seedrl_launcher.actor_fleet import ActorFleet
from seedrl_launcher.kept_process import KeptProcess, RestartBudget
from seedrl_launcher.processes import Process
from seedrl_launcher.services import Addresses, LocalServices, actor_process

WAITS = "signal.pause()"


def service(tmp_path: Path, name: str, last: str) -> Process:
    """A process that notes when it is up and when it got SIGTERM, then does `last` once up."""
    events = tmp_path / "events"
    code = (
        "import signal, sys, time\n"
        f"def note(what): open({str(events)!r}, 'a').write({name!r} + ' ' + what + '\\n')\n"
        "def end(*_): note('ended'); sys.exit(0)\n"
        f"signal.signal(signal.SIGTERM, end); note('up')\n{last}"
    )
    return Process(name, [sys.executable, "-c", code], tmp_path / f"{name}.log")


def events(tmp_path: Path) -> list[str]:
    """What the services have noted so far."""
    path = tmp_path / "events"
    return path.read_text().splitlines() if path.exists() else []


def after_all_up(tmp_path: Path, last: str, num_up: int = 3) -> str:
    """Code that does `last` once all services are up, or have been started so often."""
    return f"while open({str(tmp_path / 'events')!r}).read().count('up') < {num_up}: time.sleep(0.01)\n{last}"


def local(
    tmp_path: Path, limit: int = 0, learner: str = WAITS, broker: str = WAITS, actor: str = WAITS, other: str = ""
) -> LocalServices:
    """Services that do what is given once they are up; each may be started again `limit` times."""

    def kept(name: str, last: str, may_end: bool = True) -> KeptProcess:
        budget = RestartBudget(limit)
        return KeptProcess(service(tmp_path, name, last), lambda: True, print, budget, may_end=may_end)

    def tell(line: str) -> None:
        with (tmp_path / "events").open("a") as file:
            file.write(line.partition(" up")[0] + "\n")  # "up" is what services note

    actors = [kept("actor", actor), *([kept("other", other)] if other else [])]
    return LocalServices(
        kept("learner", learner), kept("broker", broker, False), ActorFleet(actors, tell), learner_grace_s=20.0
    )


async def stopped_once_up(services: LocalServices, tmp_path: Path, num_events: int = 3) -> bool:
    """Runs the services and asks them to stop once they have noted `num_events` events."""
    stop = asyncio.Event()
    running = asyncio.create_task(services.run(stop))
    async with asyncio.timeout(20):
        while len(events(tmp_path)) < num_events:
            await asyncio.sleep(0.02)
    stop.set()
    return await running


async def test_stop_ends_actors_before_the_learner(tmp_path):
    """When asked to stop, actors end first, so that the learner's last checkpoint has everything; none is left."""
    assert await stopped_once_up(local(tmp_path), tmp_path) is False
    ended = [line for line in events(tmp_path) if line.endswith("ended")]
    assert ended[0] == "actor ended"
    assert set(ended) == {"actor ended", "learner ended", "broker ended"}


async def test_a_learner_that_is_done_ends_the_run(tmp_path):
    """A learner's success is the run's; actors that go by themselves are not asked to."""
    ends = after_all_up(tmp_path, "sys.exit(0)")
    assert await local(tmp_path, learner=ends, actor=ends).run(asyncio.Event()) is True
    assert [line for line in events(tmp_path) if line.endswith("ended")] == ["broker ended"]


@pytest.mark.parametrize("who", ["learner", "broker", "actor"])
async def test_a_service_that_fails_ends_the_run(tmp_path, who):
    """The failure names the service and its own error; the others are stopped."""
    with pytest.raises(ServiceFailed, match=f"{who} ended with exit code 1: disk on fire"):
        await local(tmp_path, **{who: after_all_up(tmp_path, "sys.exit('error: disk on fire')")}).run(asyncio.Event())
    ended = {line.split()[0] for line in events(tmp_path) if line.endswith("ended")}
    assert ended == {"learner", "broker", "actor"} - {who}


@pytest.mark.parametrize("who", ["learner", "broker", "actor"])
async def test_a_service_that_is_killed_is_started_again(tmp_path, who):
    """The run goes on with the same other services and ends with success."""
    dies_first = f"import os\nif open({str(tmp_path / 'events')!r}).read().count({who + ' up'!r}) == 1: "
    victim = {who: after_all_up(tmp_path, f"{dies_first}os.kill(os.getpid(), 9)\n{WAITS}")}
    if who == "learner":
        victim[who] = victim[who].replace(WAITS, "sys.exit(0)")
        ends = {}
    else:
        ends = {"learner": after_all_up(tmp_path, "sys.exit(0)", num_up=4)}
    assert await local(tmp_path, limit=1, **victim, **ends).run(asyncio.Event()) is True
    up = [line.split()[0] for line in events(tmp_path) if line.endswith("up")]
    assert sorted(up) == sorted(["learner", "broker", "actor", who])


async def test_a_broker_that_ends_by_itself_is_started_again(tmp_path):
    """Exit code 0 is the end of a run where it is the learner's, and a failure where it is the broker's."""
    ends = after_all_up(tmp_path, "sys.exit(0)")
    with pytest.raises(ServiceFailed, match="broker is given up: it failed 2 times. Its first failure: .* exit code 0"):
        await local(tmp_path, limit=1, broker=ends).run(asyncio.Event())


async def test_a_run_that_went_on_without_an_actor_does_not_end_with_success(tmp_path):
    """An actor's spent budget stops nothing else; its first failure is the run's once the learner is done."""
    breaks = after_all_up(tmp_path, "sys.exit('error: no display')", num_up=4)
    ends = f"while 'is given' not in open({str(tmp_path / 'events')!r}).read(): time.sleep(0.01)\nsys.exit(0)"
    services = local(tmp_path, limit=1, learner=ends, actor=breaks, other=WAITS)
    with pytest.raises(ServiceFailed, match="actor is given up: it failed 2 times.*no display") as failure:
        await services.run(asyncio.Event())
    assert failure.value.exit_code == 1
    assert {line.split()[0] for line in events(tmp_path) if line.endswith("ended")} == {"other", "broker"}


async def test_a_learner_that_cannot_save_fails_the_stop(tmp_path):
    """A learner that ends with an error when asked to stop is reported, not taken for a clean end."""
    refuses = (
        f"def refuse(*_): sys.exit('error: disk full')\nsignal.signal(signal.SIGTERM, refuse); note('set'); {WAITS}"
    )
    with pytest.raises(ServiceFailed, match="disk full"):
        await stopped_once_up(local(tmp_path, learner=refuses), tmp_path, num_events=4)


def test_services_meet_on_sockets_unless_the_settings_name_addresses(tmp_path):
    """The default is a Unix socket; an address of the user's own is used as it is."""
    settings = load_settings(overrides={"broker.listen": "0.0.0.0:50099"})
    addresses = Addresses.choose(settings, tmp_path)
    assert addresses == Addresses(learner=f"unix:{tmp_path}/learner.sock", broker="0.0.0.0:50099")


def test_actors_differ_in_index_and_log(tmp_path):
    """Every actor has its own number, which separates their seeds, and its own log."""
    config = load_settings(overrides={"actor.env_id": "CartPole-v1"}).actor
    actors = [actor_process(tmp_path / "c", Addresses("unix:l", "unix:b"), tmp_path, config, i) for i in range(2)]
    assert [actor.log_file.name for actor in actors] == ["actor-0.log", "actor-1.log"]


def test_actors_may_have_an_interpreter_of_their_own(tmp_path, monkeypatch):
    """actor.python starts them, from any directory; a file that cannot be run is refused by name."""
    monkeypatch.chdir(tmp_path)
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\n")
    config = load_settings(overrides={"actor.python": "python"}).actor
    assert config.python == python
    with pytest.raises(ConfigError, match=f"actor.python: expected an interpreter that can be run, got {python}"):
        actor_process(tmp_path / "c", Addresses("unix:l", "unix:b"), tmp_path, config, 0)
    python.chmod(0o700)
    monkeypatch.chdir("/")
    assert actor_process(tmp_path / "c", Addresses("unix:l", "unix:b"), tmp_path, config, 0).command[0] == str(python)
