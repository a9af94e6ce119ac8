"""The learner without policy and training: its real server, service, slots and unroll assembly, for the data path.

Actions are the lowest allowed, finished unrolls are taken from the queue and forgotten.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from seedrl_core import logs
from seedrl_core.aio import run_service
from seedrl_core.command_line import run_command, settings_from_flags
from seedrl_core.config import LearnerConfig
from seedrl_core.spec import Array, EnvironmentSpec, TensorSpec, check_same_spec
from seedrl_learner import compute

compute.configure_tensorflow()

from seedrl_learner import server  # noqa: E402
from seedrl_learner.inference import Inference  # noqa: E402
from seedrl_learner.run import Machinery, Run  # noqa: E402
from seedrl_learner.slots import Slots  # noqa: E402
from seedrl_learner.unroll_queue import UnrollQueue  # noqa: E402
from seedrl_learner.unrolls import UnrollLayout, UnrollStore  # noqa: E402

UNROLL_LENGTH = 20
QUEUE_UNROLLS = 64
_POLL_S = 0.2


class NullAgent:
    """What storage must know of an agent: the behaviour logits of a small action space, no core, no frame stack."""

    core_state_sizes = ()
    behaviour = (TensorSpec("logits", np.dtype(np.float32), (4,)),)
    explain = None  # nobody asks


class NullInference(Inference):
    """Inference up to the policy and from it: appends to the unrolls, completes them, counts."""

    def __init__(self, spec: EnvironmentSpec, store: UnrollStore, queue: UnrollQueue, run: Run) -> None:
        """See Inference."""
        super().__init__(NullAgent(), store, queue, run.progress, run.metrics, seed=0)  # type: ignore[arg-type]
        self._spec = spec

    def _act(self, slots: Slots) -> tuple[Array, list[Array], list[Array], list[Array]]:
        rows = len(slots)
        action = [np.full((rows, *leaf.shape), leaf.low[0], leaf.dtype) for leaf in self._spec.action]
        behaviour = [np.zeros((rows, *leaf.shape), leaf.dtype) for leaf in NullAgent.behaviour]
        return np.zeros(rows, np.bool_), action, behaviour, []


class NullTrainer:
    """Takes unrolls and gives their rows back."""

    is_complete = False
    enabled = True

    def __init__(self, store: UnrollStore, queue: UnrollQueue) -> None:
        """Of `store` by way of `queue`."""
        self._store = store
        self._queue = queue
        self._stop = threading.Event()

    def run(self) -> None:
        """Until `stop`, in the calling thread."""
        while not self._stop.is_set():
            if (rows := self._queue.take(1, _POLL_S)) is not None:
                self._store.release(rows)

    def stop(self) -> None:
        """Makes `run` return."""
        self._stop.set()


class NullMachinery(Machinery):
    """The parts of a learner's Machinery that the data path goes through, and none of the others."""

    def __init__(self, spec: EnvironmentSpec, run: Run) -> None:
        """For the environments of `spec`."""
        self.spec = spec
        layout = UnrollLayout(
            observation=spec.observation,
            action=spec.action,
            stacked=tuple(False for _ in spec.observation),
            behaviour=NullAgent.behaviour,
            core_state_sizes=(),
            unroll_length=UNROLL_LENGTH,
        )
        max_envs = run.config.max_envs
        store = UnrollStore(layout, max_envs, 2 * max_envs + QUEUE_UNROLLS)
        self.queue = UnrollQueue(QUEUE_UNROLLS)
        self.trainer = NullTrainer(store, self.queue)  # type: ignore[assignment]
        self.inference = NullInference(spec, store, self.queue, run)


class NullRun(Run):
    """A run with nothing to save."""

    def build(self, spec: EnvironmentSpec) -> Machinery:
        """The machinery for `spec`, built at the first call."""
        if self.machinery is None:
            self.machinery = NullMachinery(spec, self)
        check_same_spec(self.machinery.spec, spec)
        return self.machinery

    def save_checkpoint(self) -> Path:
        """Writes nothing."""
        return self.config.run_dir


def main(
    listen: Annotated[str, typer.Option()],
    run_dir: Annotated[Path, typer.Option()],
    set_: Annotated[list[str] | None, typer.Option("--set")] = None,
) -> None:
    """Serves until SIGTERM."""
    flags = {"listen": listen, "run_dir": run_dir, "tensorboard": False}
    config: LearnerConfig = settings_from_flags("learner", None, set_, flags).learner
    logs.configure("learner", run=run_dir.name)
    raise typer.Exit(run_service(lambda stop: server.serve(config, stop, NullRun)))


if __name__ == "__main__":
    run_command(main)
