"""`seedrl-broker`: parses flags, runs the server."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from seedrl_broker.server import serve
from seedrl_core import logs
from seedrl_core.aio import run_service
from seedrl_core.command_line import run_command, settings_from_flags


def run(
    config: Annotated[Path | None, typer.Option(help="TOML file with sections learner, broker, actor, access")] = None,
    listen: Annotated[str | None, typer.Option(help="where actors connect: host:port or unix:PATH")] = None,
    learner: Annotated[str | None, typer.Option(help="address of the learner: host:port or unix:PATH")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="any setting: broker.key=value; repeatable")] = None,
) -> None:
    """Batches the requests of many actors for one learner; `--set broker.KEY=VALUE` reaches every setting."""
    settings = settings_from_flags("broker", config, set_, {"listen": listen, "learner": learner})
    logs.configure("broker")
    raise typer.Exit(run_service(lambda stop: serve(settings.broker, stop, settings.access)))


def main() -> None:
    """Console entry point."""
    run_command(run)


if __name__ == "__main__":
    main()
