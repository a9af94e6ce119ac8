"""What README and pages tell to do can be done: links, files, commands, settings and alerts that they name exist."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

import seedrl_actor.__main__
import seedrl_broker.__main__
import seedrl_grpc.health
import seedrl_launcher.__main__
import seedrl_learner.__main__
from seedrl_core.access import Role
from seedrl_core.config import load_settings, parse_assignments
from seedrl_launcher.settings_listing import all_settings

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *(ROOT / "examples").glob("*/README.md")],
    key=lambda page: str(page),
)
FOLDERS = ("benchmarks", "deploy", "docs", "examples", "proto", "services", "tests")
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
SETTINGS = all_settings()
KEYS = {one.key for one in SETTINGS} | {one.section for one in SETTINGS}
VARIABLES = {one.variable for one in SETTINGS} | {role.variable for role in Role}


def one_command(run: Callable[..., None]) -> typer.Typer:
    """The command line of a service, as `run_command` makes it."""
    app = typer.Typer()
    app.command()(run)
    return app


APPS = {
    "seedrl": seedrl_launcher.__main__.app,
    "seedrl-actor": one_command(seedrl_actor.__main__.run),
    "seedrl-broker": one_command(seedrl_broker.__main__.run),
    "seedrl-learner": one_command(seedrl_learner.__main__.run),
    "seedrl-health": one_command(seedrl_grpc.health.run),
}


def blocks(text: str) -> list[str]:
    """The blocks of shell commands, their continued lines joined."""
    return [block.replace("\\\n", " ") for block in re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)]


def spans(text: str) -> list[str]:
    """What stands between backticks in prose and tables."""
    return re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL))


def commands(text: str) -> list[list[str]]:
    """Calls of seedrl's commands, without what stands before them: a prompt, variables, a directory."""
    found = []
    for line in [*"\n".join(blocks(text)).splitlines(), *spans(text)]:
        match = re.match(r"(?:\w+\$ +)?(?:\w+=\S+ +)*(?:\S+/)?(seedrl(?:-\w+)?(?: .*)?)$", line)
        if match and not match[1].startswith("seedrl-*"):
            words = shlex.split(match[1].replace("[", "").replace("]", ""), comments=True)
            found.append([word for word in words if word != "&"])
    return found


def parsed(words: list[str]) -> dict[str, Any]:
    """The values of a call's options and arguments; raises when it is none, or lacks something."""
    command: Any = typer.main.get_command(APPS[words[0]])
    arguments = words[1:]
    if arguments and hasattr(command, "commands"):
        command = command.commands[arguments.pop(0)]
    if not arguments:
        return {}  # prose that speaks of the command
    return dict(command.make_context(words[0], arguments).params)


def anchors(page: Path) -> set[str]:
    """Of its headings, as Git hosts make them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@each_page
def test_links_and_files_exist(page: Path) -> None:
    """Each link leads to a file of the repository and a heading of it; each path that is named is one."""
    text = page.read_text()
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if not target.startswith("http"):
            path, _, anchor = target.partition("#")
            file = page.parent / path if path else page
            assert file.exists(), target
            assert not anchor or anchor in anchors(file), target
    for span in spans(text):
        if re.match(rf"({'|'.join(FOLDERS)})/[\w./-]+(?=$| )", span):
            assert (ROOT / span.split()[0]).exists() or (page.parent / span.split()[0]).exists(), span


@each_page
def test_commands_are_taken(page: Path) -> None:
    """Each call of a command has options that it knows, and values that fit them and the settings."""
    for words in commands(page.read_text()):
        try:
            load_settings(None, parse_assignments(parsed(words).get("set_") or []))
        except Exception as error:
            raise AssertionError(f"{shlex.join(words)}: {error}") from error


@each_page
def test_settings_are_known(page: Path) -> None:
    """Keys of settings, and variables, are those of the models; tokens have variables of their own."""
    code = "\n".join([*blocks(page.read_text()), *spans(page.read_text())])
    for key in re.findall(r"^(?:--set '?)?((?:actor|broker|learner|access)\.[a-z_0-9.]+)", code, re.MULTILINE):
        assert key in KEYS or key.startswith("actor.env_kwargs."), key
    for variable in re.findall(r"\bSEEDRL_\w+?(?:__\w+|_TOKEN\b)", code):
        assert variable in VARIABLES, variable


@each_page
def test_targets_of_make_exist(page: Path) -> None:
    """Each `make TARGET` is one of the Makefile's."""
    text = page.read_text()
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for line in [*"\n".join(blocks(text)).splitlines(), *spans(text)]:
        if line.startswith("make "):
            words = line.partition("#")[0].split()[1:]
            assert {word for word in words if "=" not in word} <= targets, line


def test_wrong_commands_and_keys_would_be_found() -> None:
    """The checks of this file are able to fail."""
    (words,) = commands("```sh\nlearner$ seedrl eval runs/NAME \\\n    --episode 3  # plays\n```\n")
    assert words == ["seedrl", "eval", "runs/NAME", "--episode", "3"]
    with pytest.raises(Exception, match="No such option: --episode"):
        parsed(words)
    with pytest.raises(KeyError):
        parsed(["seedrl", "play", "runs/NAME"])


def test_operations_page_has_every_alert() -> None:
    """What to do is said for each alert, and for no other."""
    alerts = yaml.safe_load((ROOT / "deploy/prometheus/alerts.yml").read_text())
    names = [rule["alert"] for group in alerts["groups"] for rule in group["rules"]]
    assert re.findall(r"^\| (Seedrl\w+) \|", (ROOT / "docs/operations.md").read_text(), re.MULTILINE) == names
