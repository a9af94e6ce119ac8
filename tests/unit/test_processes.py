"""Child processes: their logs, their ends, and what they leave behind."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from seedrl_core.aio import run_service
from seedrl_core.errors import BadRequest, PeerLost, exit_in_words
from seedrl_launcher.processes import Process


def script(tmp_path: Path, code: str, name: str = "child") -> Process:
    """A child that runs `code`."""
    return Process(name, [sys.executable, "-u", "-c", code], tmp_path / "logs" / f"{name}.log")


async def until(condition, seconds: float = 20.0) -> None:
    """Polls a fact about another process, which cannot be awaited."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.02)


def is_running(pid: int) -> bool:
    """True for a process that exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def test_output_of_every_start_is_in_the_log(tmp_path):
    """Standard output and standard error of both starts are in the one file."""
    process = script(tmp_path, "import sys; print('out'); print('err', file=sys.stderr)")
    for _ in range(2):
        process.start()
        assert await process.wait() == 0
    assert sorted(process.log_file.read_text().split()) == ["err", "err", "out", "out"]


async def test_failure_tells_the_error_line_of_its_own_start(tmp_path):
    """A failure names the last start's error line and exit code, not an earlier start's."""
    process = script(tmp_path, "import sys, os; sys.exit(f'error: try {os.getpid()}')")
    process.start()
    first = process.pid
    await process.wait()
    process.start()
    failure = process.failure(await process.wait())
    assert str(failure) == f"child ended with exit code 1: try {process.pid}"
    assert first != process.pid
    assert failure.exit_code == 1


async def test_failure_without_an_error_line_shows_the_end_of_the_log(tmp_path):
    """A traceback is shown, under a first line that names the exit code and the log file."""
    process = script(tmp_path, "raise KeyError('speed')")
    process.start()
    headline, *tail = str(process.failure(await process.wait())).splitlines()
    assert headline == f"child ended with exit code 1 (log: {process.log_file})"
    assert tail[-1] == "  | KeyError: 'speed'"


async def test_failure_names_the_signal(tmp_path):
    """A process that a signal ended is reported with the signal's name."""
    process = script(tmp_path, "import time; time.sleep(60)")
    process.start()
    os.kill(process.pid, signal.SIGKILL)
    assert str(process.failure(await process.wait())).startswith("child was ended by SIGKILL")


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (3, "ended with exit code 3"),
        (-signal.SIGKILL, "was ended by SIGKILL"),
        (-int(signal.SIGRTMIN + 1), f"was ended by signal {signal.SIGRTMIN + 1}"),
    ],
)
def test_every_end_has_words(code, words):
    """Of signals without a name, too."""
    assert exit_in_words(code) == words


async def test_stop_asks_first(tmp_path):
    """A process that obeys SIGTERM ends with the exit code it chooses."""
    code = "import signal, sys; signal.signal(15, lambda *_: sys.exit(7)); print('ready'); signal.pause()"
    process = script(tmp_path, code)
    process.start()
    await until(lambda: "ready" in process.log_file.read_text())
    await process.stop(patience_s=0.0, grace_s=20.0)
    assert process.exit_code == 7


async def test_stop_kills_one_that_does_not_listen(tmp_path):
    """A process that ignores SIGTERM is killed after its grace."""
    code = "import signal, time; signal.signal(15, signal.SIG_IGN); print('ready'); time.sleep(60)"
    process = script(tmp_path, code)
    process.start()
    await until(lambda: "ready" in process.log_file.read_text())
    await process.stop(patience_s=0.0, grace_s=0.2)
    assert process.exit_code == -signal.SIGKILL


async def test_children_of_a_dead_process_are_ended(tmp_path):
    """What a killed process had started itself does not outlive it."""
    code = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "print(child.pid); time.sleep(60)"
    )
    process = script(tmp_path, code)
    process.start()
    await until(lambda: process.log_file.read_text().endswith("\n"))
    grandchild = int(process.log_file.read_text())
    os.kill(process.pid, signal.SIGKILL)
    await process.wait()
    await until(lambda: not is_running(grandchild))


async def test_a_service_ends_when_its_starter_is_killed(tmp_path):
    """A service started with `Process` stops by itself once the process that started it was killed with -9."""
    service = (
        "from seedrl_core.aio import run_service\n"
        "async def main(stop):\n"
        "    print('up', flush=True); await stop.wait(); print('stopped', flush=True); return 0\n"
        "run_service(main)"
    )
    starter = (
        "import sys, time\nfrom pathlib import Path\nfrom seedrl_launcher.processes import Process\n"
        f"process = Process('service', [sys.executable, '-c', {service!r}], Path({str(tmp_path / 'log')!r}))\n"
        "process.start(); print(process.pid, flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", starter], stdout=subprocess.PIPE, text=True) as launcher:
        assert launcher.stdout is not None
        pid = int(launcher.stdout.readline())
        await until(lambda: "up" in (tmp_path / "log").read_text())
        launcher.kill()
    await until(lambda: not is_running(pid))
    assert (tmp_path / "log").read_text().splitlines()[-1] == "stopped"


@pytest.mark.parametrize(("error", "code"), [(PeerLost("gone"), 1), (BadRequest("no such key"), 2)])
def test_expected_errors_become_one_line_and_an_exit_code(error, code, capfd):
    """A service that ends with an expected error prints it in one line, and its exit code tells who must act."""

    async def main(stop: asyncio.Event) -> int:
        async with asyncio.TaskGroup():
            raise error

    assert run_service(main) == code
    assert capfd.readouterr().err == f"error: {error}\n"
