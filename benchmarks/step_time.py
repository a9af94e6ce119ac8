"""Where the time of an environment step goes in a training run, and how its parts grow.

Steps: all core time of this machine during a training run, from its first updates to its end, in rows that add up to
cores x time. What each process used is read from /proc, and what nobody used is idle. The learner is divided further.
Serving, its main thread and those of gRPC, is read from /proc. Unrolls, which is storing, stacking and gathering what
came, is measured alone, of one thread. What remains is the network's; inference and training share it as they share the
time in which the learner's metrics say that they were busy. That is an estimate: TensorFlow's threads serve both, often
at once, so the system cannot tell for whom, and busy time is no processor time. Threads of the learner without a name,
for reports and checkpoints, count as the network, and interrupts as idle.

Growth: environment, inference and training alone on all cores, and the data path over TCP with environments and a
policy that cost nothing, by environments, size of a frame and unrolls a batch, each varied by itself.

python benchmarks/step_time.py [--part steps] [--set learner.shared_memory=off] [--json]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median, median_low
from typing import Any

import measuring
import uvloop
from core_time import share_out, watch_training
from parts import NUM_ENVS, Sizes, batch_settings, measure_parts
from rich.console import Console
from rich.table import Table

from seedrl_learner.compute import configure_tensorflow

SESSIONS = 4  # of the data path
_TYPICAL = Sizes()


def measure_steps(options: argparse.Namespace) -> dict[str, Any]:
    """One of the runs, that with the median rate, so that its rows add up; and what is asked of it by cost_model.py."""
    assignments = [*batch_settings(_TYPICAL.batch_unrolls), *options.set]
    runs: dict[float, dict[str, float]] = {}
    for _ in range(options.repetitions):
        unrolls_us = measure_parts(options.env_id, _TYPICAL, options.seconds).unrolls
        with tempfile.TemporaryDirectory() as name:
            envs_per_actor = NUM_ENVS // 2
            command = measuring.train_command(
                options.env_id, options.env_steps, envs_per_actor, Path(name), assignments
            )
            rate, rows = share_out(watch_training(command, Path(name), options.env_steps), unrolls_us)
        runs[rate] = rows
    rate = median_low(runs)
    rows = runs[rate]
    costs = {
        "actor_us": rows["actors"],
        "broker_us": rows["broker"],
        "learner_us": rows["learner, serving"] + rows["learner, unrolls"],
    }
    return {"env_steps_per_s": rate, "of": sorted(runs), "rows_us": rows, "costs": costs}


def measure_growth(options: argparse.Namespace) -> list[dict[str, float]]:
    """The parts alone, then the data path, at each size."""
    varied = [
        _TYPICAL,
        *(replace(_TYPICAL, environments=number) for number in options.environments),
        *(replace(_TYPICAL, frame_size=size) for size in options.frame_sizes),
        *(replace(_TYPICAL, batch_unrolls=number) for number in options.batches),
    ]
    rows = []
    for sizes in dict.fromkeys(varied):
        parts = _medians(
            asdict(measure_parts(options.env_id, sizes, options.seconds)) for _ in range(options.repetitions)
        )
        rows.append(asdict(sizes) | {f"{name}_us": us for name, us in parts.items()})
    return rows


def measure_data_path(options: argparse.Namespace) -> list[dict[str, float]]:
    """Processor time in each process, by environments of a session and size of a frame."""
    shapes = [(_TYPICAL.environments, _TYPICAL.frame_size)]
    shapes += [(number, _TYPICAL.frame_size) for number in options.environments]
    shapes += [(_TYPICAL.environments, size) for size in options.frame_sizes]
    rows = []
    for environments, frame_size in dict.fromkeys(shapes):
        with tempfile.TemporaryDirectory() as name, measuring.services(Path(name), "tcp") as started:
            system = started.start_system("broker.max_delay_ms=0", f"learner.max_envs={SESSIONS * environments}")
            costs = uvloop.run(_data_path(system, environments, frame_size, options))
        rows.append({"environments": environments, "frame_size": frame_size} | costs)
    return rows


async def _data_path(
    system: tuple[measuring.Service, measuring.Service], environments: int, frame_size: int, options: argparse.Namespace
) -> dict[str, float]:
    spec = measuring.image_spec(frame_size, frame_size)
    opened = await measuring.open_all(system[0].address, spec, SESSIONS, environments, shared_memory="off")
    results = []
    for _ in range(options.repetitions):
        rate, costs_us = await measuring.rate_and_costs(opened, system, options.seconds)
        results.append({"env_steps_per_s": rate} | {f"{process}_us": us for process, us in costs_us.items()})
    await measuring.close_all(opened)
    return _medians(results)


def _medians(results: Iterable[Mapping[str, float]]) -> dict[str, float]:
    values = defaultdict[str, list[float]](list)
    for result in results:
        for name, value in result.items():
            values[name].append(value)
    return {name: median(repeated) for name, repeated in values.items()}


def show_steps(console: Console, steps: Mapping[str, Any]) -> None:
    """The rows with their shares, and the whole."""
    table = Table("", title=f"core-microseconds of an env step, at {steps['env_steps_per_s']:,.0f} env steps/s")
    table.add_column("us", justify="right")
    table.add_column("share", justify="right")
    whole = sum(steps["rows_us"].values())
    for name, us in (steps["rows_us"] | {"whole": whole}).items():
        table.add_row(name, f"{us:,.1f}", f"{us / whole:.1%}")
    console.print(table)


def show_rows(console: Console, title: str, rows: Sequence[Mapping[str, float]]) -> None:
    """A column for each name."""
    table = Table(title=title)
    for name in rows[0]:
        table.add_column(name.replace("_", " "), justify="right")
    for row in rows:
        table.add_row(*(f"{value:,.1f}" if isinstance(value, float) else str(value) for value in row.values()))
    console.print(table)


def main() -> None:
    """Measures what is asked for, prints."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--part", choices=("steps", "growth", "all"), default="all", help="(default: %(default)s)")
    parser.add_argument("--env-id", default="ALE/Breakout-v5", help="game (default: %(default)s)")
    parser.add_argument("--env-steps", type=int, default=100_000, help="of one training run (default: %(default)s)")
    parser.add_argument("--set", action="append", default=[], help="further settings of the training run; repeatable")
    for name, values, meaning in (
        ("environments", [16, 64, 256], "that step together"),
        ("frame-sizes", [42, 84, 168], "height and width, pixels"),
        ("batches", [8, 32, 128], "unrolls a batch"),
    ):
        parser.add_argument(f"--{name}", type=int, nargs="+", default=values, help=f"{meaning} (default: %(default)s)")
    options = measuring.parse_arguments(__doc__, parser)
    configure_tensorflow()
    results: dict[str, Any] = {"command": sys.argv, "machine": measuring.machine()}
    if options.part != "growth":
        results["steps"] = measure_steps(options)
    if options.part != "steps":
        results["growth"] = measure_growth(options)
        results["data_path"] = measure_data_path(options)
    if options.json:
        print(json.dumps(results))
        return
    console = Console(width=None if sys.stdout.isatty() else 150)
    if "steps" in results:
        show_steps(console, results["steps"])
    if "growth" in results:
        show_rows(console, "microseconds of an env step: parts alone; unrolls of one core", results["growth"])
        show_rows(console, f"processor time of an env step, {SESSIONS} sessions over TCP", results["data_path"])
    console.print(", ".join(f"{name} {value}" for name, value in results["machine"].items()), highlight=False)


if __name__ == "__main__":
    main()
