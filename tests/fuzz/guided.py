"""The same as `run` does in one process, with messages that atheris chooses by what they reach.

python -m fuzz.guided [-atheris_runs=1000000] [libFuzzer's flags]     (needs `pip install '.[fuzz]'`)

An input is a byte that says where its message goes, and the message. After a violation libFuzzer leaves it in a file.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import random
import sys
import tempfile
import time
from pathlib import Path

import atheris
import structlog

from seedrl_learner.compute import configure_tensorflow

configure_tensorflow()
import tensorflow  # noqa: E402, F401  (before the instrumentation, which would take minutes for it)

_INSTRUMENTED = ["seedrl_core", "seedrl_broker", "seedrl_learner"]
with atheris.instrument_imports(include=_INSTRUMENTED):
    from fuzz.campaigns import BYSTANDER_EVERY, show
    from fuzz.pipe import open_pipe
    from fuzz.recording import Recording, recorded
    from fuzz.target import READERS, STATES, Target, mutators, scratch

PLACES = (*READERS, *STATES)


def write_corpus(recordings: list[Recording], directory: Path) -> None:
    """Recorded messages, and some changed ones, for each place."""
    sources = mutators(recordings, random.Random(0))
    for number, place in enumerate(PLACES):
        for copy in range(40):
            (directory / f"{number}-{copy}").write_bytes(bytes((number,)) + sources[place].next())


class Campaign:
    """A pipe that is kept open in an event loop of its own, between the calls of libFuzzer."""

    def __init__(self, recordings: list[Recording], directory: Path) -> None:
        self._runner = asyncio.Runner()
        self._pipe = open_pipe(directory)
        self._count = 0
        self.target = self._runner.run(self._open(recordings))

    async def _open(self, recordings: list[Recording]) -> Target:
        target = Target(await self._pipe.__aenter__(), recordings)
        await target.bystander.open()
        return target

    def take(self, data: bytes) -> None:
        """One input."""
        if data:
            self._runner.run(self._take(PLACES[data[0] % len(PLACES)], data[1:]))

    async def _take(self, place: str, message: bytes) -> None:
        await self.target.take(place, message)
        self._count += 1
        if self._count % BYSTANDER_EVERY == 0:
            await self.target.bystander.tick()


def main() -> None:
    """Runs until libFuzzer has enough, which ends the process."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    directory = Path(tempfile.mkdtemp(prefix="fuzz-"))
    recordings = recorded(directory)
    corpus = scratch(directory, "corpus")
    write_corpus(recordings, corpus)
    campaign = Campaign(recordings, scratch(directory, "pipe"))
    started = time.monotonic()
    atexit.register(lambda: show("chosen by coverage", campaign.target.counts, time.monotonic() - started))
    atheris.Setup([*sys.argv, "-max_len=8192", str(corpus)], campaign.take)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
