"""`seedrl check-client` as a writer of a client calls it, for the project's own actor."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from local_runs import CHECK_PATIENCE_S, check_client

pytestmark = pytest.mark.integration

BEGINS_WITH_A_TICK = """
import asyncio, sys
from seedrl_client.connection import Connection
from seedrl_core.access import NO_CREDENTIALS
from seedrl_core.address import Address
from seedrl_proto.v1.inference_pb2 import ClientMessage, Tick

async def main():
    connection = await Connection.open(Address.parse(sys.argv[1]), NO_CREDENTIALS, 30.0)
    await connection.send(ClientMessage(tick=Tick()).SerializeToString(), 30.0)
    await connection.receive(30.0)

asyncio.run(main())
"""


ACTOR = (sys.executable, "-m", "seedrl_actor")


@pytest.mark.timeout(CHECK_PATIENCE_S)
def test_the_actor_keeps_every_rule(tmp_path: Path) -> None:
    """All rules are exercised, with real times, masks and shared memory; the exit code is 0."""
    address = f"unix:{tmp_path / 'check.sock'}"
    masked = ("--env-id", "Masked-v0", "--env-import", "space_environments", "--num-envs", "4")
    code, findings, log = check_client(address, tmp_path / "client.log", *ACTOR, *masked, "--broker", address)
    assert (code, findings["broken"], findings["not_exercised"]) == (0, 0, 0), (findings, log)


def test_a_client_that_breaks_a_rule_fails(tmp_path: Path) -> None:
    """One that begins with a tick: exit code 1, and the finding tells what was expected. No step is tried twice."""
    address = f"unix:{tmp_path / 'check.sock'}"
    code, findings, log = check_client(
        address, tmp_path / "client.log", sys.executable, "-c", BEGINS_WITH_A_TICK, address
    )
    assert (code, findings["broken"]) == (1, 1), log
    assert findings["rules"]["S1"]["breaches"] == [{"expected": "hello first, and only then", "got": "tick"}]


def test_a_client_that_never_connects_is_told_with_its_own_words(tmp_path: Path) -> None:
    """One line with what the client said last, and another exit code than 0."""
    address = f"unix:{tmp_path / 'check.sock'}"
    wrong = (*ACTOR, "--env-id", "NoSuch-v0", "--broker", address)
    code, findings, log = check_client(address, tmp_path / "client.log", *wrong)
    assert (code, findings["kept"], findings["broken"]) == (1, 0, 0)
    assert f"error: no client has connected to {address}" in log
    assert "NoSuch" in log
