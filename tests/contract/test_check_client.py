"""`seedrl check-client` against the project's own client, right and wrong in one way after the other.

Times that only a wrong client uses up are short; those that a right one must keep are as long as it may take, so that
silence is short only where there is some.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import wrong_clients as wrong
from own_client import NUM_ENVS, OwnClient

from seedrl_core.address import Address
from seedrl_core.codec import FIRST, RESTARTED
from seedrl_core.errors import BadRequest, PeerLost, RunFinished, SpecMismatch
from seedrl_launcher.conformance.check import Check
from seedrl_launcher.conformance.rules import RULES, Findings, Verdict
from seedrl_launcher.conformance.steps import STEPS
from seedrl_launcher.conformance.timing import Timing

SILENCE_S = 3.0
TIMING = Timing(hold_s=0.05, silence_s=SILENCE_S, waiting_interval_s=0.25, absence_s=1.0)
SHORT_SILENCE = {"arguments": {"silence_s": SILENCE_S}}

STEADY = "plays for a while"
CUT = "the connection is cut"
ENDED = "the stream ends without a Drain"
FULL = "the learner is full"
RESTARTS = "the broker restarts"
LONG = "the answer takes long"
SILENT = "nothing comes"
INVALID = "INVALID_ARGUMENT after a tick"
TOO_LARGE = "RESOURCE_EXHAUSTED after a tick"
OUT_OF_RANGE = "OUT_OF_RANGE after a tick"
FINISHED = "the run is finished"
GONE = "the run is finished, and the stream ends"


async def check(client: OwnClient, steps: Sequence[str], timing: Timing = TIMING) -> Findings:
    """The findings about a client from some of the steps."""
    chosen = [step for step in STEPS if step.name in steps]
    assert len(chosen) == len(steps)
    checking = Check(client, timing, chosen)
    code = await checking.run(Address.parse(client.address), asyncio.Event())
    assert code == (1 if checking.findings.rules(Verdict.BROKEN) else 0)
    return checking.findings


def own_client(directory: Path, **arguments: Any) -> OwnClient:
    """The project's client."""
    return OwnClient(f"unix:{directory / 'check.sock'}", **arguments)


def broken(findings: Findings) -> dict[str, Any]:
    """The breaches by rule."""
    return {rule: findings.breaches(rule) for rule in findings.rules(Verdict.BROKEN)}


async def test_the_projects_client_keeps_every_rule(tmp_path: Path) -> None:
    """All rules are exercised, none is broken, and the client is started once for each step that ends it."""
    client = own_client(tmp_path)
    findings = await check(client, [step.name for step in STEPS if step.name not in (LONG, SILENT)])
    waiting = await check(own_client(tmp_path, **SHORT_SILENCE), (LONG, SILENT))
    assert broken(findings) == broken(waiting) == {}
    exercised = set(findings.rules(Verdict.KEPT)) | set(waiting.rules(Verdict.KEPT))
    assert exercised == set(RULES)
    assert client.starts == sum(step.ends_client for step in STEPS)


@dataclass
class Wrong:
    """A client that breaks one rule.

    Attributes:
      rule: that it breaks.
      what: is wrong, for people.
      patch: that makes it so.
      steps: in which it shows.
      timing: other than usual.
      client: other arguments of OwnClient.
    """

    rule: str
    what: str
    patch: wrong.Patch = lambda monkeypatch: None
    steps: tuple[str, ...] = (STEADY,)
    timing: dict[str, float] = field(default_factory=dict)
    client: dict[str, Any] = field(default_factory=dict)


INLINE = {"arguments": {"shared_memory": "off"}}
BRIEF = {"ticks": (10,)}
SOON = {"return_s": 2.0, "exit_s": 0.5}


def hello(change: Callable[[Any], Any], *numbers: int) -> wrong.Patch:
    """A wrong Hello."""
    return wrong.tamper(wrong.change_hello(change, *numbers))


def tick(change: Callable[[Any], Any], *numbers: int) -> wrong.Patch:
    """A wrong tick, number 3 if no other."""
    return wrong.tamper(wrong.change_tick(change, *(numbers or (3,))))


def flags(value: int, number: int) -> wrong.Patch:
    """Wrong flags of one tick."""
    return wrong.tamper(wrong.change_flags(value, number))


