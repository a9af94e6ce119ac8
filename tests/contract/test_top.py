"""`seedrl top` as a person sees it: at a terminal, against a real broker."""

from __future__ import annotations

import asyncio
import io
import os
import pty
import signal
import sys
from pathlib import Path

from rich.console import Console

from seedrl_broker.server import serve
from seedrl_core.config import load_settings
from seedrl_launcher.top import view
from seedrl_proto.v1 import inference_pb2 as inference
from seedrl_proto.v1 import learner_pb2 as learner
from seedrl_proto.v1 import spec_pb2

COMMAND = (sys.executable, "-m", "seedrl_launcher", "top")


def text_of(reply: learner.StatusReply | inference.DescribeReply) -> str:
    """The view, without colours."""
    console = Console(file=io.StringIO(), width=120)
    console.print(view("host:1", reply))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


async def test_it_follows_a_service_that_comes_later_until_ctrl_c(tmp_path: Path) -> None:
    """It says that nobody answers, then shows the broker, and ends with success at SIGINT."""
    address = f"unix:{tmp_path / 'broker'}"
    master, terminal = pty.openpty()
    with open(master, "rb", buffering=0) as screen:
        top = await asyncio.create_subprocess_exec(
            *COMMAND, address, stdout=terminal, env={**os.environ, "TERM": "xterm", "COLUMNS": "120"}
        )
        os.close(terminal)

        async def until(words: str) -> None:
            shown = ""
            while words not in shown:
                shown += (await asyncio.to_thread(screen.read, 4096)).decode(errors="replace")

        stop = asyncio.Event()
        try:
            async with asyncio.timeout(100), asyncio.TaskGroup() as group:
                await until("nobody answers")
                config = load_settings(None, {"broker.listen": address, "broker.learner": f"unix:{tmp_path / 'none'}"})
                serving = group.create_task(serve(config.broker, stop))
                await until("0 with 0 environments")
                top.send_signal(signal.SIGINT)
                assert await top.wait() == 0
                stop.set()
                assert await serving == 0
        finally:
            if top.returncode is None:
                top.kill()
                await top.wait()


async def test_without_a_terminal_it_names_what_to_use(tmp_path: Path) -> None:
    """In a pipe it ends at once with one line."""
    pipe = asyncio.subprocess.PIPE
    top = await asyncio.create_subprocess_exec(*COMMAND, "host:1", stdout=pipe, stderr=pipe)
    _, told = await top.communicate()
    assert top.returncode == 2
    assert told.decode().splitlines()[-1].startswith("error: `seedrl top` needs a terminal")
    assert "seedrl status host:1" in told.decode()


def test_a_learner_is_shown_with_its_shares_and_bottleneck() -> None:
    """Sessions, rates, latencies and shares are there; what is not known yet is not."""
    reply = learner.StatusReply(
        run_id="pong",
        state="training",
        env_steps=1000,
        sessions=4,
        num_envs=64,
        bottleneck="training",
        spec=spec_pb2.EnvironmentSpec(environment_id="ALE/Pong-v5", action_repeat=4),
        metrics={
            "env_steps_per_s": 1500.0,
            "inference/queue_wait_ms": 0.25,
            "inference/blocked_share": 0.4,
            "train/policy_lag_updates": 2.5,
        },
    )
    shown = text_of(reply)
    for words in (
        "pong",
        "1,500 env steps/s",
        "4 with 64 environments",
        "0.25 ms",
        "40%",
        "lag 2.5 updates",
        "training",
    ):
        assert words in shown
    assert "unrolls waiting" not in shown


def test_a_broker_is_shown_with_its_batches() -> None:
    """Fill, rows and waits."""
    reply = inference.DescribeReply(
        learner_ready=True,
        sessions=2,
        num_envs=32,
        metrics={"batch_fill": 0.5, "batch_rows": 16.0, "queue_wait_ms": 1.5},
    )
    shown = text_of(reply)
    for words in ("connected", "2 with 32 environments", "16.0", "1.50 ms", "50%"):
        assert words in shown
