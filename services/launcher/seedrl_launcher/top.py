"""A live view of one running service, for a terminal. It asks, and changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from seedrl_core.access import NO_CREDENTIALS, AccessConfig
from seedrl_core.errors import ConfigError, PeerLost
from seedrl_launcher.display import learner_figures, progress_line
from seedrl_launcher.status import Reply, StatusClient, connect
from seedrl_proto.v1 import learner_pb2 as learner

_PERIOD_S = 1.0
_BAR_WIDTH = 40
# Label, name in StatusReply.metrics or DescribeReply.metrics, form.
_LEARNER_METRICS: Sequence[tuple[str, str, str]] = (
    ("waits at the broker", "inference/queue_wait_ms", "{:.2f} ms"),
    ("unrolls waiting", "train/queue_unrolls", "{:.0f}"),
    ("updates", "train/updates_per_s", "{:.1f} a second"),
)
_LEARNER_SHARES: Sequence[tuple[str, str]] = (
    ("inference busy", "inference/busy_share"),
    ("inference blocked", "inference/blocked_share"),
    ("training busy", "train/busy_share"),
    ("training waits", "train/wait_share"),
    ("learner idle", "learner/idle_share"),
)
_BROKER_METRICS = (
    ("rows", "rows_per_s", "{:,.0f} a second"),
    ("batches", "batches_per_s", "{:,.1f} a second"),
    ("rows a batch", "batch_rows", "{:.1f}"),
    ("waits for a batch", "queue_wait_ms", "{:.2f} ms"),
    ("longest wait", "queue_wait_max_ms", "{:.1f} ms"),
    ("learner's answer", "learner_round_trip_ms", "{:.2f} ms"),
)
_BROKER_SHARES = (("batch fill", "batch_fill"),)


async def watch_service(
    address: str, console: Console, stop: asyncio.Event, access: AccessConfig = NO_CREDENTIALS
) -> int:
    """Draws the service at `address` about once a second until `stop` is set; returns the exit code.

    While nobody answers it says so, and goes on.

    Raises:
      ConfigError: `console` is no terminal, or a certificate or a token of `access` is not usable.
      AccessDenied: the service refuses the token, or its certificate is not trusted.
    """
    if not console.is_terminal:
        raise ConfigError(f"`seedrl top` needs a terminal; once and for scripts: seedrl status {address} --json")
    async with connect(address, access) as client:
        with Live(Text(f"asking {address} ..."), console=console, auto_refresh=False) as live:
            while not stop.is_set():
                live.update(await _drawn(client, address), refresh=True)
                try:
                    async with asyncio.timeout(_PERIOD_S):
                        await stop.wait()
                except TimeoutError:
                    pass  # time for the next
    return 0


def view(address: str, reply: Reply) -> RenderableType:
    """What a service says about itself, in the units of people."""
    parts: list[RenderableType] = []
    if isinstance(reply, learner.StatusReply):
        parts += [Text(f"learner {address} · {reply.run_id} · {reply.spec.environment_id}", style="bold")]
        if reply.total_env_steps:
            parts.append(ProgressBar(total=reply.total_env_steps, completed=reply.env_steps, width=60))
        parts.append(Text(progress_line(reply)))
        shares, metrics = _LEARNER_SHARES, _LEARNER_METRICS
        rows = [
            ("state", reply.state),
            *(row for row in learner_figures(reply) if row[0] not in ("state", "learner idle")),
        ]
        rows.append(("checkpoint", reply.last_checkpoint or "none yet"))
    else:
        parts.append(Text(f"broker {address} · {reply.spec.environment_id}", style="bold"))
        shares, metrics = _BROKER_SHARES, _BROKER_METRICS
        rows = [("learner", "connected" if reply.learner_ready else "not there")]
    rows.append(("sessions", f"{reply.sessions:,} with {reply.num_envs:,} environments"))
    rows += [(label, form.format(reply.metrics[name])) for label, name, form in metrics if name in reply.metrics]
    table = Table.grid(padding=(0, 2))
    for label, text in rows:
        table.add_row(Text(label, style="dim"), Text(text, style="bold" if label == "bottleneck" else ""))
    for label, name in shares:
        if name in reply.metrics:
            share = reply.metrics[name]
            bar = ProgressBar(total=1.0, completed=share, width=_BAR_WIDTH)
            table.add_row(Text(label, style="dim"), Text(f"{share:4.0%}"), bar)
    return Group(*parts, table)


async def _drawn(client: StatusClient, address: str) -> RenderableType:
    try:
        return view(address, await client.any_service())
    except PeerLost as lost:
        return Text(str(lost), style="yellow")