WRONG_CLIENTS = [
    Wrong("S1", "says Hello again", wrong.tamper(wrong.second_hello)),
    Wrong("S1", "begins with a tick", wrong.tamper(wrong.tick_first)),
    Wrong("S2", "sends a tick before the answer", wrong.tamper(wrong.early_tick), client=INLINE),
    Wrong("S3", "speaks after Goodbye", wrong.tamper(wrong.speaks_after_goodbye), client=BRIEF),
    Wrong("S3", "leaves without Goodbye", wrong.tamper(wrong.no_goodbye), client=BRIEF),
    Wrong("S4", "sends what is no message", wrong.tamper(wrong.not_a_message)),
    Wrong("S4", "sends an empty message", wrong.tamper(wrong.empty_message)),
    Wrong("H1", "has another version", hello(wrong.set_fields(protocol_version=2))),
    Wrong("H2", "has a short id", hello(wrong.set_fields(session_id=b"12345678"))),
    Wrong("H2", "has the same id in every run", wrong.same_id, (FINISHED, GONE)),
    Wrong("H3", "has no role", hello(wrong.set_fields(role=0))),
    Wrong("H4", "has no environments", hello(wrong.set_fields(num_envs=0))),
    Wrong("H5", "has an unknown dtype", hello(wrong.unknown_dtype)),
    Wrong("H6", "has an unbounded action", hello(wrong.unbounded_action)),
    Wrong("H7", "has a mask of another size", hello(wrong.small_mask)),
    Wrong("H8", "has two specs", hello(wrong.other_spec, 1), (STEADY, FINISHED), client={"ticks": (5, None)}),
    Wrong("T1", "skips a number", tick(wrong.skip_a_number)),
    Wrong("T2", "sends a short leaf", tick(wrong.shorten_leaf), client=INLINE),
    Wrong("T3", "sends a reward too few", tick(wrong.set_fields(reward=bytes(4)))),
    Wrong("T3", "sends a flag too many", tick(wrong.set_fields(flags=bytes(NUM_ENVS + 1)))),
    Wrong("T4", "sends a reward that is no number", tick(wrong.set_fields(reward=wrong.NAN * NUM_ENVS))),
    Wrong("T4", "sends an observation that is none", tick(wrong.break_leaf(0, wrong.NAN)), client=INLINE),
    Wrong("T4", "sends 2 for a boolean", tick(wrong.break_leaf(1, b"\x02")), client=INLINE),
    Wrong("T5", "reports an episode of no environment", tick(wrong.add_episode(env=NUM_ENVS))),
    Wrong("T5", "reports an info that is no map", tick(wrong.add_episode(info=b"\x93"))),
    Wrong("T6", "forbids every action", tick(wrong.forbid_all), client=INLINE),
    Wrong("F1", "begins without FIRST", flags(0, 0)),
    Wrong("F2", "goes on after an ending", flags(0, 5)),
    Wrong("F3", "ends an episode with its first tick", wrong.tamper(wrong.end_at_first_tick)),
    Wrong("F4", "is RESTARTED without FIRST", flags(RESTARTED, 2)),
    Wrong("F4", "sets an unknown bit", flags(16, 2)),
    Wrong("F5", "begins an episode amid another", flags(FIRST, 2)),
    Wrong("M1", "offers a region that is not its own", wrong.foreign_region),
    Wrong("M2", "refers to memory that was not accepted", tick(wrong.refer_to_nothing), client=INLINE),
    Wrong("M3", "refers to the header", tick(wrong.refer_to_header)),
    Wrong("M4", "has one generation", wrong.same_generation),
    Wrong("M5", "writes before the answer", wrong.overwrite_after(TIMING.hold_s / 2)),
    Wrong(
        "W1",
        "does not bear with Waiting",
        steps=(LONG,),
        timing={"waiting_interval_s": 2.0},
        client={"arguments": {"silence_s": 0.5}},
    ),
    Wrong("D1", "stays after a Drain", wrong.ignore_drain, (RESTARTS,), {"drain_grace_s": 0.3}),
    Wrong("D2", "comes back to a finished run", wrong.drains_mean(PeerLost), (FINISHED,), SOON),
    Wrong("D2", "fails when the run is finished", wrong.fail_at_the_end, (FINISHED,)),
    Wrong("D3", "gives up a broker that restarts", wrong.drains_mean(RunFinished), (RESTARTS,), SOON),
    Wrong("D4", "overlooks a Drain", wrong.ignore_drain, (GONE,), SOON),
    Wrong("R1", "gives up after a cut", wrong.never_retry, (CUT,), SOON),
    Wrong("R2", "gives up after the stream's end", wrong.never_retry, (ENDED,), SOON),
    Wrong("R3", "bears with silence", steps=(SILENT,), timing=SOON),
    Wrong("R3", "leaves a silent connection open", wrong.keep_open, (SILENT,), SOON, SHORT_SILENCE),
    Wrong("R4", "comes back in a storm", wrong.retry_in_a_storm, (CUT,)),
    Wrong("R5", "comes back as another actor", hello(wrong.set_fields(actor_id="another"), 1), (FULL,)),
    Wrong("R6", "sends another tick than the unanswered", tick(wrong.set_fields(env_ms=9.0), 1), (FULL,)),
    Wrong("R6", "skips the unanswered tick", tick(wrong.skip_a_number, 1), (FULL,)),
    Wrong("E1", "retries what was refused", wrong.statuses_mean(PeerLost), (INVALID,), SOON),
    Wrong("E1", "retries a refused Hello", wrong.statuses_mean(PeerLost), ("FAILED_PRECONDITION after Hello",), SOON),
    Wrong("E1", "retries at no broker", wrong.statuses_mean(PeerLost), ("UNIMPLEMENTED after Hello",), SOON),
    Wrong("E1", "retries at a bug", wrong.statuses_mean(PeerLost), ("INTERNAL after a tick",), SOON),
    Wrong("E2", "gives up at a full learner", wrong.full_is_refused, (FULL,), SOON),
    Wrong("E3", "retries a tick that is too large", wrong.statuses_mean(PeerLost), (TOO_LARGE,), SOON),
    Wrong("E4", "comes back to a finished run", wrong.statuses_mean(PeerLost), (OUT_OF_RANGE,), SOON),
    Wrong("E4", "fails at a finished run", wrong.statuses_mean(BadRequest), (OUT_OF_RANGE,)),
]


