"""The systemd units as the installer lays them: idempotent, without a complaint of systemd's own checkers."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
UNITS = ("seedrl-learner.service", "seedrl-broker.service", "seedrl-actor@0.service", "seedrl.target")
MAX_EXPOSURE = 2.5
SYSTEM_UNITS = Path("/usr/lib/systemd/system")

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None or not (SYSTEM_UNITS / "sysinit.target").exists(),
    reason="systemd is not installed",
)


def install(destination: Path, *services: str) -> subprocess.CompletedProcess[str]:
    """Runs the installer for a staging directory."""
    return subprocess.run(
        [ROOT / "deploy/systemd/install", *services],
        env={**os.environ, "DESTDIR": str(destination)},
        capture_output=True,
        text=True,
        check=False,
    )


def files(destination: Path) -> dict[str, bytes]:
    """Everything below a directory."""
    return {str(path.relative_to(destination)): path.read_bytes() for path in destination.rglob("*") if path.is_file()}


def analyze(*arguments: str) -> str:
    """What systemd-analyze says, which must be content."""
    done = subprocess.run(["systemd-analyze", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A root directory with the units of all services, the system's own, and the commands that units start."""
    done = install(tmp_path, "learner", "broker", "actor")
    assert done.returncode == 0, done.stderr
    shutil.copytree(SYSTEM_UNITS, tmp_path / SYSTEM_UNITS.relative_to("/"), symlinks=True)
    commands = tmp_path / "opt/seedrl/bin"
    commands.mkdir(parents=True)
    for service in ("learner", "broker", "actor"):
        command = commands / f"seedrl-{service}"
        command.touch(0o755)
    return tmp_path


def test_installing_again_changes_nothing_but_what_the_installer_owns(tmp_path: Path) -> None:
    """Settings that were edited stay, a damaged unit is renewed, and only the services asked for are there."""
    assert install(tmp_path, "broker").returncode == 0
    first = files(tmp_path)
    assert install(tmp_path, "broker").returncode == 0
    assert files(tmp_path) == first
    assert not [name for name in first if "learner" in name or "actor" in name]
    unit, settings = "etc/systemd/system/seedrl-broker.service", "etc/seedrl/broker.env"
    (tmp_path / unit).write_text("damaged")
    (tmp_path / settings).write_text("SEEDRL_BROKER__MAX_DELAY_MS=1\n")
    assert install(tmp_path, "broker").returncode == 0
    assert (tmp_path / settings).read_text() == "SEEDRL_BROKER__MAX_DELAY_MS=1\n"
    assert files(tmp_path)[unit] == first[unit]


@pytest.mark.parametrize("services", [(), ("database",)])
def test_an_unknown_service_is_told(tmp_path: Path, services: tuple[str, ...]) -> None:
    """Nothing is installed, and the line says what may be."""
    done = install(tmp_path, *services)
    assert done.returncode == 2
    assert "learner, broker" in done.stderr
    assert files(tmp_path) == {}


@needs_systemd
def test_systemd_finds_nothing_to_complain_about(installed: Path) -> None:
    """`systemd-analyze verify` has not a word to say about any unit."""
    assert analyze("verify", f"--root={installed}", *UNITS) == ""


@needs_systemd
@pytest.mark.parametrize("unit", UNITS[:3])
def test_units_are_hardened(installed: Path, unit: str) -> None:
    """`systemd-analyze security` rates the exposure at 2.5 or less."""
    told = analyze("security", "--offline=yes", f"--root={installed}", unit)
    (exposure,) = re.findall(r"Overall exposure level for \S+: ([0-9.]+)", told)
    assert float(exposure) <= MAX_EXPOSURE


@needs_systemd
def test_the_learner_takes_back_what_tensorflow_needs(installed: Path) -> None:
    """Its own drop-in is read after the common one, so code may be compiled there, and nowhere else."""
    lifted = {unit: analyze("security", "--offline=yes", f"--root={installed}", unit) for unit in UNITS[:3]}
    writable_code = {unit: "✗ MemoryDenyWriteExecute" in told for unit, told in lifted.items()}
    assert writable_code == {UNITS[0]: True, UNITS[1]: False, UNITS[2]: False}
