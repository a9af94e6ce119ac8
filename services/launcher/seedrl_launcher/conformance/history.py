"""What one session of the client has sent so far, what it may send next, and the answers to it. Knows no gRPC."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from seedrl_core import codec
from seedrl_core.errors import BadRequest
from seedrl_core.shared_memory import PeerRegion, Reference
from seedrl_core.spec import Array, EnvironmentSpec
from seedrl_launcher.conformance.action_choice import ActionChooser
from seedrl_launcher.conformance.hello_rules import same_but_for_memory
from seedrl_launcher.conformance.rules import Findings
from seedrl_launcher.conformance.tick_rules import TickRules
from seedrl_proto.v1 import inference_pb2 as inference

_MAX_REGION_BYTES = 1 << 30


@dataclass(frozen=True)
class _Seen:
    """A tick, with its observation wherever that stood."""

    tick: inference.Tick
    observation: list[bytes] | None  # where the tick refers to nothing

    def content(self) -> inference.Tick:
        """What must be the same when it is sent again, whichever way the observation goes."""
        content = inference.Tick()
        content.CopyFrom(self.tick)
        content.ClearField("shared")
        content.observation[:] = self.observation or []
        return content


class SessionHistory:
    """Takes in a session's messages over all its streams and holds each against those before.

    Attributes:
      hello: the first.
      spec: in it.
    """

    def __init__(self, findings: Findings, hello: inference.Hello, spec: EnvironmentSpec) -> None:
        """Of a session that has just said `hello`, which is judged already."""
        self.hello = hello
        self.spec = spec
        self._findings = findings
        self._rules = TickRules(findings, spec, hello.num_envs)
        self._chooser = ActionChooser(spec, hello.num_envs, np.random.default_rng(0))
        self._offer = hello
        self._region: PeerRegion | None = None
        self._last: _Seen | None = None
        self._next = 0
        self._flags: Array | None = None  # of the last tick that was answered
        self._answered = True
        self._answer_arrived = True

    @property
    def offers_memory(self) -> bool:
        """The last Hello offers shared memory."""
        return self._offer.HasField("shared_memory")

    def reopen(self, hello: inference.Hello) -> None:
        """Takes in the Hello of a further stream."""
        same = same_but_for_memory(self.hello, hello)
        self._findings.judge("R5", same, "the Hello of the stream before", "one that differs in more than memory")
        self._offer = hello

    def welcome(self, *, accept_memory: bool) -> inference.Welcome:
        """The answer to the last Hello, which maps the memory that it offers, if it shall."""
        self._region = self._map() if accept_memory and self.offers_memory else None
        return inference.Welcome(
            run_id="check-client", policy_version=self._next, shared_memory=self._region is not None
        )

    def take(self, tick: inference.Tick) -> None:
        """Takes in a tick."""
        shared = tick.HasField("shared")
        observation = self._rules.read(tick, self._region) if shared else list(tick.observation)
        if self._region is None and not shared and self.hello.HasField("shared_memory"):
            self._findings.keep("M2")
        seen = _Seen(tick, observation)
        if self._is_repetition(tick):
            assert self._last is not None
            same = self._last.content() == seen.content()
            self._findings.judge(
                "R6", same, f"tick {self._last.tick.sequence} as before", _difference(self._last, seen)
            )
            self._next = tick.sequence + 1
        else:
            self._judge_new(seen)
        self._last, self._answered = seen, False

    def check_memory(self) -> None:
        """Judges whether the observation still stands where the unanswered tick said."""
        if self._last is None or self._region is None or not self._last.tick.HasField("shared"):
            return
        if self._last.observation is None:
            return
        shared = self._last.tick.shared
        try:
            now = self._region.read(
                Reference(tuple(shared.offset), shared.generation), self.spec.observation, self.hello.num_envs
            )
            same = [bytes(leaf) for leaf in now] == self._last.observation
        except BadRequest:
            same = False
        self._findings.judge("M5", same, "the same bytes until the answer", "other bytes before it")

    def answer(self, *, arrives: bool = True) -> inference.Actions:
        """Random actions for the unanswered tick; `arrives` is False where the client may not get them."""
        assert self._last is not None and not self._answered
        self._answered, self._answer_arrived = True, arrives
        action = self._chooser.choose(self._rules.leaves(self._last.observation))
        return codec.encode_actions(self._last.tick.sequence, action, policy_version=self._next)

    def _is_repetition(self, tick: inference.Tick) -> bool:
        """Whether a tick is the last one again: it must be when that is unanswered, and may be when that is unsure."""
        if self._last is None:
            return False
        if not self._answered:
            return True
        return not self._answer_arrived and tick.sequence == self._last.tick.sequence

    def _judge_new(self, seen: _Seen) -> None:
        sequence = seen.tick.sequence
        self._findings.judge("T1", sequence == self._next, f"tick {self._next}", f"tick {sequence}")
        self._next = sequence + 1
        if seen.tick.HasField("shared") and self._last is not None and self._last.tick.HasField("shared"):
            generation = seen.tick.shared.generation
            another = generation != self._last.tick.shared.generation
            self._findings.judge("M4", another, "another generation", f"{generation} again")
        flags = self._rules.judge(seen.tick, self._flags, seen.observation)
        self._flags = flags if flags is not None else np.zeros(self.hello.num_envs, np.uint8)

    def _map(self) -> PeerRegion | None:
        """The region that the client offers; None where this host has none such, or the client's is another."""
        offer = self._offer.shared_memory
        try:
            region = PeerRegion(self.hello.session_id, offer.pid, offer.fd, offer.num_bytes, _MAX_REGION_BYTES)
        except BadRequest as error:
            # What cannot be opened at all belongs to a client on another host, or in a container of its own.
            if not isinstance(error.__cause__, OSError):
                self._findings.breach("M1", "a region as described", str(error))
            return None
        self._findings.keep("M1")
        return region


def _difference(before: _Seen, after: _Seen) -> str:
    """What two ticks that should be the same differ in."""
    first, second = before.content(), after.content()
    names = [
        field.name
        for field in inference.Tick.DESCRIPTOR.fields
        if getattr(first, field.name) != getattr(second, field.name)
    ]
    return f"tick {second.sequence} that differs in {', '.join(names)}"
