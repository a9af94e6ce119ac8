"""Draws the learning curve of a run: mean return of the last 100 episodes against env steps and against wall time.

python benchmarks/learning_curve.py RUN_DIR --out curve.png        (needs matplotlib: pip install -e ".[plot]")
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot


def read_records(run_dir: Path) -> list[dict[str, Any]]:
    """The windows in a run's `metrics.jsonl` from the first finished episode on."""
    lines = (run_dir / "metrics.jsonl").read_text().splitlines()
    return [record for record in map(json.loads, lines) if "episode/mean_return_100" in record]


def draw(run_dir: Path, out: Path) -> None:
    """Writes the picture; one panel a horizontal axis."""
    records = read_records(run_dir)
    returns = [record["episode/mean_return_100"] for record in records]
    began = json.loads((run_dir / "metrics.jsonl").read_text().splitlines()[0])["time"]
    figure, axes = pyplot.subplots(1, 2, figsize=(10, 4), sharey=True, constrained_layout=True)
    axes[0].plot([record["env_steps"] / 1e6 for record in records], returns)
    axes[0].set(xlabel="env steps, millions", ylabel="mean return, last 100 episodes")
    axes[1].plot([(record["time"] - began) / 60 for record in records], returns)
    axes[1].set(xlabel="wall time, minutes")
    for axis in axes:
        axis.grid(alpha=0.3)
    figure.suptitle(run_dir.name)
    figure.savefig(out, dpi=120)


def main() -> None:
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run_dir", type=Path)
    parser.add_argument("--out", type=Path, required=True, help="PNG or SVG file")
    arguments = parser.parse_args()
    draw(arguments.run_dir, arguments.out)


if __name__ == "__main__":
    main()
