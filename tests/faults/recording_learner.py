"""`seedrl-learner` itself, but that it writes down each unroll before it trains on it.

It differs in nothing that can be seen from outside but a file, `unrolls/PID.jsonl` beside its run's directory.
"""

from __future__ import annotations

import functools
import json
import os
from typing import Any

from seedrl_core.config import LearnerConfig
from seedrl_core.spec import EnvironmentSpec
from seedrl_learner import __main__ as learner
from seedrl_learner import compute

compute.configure_tensorflow()

from seedrl_learner import server  # noqa: E402
from seedrl_learner.batch import UnrollBatch  # noqa: E402
from seedrl_learner.run import Machinery, Run  # noqa: E402
from seedrl_learner.training_data import TrainingBatch  # noqa: E402


def lines(unrolls: UnrollBatch) -> str:
    """One JSON line an unroll."""
    rows: list[dict[str, Any]] = [
        {
            "observation": unrolls.observation[0][row].tolist(),
            "action": unrolls.action[0][row].tolist(),
            "reward": unrolls.reward[row].tolist(),
            "flags": unrolls.flags[row].tolist(),
        }
        for row in range(len(unrolls.reward))
    ]
    return "".join(json.dumps(row) + "\n" for row in rows)


class RecordingRun(Run):
    """A run whose unrolls are on disk before they are trained on."""

    def __init__(self, config: LearnerConfig) -> None:
        directory = config.run_dir.parent / "unrolls"
        directory.mkdir(exist_ok=True)
        self._file = (directory / f"{os.getpid()}.jsonl").open("a")
        super().__init__(config)

    def build(self, spec: EnvironmentSpec) -> Machinery:
        if self.machinery is not None:
            return super().build(spec)
        machinery = super().build(spec)
        train_on = machinery.trainer.train_on

        def recorded(batch: TrainingBatch) -> None:
            self._file.write(lines(batch.unrolls))
            self._file.flush()
            train_on(batch)

        machinery.trainer.train_on = recorded  # type: ignore[method-assign]
        return machinery


if __name__ == "__main__":
    compute.configure_tensorflow = lambda: None  # done above
    server.serve = functools.partial(server.serve, make_run=RecordingRun)  # type: ignore[assignment]
    learner.main()
