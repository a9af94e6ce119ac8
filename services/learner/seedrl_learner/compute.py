"""How TensorFlow runs: settings that must precede its import, and the dtype of matrix work.

Importing this module does not import TensorFlow.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Literal

from seedrl_core.config import LearnerConfig
from seedrl_core.errors import InternalError

_ENVIRONMENT = {
    # Off by default on some CPUs where it halves training time.
    "TF_ENABLE_ONEDNN_OPTS": "1",
    # Only errors: warnings of the native code are not addressed to users.
    "TF_CPP_MIN_LOG_LEVEL": "2",
    # The rest of an accelerator's memory stays free for others.
    "TF_FORCE_GPU_ALLOW_GROWTH": "true",
}
_BFLOAT16_CPU_FLAGS = {"avx512_bf16", "amx_bf16"}
_BFLOAT16_GPU_CAPABILITY = (8, 0)


def configure_tensorflow() -> None:
    """Sets what TensorFlow reads from the process environment when imported; variables that are set already win.

    Raises:
      InternalError: TensorFlow has been imported before.
    """
    if "tensorflow" in sys.modules:
        raise InternalError("configure_tensorflow must be called before tensorflow is imported")
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)


def make_deterministic(seed: int) -> None:
    """Makes TensorFlow compute the same from the same, in this process, from now on; `seed` is for torsos of users."""
    import tensorflow as tf

    tf.random.set_seed(seed)
    tf.config.experimental.enable_op_determinism()


def compute_dtype(config: LearnerConfig) -> Literal["float32", "bfloat16"]:
    """The dtype of matrix work; "auto" means bfloat16 for convolutions where the hardware is fast at it."""
    if config.compute_dtype != "auto":
        return config.compute_dtype
    # An mlp gains nothing, and its inputs would keep only three digits; a torso of the user's own may be one.
    if config.network.torso not in ("nature_cnn", "impala_resnet"):
        return "float32"
    return "bfloat16" if _has_fast_bfloat16() else "float32"


def _has_fast_bfloat16() -> bool:
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        capability = tf.config.experimental.get_device_details(gpus[0]).get("compute_capability", (0, 0))
        return bool(tuple(capability) >= _BFLOAT16_GPU_CAPABILITY)
    return bool(_BFLOAT16_CPU_FLAGS & cpu_flags())


def cpu_flags(cpuinfo: Path = Path("/proc/cpuinfo")) -> set[str]:
    """Instruction set extensions of this CPU by their Linux names; empty where the system does not tell."""
    try:
        lines = cpuinfo.read_text().splitlines()
    except OSError:
        return set()
    return next((set(line.partition(":")[2].split()) for line in lines if line.startswith("flags")), set())
