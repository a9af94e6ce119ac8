"""Runs of `Diary` environments through real broker and actor processes, with all unrolls that training gets.

The learner is the real one too, served in the test's own process, where its unrolls can be copied on their way.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from seedrl_core.aio import PARENT_PID
from seedrl_core.codec import FIRST, TERMINATED, TRUNCATED
from seedrl_core.config import LearnerConfig, load_settings
from seedrl_core.spec import Array, EnvironmentSpec
from seedrl_launcher.status import connect, learner_values
from seedrl_learner.agents.vtrace import VTraceAgent
from seedrl_learner.batch import UnrollBatch
from seedrl_learner.run import Machinery, Run
from seedrl_learner.server import serve
from seedrl_learner.training_data import TrainingBatch

PATIENCE_S = 60.0
DEADLINE_S = 90.0
UNROLL_LENGTH = 5
BATCH_UNROLLS = 4
FRAME_STACK = 3
HISTORY = FRAME_STACK - 1
DISCOUNT = 0.9
NUM_ACTIONS = 3

SETTINGS: dict[str, Any] = {
    "unroll_length": UNROLL_LENGTH,
    "batch_unrolls": BATCH_UNROLLS,
    "queue_unrolls": 2 * BATCH_UNROLLS,
    "frame_stack": FRAME_STACK,
    "max_envs": 16,
    "compute_dtype": "float32",
    "vtrace.discount": DISCOUNT,
    "network.mlp_sizes": [16],
    "network.core": "lstm",
    "network.core_size": 8,
    "network.previous_action": True,
    "network.previous_reward": True,
    # Too little to change a variable: all unrolls are those of one policy, which can be computed again afterwards.
    "optimizer.learning_rate": 1e-30,
    # One record of all metrics, at the end.
    "log_every_s": 3600.0,
}


@dataclass(frozen=True)
class Life:
    """What one `Diary` wrote down, for each of its n observations.

    Attributes:
      observation: [n, 4] uint8.
      action: [n] int64, the one that led here; -1 after a reset.
      reward: [n] float32.
      flags: [n] uint8.
    """

    observation: Array
    action: Array
    reward: Array
    flags: Array

    @classmethod
    def read(cls, file: Path) -> Life:
        """Parses a diary."""
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        flags = [
            FIRST * (line["action"] is None) | TERMINATED * line["terminated"] | TRUNCATED * line["truncated"]
            for line in lines
        ]
        return cls(
            np.array([line["observation"] for line in lines], np.uint8),
            np.array([-1 if line["action"] is None else line["action"] for line in lines], np.int64),
            np.array([line["reward"] for line in lines], np.float32),
            np.array(flags, np.uint8),
        )

    @property
    def num_whole_unrolls(self) -> int:
        """Unrolls that its observations fill: the first T + 1, then T new ones each."""
        return (len(self.observation) - 1) // UNROLL_LENGTH

    @property
    def episodes(self) -> list[tuple[float, int]]:
        """Return and length of each episode that came to its end."""
        ends = np.flatnonzero(self.flags & (TERMINATED | TRUNCATED))
        starts = np.flatnonzero(self.flags & FIRST)
        return [
            (float(self.reward[start : end + 1].sum()), int(end - start))
            for start, end in zip(starts, ends, strict=False)
        ]


@dataclass
class RecordedRun:
    """A run that is over.

    Attributes:
      config: the learner's.
      unrolls: all that training got, [N, ...], in its order.
      lives: what the environments wrote down, by number.
      status: the learner's answer to Status when the actors had ended.
      results: the lines that the actors wrote about their episodes.
    """

    config: LearnerConfig
    unrolls: UnrollBatch
    lives: dict[int, Life]
    status: dict[str, Any]
    results: list[dict[str, Any]]

    @cached_property
    def agent(self) -> VTraceAgent:
        """The agent, from the run's last checkpoint."""
        machinery = Run(self.config.model_copy(update={"resume": True})).machinery
        assert machinery is not None
        assert isinstance(machinery.agent, VTraceAgent)
        return machinery.agent

    @cached_property
    def observation(self) -> Array:
        """[N, T+1, 4], the steps of the unrolls, without the frames before them."""
        return self.unrolls.observation[0][:, HISTORY:]

    @property
    def batch(self) -> UnrollBatch:
        """All unrolls as training sees them."""
        return to_tensors(self.unrolls)

    def of_life(self, life: int) -> UnrollBatch:
        """The unrolls that begin in a life, in order."""
        return self.select(np.flatnonzero(self.observation[:, 0, 0] == life))

    def select(self, index: Array) -> UnrollBatch:
        """Some of the unrolls."""
        chosen: UnrollBatch = tf.nest.map_structure(lambda stored: stored[index], self.unrolls)
        return chosen


def to_tensors(unrolls: UnrollBatch) -> UnrollBatch:
    """The unrolls as the agent gets them."""
    batch: UnrollBatch = tf.nest.map_structure(tf.constant, unrolls)
    return batch


