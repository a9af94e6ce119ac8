"""What the command lines of all services have in common: settings from flags, and errors in one line."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from seedrl_core.config import Settings, load_settings, parse_assignments
from seedrl_core.errors import ExpectedError


def settings_from_flags(
    section: str, file: Path | None, assignments: Sequence[str] | None, flags: Mapping[str, Any]
) -> Settings:
    """Settings from a file, `--set` assignments and a service's own flags (key in `section` -> value, None: not given).

    Raises:
      ConfigError: a key or a value is not allowed.
    """
    given = {f"{section}.{name}": value for name, value in flags.items() if value is not None}
    return load_settings(file, parse_assignments(assignments or []) | given)


def run_app(app: typer.Typer) -> None:
    """Runs a command line; an ExpectedError becomes one line on stderr and its own exit code.

    So does, with exit code 1, what the system says of a file: that there is no such directory, say, or no room.
    """
    try:
        app()
    except ExpectedError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except OSError as error:
        if error.filename is None:
            raise
        print(f"error: {error.filename}: {error.strerror}", file=sys.stderr)
        sys.exit(1)


def run_command(command: Callable[..., None]) -> None:
    """`run_app` for a command line of one command."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(command)
    run_app(app)
