"""`seedrl-learner`: parses flags, prepares TensorFlow's environment, runs the server."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from seedrl_core import logs
from seedrl_core.aio import run_service
from seedrl_core.config import load_settings, parse_assignments
from seedrl_core.errors import ConfigError


def run(
    config: Annotated[Path | None, typer.Option(help="TOML file with sections learner, broker and actor")] = None,
    listen: Annotated[str | None, typer.Option(help="where brokers connect: host:port or unix:PATH")] = None,
    run_dir: Annotated[Path | None, typer.Option(help="checkpoints, metrics and TensorBoard go here")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="continue from the newest checkpoint of the run")] = False,
    set_: Annotated[list[str] | None, typer.Option("--set", help="any setting: learner.key=value; repeatable")] = None,
) -> None:
    """Inference and training for all brokers that connect; `--set learner.KEY=VALUE` reaches every setting."""
    flags: dict[str, Any] = {"listen": listen, "run_dir": run_dir, "resume": resume or None}
    overrides = {f"learner.{name}": value for name, value in flags.items() if value is not None}
    try:
        learner = load_settings(config, parse_assignments(set_ or []) | overrides).learner
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        raise typer.Exit(2) from error
    logs.configure("learner", run=learner.run_dir.name)

    from seedrl_learner import compute

    compute.configure_tensorflow()
    from seedrl_learner.server import serve  # imports tensorflow

    raise typer.Exit(run_service(lambda stop: serve(learner, stop)))


def main() -> None:
    """Console entry point."""
    typer.run(run)


if __name__ == "__main__":
    main()
