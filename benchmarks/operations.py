"""Which TensorFlow operations inference and an update spend their time in: what to make faster, and whether it was.

The learner's own functions run alone, on one thread, so that an operation's time is a core's time. The profiler of
TensorFlow itself adds up what each operation of the graph took. `outside` is the processor time that is in none of
them: Python, and arrays that become tensors.

python benchmarks/operations.py [--batch-unrolls 32] [--rows 15] [--json]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import measuring
from parts import LearnerAlone, Sizes
from rich.console import Console
from rich.table import Table

from seedrl_learner.compute import configure_tensorflow

_WARM_UP = 3


def operation_times(function: Callable[[], None], calls: int) -> dict[str, float]:
    """Microseconds of a call in each operation of TensorFlow's graphs, and outside of them, largest first."""
    import tensorflow as tf

    for _ in range(_WARM_UP):
        function()
    began = time.process_time()  # without the profiler, which costs time itself
    for _ in range(calls):
        function()
    whole = time.process_time() - began
    with tempfile.TemporaryDirectory() as directory:
        with tf.profiler.experimental.Profile(directory):
            for _ in range(calls):
                function()
        (file,) = Path(directory).rglob("*.xplane.pb")
        times = _sums(file)
    times["outside"] = 1e6 * whole - sum(times.values())
    return {name: us / calls for name, us in sorted(times.items(), key=lambda item: -item[1])}


def _sums(file: Path) -> dict[str, float]:
    """Microseconds by `name:kind`, as operations of graphs are called; other events enclose these."""
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    space = xplane_pb2.XSpace()
    space.ParseFromString(file.read_bytes())
    sums = defaultdict[str, float](float)
    for plane in space.planes:
        for event in (event for line in plane.lines for event in line.events):
            name = plane.event_metadata[event.metadata_id].name
            node, _, kind = name.rpartition(":")
            if node and kind.isidentifier() and not node.endswith(":"):
                sums[name] += event.duration_ps / 1e6
    return sums


def main() -> None:
    """Measures both, prints."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-unrolls", type=int, default=Sizes().batch_unrolls, help="(default: %(default)s)")
    parser.add_argument("--calls", type=int, default=20, help="of each function (default: %(default)s)")
    parser.add_argument("--rows", type=int, default=15, help="the largest operations shown (default: %(default)s)")
    options = measuring.parse_arguments(__doc__, parser, repeats=False)
    configure_tensorflow()
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    sizes = Sizes(batch_unrolls=options.batch_unrolls)
    learner = LearnerAlone(measuring.image_spec(sizes.frame_size, sizes.frame_size), sizes)
    results: dict[str, Any] = {"command": sys.argv, "machine": measuring.machine()}
    for name, function, steps in (
        ("inference", learner.infer, sizes.environments),
        ("training", learner.train, learner.samples),
    ):
        times = operation_times(function, options.calls)
        results[name] = {operation: us / steps for operation, us in times.items()}
    if options.json:
        print(json.dumps(results))
        return
    for name in ("inference", "training"):
        _show(name, results[name], options.rows)


def _show(name: str, times: dict[str, float], rows: int) -> None:
    whole = sum(times.values())
    table = Table("operation", title=f"{name}: {whole:,.1f} core-microseconds of an env step")
    table.add_column("us", justify="right")
    table.add_column("share", justify="right")
    for operation, us in list(times.items())[:rows]:
        table.add_row(operation, f"{us:,.2f}", f"{us / whole:.1%}")
    Console(width=None if sys.stdout.isatty() else 130).print(table)


if __name__ == "__main__":
    main()
