"""The quick ones of the faults, to one system of real processes; `make faults` has them all, and takes the time."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from faults.scenarios import FAULTS, Cost, Fault, suffer
from faults.system import System, running_system

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]

QUICK = {
    "actor: kill -9": Cost.ANEW,
    "broker: kill -9": Cost.REOPENED,
    "broker: SIGTERM": Cost.REOPENED,
    "broker: gone for good": Cost.REOPENED,
    "actor-broker: reset": Cost.REOPENED,
    "broker-learner: half-closed towards the client": Cost.REOPENED,
    "learner: full disk": Cost.NOTHING,
    "learner: kill -9": Cost.REOPENED,
}


def fault_named(name: str) -> Fault:
    """The one of the matrix whose place and description begin so."""
    (fault,) = [fault for fault in FAULTS if f"{fault.where}: {fault.what}".startswith(name)]
    return fault


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def system(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[System]:
    """One system for all, in the order of the tests."""
    async with running_system(tmp_path_factory.mktemp("system")) as system:
        yield system


@pytest.mark.parametrize("name", QUICK)
async def test_a_system_recovers_from(name: str, system: System) -> None:
    """Training goes on by itself, no unroll is wrong or trained on twice, all that was held is given back.

    It costs what is expected, and nothing to those who have nothing to do with it.
    """
    fault = fault_named(name)
    if why := fault.skip(system):
        pytest.skip(why)
    assert (await suffer(fault, system)).cost is QUICK[name]


async def test_in_the_end_nothing_is_left(system: System) -> None:
    """After all that each service still ends in order, with exit code 0, and no process is left behind."""
    await system.stop()
