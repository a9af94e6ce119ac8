"""A run: puts agent, slots, unrolls, queue, inference, training and checkpoints together, once the spec is known."""

from __future__ import annotations

import time
from pathlib import Path

import tensorflow as tf

from seedrl_core import logs
from seedrl_core.config import LearnerConfig
from seedrl_core.errors import CheckpointError, ConfigError
from seedrl_core.metrics import Metrics
from seedrl_core.reference_scores import reference_score
from seedrl_core.spec import EnvironmentSpec, check_same_spec
from seedrl_learner import defaults
from seedrl_learner.agents import make_agent
from seedrl_learner.agents.base import ReplayAgent
from seedrl_learner.checkpoints import Checkpoints, CheckpointState, read_state, restore_variables
from seedrl_learner.inference import Inference
from seedrl_learner.optimization import Optimization
from seedrl_learner.progress import Progress
from seedrl_learner.replay.capacity import replay_capacity
from seedrl_learner.replay.replayed_unrolls import ReplayedUnrolls
from seedrl_learner.trainer import Trainer
from seedrl_learner.training_data import FreshUnrolls, TrainingData
from seedrl_learner.unroll_queue import UnrollQueue
from seedrl_learner.unrolls import UnrollLayout, UnrollStore

_log = logs.get(__name__)


class Machinery:
    """Everything that depends on the environment's spec. Built in the inference thread; takes seconds."""

    def __init__(self, config: LearnerConfig, spec: EnvironmentSpec, progress: Progress, metrics: Metrics) -> None:
        """`config` may leave fields to the spec; `self.config` has them filled in.

        Raises:
          ConfigError: settings that contradict each other.
        """
        self.spec = spec
        self.config = config = defaults.resolve(config, spec)
        agent = make_agent(config, spec)
        batch, limit = config.batch_unrolls, config.queue_unrolls
        assert batch and limit and config.unroll_length and config.frame_stack, "configuration not resolved"
        if limit < batch and not isinstance(agent, ReplayAgent):
            raise ConfigError(f"learner.queue_unrolls: expected at least batch_unrolls={batch}, got {limit}")
        layout = UnrollLayout(
            observation=spec.observation,
            action=spec.action,
            stacked=agent.stacked,
            behaviour=agent.behaviour,
            core_state_sizes=agent.core_state_sizes,
            unroll_length=config.unroll_length,
            overlap=agent.overlap,
            frame_stack=config.frame_stack,
        )
        replays = isinstance(agent, ReplayAgent) and config.mode == "train"
        capacity = replay_capacity(config.replay, layout.unroll_bytes) if replays else 0
        self.queue = UnrollQueue(limit, alternate=config.deterministic)
        # Rows being filled, waiting, just taken from there, and kept.
        num_rows = config.max_envs + 2 * self.queue.most_waiting(config.max_envs) + capacity
        self.store = store = UnrollStore(layout, config.max_envs, num_rows)
        self.agent = agent
        self.optimization = Optimization(config.optimizer, agent.network.trainable_variables)
        self.inference = Inference(agent, store, self.queue, progress, metrics, config.seed)
        self.replay: ReplayedUnrolls | None = None
        self.data: TrainingData = FreshUnrolls(store, self.queue, batch)
        if isinstance(agent, ReplayAgent) and replays:
            self.data = self.replay = ReplayedUnrolls(agent, store, self.queue, capacity, config, metrics)
        self.trainer = Trainer(
            agent, self.optimization, self.data, progress, metrics, total_env_steps=config.total_env_steps
        )
        _log.info("network_built", environment=spec.environment_id, parameters=self.num_parameters)

    @property
    def takes_ticks(self) -> bool:
        """False while ticks must wait: for room in the queue, for training's turn, or for the end of a complete run."""
        return self.queue.is_closed or (self.queue.has_room and not self.trainer.is_complete)

    @property
    def num_parameters(self) -> int:
        """Trainable numbers of the network."""
        return sum(int(tf.size(variable)) for variable in self.agent.network.trainable_variables)


