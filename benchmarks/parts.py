"""What an environment step costs in each part of a training run, measured alone, without any service."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean, median
from typing import TYPE_CHECKING

import numpy as np

from seedrl_actor import environments
from seedrl_core.codec import TickArrays
from seedrl_core.config import ActorConfig, AtariConfig, LearnerConfig
from seedrl_core.metrics import Metrics
from seedrl_core.spec import EnvironmentSpec

if TYPE_CHECKING:
    from seedrl_learner.training_data import TrainingBatch

NUM_ENVS = 64
UNROLL_LENGTH = 20
_MICROSECONDS = 1e6
_WARM_UP = 3


@dataclass(frozen=True)
class Sizes:
    """What costs may depend on: environments that step together, height and width of a frame, unrolls a batch."""

    environments: int = NUM_ENVS
    frame_size: int = 84
    batch_unrolls: int = 32


@dataclass(frozen=True)
class Parts:
    """Microseconds of an environment step.

    Attributes:
      environment, inference, training: of time, on all cores; the median.
      unrolls: of a core, for what inference and training do outside the network: observations are stored, stacked, and
        gathered into batches. The mean, since much of it comes at the ends of unrolls; `inference` has its share, too.
    """

    environment: float
    inference: float
    training: float
    unrolls: float

    @property
    def rate(self) -> float:
        """Environment steps a second where one part waits for the other: the roofline."""
        return _MICROSECONDS / (self.environment + self.inference + self.training)


def batch_settings(batch_unrolls: int) -> list[str]:
    """Settings of a training run whose batches have so many unrolls, while as many are gathered."""
    return [f"learner.batch_unrolls={batch_unrolls}", f"learner.queue_unrolls={2 * batch_unrolls}"]


def measure_parts(env_id: str, sizes: Sizes, seconds: float) -> Parts:
    """Each part alone for `seconds`."""
    atari = AtariConfig(frame_size=sizes.frame_size)
    config = ActorConfig(env_id=env_id, num_envs=sizes.environments, atari=atari)
    vector = environments.make(config, 0, sizes.environments, 1)
    try:
        vector.reset()
        action = (np.random.default_rng(0).integers(0, 4, sizes.environments),)
        environment = cost_of(lambda: vector.step(action), seconds) / sizes.environments
        spec = vector.spec
    finally:
        vector.close()
    learner = LearnerAlone(spec, sizes)
    inference, unrolls = learner.inference_costs(seconds)
    return Parts(environment, inference, learner.training_cost(seconds), unrolls)


class LearnerAlone:
    """The learner's own objects."""

    def __init__(self, spec: EnvironmentSpec, sizes: Sizes) -> None:
        """Builds the network for environments of `spec`."""
        from seedrl_learner.progress import Progress
        from seedrl_learner.run import Machinery

        self._sizes = sizes
        # Busy time is then processor time of the thread that is busy.
        self._metrics = Metrics(clock=time.thread_time)
        self._machinery = Machinery(_learner_config(sizes), spec, Progress(), self._metrics)
        self._slots = self._machinery.inference.open(sizes.environments, greedy=False)
        rng = np.random.default_rng(0)
        self._tick = TickArrays(
            0,
            tuple(rng.integers(0, 256, (sizes.environments, *leaf.shape), np.uint8) for leaf in spec.observation),
            np.zeros(sizes.environments, np.float32),
            np.zeros(sizes.environments, np.uint8),
        )
        self._batch: TrainingBatch | None = None

    def inference_costs(self, seconds: float) -> tuple[float, float]:
        """Microseconds of an environment step: of time for inference, of this thread for what is not the network."""
        outside_s: list[float] = []

        def infer() -> None:
            began_s = time.thread_time() - self._network_s()
            self.infer()
            outside_s.append(time.thread_time() - self._network_s() - began_s)

        inference = cost_of(infer, seconds)
        return inference / self._sizes.environments, _MICROSECONDS * fmean(outside_s) / self._sizes.environments

    def training_cost(self, seconds: float) -> float:
        """Microseconds of an environment step that is trained on."""
        return cost_of(self.train, seconds) / self.samples

    @property
    def samples(self) -> int:
        """Environment steps that a batch trains on."""
        return self._sizes.batch_unrolls * UNROLL_LENGTH

    def train(self) -> None:
        """One update."""
        while self._batch is None:
            self.infer()
        self._machinery.trainer.train_on(self._batch)

    def infer(self) -> None:
        """One tick of all environments; whole batches of unrolls leave the queue, so that it never fills."""
        self._machinery.inference.run([(self._slots, self._tick)])
        while (batch := self._machinery.data.next(0.0)) is not None:
            self._batch = batch

    def _network_s(self) -> float:
        return self._metrics.totals().busy_s["inference/busy_share"]


def cost_of(function: Callable[[], object], seconds: float) -> float:
    """Median microseconds of a call, after a warm-up."""
    for _ in range(_WARM_UP):
        function()
    times: list[float] = []
    deadline = time.perf_counter() + seconds
    while time.perf_counter() < deadline or len(times) < _WARM_UP:
        began = time.perf_counter()
        function()
        times.append(time.perf_counter() - began)
    return _MICROSECONDS * median(times)


def _learner_config(sizes: Sizes) -> LearnerConfig:
    """Of the training run, as far as the parts depend on it."""
    return LearnerConfig(
        unroll_length=UNROLL_LENGTH,
        batch_unrolls=sizes.batch_unrolls,
        queue_unrolls=max(sizes.environments, sizes.batch_unrolls),
        max_envs=sizes.environments,
    )
