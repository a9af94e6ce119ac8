"""The faults: what is done to which service or link, and what must be true when it is over."""

from __future__ import annotations

import asyncio
import functools
import signal
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from faults import strikes
from faults.levels import Level
from faults.strikes import CLOCK_JUMP_S, DELAY_S, LONG_S, SHORT_S, SLOW_BYTES_PER_S
from faults.supervised import Supervised
from faults.system import NUM_ENVS, System

from seedrl_client.session import SILENCE_S

RECOVERY_S = 5.0
GROWTH_MIB = 32.0
# Longest that grpcio's keep-alive, as it is set, takes to find a dead connection; it may be sooner.
KEEPALIVE_S = 20.0


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


def _of_service(service: str) -> list[Fault]:
    on = functools.partial(Fault, where=service, spares_others=service != "learner")
    is_actor = service == "actor"
    restarted = Cost.ANEW if is_actor else Cost.REOPENED
    killed = {service: [-signal.SIGKILL]}

    def here(strike: Callable[..., Awaitable[None]], *arguments: float) -> Callable[[System], Awaitable[None]]:
        return functools.partial(strike, service, *arguments)

    return [
        on("kill -9, started again by its supervisor", strike=here(strikes.kill), cost=restarted, exits=killed),
        on(
            "SIGTERM, started again at its address",
            strike=here(strikes.terminate),
            cost=restarted,
            exits={service: [0]},
        ),
        on(f"SIGSTOP for {LONG_S:g} s", strike=here(strikes.suspend, LONG_S), cost=Cost.REOPENED),
        on("hangs, is replaced, is killed", strike=strikes.replace_hung_actor, cost=restarted, exits=killed)
        if is_actor
        else on(
            "hangs, is killed, is replaced", strike=here(strikes.replace_hung_server), cost=restarted, exits=killed
        ),
    ]


def _of_link(link: str, found_s: float) -> list[Fault]:
    lost, kept = (functools.partial(Fault, where=link, cost=way) for way in (Cost.REOPENED, Cost.NOTHING))

    def here(strike: Callable[..., Awaitable[None]], *arguments: str) -> Callable[[System], Awaitable[None]]:
        return functools.partial(strike, link, *arguments)

    return [
        lost(f"cut for {LONG_S:g} s", strike=here(strikes.cut)),
        kept(f"{1000 * DELAY_S:g} ms late for {SHORT_S:g} s", strike=here(strikes.delay)),
        kept(f"{SLOW_BYTES_PER_S:g} bytes/s for {SHORT_S:g} s", strike=here(strikes.slow_down)),
        lost("half-closed towards the client", strike=here(strikes.half_close, "client")),
        lost("half-closed towards the server", strike=here(strikes.half_close, "server")),
        lost("reset", strike=here(strikes.reset)),
        lost(
            f"dead without a word, found within {found_s:g} s",
            strike=here(strikes.forget),
            limit_s=found_s + RECOVERY_S,
        ),
    ]


FAULTS = [
    *(fault for service in ("actor", "broker", "learner") for fault in _of_service(service)),
    *_of_link("actor-broker", SILENCE_S),
    *_of_link("broker-learner", KEEPALIVE_S),
    Fault(
        "gone for good; an actor that has another's address too",
        "broker",
        strikes.retire_broker,
        Cost.REOPENED,
        exits={"broker": [0]},
        afterwards=strikes.reinstate_broker,
    ),
    Fault(f"training paused for {SHORT_S:g} s", "learner", strikes.pause_training, Cost.NOTHING),
    Fault(
        "full disk, space again",
        "learner",
        strikes.fill_disk,
        Cost.NOTHING,
        skip=lambda system: "" if system.has_own_disk else "no disk can be mounted here",
        afterwards=strikes.until_saved,
    ),
    Fault(
        f"wall clock {CLOCK_JUMP_S} s ahead, then back",
        "all",
        strikes.move_clocks,
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
        exits = {name: service.exits[self.exits[name] :] for name, service in self.services.items()}
        exits = {name: codes for name, codes in exits.items() if codes}
        assert exits == fault.exits, f"exit codes {exits}, expected {fault.exits}"
        system.evidence.check()
        cost, of_others = self._cost(system, "actor"), self._cost(system, "other-actor")
        assert cost <= fault.cost, cost.words
        assert of_others is Cost.NOTHING or not fault.spares_others, f"the others noticed: {of_others.words}"
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
            if now.descriptors.total() > was.descriptors.total():
                opened, closed = now.descriptors - was.descriptors, was.descriptors - now.descriptors
                return f"{name}: fewer descriptors; since the fault it has opened {opened} and closed {closed}"
            if now.regions != was.regions:
                return f"{name}: {was.regions} regions of shared memory; it has {now.regions}"
            if now.resident_mib > was.resident_mib + GROWTH_MIB:
                return f"{name}: less memory than {now.resident_mib:.0f} MiB, it was {was.resident_mib:.0f}"
        return ""
