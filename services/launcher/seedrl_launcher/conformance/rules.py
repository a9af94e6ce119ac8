"""The rules that docs/protocol.md sets to clients, and what was found about each. Knows neither messages nor gRPC."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

# By the names that docs/protocol.md gives them, in its words.
RULES: Mapping[str, str] = {
    "S1": "A stream begins with `Hello`, and has only one.",
    "S2": "After a `Hello` or a `Tick` nothing is sent before its answer, except `Goodbye`.",
    "S3": "A client that leaves by itself says `Goodbye`, and nothing after it.",
    "S4": "Every message is a `ClientMessage`, not compressed, of at most `max_message_bytes`.",
    "H1": "`protocol_version` is 1.",
    "H2": "`session_id` is 16 random bytes: no other session has the same.",
    "H3": "`role` is `ROLE_TRAIN` or `ROLE_EVAL`.",
    "H4": "`num_envs` is 1 to 65,536.",
    "H5": "The spec has leaves of observation and action, of distinct paths, known dtypes and sizes within limits.",
    "H6": "Every action leaf has finite bounds on both sides.",
    "H7": "An action mask has one integer or boolean for each value of its action, which is one of integers.",
    "H8": "All sessions have the same leaves, dtypes, shapes, bounds and `action_repeat`.",
    "T1": "`sequence` is 0, 1, 2, ... over the life of the session, reconnects included.",
    "T2": "`observation` has one byte string a leaf, each of N times the leaf's size.",
    "T3": "`reward` has 4 N bytes, `flags` N.",
    "T4": "Rewards and observations are finite; booleans are 0 or 1.",
    "T5": "An `Episode` has `env` below N, a finite return, and for `info` a msgpack map from string to number.",
    "T6": "An action mask allows a value, except where the tick has an episode's last observation or is RESTARTED.",
    "F1": "The first tick of a session is FIRST for every environment.",
    "F2": "The tick after an ending is FIRST.",
    "F3": "FIRST never shares a tick with TERMINATED or TRUNCATED.",
    "F4": "RESTARTED comes only together with FIRST, and there are no other bits.",
    "F5": "FIRST in the middle of an episode has RESTARTED too.",
    "M1": "The region offered is a sealed memfd named `seedrl` that begins with the session's id.",
    "M2": "Ticks refer to shared memory only where the `Welcome` of their stream has accepted it.",
    "M3": "Such a tick has no `observation`, offsets into the region, and the generation that stands in it.",
    "M4": "`shared.generation` differs from that of the last tick.",
    "M5": "The observation in shared memory stays as it is until the answer.",
    "W1": "The connection is kept while `Waiting` comes, also for longer than 15 s.",
    "D1": "After a `Drain` the client leaves within 5 s: it says `Goodbye` or ends the stream.",
    "D2": "After `FINISHED` it does not come back, and exits with success.",
    "D3": "After `RESTARTING` it reconnects.",
    "D4": "A `Drain` is read even when the stream ends right after it.",
    "R1": "It reconnects when the connection is cut.",
    "R2": "It reconnects when the stream ends without a Drain and without a status that says to give up.",
    "R3": "It closes the connection and reconnects when nothing comes for 15 s while an answer is outstanding.",
    "R4": "It waits before each attempt: at least 0.05 s, then twice as long each time, up to at least 1.5 s.",
    "R5": "`Hello` is the same after a reconnect, but for `shared_memory`.",
    "R6": "The unanswered tick is sent again after the new `Welcome`, the same in everything.",
    "E1": "It gives up at `INVALID_ARGUMENT`, `FAILED_PRECONDITION`, `UNIMPLEMENTED`, `INTERNAL`, `UNAUTHENTICATED`.",
    "E2": "At `RESOURCE_EXHAUSTED` after `Hello` it tries again later.",
    "E3": "At `RESOURCE_EXHAUSTED` after a tick it gives up.",
    "E4": "At `OUT_OF_RANGE` it exits with success.",
}

_KEPT_BREACHES = 3


class Verdict(StrEnum):
    """What is known about a rule."""

    KEPT = "kept"
    BROKEN = "broken"
    NOT_EXERCISED = "not exercised"


@dataclass(frozen=True)
class Breach:
    """One occasion on which a rule was broken."""

    expected: str
    got: str


class Findings:
    """What was seen of each rule."""

    def __init__(self) -> None:
        """Nothing yet."""
        self._kept: Counter[str] = Counter()
        self._broken: Counter[str] = Counter()
        self._breaches: dict[str, list[Breach]] = {}

    @property
    def anything(self) -> bool:
        """Something was seen."""
        return bool(self._kept or self._broken)

    def keep(self, rule: str) -> None:
        """The rule could have been broken and was not."""
        assert rule in RULES, rule
        self._kept[rule] += 1

    def breach(self, rule: str, expected: str, got: str) -> None:
        """The rule was broken; the first breaches are remembered in words."""
        assert rule in RULES, rule
        self._broken[rule] += 1
        breaches = self._breaches.setdefault(rule, [])
        if len(breaches) < _KEPT_BREACHES:
            breaches.append(Breach(expected, got))

    def judge(self, rule: str, holds: bool, expected: str, got: str) -> bool:
        """Keeps or breaches the rule; returns `holds`."""
        if holds:
            self.keep(rule)
        else:
            self.breach(rule, expected, got)
        return holds

    def verdict(self, rule: str) -> Verdict:
        """Broken once is broken."""
        if self._broken[rule]:
            return Verdict.BROKEN
        return Verdict.KEPT if self._kept[rule] else Verdict.NOT_EXERCISED

    def breaches(self, rule: str) -> tuple[Breach, ...]:
        """The first ones."""
        return tuple(self._breaches.get(rule, ()))

    def times(self, rule: str) -> tuple[int, int]:
        """How often it was kept, and broken."""
        return self._kept[rule], self._broken[rule]

    def rules(self, verdict: Verdict) -> list[str]:
        """The rules of a verdict, in their order."""
        return [rule for rule in RULES if self.verdict(rule) is verdict]
