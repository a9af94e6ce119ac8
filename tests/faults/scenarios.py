"""The faults: what is done to which service or link, and what must have come of it when it is over."""

from __future__ import annotations

import asyncio
import functools
import json
import signal
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from faults.levels import Level
from faults.proxy import Proxy
from faults.supervised import Supervised
from faults.system import NUM_ENVS, SESSIONS, System
from metrics_page import log_lines

from seedrl_client.session import SILENCE_S

RECOVERY_S = 5.0
GROWTH_MIB = 32.0
# Longest that grpcio's keep-alive, as it is set, takes to find a dead connection; it may be sooner.
KEEPALIVE_S = 20.0
LONG_S = 20.0
SHORT_S = 5.0
DELAY_S = 0.2
SLOW_BYTES_PER_S = 500.0
CLOCK_JUMP_S = 3600


class Cost(IntEnum):
    """What a fault costs the environments of an actor, from least to most."""

    NOTHING = 0
    REOPENED = 1
    ANEW = 2

    @property
    def words(self) -> str:
        """For people."""
        return {
            Cost.NOTHING: "nothing is lost",
            Cost.REOPENED: "sessions are opened again, environments go on mid-episode",
            Cost.ANEW: "its environments begin anew",
        }[self]


@dataclass(frozen=True)
class Recovery:
    """What a fault did cost the actor of the upper row, and the seconds from its end until all was as before."""

    cost: Cost
    seconds: float


@dataclass(frozen=True)
class Fault:
    """One fault.

    Attributes:
      what, where: for people.
      strike: does it, and returns at its end.
      cost: the most that it may cost the actor of the upper row.
      exits: the exit codes that it causes, by service.
      spares_others: the lower row goes on as if nothing were.
      limit_s: most seconds from its end until all is as before.
      skip: says why it cannot be done here, if so.
      afterwards: waits for what must happen in the end besides.
    """

    what: str
    where: str
    strike: Callable[[System], Awaitable[None]]
    cost: Cost
    exits: Mapping[str, list[int]] = field(default_factory=dict)
    spares_others: bool = True
    limit_s: float = RECOVERY_S
    skip: Callable[[System], str] = lambda _: ""
    afterwards: Callable[[System], Awaitable[None]] | None = None


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


def _of_service(service: str) -> list[Fault]:
    on = functools.partial(Fault, where=service, spares_others=service != "learner")
    is_actor = service == "actor"
    restarted = Cost.ANEW if is_actor else Cost.REOPENED
    killed = {service: [-signal.SIGKILL]}

    def here(strike: Callable[..., Awaitable[None]], *arguments: float) -> Callable[[System], Awaitable[None]]:
        return functools.partial(strike, service, *arguments)

    return [
        on("kill -9, started again by its supervisor", strike=here(kill), cost=restarted, exits=killed),
        on("SIGTERM, started again at its address", strike=here(terminate), cost=restarted, exits={service: [0]}),
        on(f"SIGSTOP for {LONG_S:g} s", strike=here(suspend, LONG_S), cost=Cost.REOPENED),
        on("hangs, is replaced, is killed", strike=replace_hung_actor, cost=restarted)
        if is_actor
        else on("hangs, is killed, is replaced", strike=here(replace_hung_server), cost=restarted, exits=killed),
    ]


def _of_link(link: str, found_s: float) -> list[Fault]:
    lost, kept = (functools.partial(Fault, where=link, cost=way) for way in (Cost.REOPENED, Cost.NOTHING))

    def here(strike: Callable[..., Awaitable[None]], *arguments: str) -> Callable[[System], Awaitable[None]]:
        return functools.partial(strike, link, *arguments)

    return [
        lost(f"cut for {LONG_S:g} s", strike=here(cut)),
        kept(f"{1000 * DELAY_S:g} ms late for {SHORT_S:g} s", strike=here(delay)),
        kept(f"{SLOW_BYTES_PER_S:g} bytes/s for {SHORT_S:g} s", strike=here(slow_down)),
        lost("half-closed towards the client", strike=here(half_close, "client")),
        lost("half-closed towards the server", strike=here(half_close, "server")),
        lost("reset", strike=here(reset)),
        lost(f"dead without a word, found within {found_s:g} s", strike=here(forget), limit_s=found_s + RECOVERY_S),
    ]


