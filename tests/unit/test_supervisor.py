"""What a supervisor hears: readiness, the stop, and a watchdog that falls silent with the event loop."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from seedrl_core.supervisor import keep_watchdog_quiet, notify


@pytest.fixture
def heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """The socket of a supervisor."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "notify"))
        listener.settimeout(60)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        yield listener


def test_a_service_tells_that_it_is_ready_and_that_it_stops(heard: socket.socket, tmp_path: Path) -> None:
    """A broker says READY=1 once it listens, and STOPPING=1 at SIGTERM."""
    flags = ("--listen", f"unix:{tmp_path / 'broker'}", "--learner", f"unix:{tmp_path / 'learner'}")
    with subprocess.Popen([sys.executable, "-m", "seedrl_broker", *flags], stderr=subprocess.DEVNULL) as broker:
        try:
            assert heard.recv(100) == b"READY=1"
            assert (tmp_path / "broker").is_socket()
            broker.send_signal(signal.SIGTERM)
            assert heard.recv(100) == b"STOPPING=1"
            assert broker.wait(60) == 0
        finally:
            broker.kill()


async def test_the_watchdog_hears_of_a_running_loop(heard: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told again and again, unless the watchdog is another process's."""
    monkeypatch.setenv("WATCHDOG_USEC", "1000")
    monkeypatch.setenv("WATCHDOG_PID", str(os.getpid() + 1))
    await keep_watchdog_quiet()
    monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()))
    telling = asyncio.create_task(keep_watchdog_quiet())
    for _ in range(3):
        assert await asyncio.to_thread(heard.recv, 100) == b"WATCHDOG=1"
    telling.cancel()


def test_without_a_supervisor_nothing_happens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No socket is named, or the one named is gone."""
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    notify("READY=1")
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "gone"))
    notify("READY=1")
