"""Training end to end on Atari, beside the roofline of its parts and beside another system.

The roofline is 1 / (environment + inference + training): what an environment step costs in each of the three parts,
measured alone on all cores. With `--peer`, a command that prints `env_steps_per_s=N`, ours and the peer run in turn.
"""

from __future__ import annotations

import argparse
import re
import shlex
import statistics
import subprocess
import sys

from measuring import Figure, parse_arguments, show, train
from parts import NUM_ENVS, Parts, Sizes, batch_settings, measure_parts

from seedrl_core.config import LearnerConfig, NetworkConfig
from seedrl_learner.compute import compute_dtype, configure_tensorflow


def main() -> None:
    """Measures, prints."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--env-id", default="ALE/Breakout-v5", help="game (default: %(default)s)")
    parser.add_argument("--env-steps", type=int, default=100_000, help="of one training run (default: %(default)s)")
    parser.add_argument("--batch-unrolls", type=int, default=32, help="unrolls a batch (default: %(default)s)")
    parser.add_argument("--set", action="append", default=[], help="further settings of the training run; repeatable")
    parser.add_argument("--peer", help="command that trains another system and prints env_steps_per_s=N")
    arguments = parse_arguments(__doc__, parser)
    assignments = [*batch_settings(arguments.batch_unrolls), *arguments.set]
    configure_tensorflow()
    ours: list[float] = []
    parts: list[Parts] = []
    peers: list[float] = []
    for _ in range(arguments.repetitions):
        sizes = Sizes(batch_unrolls=arguments.batch_unrolls)
        parts.append(measure_parts(arguments.env_id, sizes, arguments.seconds))
        ours.append(train(arguments.env_id, arguments.env_steps, NUM_ENVS // 2, assignments))
        if arguments.peer:
            peers.append(run_peer(arguments.peer))
    figures = [Figure("training end to end", "env steps/s", ours, "roofline", [part.rate for part in parts], goal=0.9)]
    if peers:
        figures.append(Figure("training end to end", "env steps/s", ours, "peer", peers, goal=2.5))
    medians = {
        f"{name}_us": round(statistics.median(getattr(part, name) for part in parts), 1)
        for name in ("environment", "inference", "training")
    }
    show(figures, arguments.json, parts_of_the_roofline=medians, compute_dtype=_dtype())


def run_peer(command: str) -> float:
    """The figure that a peer's command prints."""
    done = subprocess.run(shlex.split(command), capture_output=True, text=True)
    found = re.search(r"env_steps_per_s=([0-9.]+)", done.stdout)
    if done.returncode or found is None:
        sys.exit(f"{command} failed:\n{(done.stdout + done.stderr)[-2000:]}")
    return float(found[1])


def _dtype() -> str:
    network = NetworkConfig(torso="nature_cnn")
    return compute_dtype(LearnerConfig(network=network))


if __name__ == "__main__":
    main()
