"""`python -m seedrl_learner.export RUN_DIR OUT`: writes a run's greedy policy as a TensorFlow SavedModel."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from seedrl_core.command_line import run_command
from seedrl_learner import compute


def run(
    run_dir: Annotated[Path, typer.Argument(help="directory of a run")],
    out: Annotated[Path, typer.Argument(help="directory to write, which must not exist")],
) -> None:
    """Writes the greedy policy of a run's newest checkpoint."""
    compute.configure_tensorflow()
    from seedrl_learner.export.saved_model import export  # imports tensorflow

    print(export(run_dir, out))


if __name__ == "__main__":
    run_command(run)
