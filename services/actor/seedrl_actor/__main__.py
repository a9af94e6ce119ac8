"""`seedrl-actor`: parses flags, runs the actor."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from seedrl_actor import actor
from seedrl_actor.identity import actor_id
from seedrl_core import logs
from seedrl_core.aio import run_service
from seedrl_core.command_line import run_command, settings_from_flags


def run(
    config: Annotated[Path | None, typer.Option(help="TOML file with sections learner, broker, actor, access")] = None,
    broker: Annotated[str | None, typer.Option(help="the broker: host:port or unix:PATH; several with commas")] = None,
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
    settings = settings_from_flags("actor", config, set_, flags)
    logs.configure("actor", actor_id=actor_id(settings.actor))
    raise typer.Exit(run_service(lambda stop: actor.run(settings.actor, stop, settings.access)))


def main() -> None:
    """Console entry point."""
    run_command(run)


if __name__ == "__main__":
    main()
