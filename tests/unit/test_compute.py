"""How TensorFlow is set up, and the choice of the compute dtype."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from seedrl_core.config import LearnerConfig, NetworkConfig
from seedrl_core.errors import InternalError
from seedrl_learner import compute

IMAGES = NetworkConfig(torso="nature_cnn")


def test_settings_are_made_before_tensorflow_is_imported() -> None:
    """In a new process the import of compute leaves TensorFlow alone, and a variable that is set already wins."""
    code = (
        "import os, sys; from seedrl_learner import compute; compute.configure_tensorflow();"
        "print('tensorflow' in sys.modules, os.environ['TF_ENABLE_ONEDNN_OPTS'], os.environ['TF_CPP_MIN_LOG_LEVEL'])"
    )
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TF_")} | {"TF_CPP_MIN_LOG_LEVEL": "0"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["False", "1", "0"], done.stderr


def test_settings_after_the_import_are_a_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    """They would have no effect, so that is an error."""
    monkeypatch.setitem(sys.modules, "tensorflow", sys)
    with pytest.raises(InternalError, match="before tensorflow is imported"):
        compute.configure_tensorflow()


@pytest.mark.parametrize(
    ("flags", "expected"),
    [("fpu avx512f avx512_bf16", "bfloat16"), ("fpu amx_bf16 amx_tile", "bfloat16"), ("fpu avx2 avx512f", "float32")],
)
def test_auto_is_bfloat16_on_cpus_that_multiply_it(
    flags: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decided by the instruction set extensions that Linux lists."""
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(f"processor\t: 0\nflags\t\t: {flags}\n\nprocessor\t: 1\n")
    assert compute.cpu_flags(cpuinfo) == set(flags.split())
    monkeypatch.setattr(compute, "cpu_flags", lambda: set(flags.split()))
    assert compute.compute_dtype(LearnerConfig(network=IMAGES)) == expected


def test_a_system_without_cpuinfo_gets_float32(tmp_path: Path) -> None:
    """Then nothing is known of the CPU."""
    assert compute.cpu_flags(tmp_path / "missing") == set()


def test_an_explicit_dtype_wins() -> None:
    """Whatever the hardware and the torso."""
    for torso in ("mlp", "nature_cnn"):
        config = LearnerConfig(network=NetworkConfig(torso=torso), compute_dtype="bfloat16")
        assert compute.compute_dtype(config) == "bfloat16"


def test_auto_is_float32_for_the_mlp(monkeypatch: pytest.MonkeyPatch) -> None:
    """Vectors keep their digits, also where bfloat16 would be fast."""
    monkeypatch.setattr(compute, "cpu_flags", lambda: {"amx_bf16"})
    assert compute.compute_dtype(LearnerConfig(network=NetworkConfig(torso="mlp"))) == "float32"
