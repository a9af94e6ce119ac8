"""`seedrl`: parses flags and prints results; everything else is in the modules that it calls."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
import uvloop
from rich.console import Console
from rich.table import Table

from seedrl_core import logs
from seedrl_core.address import Address
from seedrl_core.aio import run_service
from seedrl_core.command_line import run_app
from seedrl_core.config import load_settings, parse_assignments, write_settings
from seedrl_core.errors import ConfigError
from seedrl_launcher import run_directory
from seedrl_launcher.conformance.check import Check
from seedrl_launcher.conformance.client import CommandClient
from seedrl_launcher.conformance.report import as_table, as_values
from seedrl_launcher.display import make_display
from seedrl_launcher.evaluation import Evaluator
from seedrl_launcher.film import check_film, write_film
from seedrl_launcher.learning_curves import Against, draw, grouped, read_curve
from seedrl_launcher.run_directory import RunDirectory
from seedrl_launcher.run_settings import (
    chosen_run_dir,
    default_num_actors,
    eval_settings,
    train_settings,
    with_run_dir,
)
from seedrl_launcher.services import Addresses
from seedrl_launcher.settings_listing import all_settings, settings_page, settings_table
from seedrl_launcher.status import connect, plain_values
from seedrl_launcher.top import watch_service
from seedrl_launcher.training import INTERRUPTED, Training
from seedrl_launcher.watching import Watching, broker_settings, recorded_settings

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=__doc__)

Target = Annotated[str, typer.Argument(help="a learner or a broker: host:port or unix:PATH")]
AccessFile = Annotated[Path | None, typer.Option("--config", help="TOML file with a section access: TLS, token file")]
AccessSettings = Annotated[list[str] | None, typer.Option("--set", help="access.key=value; repeatable")]
AsJson = Annotated[bool, typer.Option("--json", help="print one JSON object as the last line of standard output")]


@app.command()
def train(
    env_id: Annotated[
        str,
        typer.Argument(
            help="Gymnasium id, e.g. CartPole-v1 or ALE/Pong-v5, football/SCENARIO, or dm_env_rpc://host:port"
        ),
    ],
    agent: Annotated[str | None, typer.Option(help="algorithm (default: vtrace)")] = None,
    env_steps: Annotated[
        int | None, typer.Option(min=0, help="finish after this many environment steps, 0: never (default: 0)")
    ] = None,
    actors: Annotated[int | None, typer.Option(min=1, help="actor processes (default: 2)")] = None,
    envs_per_actor: Annotated[int | None, typer.Option(min=1, help="environments an actor (default: 32)")] = None,
    run_dir: Annotated[Path | None, typer.Option(help="directory of the run (default: a new one in runs/)")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="continue the run in --run-dir")] = False,
    seed: Annotated[int | None, typer.Option(min=0, help="seed of network and environments (default: 0)")] = None,
    deterministic: Annotated[
        bool, typer.Option("--deterministic", help="one seed, one result, bit for bit; one actor, and slower")
    ] = False,
    config: Annotated[Path | None, typer.Option(help="TOML file with sections learner, broker, actor, access")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="any setting: section.key=value; repeatable; see `seedrl config`")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Trains an agent on this machine: starts learner, broker and actors, shows their progress, stops them in order.

    Ctrl-C ends the run with a checkpoint, which --resume continues from.
    """
    if resume and run_dir is None:
        raise ConfigError("--resume needs --run-dir: the directory of the run to continue")
    resumed = run_directory.open_with_checkpoint(run_dir) if resume and run_dir else None
    settings = train_settings(
        env_id=env_id,
        agent=agent,
        env_steps=env_steps,
        envs_per_actor=envs_per_actor,
        seed=seed,
        num_actors=actors,
        file=config or (resumed.config_file if resumed else None),
        assignments=set_ or [],
        deterministic=deterministic,
        resume=resume,
    )
    run = resumed or _new_run(env_id, settings.learner.agent, run_dir or chosen_run_dir(settings))
    settings = with_run_dir(settings, run.path)
    run.forget_summary()
    write_settings(settings, run.config_file)
    with run_directory.socket_directory(run) as sockets:
        addresses = Addresses.choose(settings, sockets)
        display = make_display(f"{env_id} · {settings.learner.agent} · {run.path} · seedrl status {addresses.learner}")
        training = Training(settings, run, addresses, display, num_actors=actors or default_num_actors(settings))
        code = run_service(training.run, abandon=training.kill)
    summary = run.read_summary()
    if summary is not None:
        _print(summary, as_json)
    raise typer.Exit(code)


