"""What can be done to a system: each of these does one kind of harm, and returns when that is over."""

from __future__ import annotations

import asyncio
import json
import signal

from faults.proxy import Proxy
from faults.system import NUM_ENVS, SESSIONS, System
from metrics_page import log_lines

LONG_S = 20.0
SHORT_S = 5.0
DELAY_S = 0.2
SLOW_BYTES_PER_S = 500.0
CLOCK_JUMP_S = 3600

# Signals.


async def kill(service: str, system: System) -> None:
    """Kill -9; the supervisor starts it again."""
    system.services[service].send(signal.SIGKILL)
    await system.services[service].until_ready()


async def terminate(service: str, system: System) -> None:
    """SIGTERM, and a start at the same address, as `systemctl restart` does."""
    await system.services[service].stop()
    await system.services[service].start()


async def suspend(service: str, seconds: float, system: System) -> None:
    """SIGSTOP for a while."""
    system.services[service].send(signal.SIGSTOP)
    await asyncio.sleep(seconds)
    system.services[service].send(signal.SIGCONT)


async def replace_hung_server(service: str, system: System) -> None:
    """A server that hangs keeps its address: a second one says so and ends. Once it is killed, one can start there."""
    hung = system.services[service]
    hung.send(signal.SIGSTOP)
    code, words = await hung.call()
    assert (code, words) == (1, f"error: a server already listens on {system.address(service)}")
    hung.send(signal.SIGKILL)
    await hung.until_ready()


async def replace_hung_actor(system: System) -> None:
    """A replacement for an actor that hangs, and so keeps its connections, is served at once."""
    hung = system.services["actor"]
    hung.send(signal.SIGSTOP)
    await system.add_actor("actor").start()

    async def missing() -> str:
        sessions = (await system.status("broker"))["sessions"]
        return "" if sessions == 2 * SESSIONS else f"{2 * SESSIONS} sessions, there are {sessions}"

    await system.until(missing)
    await hung.abandon()


async def retire_broker(system: System) -> None:
    """A broker goes and does not come back, and one of its actors has the address of another besides."""
    both = f"{system.address('broker')},{system.address('other-broker')}"
    await system.add_actor("third-actor", both).start()
    system.actors["third-actor"] = "broker"
    await system.until_recovered(await system.mark())
    await system.services["broker"].stop()
    del system.actors["actor"]
    system.actors["third-actor"] = "other-broker"


async def reinstate_broker(system: System) -> None:
    """All is as it was before, but that the actor with two addresses has come and gone, with its first environments."""
    assert len(system.lives_of("third-actor")) == NUM_ENVS
    await system.services["broker"].start()
    assert await system.services.pop("third-actor").stop() == 0
    del system.actors["third-actor"]
    system.actors["actor"] = "broker"
    await system.until_recovered(await system.mark())


# Links.


async def cut(link: str, system: System) -> None:
    """Nothing passes for a while."""
    proxy = _proxy(link, system)
    proxy.cut()
    await asyncio.sleep(LONG_S)
    proxy.mend()


async def delay(link: str, system: System) -> None:
    """Everything comes late for a while."""
    proxy = _proxy(link, system)
    proxy.delay_s = DELAY_S
    await asyncio.sleep(SHORT_S)
    proxy.delay_s = 0.0


async def slow_down(link: str, system: System) -> None:
    """Next to nothing passes for a while."""
    proxy = _proxy(link, system)
    proxy.bytes_per_s = SLOW_BYTES_PER_S
    await asyncio.sleep(SHORT_S)
    proxy.bytes_per_s = None


async def half_close(link: str, towards: str, system: System) -> None:
    """One direction of each connection ends."""
    _proxy(link, system).half_close(towards)


async def reset(link: str, system: System) -> None:
    """Each connection ends with a reset."""
    _proxy(link, system).reset()


async def forget(link: str, system: System) -> None:
    """Connections die without a word; new ones can be made."""
    _proxy(link, system).forget()


def _proxy(link: str, system: System) -> Proxy:
    return system.to_broker if link == "actor-broker" else system.to_learner


# The learner's surroundings.


async def pause_training(system: System) -> None:
    """The queue of unrolls fills up, and answers wait."""
    await system.set_training(False)
    await asyncio.sleep(SHORT_S)
    await system.set_training(True)


async def fill_disk(system: System) -> None:
    """No space is left for checkpoints and metrics, while training goes on; then there is some again."""
    filler = system.run_dir / "filler"
    num_failures = _count(system, "checkpoint_failed")
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass  # full

    async def missing() -> str:
        return "" if _count(system, "checkpoint_failed") > num_failures else "a checkpoint that cannot be written"

    await system.until(missing)
    await system.until_recovered(await system.mark())
    filler.unlink()


async def until_saved(system: System) -> None:
    """Waits for the next checkpoint; no record of the metrics was spoilt."""
    num_saved = _count(system, "checkpoint_saved")

    async def missing() -> str:
        return "" if _count(system, "checkpoint_saved") > num_saved else "a checkpoint"

    await system.until(missing)
    for line in (system.run_dir / "metrics.jsonl").read_text().splitlines():
        assert "env_steps" in json.loads(line)


async def move_clocks(system: System) -> None:
    """The wall clocks of all services jump ahead, and later back beyond the true time."""
    for offset_s in (CLOCK_JUMP_S, -CLOCK_JUMP_S):
        system.move_clocks(offset_s)
        await system.until_recovered(await system.mark())
    system.move_clocks(0)


def _count(system: System, event: str) -> int:
    return sum(line["event"] == event for line in log_lines(system.services["learner"].log))
