"""`seedrl-actor`: parses flags, runs the actor."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from seedrl_actor import actor
from seedrl_core import logs
from seedrl_core.aio import run_service
from seedrl_core.config import load_settings, parse_assignments
from seedrl_core.errors import ConfigError


def run(
    config: Annotated[Path | None, typer.Option(help="TOML file with sections learner, broker and actor")] = None,
    broker: Annotated[str | None, typer.Option(help="the broker: host:port or unix:PATH")] = None,
    env_id: Annotated[str | None, typer.Option(help="Gymnasium id, e.g. CartPole-v1 or ALE/Pong-v5")] = None,
    env_import: Annotated[str | None, typer.Option(help="module to import first: it registers its ids")] = None,
    num_envs: Annotated[int | None, typer.Option(help="environments in this process")] = None,
    actor_index: Annotated[int | None, typer.Option(help="number of this actor: separates its seeds")] = None,
    seed: Annotated[int | None, typer.Option(help="base of every environment's seed")] = None,
    role: Annotated[str | None, typer.Option(help="train, or eval: greedy and not trained on")] = None,
    episodes: Annotated[int | None, typer.Option(help="stop after this many whole episodes")] = None,
    results: Annotated[Path | None, typer.Option(help="file that gets one JSON line an episode")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="any setting: actor.key=value; repeatable")] = None,
) -> None:
    """Steps environments by the actions of a learner; `--set actor.KEY=VALUE` reaches every setting."""
    flags: dict[str, Any] = {
        "broker": broker,
        "env_id": env_id,
        "env_import": env_import,
        "num_envs": num_envs,
        "actor_index": actor_index,
        "seed": seed,
        "role": role,
        "episodes": episodes,
        "results": results,
    }
    overrides = {f"actor.{name}": value for name, value in flags.items() if value is not None}
    try:
        settings = load_settings(config, parse_assignments(set_ or []) | overrides).actor
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        raise typer.Exit(2) from error
    logs.configure("actor", actor=settings.actor_index)
    raise typer.Exit(run_service(lambda stop: actor.run(settings, stop)))


def main() -> None:
    """Console entry point."""
    typer.run(run)


if __name__ == "__main__":
    main()