@dataclass
class LiveRun:
    """A run at work in `directory`: a learner in this process, a broker process, and the actors one starts.

    Attributes:
      config: the learner's.
      batches: of unrolls that have come to training, in order.
      status: what the learner said when it was asked.
    """

    directory: Path
    config: LearnerConfig
    batches: list[UnrollBatch] = field(default_factory=list)
    status: dict[str, Any] = field(default_factory=dict)
    _more: asyncio.Event = field(default_factory=asyncio.Event)
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)

    def record(self, batch: UnrollBatch) -> None:
        """Keeps a batch; called in the training thread."""
        self.batches.append(batch)
        self._loop.call_soon_threadsafe(self._more.set)

    async def until(self, fact: Callable[[], bool], what: str) -> None:
        """Waits until `fact` holds; it is looked at after every batch."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not fact():
                    await self._more.wait()
                    self._more.clear()
        except TimeoutError:
            got = {life: self.num_unrolls(life) for life in self.lives()}
            raise AssertionError(f"still waiting for: {what}; unrolls so far, by life: {got}") from None

    def num_unrolls(self, life: int | None = None) -> int:
        """How many unrolls have come to training, of all lives or of one."""
        lives = [int(row) for batch in self.batches for row in batch.observation[0][:, HISTORY, 0]]
        return len(lives) if life is None else lives.count(life)

    def lives(self) -> dict[int, Life]:
        """All diaries so far."""
        return {int(file.stem): Life.read(file) for file in self._diaries.iterdir()}

    @asynccontextmanager
    async def actor(
        self, num_envs: int, *flags: str, **environment: object
    ) -> AsyncIterator[asyncio.subprocess.Process]:
        """An actor process whose diaries have the keyword arguments `environment`."""
        self._diaries.mkdir(exist_ok=True)
        arguments = ", ".join(f"{key} = {json.dumps(value)}" for key, value in environment.items())
        directory = json.dumps(str(self._diaries))
        async with process(
            "seedrl_actor",
            *("--broker", self.broker, "--env-id", "Diary-v0", "--env-import", "counter_environment"),
            *("--num-envs", str(num_envs), *flags),
            *("--set", f"actor.env_kwargs={{directory = {directory}, {arguments}}}"),
        ) as running:
            yield running

    async def ask_status(self) -> None:
        """Keeps what the learner says about itself."""
        async with connect(self.config.listen) as client:
            self.status = learner_values(await client.learner())

    def finished(self) -> RecordedRun:
        """What the run has left behind."""
        unrolls = tf.nest.map_structure(lambda *parts: np.concatenate(parts), *self.batches)
        results = [
            json.loads(line)
            for file in self.directory.glob("*.results.jsonl")
            for line in file.read_text().splitlines()
        ]
        return RecordedRun(self.config, unrolls, self.lives(), self.status, results)

    @property
    def broker(self) -> str:
        """The broker's address."""
        return f"unix:{self.directory / 'broker.sock'}"

    @property
    def _diaries(self) -> Path:
        return self.directory / "diaries"


class WatchedRun(Run):
    """A run that shows what it trains on.

    Its first policy depends much on what it sees, so that what leaks into it shows in the importance ratios.
    """

    def __init__(self, config: LearnerConfig, watch: Callable[[UnrollBatch], None]) -> None:
        """`watch` gets each batch of unrolls, in the training thread."""
        self._watch = watch
        super().__init__(config)

    def build(self, spec: EnvironmentSpec) -> Machinery:
        if self.machinery is not None:
            return super().build(spec)
        machinery = super().build(spec)
        for variable in machinery.agent.network.trainable_variables:
            if variable.shape[-1] == NUM_ACTIONS:
                variable.assign(300.0 * variable)
        train_on = machinery.trainer.train_on

        def watched(batch: TrainingBatch) -> None:
            self._watch(batch.unrolls)
            train_on(batch)

        machinery.trainer.train_on = watched  # type: ignore[method-assign]
        return machinery


@asynccontextmanager
async def live_run(directory: Path) -> AsyncIterator[LiveRun]:
    """Serves until the block ends; then everything parts in order."""
    keys = SETTINGS | {"listen": f"unix:{directory / 'learner.sock'}", "run_dir": str(directory / "run")}
    config = load_settings(None, {f"learner.{key}": value for key, value in keys.items()}).learner
    live = LiveRun(directory, config)
    stop = asyncio.Event()
    async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as group:
        group.create_task(serve(config, stop, lambda config: WatchedRun(config, live.record)))
        async with process("seedrl_broker", "--listen", live.broker, "--learner", config.listen):
            yield live
        stop.set()


@asynccontextmanager
async def process(module: str, *flags: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A service's process; the block ends with it when it fails. What still runs after the block gets a SIGTERM."""
    running = await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, *flags, env=os.environ | {PARENT_PID: str(os.getpid())}
    )

    async def end_well() -> None:
        assert await running.wait() in (0, -signal.SIGKILL), f"{module} ended with code {running.returncode}"

    async with asyncio.TaskGroup() as group:
        group.create_task(end_well())
        try:
            yield running
            if running.returncode is None:
                running.terminate()
        except BaseException:
            if running.returncode is None:
                running.kill()
            raise
