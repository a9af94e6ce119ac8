"""Starts the `seedrl` command as users do, and looks at the processes it has started."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from seedrl_core.errors import PeerLost
from seedrl_launcher.status import connect, plain_values

PATIENCE_S = 90.0
CHECK_PATIENCE_S = 900.0  # the check itself takes two minutes


def command(*arguments: str | Path) -> list[str]:
    """`seedrl ARGUMENTS` with this interpreter."""
    return [sys.executable, "-m", "seedrl_launcher", *map(str, arguments)]


def call(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Runs `seedrl ARGUMENTS` to its end."""
    return subprocess.run(command(*arguments), capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def check_client(address: str, log: Path, *client: str) -> tuple[int, dict[str, Any], str]:
    """Runs `seedrl check-client` on a client's command: exit code, findings and what was logged."""
    line = command("check-client", "--listen", address, "--log", log, "--json", "--", *client)
    done = subprocess.run(line, capture_output=True, text=True, timeout=CHECK_PATIENCE_S, check=False)
    return done.returncode, last_json(done.stdout), done.stderr


def last_json(output: str) -> dict[str, Any]:
    """The object on the last line."""
    value: dict[str, Any] = json.loads(output.splitlines()[-1])
    return value


@contextmanager
def started(run_dir: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """`seedrl train CartPole-v1` without an end, in the background; killed afterwards if it still runs."""
    line = command("train", "CartPole-v1", "--run-dir", run_dir, "--json", *arguments)
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def service_pids(run_dir: Path, module: str = "seedrl_") -> list[int]:
    """Processes of the run whose command line names a module."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().decode().split("\0") if entry.name.isdecimal() else []
        except OSError:
            continue
        if any(word.startswith(module) for word in words) and str(run_dir / "config.toml") in words:
            found.append(int(entry.name))
    return sorted(found)


def status(run_dir: Path) -> dict[str, Any]:
    """The status of the run's learner; empty while it does not answer."""

    async def ask() -> dict[str, Any]:
        async with connect(f"unix:{run_dir / 'learner.sock'}") as client:
            return plain_values(await client.any_service())

    try:
        return asyncio.run(ask())
    except PeerLost:
        return {}


def until(fact: Callable[[], Any], what: str) -> Any:
    """Polls other processes, whose state cannot be awaited, until the fact is true; gives its value."""
    deadline = time.monotonic() + PATIENCE_S
    while not (value := fact()):
        assert time.monotonic() < deadline, f"still waiting for: {what}"
        time.sleep(0.1)
    return value


def kill(pid: int) -> None:
    """`kill -9`."""
    os.kill(pid, 9)
