"""`seedrl-learner`: parses flags, prepares TensorFlow's environment, runs the server."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from seedrl_core import logs
from seedrl_core.aio import run_service
from seedrl_core.command_line import run_command, settings_from_flags


def run(
    config: Annotated[Path | None, typer.Option(help="TOML file with sections learner, broker, actor, access")] = None,
    listen: Annotated[str | None, typer.Option(help="where brokers connect: host:port or unix:PATH")] = None,
    run_dir: Annotated[Path | None, typer.Option(help="checkpoints, metrics and TensorBoard go here")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="continue from the newest checkpoint of the run")] = False,
    serve_: Annotated[
        Path | None,
        typer.Option("--serve", help="directory of a run: only answer EVAL sessions, from its newest checkpoint"),
    ] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="any setting: learner.key=value; repeatable")] = None,
) -> None:
    """Inference and training for all brokers that connect; `--set learner.KEY=VALUE` reaches every setting."""
    flags = {
        "listen": listen,
        "run_dir": serve_ or run_dir,
        "resume": resume or None,
        "mode": "serve" if serve_ else None,
    }
    settings = settings_from_flags("learner", config, set_, flags)
    learner = settings.learner
    logs.configure("learner", run=learner.run_dir.name)

    from seedrl_learner import compute

    compute.configure_tensorflow()
    if learner.deterministic:
        compute.make_deterministic(learner.seed)
    from seedrl_learner.server import serve  # imports tensorflow

    raise typer.Exit(run_service(lambda stop: serve(learner, stop, access=settings.access)))


def main() -> None:
    """Console entry point."""
    run_command(run)


if __name__ == "__main__":
    main()
