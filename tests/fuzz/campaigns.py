"""Fuzzing runs: so many messages to broker and learner, in this process or live ones, and what came of them."""

from __future__ import annotations

import random
import resource
from collections import Counter
from pathlib import Path

from fuzz.live import LiveSystem
from fuzz.pipe import open_pipe
from fuzz.recording import Recording
from fuzz.target import READERS, STATES, Target, Violation, mutators

# Of all messages, those that go through broker and learner; each takes as long as fifty that are only read.
STATE_MACHINE_SHARE = 0.15
BYSTANDER_EVERY = 64
GROWTH_MIB = 256


async def fuzz_in_process(
    num_inputs: int, recordings: list[Recording], rng: random.Random, directory: Path
) -> Counter[tuple[str, str]]:
    """Counts, by where messages went and what became of them. Violation names the message."""
    sources = mutators(recordings, rng)
    async with open_pipe(directory) as pipe:
        target = Target(pipe, recordings)
        await target.bystander.open()
        await target.bystander.tick()
        before = _peak_mib()
        for count in range(num_inputs):
            where = rng.choice(STATES if rng.random() < STATE_MACHINE_SHARE else READERS)
            message = sources[where].next(target.in_order(where))
            try:
                await target.take(where, message)
                if count % BYSTANDER_EVERY == 0:
                    await target.bystander.tick()
            except Exception as error:
                raise Violation(f"message {count}, for {where!r}: {error!r}\n{message.hex()}") from error
        await target.finish()
        if (grown := _peak_mib() - before) > GROWTH_MIB:
            raise Violation(f"memory grew by {grown:.0f} MiB, expected at most {GROWTH_MIB}")
        target.counts["bystander", "answered"] = target.bystander.num_ticks
        return target.counts


async def fuzz_live(
    num_inputs: int, recordings: list[Recording], rng: random.Random, directory: Path
) -> Counter[tuple[str, str]]:
    """The same for real processes."""
    async with LiveSystem.running(directory, recordings, rng) as system:
        await system.fuzz(num_inputs)
    system.counts["bystander", "answered"] = system.num_ticks
    return system.counts


def show(title: str, counts: Counter[tuple[str, str]], seconds: float) -> None:
    """A line for each place and outcome."""
    total = sum(count for (where, _), count in counts.items() if where != "bystander")
    print(f"{title}: {total:,} messages in {seconds:.0f} s")
    for (where, outcome), count in sorted(counts.items()):
        print(f"  {where:<30} {outcome:<20} {count:>10,}", flush=True)


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
