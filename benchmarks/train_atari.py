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
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from measuring import Figure, parse_arguments, show, train

from seedrl_actor import environments
from seedrl_core.codec import TickArrays
from seedrl_core.config import ActorConfig, LearnerConfig, NetworkConfig
from seedrl_core.metrics import Metrics
from seedrl_core.spec import EnvironmentSpec
from seedrl_learner.compute import compute_dtype, configure_tensorflow

if TYPE_CHECKING:
    from seedrl_learner.training_data import TrainingBatch

NUM_ENVS = 64
UNROLL_LENGTH = 20
_MICROSECONDS = 1e6
_WARM_UP = 3


def main() -> None:
    """Measures, prints."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--env-id", default="ALE/Breakout-v5", help="game (default: %(default)s)")
    parser.add_argument("--env-steps", type=int, default=100_000, help="of one training run (default: %(default)s)")
    parser.add_argument("--batch-unrolls", type=int, default=32, help="unrolls a batch (default: %(default)s)")
    parser.add_argument("--set", action="append", default=[], help="further settings of the training run; repeatable")
    parser.add_argument("--peer", help="command that trains another system and prints env_steps_per_s=N")
    arguments = parse_arguments(__doc__, parser)
    assignments = [
        f"learner.batch_unrolls={arguments.batch_unrolls}",
        f"learner.queue_unrolls={2 * arguments.batch_unrolls}",
        *arguments.set,
    ]
    configure_tensorflow()
    ours: list[float] = []
    rooflines: list[float] = []
    peers: list[float] = []
    parts: dict[str, list[float]] = {"environment": [], "inference": [], "training": []}
    for _ in range(arguments.repetitions):
        costs = measure_parts(arguments.env_id, arguments.batch_unrolls, arguments.seconds)
        for name, cost in costs.items():
            parts[name].append(cost)
        rooflines.append(_MICROSECONDS / sum(costs.values()))
        ours.append(train(arguments.env_id, arguments.env_steps, NUM_ENVS // 2, assignments))
        if arguments.peer:
            peers.append(run_peer(arguments.peer))
    figures = [Figure("training end to end", "env steps/s", ours, "roofline", rooflines, goal=0.9)]
    if peers:
        figures.append(Figure("training end to end", "env steps/s", ours, "peer", peers, goal=2.5))
    medians = {f"{name}_us": round(statistics.median(costs), 1) for name, costs in parts.items()}
    show(figures, arguments.json, parts_of_the_roofline=medians, compute_dtype=_dtype())


def run_peer(command: str) -> float:
    """The figure that a peer's command prints."""
    done = subprocess.run(shlex.split(command), capture_output=True, text=True)
    found = re.search(r"env_steps_per_s=([0-9.]+)", done.stdout)
    if done.returncode or found is None:
        sys.exit(f"{command} failed:\n{(done.stdout + done.stderr)[-2000:]}")
    return float(found[1])


def measure_parts(env_id: str, batch_unrolls: int, seconds: float) -> dict[str, float]:
    """Microseconds of one environment step in each part alone, at its best over `seconds` each."""
    vector = environments.make(ActorConfig(env_id=env_id, num_envs=NUM_ENVS), 0, NUM_ENVS, 1)
    try:
        vector.reset()
        action = (np.random.default_rng(0).integers(0, 4, NUM_ENVS),)
        environment = cost_of(lambda: vector.step(action), seconds) / NUM_ENVS
        spec = vector.spec
    finally:
        vector.close()
    inference, training = _measure_learner(spec, batch_unrolls, seconds)
    return {"environment": environment, "inference": inference, "training": training}


def _measure_learner(spec: EnvironmentSpec, batch_unrolls: int, seconds: float) -> tuple[float, float]:
    """Inference and training through the learner's own objects, without any service."""
    from seedrl_learner.progress import Progress
    from seedrl_learner.run import Machinery

    machinery = Machinery(_learner_config(batch_unrolls), spec, Progress(), Metrics())
    slots = machinery.inference.open(NUM_ENVS, greedy=False)
    rng = np.random.default_rng(0)
    tick = TickArrays(
        0,
        tuple(rng.integers(0, 256, (NUM_ENVS, *leaf.shape), np.uint8) for leaf in spec.observation),
        np.zeros(NUM_ENVS, np.float32),
        np.zeros(NUM_ENVS, np.uint8),
    )
    batch: TrainingBatch | None = None

    def infer() -> None:
        """One batch; whole unrolls leave the queue, so that it never fills."""
        nonlocal batch
        machinery.inference.run([(slots, tick)])
        batch = machinery.data.next(0.0) or batch

    inference = cost_of(infer, seconds) / NUM_ENVS
    while batch is None:
        infer()
    last = batch
    training = cost_of(lambda: machinery.trainer.train_on(last), seconds) / (batch_unrolls * UNROLL_LENGTH)
    return inference, training


def cost_of(function: Callable[[], object], seconds: float) -> float:
    """Median microseconds of a call, after a warm-up."""
    for _ in range(_WARM_UP):
        function()
    times: list[float] = []
    deadline = time.perf_counter() + seconds
    while time.perf_counter() < deadline or len(times) < _WARM_UP:
        began = time.perf_counter()
        function()
        times.append(time.perf_counter() - began)
    return _MICROSECONDS * statistics.median(times)


def _dtype() -> str:
    network = NetworkConfig(torso="nature_cnn")
    return compute_dtype(LearnerConfig(network=network))


def _learner_config(batch_unrolls: int) -> LearnerConfig:
    """Of the training run, as far as the parts depend on it."""
    return LearnerConfig(
        unroll_length=UNROLL_LENGTH,
        batch_unrolls=batch_unrolls,
        queue_unrolls=max(NUM_ENVS, batch_unrolls),
        max_envs=NUM_ENVS,
    )


if __name__ == "__main__":
    main()
