"""What people read when a command line ends with an error."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from seedrl_core.command_line import run_app
from seedrl_core.errors import ConfigError, PeerLost
from seedrl_launcher.conformance.client import CommandClient


def ended_with(error: BaseException) -> int:
    """The exit code of a command that raises."""
    app = typer.Typer(pretty_exceptions_enable=False)

    @app.command()
    def fail() -> None:
        raise error

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["fail"])
        with pytest.raises(SystemExit) as ended:
            run_app(app)
    assert isinstance(ended.value.code, int)
    return ended.value.code


def test_expected_errors_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """With the exit code of their class."""
    assert ended_with(ConfigError("expected one")) == 2
    assert ended_with(PeerLost("gone")) == 1
    assert capsys.readouterr().err == "error: expected one\nerror: gone\n"


def test_errors_of_files_are_one_line_that_names_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A directory that does not exist, a disk without room: nothing to look for in a traceback."""
    file = tmp_path / "none" / "results.jsonl"
    with pytest.raises(FileNotFoundError) as missing:
        file.open("w")
    assert ended_with(missing.value) == 1
    assert capsys.readouterr().err == f"error: {file}: No such file or directory\n"
    with pytest.raises(OSError, match="nobody knows where"):
        ended_with(OSError(5, "nobody knows where"))


def test_a_client_to_be_checked_must_exist(tmp_path: Path) -> None:
    """Before anything is served for it."""
    with pytest.raises(ConfigError, match="expected a program that can be run, got /no/such/client"):
        CommandClient(["/no/such/client", "--fast"], tmp_path / "log")
