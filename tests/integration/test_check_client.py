"""`seedrl check-client` as a writer of a client calls it, for the project's own actor."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from local_runs import command, last_json

pytestmark = pytest.mark.integration

BEGINS_WITH_A_TICK = """
import asyncio, sys
from seedrl_client.connection import Connection
from seedrl_core.address import Address
from seedrl_proto.v1.inference_pb2 import ClientMessage, Tick

async def main():
    connection = await Connection.open(Address.parse(sys.argv[1]), 30.0)
    await connection.send(ClientMessage(tick=Tick()).SerializeToString(), 30.0)
    await connection.receive(30.0)

asyncio.run(main())
"""


def check(directory: Path, *client: str) -> subprocess.CompletedProcess[str]:
    """Runs the check of a command, to which the address is given last."""
    address = f"unix:{directory / 'check.sock'}"
    flags = ("--listen", address, "--log", directory / "client.log", "--json")
    line = command("check-client", *flags, "--", *client, address)
    return subprocess.run(line, capture_output=True, text=True, timeout=500, check=False)


@pytest.mark.timeout(600)
def test_the_actor_keeps_every_rule(tmp_path: Path) -> None:
    """All rules are exercised, with real times, masks and shared memory; the exit code is 0."""
    actor = (sys.executable, "-m", "seedrl_actor", "--env-id", "Masked-v0", "--env-import", "space_environments")
    done = check(tmp_path, *actor, "--num-envs", "4", "--broker")
    findings = last_json(done.stdout)
    assert (done.returncode, findings["broken"], findings["not_exercised"]) == (0, 0, 0), findings


def test_a_client_that_breaks_a_rule_fails(tmp_path: Path) -> None:
    """One that begins with a tick: exit code 1, and the finding tells what was expected. No step is tried twice."""
    done = check(tmp_path, sys.executable, "-c", BEGINS_WITH_A_TICK)
    findings = last_json(done.stdout)
    assert done.returncode == 1, done.stderr
    assert findings["broken"] == 1
    assert findings["rules"]["S1"]["breaches"] == [{"expected": "hello first, and only then", "got": "tick"}]


def test_a_client_that_never_connects_is_told_with_its_own_words(tmp_path: Path) -> None:
    """One line with what the client said last, and another exit code than 0."""
    done = check(tmp_path, sys.executable, "-m", "seedrl_actor", "--env-id", "NoSuch-v0", "--broker")
    assert done.returncode == 1
    assert "error: no client has connected to unix:" in done.stderr
    assert "NoSuch" in done.stderr
