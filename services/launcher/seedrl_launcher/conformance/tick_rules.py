"""What a tick must be, given the one before: rules T2 to T6, F1 to F5 and M2 to M3. Knows no gRPC."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from seedrl_core import codec
from seedrl_core.codec import FIRST, LAST, RESTARTED
from seedrl_core.errors import BadRequest
from seedrl_core.shared_memory import PeerRegion, Reference
from seedrl_core.spec import Array, EnvironmentSpec
from seedrl_launcher.conformance.action_choice import allows_a_value, mask_of
from seedrl_launcher.conformance.rules import Findings
from seedrl_proto.v1 import inference_pb2 as inference

_ALL_FLAGS = FIRST | LAST | RESTARTED


@dataclass(frozen=True)
class TickRules:
    """Judges the ticks of one session."""

    findings: Findings
    spec: EnvironmentSpec
    num_envs: int

    def judge(self, tick: inference.Tick, before: Array | None, observation: Sequence[bytes] | None) -> Array | None:
        """Judges all but the number.

        Args:
          tick: with its observation here or in memory.
          before: flags of the tick before; None for the first of the session.
          observation: the bytes of each leaf; None where the tick refers to nothing.

        Returns:
          Its flags, [N] uint8; None where they have another size.
        """
        leaves = self.leaves(observation)
        if observation is not None:
            got = [len(leaf) for leaf in observation]
            self._judge_size("T2", "observation", leaves is not None, self._leaf_sizes(), got)
        sizes = [4 * self.num_envs, self.num_envs]
        right = [len(tick.reward), len(tick.flags)] == sizes
        self._judge_size("T3", "reward, flags", right, sizes, [len(tick.reward), len(tick.flags)])
        self._judge_values(tick, leaves)
        self._judge_episodes(tick)
        if not right:
            return None
        flags = np.frombuffer(tick.flags, np.uint8)
        self._judge_flags(flags, before)
        if leaves is not None:
            self._judge_masks(leaves, flags)
        return flags

    def leaves(self, observation: Sequence[bytes] | None) -> tuple[Array, ...] | None:
        """The observation as arrays [N, *shape]; None where it does not fit the spec, or there is none."""
        if observation is None:
            return None
        try:
            return codec.decode_leaves(observation, self.spec.observation, self.num_envs)
        except BadRequest:
            return None

    def read(self, tick: inference.Tick, region: PeerRegion | None) -> list[bytes] | None:
        """A copy of the bytes that the tick refers to; None, and a breach, where it refers to nothing."""
        if not self.findings.judge(
            "M2", region is not None, "the observation in the tick: no shared memory was accepted", "shared"
        ):
            return None
        assert region is not None
        try:
            if tick.observation:
                raise BadRequest(f"observation of {len(tick.observation)} leaves besides shared")
            reference = Reference(tuple(tick.shared.offset), tick.shared.generation)
            found = [bytes(leaf) for leaf in region.read(reference, self.spec.observation, self.num_envs)]
        except BadRequest as error:
            self.findings.breach("M3", "a reference into the region, in place of an observation", str(error))
            return None
        self.findings.keep("M3")
        return found

    def _leaf_sizes(self) -> list[int]:
        return [self.num_envs * leaf.num_bytes for leaf in self.spec.observation]

    def _judge_size(self, rule: str, name: str, right: bool, expected: list[int], got: list[int]) -> None:
        self.findings.judge(rule, right, f"{name}: {expected} bytes", f"{got} bytes")

    def _judge_values(self, tick: inference.Tick, leaves: Sequence[Array] | None) -> None:
        found = []
        if len(tick.reward) == 4 * self.num_envs:
            found.append(("reward", np.isfinite(np.frombuffer(tick.reward, "<f4")), "finite"))
        for leaf, array in zip(self.spec.observation, leaves or (), strict=False):
            if leaf.dtype.kind == "f":
                found.append((leaf.path, np.isfinite(array), "finite"))
            elif leaf.dtype.kind == "b":
                found.append((leaf.path, array.view(np.uint8) <= 1, "0 or 1"))
        for name, right, what in found:
            self.findings.judge("T4", bool(right.all()), f"{name}: {what}", f"{right.size - right.sum()} other values")

    def _judge_episodes(self, tick: inference.Tick) -> None:
        for episode in tick.episodes:
            try:
                codec.episode_from_proto(episode, self.num_envs)
            except BadRequest as error:
                self.findings.breach("T5", "an episode", str(error))
            else:
                self.findings.keep("T5")

    def _judge_flags(self, flags: Array, before: Array | None) -> None:
        first, last = flags & FIRST != 0, flags & LAST != 0
        restarted = flags & RESTARTED != 0
        self._judge_each("F3", ~(first & last), flags, "FIRST (1), or an ending (2, 4)")
        self._judge_each("F4", (flags & ~np.uint8(_ALL_FLAGS) == 0) & (first | ~restarted), flags, "9 with RESTARTED")
        if before is None:
            self._judge_each("F1", first, flags, "FIRST (1)")
            return
        ended = before & LAST != 0
        if ended.any():
            self._judge_each("F2", first | ~ended, flags, "FIRST (1) after an ending")
        self._judge_each("F5", ~first | ended | restarted, flags, "FIRST | RESTARTED (9), as no episode had ended")

    def _judge_each(self, rule: str, right: Array, flags: Array, expected: str) -> None:
        env = int(np.argmin(right))
        self.findings.judge(rule, bool(right.all()), expected, f"flags {flags[env]} of environment {env}")

    def _judge_masks(self, leaves: Sequence[Array], flags: Array) -> None:
        for action in self.spec.action:
            mask = mask_of(self.spec, action)
            if mask is None:
                continue
            allowed = leaves[mask].reshape(self.num_envs, -1) != 0
            right = allows_a_value(allowed, action) | (flags & (LAST | RESTARTED) != 0)
            env = int(np.argmin(right))
            self.findings.judge(
                "T6", bool(right.all()), f"a value of {action.path} that is allowed", f"none in environment {env}"
            )
