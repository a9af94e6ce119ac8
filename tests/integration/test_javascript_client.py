"""The JavaScript client in examples/. Its dependencies are installed where it stands, as its README says."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import subprocess
from pathlib import Path

import pytest
from local_runs import CHECK_PATIENCE_S, check_client
from recorded_runs import process

pytestmark = pytest.mark.integration

EXAMPLE = Path(__file__).parents[2] / "examples" / "javascript_client"
ENV_STEPS = 3000
DEADLINE_S = 600.0


@pytest.fixture(scope="module")
def client() -> tuple[str, ...]:
    """The command of the client, without its arguments."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        pytest.skip("node and npm are not installed")
    installed = EXAMPLE / "node_modules" / ".package-lock.json"
    if not installed.exists() or installed.stat().st_mtime < (EXAMPLE / "package-lock.json").stat().st_mtime:
        subprocess.run([npm, "ci", "--no-audit", "--no-fund"], cwd=EXAMPLE, check=True)
    return node, str(EXAMPLE / "main.js")


@pytest.mark.timeout(CHECK_PATIENCE_S)
def test_it_keeps_every_rule(tmp_path: Path, client: tuple[str, ...]) -> None:
    """Over TCP; what it has no use for, shared memory and masks, is all that is not exercised."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    code, findings, log = check_client(address, tmp_path / "client.log", *client, address, "4")
    assert (code, findings["broken"]) == (0, 0), (findings, log)
    unused = {rule for rule, found in findings["rules"].items() if found["verdict"] == "not exercised"}
    assert unused == {"H7", "T6", "M1", "M2", "M3", "M4", "M5"}


@pytest.mark.timeout(DEADLINE_S + 10.0)
async def test_it_trains_through_a_real_broker_and_learner(tmp_path: Path, client: tuple[str, ...]) -> None:
    """Updates are made from its steps, the learner counts its episodes, and the end of the run is its success."""
    learner, broker = f"unix:{tmp_path / 'learner.sock'}", f"unix:{tmp_path / 'broker.sock'}"
    run_dir = tmp_path / "run"
    settings = (f"learner.total_env_steps={ENV_STEPS}", "learner.batch_unrolls=2")
    flags = [word for setting in settings for word in ("--set", setting)]
    async with asyncio.timeout(DEADLINE_S):
        async with (
            process("seedrl_learner", "--listen", learner, "--run-dir", str(run_dir), *flags) as learning,
            process("seedrl_broker", "--listen", broker, "--learner", learner),
        ):
            playing = await asyncio.create_subprocess_exec(*client, broker, "8", stdout=asyncio.subprocess.PIPE)
            try:
                output, _ = await playing.communicate()
            finally:
                if playing.returncode is None:
                    playing.kill()
            assert playing.returncode == 0
            assert b"finished: " in output
            assert await learning.wait() == 0
    summary = json.loads((run_dir / "summary.json").read_text())
    assert summary["env_steps"] >= ENV_STEPS
    # Every update is one of 2 unrolls of 20 transitions, of which one in eight is into a reset.
    assert summary["policy_version"] > ENV_STEPS / 40 / 2
    assert summary["episodes"] > ENV_STEPS / 7 / 2
    assert 0.0 <= summary["mean_return"] <= 1.0