FAULTS = [
    *(fault for service in ("actor", "broker", "learner") for fault in _of_service(service)),
    *_of_link("actor-broker", SILENCE_S),
    *_of_link("broker-learner", KEEPALIVE_S),
    Fault(
        "gone for good; an actor that has another's address too",
        "broker",
        retire_broker,
        Cost.REOPENED,
        exits={"broker": [0]},
        afterwards=reinstate_broker,
    ),
    Fault(f"training paused for {SHORT_S:g} s", "learner", pause_training, Cost.NOTHING),
    Fault(
        "full disk, space again",
        "learner",
        fill_disk,
        Cost.NOTHING,
        skip=lambda system: "" if system.has_own_disk else "no disk can be mounted here",
        afterwards=until_saved,
    ),
    Fault(
        f"wall clock {CLOCK_JUMP_S} s ahead, then back",
        "all",
        move_clocks,
        Cost.NOTHING,
        skip=lambda system: "" if system.moves_clocks else "there is no C compiler",
    ),
]


async def suffer(fault: Fault, system: System) -> Recovery:
    """Strikes, waits until all is as before, and checks what must be true of any fault.

    Raises:
      AssertionError: says what is not true.
    """
    before = await _Before.of(system)
    await fault.strike(system)
    ended = asyncio.get_running_loop().time()
    await system.until_recovered(await system.mark())
    seconds = asyncio.get_running_loop().time() - ended
    if fault.afterwards is not None:
        await fault.afterwards(system)
    return Recovery(await before.check(fault, system), seconds)


@dataclass(frozen=True)
class _Before:
    """What a system was like when a fault struck."""

    services: dict[str, Supervised]
    exits: dict[str, int]
    levels: dict[str, Level]
    lives: list[int]
    gaps: dict[str, int]

    @classmethod
    async def of(cls, system: System) -> _Before:
        """Now."""
        services = dict(system.services)
        system.evidence.check()
        return cls(
            services,
            {name: len(service.exits) for name, service in services.items()},
            system.levels(),
            list(system.evidence.lives),
            {actor: system.evidence.num_gaps(system.lives_of(actor)) for actor in system.actors},
        )

    async def check(self, fault: Fault, system: System) -> Cost:
        """The end of a fault; gives what it has cost."""
        system.evidence.check()
        cost, of_others = self._cost(system, "actor"), self._cost(system, "other-actor")
        assert cost <= fault.cost, cost.words
        assert of_others is Cost.NOTHING or not fault.spares_others, f"the others noticed: {of_others.words}"
        exits = {name: service.exits[self.exits[name] :] for name, service in self.services.items()}
        assert {name: codes for name, codes in exits.items() if codes} == fault.exits
        await system.until(lambda: self._above_level(system))
        return cost

    def _cost(self, system: System, actor: str) -> Cost:
        lives = system.lives_of(actor)
        if anew := len(set(lives) - set(self.lives)):
            assert anew == NUM_ENVS, f"{anew} environments of {actor} began anew"
            return Cost.ANEW
        return Cost.REOPENED if system.evidence.num_gaps(lives) > self.gaps[actor] else Cost.NOTHING

    async def _above_level(self, system: System) -> str:
        for name, now in system.levels().items():
            was = self.levels[name]
            if now.descriptors > was.descriptors or now.regions != was.regions:
                return f"{name}: a level like that before the fault, {was}; it is {now}"
            if now.resident_mib > was.resident_mib + GROWTH_MIB:
                return f"{name}: less memory than {now.resident_mib:.0f} MiB, it was {was.resident_mib:.0f}"
        return ""