@app.command("eval")
def evaluate(
    run_dir: Annotated[Path, typer.Argument(help="directory of a run")],
    episodes: Annotated[int, typer.Option(min=1, help="whole episodes to play")] = 100,
    envs: Annotated[int, typer.Option(min=1, help="environments that play at a time")] = 32,
    seed: Annotated[int | None, typer.Option(min=0, help="seed of the environments (default: fresh ones)")] = None,
    as_json: AsJson = False,
) -> None:
    """Plays whole episodes greedily with a run's newest checkpoint; trains nothing and leaves the run as it is."""
    run = run_directory.open_with_checkpoint(run_dir)
    with run_directory.temporary_directory() as directory:
        results = directory / "episodes.jsonl"
        settings = eval_settings(
            run.config_file, run.path, episodes=episodes, num_envs=envs, seed=seed, results=results
        )
        evaluator = Evaluator(settings, directory)

        async def main(stop: asyncio.Event) -> int:
            evaluation = await evaluator.run(stop)
            if evaluation is None:
                return INTERRUPTED
            _print(asdict(evaluation), as_json)
            return 0

        code = run_service(main, abandon=evaluator.kill)
    raise typer.Exit(code)


@app.command()
def watch(
    target: Annotated[str, typer.Argument(help="directory of a run, or a broker: host:port or unix:PATH")],
    episodes: Annotated[int, typer.Option(min=1, help="whole episodes to play, one after the other")] = 1,
    out: Annotated[Path, typer.Option(help="film to write: FILE.gif or FILE.mp4")] = Path("watch.gif"),
    frames_per_s: Annotated[float, typer.Option(min=1, max=100, help="speed of the film, steps a second")] = 30.0,
    max_steps: Annotated[int | None, typer.Option(min=1, help="draw no more steps than this")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="seed of the environment (default: a fresh one)")] = None,
    config: Annotated[Path | None, typer.Option(help="at a broker: TOML file with sections actor, access")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="at a broker: section.key=value; repeatable")] = None,
) -> None:
    """Films greedy play: the environment, what the agent expects and which actions it prefers.

    Of a run, with its newest checkpoint; at a broker, with the newest policy. Ctrl-C ends the play, and the film has
    what was played until then.
    """
    check_film(out)
    is_run = Path(target).is_dir()
    if is_run and (config or set_):
        raise ConfigError("--config and --set go with a broker's address: a run has its own settings")
    with run_directory.temporary_directory() as directory:
        recording, results = directory / "recording", directory / "episodes.jsonl"
        player: Evaluator | Watching
        if is_run:
            run = run_directory.open_with_checkpoint(Path(target))
            settings = eval_settings(
                run.config_file, run.path, episodes=episodes, num_envs=1, seed=seed, results=results
            )
            player = Evaluator(recorded_settings(settings, episodes, recording), directory)
        else:
            settings = uvloop.run(broker_settings(target, config, parse_assignments(set_ or []), seed))
            player = Watching(recorded_settings(settings, episodes, recording), directory)

        async def main(stop: asyncio.Event) -> int:
            return 0 if await player.run(stop) else INTERRUPTED

        code = run_service(main, abandon=player.kill)
        steps = write_film(recording, out, settings.actor.env_id, frames_per_s, max_steps)
    print(f"{out} ({steps} steps)")
    raise typer.Exit(code)


