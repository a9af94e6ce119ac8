"""Training end to end on CartPole, whose environments cost next to nothing, beside their own stepping rate.

What is left when observations are tiny is the system itself: with few environments what a tick, a batch and an update
cost whatever their size, with many what a row costs. The stepping rate is that of as many processes as train the agent,
each with the same vector of environments, on the same cores. Then the start: from the command to the first batch that
was trained on.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from measuring import Figure, parse_arguments, show, train, train_command

from seedrl_core.errors import PeerLost
from seedrl_launcher.status import connect

ENV_ID = "CartPole-v1"
ACTORS = 2
DEFAULT_ENVS, MANY_ENVS = 32, 1024  # an actor
_POLL_S = 0.05
_START_LIMIT_S = 120.0
_STEP = """
import sys, time
import numpy as np
from seedrl_actor import environments
from seedrl_core.config import ActorConfig
env_id, num_envs, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
vector = environments.make(ActorConfig(env_id=env_id, num_envs=num_envs), 0, num_envs, 1)
vector.reset()
actions = np.random.default_rng(0).integers(0, 2, (1024, num_envs))
input()
ticks, began = 0, time.perf_counter()
while time.perf_counter() - began < seconds:
    vector.step((actions[ticks % 1024],))
    ticks += 1
print(ticks * num_envs / (time.perf_counter() - began))
"""


def main() -> None:
    """Measures, prints."""
    parser = argparse.ArgumentParser()
    widths = [DEFAULT_ENVS, MANY_ENVS]
    parser.add_argument("--envs-per-actor", type=int, nargs="+", default=widths, help="(default: %(default)s)")
    parser.add_argument("--steps-per-env", type=int, default=1500, help="of a training run (default: %(default)s)")
    arguments = parse_arguments(__doc__, parser)
    ours = defaultdict[int, list[float]](list)
    stepping = defaultdict[int, list[float]](list)
    starts: list[float] = []
    imports: list[float] = []
    for _ in range(arguments.repetitions):
        for num_envs in arguments.envs_per_actor:
            stepping[num_envs].append(stepping_rate(num_envs, arguments.seconds))
            env_steps = arguments.steps_per_env * ACTORS * num_envs
            ours[num_envs].append(train(ENV_ID, env_steps, num_envs, settings(num_envs)))
        imports.append(tensorflow_import_s())
        starts.append(asyncio.run(first_update_s()))
    figures = [
        Figure(f"{ACTORS} x {num_envs} environments", "env steps/s", rates, "stepping alone", stepping[num_envs], 0.35)
        for num_envs, rates in ours.items()
    ]
    figures.append(Figure("command to first trained batch", "s", starts, "of which importing TensorFlow", imports))
    show(figures, arguments.json)


def settings(envs_per_actor: int) -> list[str]:
    """Batches that grow with the environments: of all in inference, of an eighth of them in training, as 8 of 64."""
    num_envs = ACTORS * envs_per_actor
    return [f"broker.max_batch_rows={num_envs}", f"learner.batch_unrolls={max(8, num_envs // 8)}"]


def stepping_rate(num_envs: int, seconds: float) -> float:
    """Steps a second of `ACTORS` processes with `num_envs` environments each and no agent."""
    command = [sys.executable, "-c", _STEP, ENV_ID, str(num_envs), str(seconds)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    processes = [subprocess.Popen(command, text=True, **pipes) for _ in range(ACTORS)]  # type: ignore[call-overload]
    return sum(float(process.communicate("\n")[0]) for process in processes)


def tensorflow_import_s() -> float:
    """Seconds of a process that only imports TensorFlow."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import tensorflow"], check=True, stderr=subprocess.DEVNULL)
    return time.perf_counter() - began


async def first_update_s() -> float:
    """Seconds from starting the command until its learner has trained on a batch."""
    with tempfile.TemporaryDirectory() as directory:
        began = time.perf_counter()
        command = train_command(ENV_ID, 0, DEFAULT_ENVS, Path(directory))
        process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            async with connect(f"unix:{directory}/run/learner.sock") as client:
                while time.perf_counter() - began < _START_LIMIT_S and process.returncode is None:
                    try:
                        if (await client.learner()).policy_version > 0:
                            return time.perf_counter() - began
                    except PeerLost:
                        pass  # The learner does not listen yet.
                    await asyncio.sleep(_POLL_S)
        finally:
            process.terminate()
            await process.wait()
    sys.exit(f"no batch was trained on within {_START_LIMIT_S:.0f} s")


if __name__ == "__main__":
    main()
