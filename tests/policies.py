"""Small policies of every kind of network and action, as runs with a checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from seedrl_core.config import load_settings
from seedrl_core.spec import EnvironmentSpec, TensorSpec
from seedrl_learner.run import Run

VECTOR = TensorSpec("observation/position", np.dtype(np.float32), (3,))
IMAGE = TensorSpec("observation", np.dtype(np.uint8), (36, 36), (0.0,), (255.0,))
DISCRETE = TensorSpec("action", np.dtype(np.int64), (), (2.0,), (5.0,))
TORQUE = TensorSpec("action/torque", np.dtype(np.float32), (2,), (-1.0,), (3.0,))
N, STACK = 3, 4
POLICIES: dict[str, tuple[EnvironmentSpec, dict[str, Any]]] = {
    "vector": (EnvironmentSpec("e", (VECTOR,), (DISCRETE,)), {}),
    "continuous": (EnvironmentSpec("e", (VECTOR,), (TORQUE, DISCRETE)), {}),
    "recurrent": (
        EnvironmentSpec("e", (VECTOR,), (DISCRETE,)),
        {"network.core": "lstm", "network.previous_action": True, "network.previous_reward": True},
    ),
    "r2d2_image_stack": (
        EnvironmentSpec("e", (IMAGE,), (DISCRETE,), frame_stack=STACK),
        {"agent": "r2d2", "r2d2.eval_epsilon": 0.0, "network.head_size": 16, "network.normalize_observations": True},
    ),
    "image_stack": (EnvironmentSpec("e", (IMAGE,), (DISCRETE,), frame_stack=STACK), {}),
}


def trained_run(run_dir: Path, spec: EnvironmentSpec, settings: dict[str, Any]) -> Run:
    """A run with a checkpoint, its variables all different from their first values."""
    keys = {"run_dir": str(run_dir), "max_envs": 2 * N, "compute_dtype": "float32", "network.core_size": 16, **settings}
    run = Run(load_settings(None, {f"learner.{key}": value for key, value in keys.items()}).learner)
    network = run.build(spec).agent.network
    rng = np.random.default_rng(0)
    for variable in network.trainable_variables:
        variable.assign_add(rng.normal(0.0, 0.1, variable.shape))
    run.progress.env_steps, run.progress.policy_version = 1234, 56
    run.save_checkpoint()
    return run