class Run:
    """A run's state over its whole life, before and after the environment is known."""

    def __init__(self, config: LearnerConfig) -> None:
        """Finds the checkpoint to start from, if one is asked for.

        Raises:
          CheckpointError: it is missing or cannot be used.
          ConfigError: two are asked for.
        """
        self.config = config
        self.progress = Progress()
        self.metrics = Metrics()
        self.started = time.monotonic()
        self.machinery: Machinery | None = None
        self.last_checkpoint: Path | None = None
        self._checkpoints = Checkpoints(config.run_dir / "checkpoints", config.keep_checkpoints)
        start_from = self._find_checkpoint()
        if start_from is not None:
            self._restore(start_from)
        self.first_env_steps = self.progress.env_steps

    @property
    def run_id(self) -> str:
        """The name of the run's directory."""
        return self.config.run_dir.name

    @property
    def serves_only(self) -> bool:
        """True when nothing is trained."""
        return self.config.mode == "serve"

    @property
    def spec(self) -> EnvironmentSpec | None:
        """The environment, once a session or a checkpoint taught it."""
        return self.machinery.spec if self.machinery else None

    @property
    def human_normalized_score(self) -> float | None:
        """Of the mean return, 1.0 for a person; None before the first episode, or where no reference is known."""
        reference = reference_score(self.spec.environment_id) if self.spec else None
        return reference.normalized(self.progress.mean_return) if reference and self.progress.returns else None

    def build(self, spec: EnvironmentSpec) -> Machinery:
        """The machinery for `spec`, built at the first call.

        Raises:
          SpecMismatch: it exists and is for another spec.
          ConfigError: no network can be built for it.
        """
        if self.machinery is None:
            try:
                self.machinery = Machinery(self.config, spec, self.progress, self.metrics)
            except (ArithmeticError, MemoryError, ValueError, tf.errors.OpError) as error:
                # A spec comes from outside; whatever is wrong with it must not end the learner.
                _log.exception("network_not_built", environment=spec.environment_id)
                raise ConfigError(f"no network can be built for {spec.environment_id}: {error}") from error
        else:
            check_same_spec(self.machinery.spec, spec)
        return self.machinery

    def save_checkpoint(self) -> Path:
        """Writes a checkpoint of the time between two updates.

        Raises:
          CheckpointError: nothing to save yet, or the disk refused.
        """
        machinery = self.machinery
        if machinery is None or self.serves_only:
            raise CheckpointError("there is nothing to save: the learner has no network yet, or only serves one")
        replay = machinery.replay if machinery.config.replay.save else None
        self.last_checkpoint = self._checkpoints.save(
            self._trackables(machinery),
            self.progress,
            machinery.spec,
            machinery.config,
            between_updates=machinery.trainer.between_updates,
            save_replay=None if replay is None else replay.save,
        )
        return self.last_checkpoint

    def _restore(self, state: CheckpointState) -> None:
        if self.serves_only:
            # What makes the policy; the agent's own settings have its name.
            policy = ("agent", state.config.agent, "network", "frame_stack", "unroll_length")
            self.config = self.config.model_copy(update={name: getattr(state.config, name) for name in policy})
        machinery = self.build(state.spec)
        restore_variables(state.path, self._trackables(machinery), partial=self.serves_only)
        state.restore_progress(self.progress)
        self.last_checkpoint = state.path
        _log.info("checkpoint_restored", path=str(state.path), env_steps=state.env_steps)
        if machinery.replay is not None:
            self._restore_replay(machinery.replay, state)

    @staticmethod
    def _restore_replay(replay: ReplayedUnrolls, state: CheckpointState) -> None:
        if state.replay is None:
            _log.info("replay_refills", reason="the checkpoint holds no replay (learner.replay.save)")
            return
        replay.restore(state.replay)
        _log.info("replay_restored", unrolls=len(replay))

    def _trackables(self, machinery: Machinery) -> dict[str, tf.Module]:
        trackables: dict[str, tf.Module] = {"network": machinery.agent.network}
        if not self.serves_only:
            trackables |= {"optimization": machinery.optimization, **machinery.agent.training_state}
        return trackables

    def _find_checkpoint(self) -> CheckpointState | None:
        """The checkpoint to start from; None for a fresh start, which never happens where one is asked for or there."""
        config, checkpoints = self.config, self._checkpoints
        if config.resume and config.checkpoint is not None:
            raise ConfigError("learner.resume and learner.checkpoint: expected one of them, got both")
        if self.serves_only:
            return read_state(config.checkpoint) if config.checkpoint else checkpoints.newest(set_aside=False)
        if config.resume or (config.resume_or_start and checkpoints.exist):
            return checkpoints.newest(set_aside=True)
        if checkpoints.exist:
            raise CheckpointError(
                f"{config.run_dir} already has checkpoints: set learner.resume, or choose another learner.run_dir"
            )
        return read_state(config.checkpoint) if config.checkpoint else None
