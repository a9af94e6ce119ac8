"""`seedrl-health`, as a container's probe calls it."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest
from fakes_learner import FakeLearner, learner_at

from seedrl_broker.server import serve
from seedrl_core.config import load_settings


async def health(*arguments: str) -> tuple[int, str]:
    """Exit code and error line."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "seedrl_grpc.health", *arguments, stderr=asyncio.subprocess.PIPE
    )
    _, told = await process.communicate()
    assert process.returncode is not None
    return process.returncode, told.decode().strip()


async def until_healthy(serving: asyncio.Task[int], *arguments: str) -> None:
    """Probes until one succeeds; a failure tells what the last one said."""
    answer: tuple[int, str] | None = None
    try:
        async with asyncio.timeout(100):
            while (answer := await health(*arguments))[0] != 0:
                assert not serving.done()
    except TimeoutError:
        pytest.fail(f"the last probe: {answer}")


async def test_the_probe_tells_a_server_from_one_that_cannot_serve_yet(tmp_path: Path) -> None:
    """A broker is alive without a learner, but its Inference service serves only with one; nobody is not healthy."""
    broker, learner = f"unix:{tmp_path / 'broker'}", f"unix:{tmp_path / 'learner'}"
    inference = ("--service", "seedrl_proto.v1.Inference")
    stop = asyncio.Event()
    config = load_settings(None, {"broker.listen": broker, "broker.learner": learner}).broker
    serving = asyncio.create_task(serve(config, stop))
    await until_healthy(serving, broker)
    code, told = await health(broker, *inference)
    assert (code, told.splitlines()[-1]) == (1, f"error: {broker}: expected SERVING, got NOT_SERVING")
    async with learner_at(learner, FakeLearner()):
        await until_healthy(serving, broker, *inference)
    stop.set()
    assert await serving == 0
    code, told = await health(broker)
    assert code == 1
    assert told.splitlines()[-1].startswith(f"error: {broker}: ")


@pytest.mark.parametrize("address", ["nowhere", "unix:"])
async def test_a_mistyped_address_is_told(address: str) -> None:
    """The line says what an address looks like."""
    code, told = await health(address)
    assert code == 2
    assert "expected" in told and address in told