@pytest.mark.parametrize("client", WRONG_CLIENTS, ids=[f"{one.rule} {one.what}" for one in WRONG_CLIENTS])
async def test_a_wrong_client_breaks_its_rule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, client: Wrong) -> None:
    """It breaks that rule and no other, and the finding says what was expected and what came."""
    client.patch(monkeypatch)
    findings = await check(
        own_client(tmp_path, **client.client), client.steps, dataclasses.replace(TIMING, **client.timing)
    )
    assert list(broken(findings)) == [client.rule], broken(findings)
    assert all(breach.expected and breach.got for breach in findings.breaches(client.rule))


def test_there_is_a_wrong_client_for_every_rule() -> None:
    """No rule goes without a test that can break it."""
    assert {one.rule for one in WRONG_CLIENTS} == set(RULES)


async def test_nobody_connects(tmp_path: Path) -> None:
    """A client that never comes is an error, not a client without a fault."""
    checking = Check(None, Timing(connect_s=0.05))
    with pytest.raises(PeerLost, match="no client has connected"):
        await checking.run(Address(path=str(tmp_path / "check.sock")), asyncio.Event())


async def test_somebody_elses_client_is_waited_for(tmp_path: Path) -> None:
    """Without a command the check goes on with whoever connects next, and ends when nobody does any more."""
    client = own_client(tmp_path)
    ends = [step for step in STEPS if step.ends_client][:2]
    checking = Check(None, dataclasses.replace(TIMING, connect_s=5.0), ends)
    running = asyncio.create_task(checking.run(Address.parse(client.address), asyncio.Event()))
    for _ in ends:
        with pytest.raises((BadRequest, SpecMismatch)):
            await client.play(None)
    assert await running == 0
    assert checking.todo == []


async def test_a_stop_ends_client_and_check(tmp_path: Path) -> None:
    """What the client does because it is stopped amid a step counts as no breach."""
    client, stop = own_client(tmp_path), asyncio.Event()
    checking = Check(client, TIMING, [step for step in STEPS if step.name == LONG])
    running = asyncio.create_task(checking.run(Address.parse(client.address), stop))
    while not checking.findings.times("T1")[0]:
        await asyncio.sleep(0)
    stop.set()
    assert await running == 0
    assert broken(checking.findings) == {}
    assert client.stopped
