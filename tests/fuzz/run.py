"""Fuzzes the codec and the state machines of broker and learner in this process, then live ones, and prints counts.

python -m fuzz.run [--inputs 1000000] [--live 5000] [--seed 0]     (`make fuzz`)

Messages are recorded ones with changes (`mutations`); `python -m fuzz.guided` lets atheris choose them by coverage.
Exit code 1, and the message in hexadecimal, when something happened that must not.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import sys
import tempfile
import time
from pathlib import Path

import structlog

from seedrl_core.aio import first_leaf
from seedrl_learner.compute import configure_tensorflow

configure_tensorflow()

from fuzz.campaigns import fuzz_in_process, fuzz_live, show  # noqa: E402
from fuzz.recording import recorded  # noqa: E402
from fuzz.target import Violation, scratch  # noqa: E402


def main() -> None:
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=1_000_000, help="messages in this process (default: %(default)s)")
    parser.add_argument("--live", type=int, default=5_000, help="calls to live processes (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of everything that is drawn (default: %(default)s)")
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    rng = random.Random(options.seed)
    with tempfile.TemporaryDirectory(prefix="fuzz-") as name:
        directory = Path(name)
        recordings = recorded(directory)
        parts = (("in process", fuzz_in_process, options.inputs), ("live processes", fuzz_live, options.live))
        for title, fuzz, num_inputs in parts:
            started = time.monotonic()
            try:
                counts = asyncio.run(fuzz(num_inputs, recordings, rng, scratch(directory, title.replace(" ", "-"))))
            except* Violation as found:
                sys.exit(f"{title}: {first_leaf(found)}")
            show(title, counts, time.monotonic() - started)


if __name__ == "__main__":
    main()
