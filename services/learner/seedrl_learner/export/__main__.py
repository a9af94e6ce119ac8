"""`python -m seedrl_learner.export RUN_DIR OUT`: writes a run's greedy policy as a SavedModel or as ONNX."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from seedrl_core.command_line import run_command
from seedrl_learner import compute
from seedrl_learner.export import Format


def run(
    run_dir: Annotated[Path, typer.Argument(help="directory of a run")],
    out: Annotated[Path, typer.Argument(help="directory to write, which must not exist")],
    format_: Annotated[Format, typer.Option("--format", help="what to write it as")] = Format.SAVEDMODEL,
) -> None:
    """Writes the greedy policy of a run's newest checkpoint."""
    compute.configure_tensorflow()
    from seedrl_learner.export.model_files import export  # imports tensorflow

    print(export(run_dir, out, format_))


if __name__ == "__main__":
    run_command(run)