@app.command("export")
def export_policy(
    run_dir: Annotated[Path, typer.Argument(help="directory of a run")],
    out: Annotated[Path, typer.Argument(help="directory to write, which must not exist")],
    format_: Annotated[
        str, typer.Option("--format", help="savedmodel (TensorFlow), or onnx, which needs pip install 'seedrl[onnx]'")
    ] = "savedmodel",
) -> None:
    """Writes the greedy policy of a run's newest checkpoint, for programs that know nothing of seedrl.

    policy.json in OUT says what the model takes and gives.
    """
    run = run_directory.open_with_checkpoint(run_dir)
    command = [sys.executable, "-m", "seedrl_learner.export", str(run.path), str(out), "--format", format_]
    raise typer.Exit(subprocess.run(command).returncode)


@app.command()
def status(
    address: Target,
    config: AccessFile = None,
    set_: AccessSettings = None,
    as_json: AsJson = False,
) -> None:
    """Tells what a learner or a broker is doing."""
    access = load_settings(config, parse_assignments(set_ or [])).access

    async def ask() -> dict[str, Any]:
        async with connect(address, access) as client:
            return plain_values(await client.any_service())

    _print(uvloop.run(ask()), as_json)


@app.command()
def top(address: Target, config: AccessFile = None, set_: AccessSettings = None) -> None:
    """Shows what a learner or a broker is doing, renewed every second, until Ctrl-C."""
    access = load_settings(config, parse_assignments(set_ or [])).access
    raise typer.Exit(run_service(lambda stop: watch_service(address, Console(), stop, access)))


@app.command()
def plot(
    run_dirs: Annotated[
        list[Path], typer.Argument(help="directories of runs; those that differ in seeds share a band")
    ],
    out: Annotated[Path, typer.Option(help="picture to write: FILE.png or FILE.svg")] = Path("learning-curve.png"),
    against: Annotated[Against, typer.Option(help="horizontal axis")] = Against.BOTH,
) -> None:
    """Draws the learning curves of runs: mean return of the last 100 episodes."""
    draw(grouped([read_curve(run_dir) for run_dir in run_dirs]), against, out)
    print(out)


@app.command("check-client")
def check_client(
    listen: Annotated[str, typer.Option(help="where the client connects, as to a broker: host:port or unix:PATH")],
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="-- COMMAND", help="starts the client; without it, somebody else must, again and again"),
    ] = None,
    log: Annotated[Path, typer.Option(help="file that gets what COMMAND prints")] = Path("check-client.log"),
    as_json: AsJson = False,
) -> None:
    """Holds a client of your own against the rules of docs/protocol.md; exits with 1 when one is broken.

    It plays broker and learner, cuts connections, is silent, full and finished. That takes a minute or two and ends the
    client several times.
    """
    address = Address.parse(listen)
    client = CommandClient(command, log) if command else None
    check = Check(client)
    code = run_service(lambda stop: check.run(address, stop), abandon=client.kill if client else lambda: None)
    if as_json:
        print(json.dumps(as_values(check.findings)))
    else:
        Console().print(as_table(check.findings))
    raise typer.Exit(code)


@app.command("config")
def list_settings(
    containing: Annotated[str, typer.Argument(help="only settings with this text in key, variable or meaning")] = "",
    as_json: AsJson = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="print a page of Markdown: docs/settings.md")] = False,
) -> None:
    """Lists every setting with its default and meaning."""
    settings = all_settings(containing)
    if as_markdown:
        print(settings_page(settings), end="")
    elif as_json:
        print(json.dumps([asdict(one) for one in settings]))
    else:
        Console().print(settings_table(settings))


def _new_run(env_id: str, agent: str, path: Path | None) -> RunDirectory:
    return run_directory.create(path) if path else run_directory.create_default(env_id, agent)


def _print(values: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(values))
        return
    table = Table.grid(padding=(0, 2))
    for name, value in values.items():
        for label, one in value.items() if isinstance(value, dict) else [(name, value)]:
            if one is not None:
                table.add_row(label.replace("_", " "), f"{one:,.2f}" if isinstance(one, float) else str(one))
    Console().print(table)


def main() -> None:
    """Console entry point."""
    logs.configure("launcher")
    run_app(app)


if __name__ == "__main__":
    main()
