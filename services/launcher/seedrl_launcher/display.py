"""What a person sees of a run: a live display at a terminal, a line every few seconds elsewhere. Talks to nobody."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import IO, Any, Protocol, Self, TextIO, cast

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from seedrl_proto.v1 import learner_pb2 as learner

PLAIN_PERIOD_S = 10.0


@dataclass(frozen=True)
class Snapshot:
    """A run at one moment.

    Attributes:
      status: the learner's; None until it answers for the first time.
      actors_alive, actors: running, and meant to run.
      restarts: actors started again so far.
    """

    status: learner.StatusReply | None
    actors_alive: int
    actors: int
    restarts: int


class Display(Protocol):
    """Shows snapshots between `__enter__` and `__exit__`."""

    def show(self, snapshot: Snapshot) -> None:
        """Shows the run as it is now."""

    def tell(self, line: str) -> None:
        """Shows an event, for good."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def make_display(title: str) -> Display:
    """The display that fits standard error."""
    console = Console(file=cast(IO[str], _Lasting(sys.stderr)))
    return LiveDisplay(title, console) if console.is_terminal else PlainDisplay(title, console)


class _Lasting:
    """A stream that drops what it cannot write: a terminal that was closed, or a pipe nobody reads, ends no run."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Past Python's buffer, in which it would stay for the end of the process to fail with."""
        with suppress(OSError):
            os.write(self._stream.fileno(), text.encode(self._stream.encoding, "backslashreplace"))
        return len(text)


def figures(snapshot: Snapshot) -> list[tuple[str, str]]:
    """Label and text of everything there is to say, in order of interest; what is not known yet is left out."""
    actors = f"{snapshot.actors_alive}/{snapshot.actors} alive"
    if snapshot.restarts:
        actors += f", {snapshot.restarts} restarts"
    if snapshot.status is None:
        return [("state", "starting"), ("actors", actors)]
    return [*learner_figures(snapshot.status), ("actors", actors)]


def learner_figures(status: learner.StatusReply) -> list[tuple[str, str]]:
    """`figures` of the learner alone."""
    metrics = status.metrics

    def metric(name: str, form: str) -> str:
        return form.format(metrics[name]) if name in metrics else ""

    lag = metric("train/policy_lag_updates", "lag {:.1f} updates")
    mean_return = "" if math.isnan(status.mean_return) else f"{status.mean_return:,.2f} (last 100 episodes)"
    candidates = [
        ("state", "" if status.state == "training" else status.state),
        ("speed", _joined(metric("env_steps_per_s", "{:,.0f} env steps/s"), _frames_per_s(status))),
        ("mean return", mean_return),
        ("human-normalized", metric("episode/human_normalized_score", "{:.2f} (a person: 1)")),
        ("episodes", f"{status.episodes:,}"),
        ("policy", _joined(f"version {status.policy_version:,}", lag)),
        ("inference", _joined(metric("inference/batch_rows", "{:.0f} rows"), metric("inference/step_ms", "{:.1f} ms"))),
        ("training", metric("train/update_ms", "{:.1f} ms an update")),
        ("environments", metric("environment/step_ms", "{:.2f} ms a step")),
        ("learner idle", metric("learner/idle_share", "{:.0%}")),
        ("bottleneck", status.bottleneck),
    ]
    return [(label, text) for label, text in candidates if text]


def progress_line(status: learner.StatusReply) -> str:
    """Env steps done, the goal and the time left, where there is a goal."""
    if not status.total_env_steps:
        return f"{status.env_steps:,} env steps"
    share = min(1.0, status.env_steps / status.total_env_steps)
    line = f"{status.env_steps:,} / {status.total_env_steps:,} env steps  {share:.0%}"
    speed = status.metrics.get("env_steps_per_s", 0.0)
    if speed > 0:
        line += f"  {duration(max(0, status.total_env_steps - status.env_steps) / speed)} left"
    return line


def duration(seconds: float) -> str:
    """`3725` -> `1:02:05`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class LiveDisplay:
    """A progress bar and a table that are drawn over again."""

    def __init__(self, title: str, console: Console) -> None:
        """`console` is a terminal."""
        self._title = title
        self._live = Live(Text(title), console=console, refresh_per_second=4, transient=False)

    def show(self, snapshot: Snapshot) -> None:
        """Draws the run as it is now."""
        table = Table.grid(padding=(0, 2))
        for label, text in figures(snapshot):
            table.add_row(Text(label, style="dim"), Text(text, style="bold" if label == "bottleneck" else ""))
        parts: list[Text | Table] = [Text(self._title, style="bold")]
        status = snapshot.status
        if status is not None:
            parts.append(Text(progress_line(status)))
            if status.total_env_steps:
                line = Table.grid()  # a bar alone would share its line with what follows
                line.add_row(ProgressBar(total=status.total_env_steps, completed=status.env_steps, width=60))
                parts.append(line)
        self._live.update(Group(*parts, table))

    def tell(self, line: str) -> None:
        """Prints an event above the display."""
        self._live.console.print(line, markup=False, highlight=False)

    def __enter__(self) -> Self:
        """Takes the terminal."""
        self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leaves the last drawing where it is."""
        self._live.__exit__(kind, error, trace)


class PlainDisplay:
    """A line every PLAIN_PERIOD_S seconds, for logs and pipes."""

    def __init__(self, title: str, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` returns seconds."""
        self._title = title
        self._console = console
        self._clock = clock
        self._next_s = -math.inf

    def show(self, snapshot: Snapshot) -> None:
        """Prints the run as it is now, if it is time."""
        if self._clock() < self._next_s:
            return
        self._next_s = self._clock() + PLAIN_PERIOD_S
        parts = [f"{label} {text}" for label, text in figures(snapshot)]
        self.tell(_joined(progress_line(snapshot.status) if snapshot.status else "", *parts))

    def tell(self, line: str) -> None:
        """Prints an event."""
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def __enter__(self) -> Self:
        """Prints the title."""
        self.tell(self._title)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """There is nothing to give back."""


def _frames_per_s(status: learner.StatusReply) -> str:
    if status.spec.action_repeat <= 1 or "frames_per_s" not in status.metrics:
        return ""
    return f"{status.metrics['frames_per_s']:,.0f} frames/s"


def _joined(*parts: str) -> str:
    return ", ".join(part for part in parts if part)
