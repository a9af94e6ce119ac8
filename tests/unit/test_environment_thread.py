"""Environments in a thread: calls, errors, the watchdog, and leaving a hanging environment behind."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import numpy as np
import pytest

from seedrl_actor import environment_thread
from seedrl_actor.environment_thread import EnvironmentThread
from seedrl_actor.environments import Step
from seedrl_core.errors import ConfigError, EnvironmentFailed
from seedrl_core.spec import Array, EnvironmentSpec, TensorSpec

SPEC = EnvironmentSpec(
    "Fake-v0",
    (TensorSpec("observation", np.dtype(np.float32), ()),),
    (TensorSpec("action", np.dtype(np.int64), (), (0.0,), (1.0,)),),
)


class FakeVector:
    """One environment that reports its thread, and hangs or fails on demand."""

    spec = SPEC
    num_envs = 1
    busy_with = "environment 0 (Fake-v0)"

    def __init__(self) -> None:
        self.may_go_on = threading.Event()
        self.may_go_on.set()
        self.threads: list[int] = []
        self.closed = False

    def reset(self) -> Step:
        return self._observe()

    def step(self, action: tuple[Array, ...]) -> Step:
        assert self.may_go_on.wait(30)
        if action[0][0] < 0:
            raise EnvironmentFailed("failed too often")
        return self._observe()

    def close(self) -> None:
        self.threads.append(threading.get_ident())
        self.closed = True

    def _observe(self) -> Step:
        self.threads.append(threading.get_ident())
        return Step((np.zeros(1, np.float32),), np.zeros(1, np.float32), np.zeros(1, np.uint8))


ACTION = (np.array([1]),)


async def test_all_calls_run_in_one_thread_of_their_own() -> None:
    """Building, stepping and closing share a thread that is not the event loop's."""
    vector = FakeVector()
    thread = EnvironmentThread(lambda: vector, 60.0, "test")
    assert await thread.build() == SPEC
    await thread.reset()
    _, env_ms = await thread.step(ACTION)
    assert env_ms >= 0
    await thread.close()
    assert vector.closed
    assert len(vector.threads) == 3
    assert len(set(vector.threads)) == 1
    assert vector.threads[0] != threading.get_ident()


async def test_errors_come_out_of_the_call() -> None:
    """What the environments raise is raised by the call, in building too."""

    def fail() -> Any:
        raise ConfigError("no such environment")

    broken = EnvironmentThread(fail, 60.0, "test")
    with pytest.raises(ConfigError, match="no such environment"):
        await broken.build()
    await broken.close()
    thread = EnvironmentThread(FakeVector, 60.0, "test")
    await thread.build()
    with pytest.raises(EnvironmentFailed, match="failed too often"):
        await thread.step((np.array([-1]),))
    await thread.close()


async def test_the_watchdog_tells_where_a_step_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step beyond the limit is logged again and again with environment, time and stack."""
    vector = FakeVector()
    told: list[dict[str, Any]] = []
    enough = asyncio.Event()

    class Log:
        def warning(self, event: str, **keys: Any) -> None:
            assert event == "environment_hangs"
            told.append(keys)
            if len(told) == 2:
                enough.set()

    monkeypatch.setattr(environment_thread, "_log", Log())
    thread = EnvironmentThread(lambda: vector, 0.02, "test")
    await thread.build()
    vector.may_go_on.clear()
    stepping = asyncio.create_task(thread.step(ACTION))
    await enough.wait()
    vector.may_go_on.set()
    await stepping
    await thread.close()
    assert told[0]["environment"] == "environment 0 (Fake-v0)"
    assert told[1]["elapsed_s"] >= told[0]["elapsed_s"]
    assert "in step" in told[0]["stack"]
    assert "may_go_on.wait" in told[0]["stack"]


async def test_a_hanging_environment_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cancelled step raises at once, closing gives up after its deadline, and the thread is a daemon."""
    monkeypatch.setattr(environment_thread, "_CLOSE_S", 0.05)
    vector = FakeVector()
    thread = EnvironmentThread(lambda: vector, 60.0, "hanging")
    await thread.build()
    vector.may_go_on.clear()
    stepping = asyncio.create_task(thread.step(ACTION))
    await asyncio.sleep(0)
    stepping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stepping
    await thread.close()
    (worker,) = [other for other in threading.enumerate() if other.name == "hanging"]
    assert worker.daemon
    vector.may_go_on.set()
    worker.join(10)
    assert not worker.is_alive()


async def test_what_is_built_after_a_cancellation_is_closed() -> None:
    """A stop in the middle of building leaves no environment, or process or world of one, without an owner."""
    vector, may_be_built = FakeVector(), threading.Event()

    def make() -> FakeVector:
        assert may_be_built.wait(30)
        return vector

    thread = EnvironmentThread(make, 60.0, "slow")
    building = asyncio.create_task(thread.build())
    await asyncio.sleep(0)
    building.cancel()
    with pytest.raises(asyncio.CancelledError):
        await building
    may_be_built.set()
    await thread.close()
    assert vector.closed
