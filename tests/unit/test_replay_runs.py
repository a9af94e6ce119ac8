"""A whole learner run with replay, without gRPC: real inference and storage, training data, checkpoints, defaults."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from structlog.testing import capture_logs

from seedrl_core.codec import FIRST, TickArrays
from seedrl_core.config import MiB, load_settings
from seedrl_core.errors import CheckpointError, ConfigError
from seedrl_core.spec import Array, EnvironmentSpec, TensorSpec
from seedrl_learner.run import Machinery, Run
from seedrl_learner.slots import Slots

NUM_ACTIONS = 10
ACTION = TensorSpec("action", np.dtype(np.int64), (), (0.0,), (NUM_ACTIONS - 1.0,))
SPEC = EnvironmentSpec("Vector-v0", (TensorSpec("observation", np.dtype(np.float32), (2,)),), (ACTION,))
IMAGES = EnvironmentSpec(
    "Image-v0", (TensorSpec("observation", np.dtype(np.uint8), (84, 84)),), (ACTION,), frame_stack=4
)


def make_run(run_dir: Path, **overrides: object) -> Run:
    """A run of short unrolls and a small network."""
    keys: dict[str, object] = {
        "run_dir": str(run_dir),
        "agent": "r2d2",
        "max_envs": 16,
        "unroll_length": 4,
        "batch_unrolls": 4,
        "r2d2.burn_in": 2,
        "replay.capacity_unrolls": 12,
        "replay.min_unrolls": 6,
        "replay.ratio": 1.0,
        "network.mlp_sizes": [4],
        "network.core_size": 4,
        "network.head_size": 4,
        **overrides,
    }
    return Run(load_settings(None, {f"learner.{key}": value for key, value in keys.items()}).learner)


def built(run: Run, spec: EnvironmentSpec = SPEC) -> Machinery:
    """The run's machinery."""
    return run.build(spec)


class Session:
    """A few environments whose observation tells the environment and its step."""

    def __init__(self, machinery: Machinery, num_envs: int = 4, *, greedy: bool = False) -> None:
        self.machinery = machinery
        self.slots: Slots = machinery.inference.open(num_envs, greedy=greedy)
        self.steps = 0

    def tick(self, constant: bool = False) -> Array:
        """One step of all environments; their actions. `constant`: always the same observation."""
        number = np.arange(len(self.slots), dtype=np.float32)
        observation = np.stack([number, np.full_like(number, self.steps)], axis=1)
        tick = TickArrays(
            sequence=self.steps,
            observation=(np.ones_like(observation) if constant else observation,),
            reward=np.full(len(number), 0.1 * self.steps, np.float32),
            flags=np.full(len(number), 0 if self.steps else FIRST, np.uint8),
        )
        self.steps += 1
        (((action,), _),) = self.machinery.inference.run([(self.slots, tick)])
        return action

    def close(self) -> None:
        self.machinery.inference.close(self.slots)


def fill(run: Run) -> Machinery:
    """Runs inference until the replay is full; trains on nothing, but samples."""
    machinery = built(run)
    session = Session(machinery)
    assert machinery.replay is not None
    while len(machinery.replay) < 12:
        session.tick()
        while machinery.replay.next(0.0) is not None:
            pass
    return machinery


def test_a_batch_comes_from_real_inference(tmp_path: Path) -> None:
    """Sequences of one environment each, burn-in included, consecutive, with the weight of their priority."""
    machinery = built(make_run(tmp_path))
    session = Session(machinery)
    assert machinery.replay is not None
    batch = None
    while batch is None:
        session.tick()
        batch = machinery.replay.next(0.0)
    unrolls = batch.unrolls
    observation = np.asarray(unrolls.observation[0])
    assert observation.shape == (4, 7, 2)
    assert (observation[:, :, 0] == observation[:, :1, 0]).all()
    assert (np.diff(observation[:, :, 1], axis=1) == 1).all()
    assert (observation[:, 0, 1] % 4 == 0).all()
    assert np.max(unrolls.weight) == 1.0
    loss = machinery.agent.loss(tf.nest.map_structure(tf.constant, unrolls))
    initial = machinery.agent.initial_priority(tf.nest.map_structure(tf.constant, unrolls))  # type: ignore[attr-defined]
    np.testing.assert_allclose(loss.priority, initial, rtol=1e-3, atol=1e-6)


def test_a_checkpoint_holds_the_target_network(tmp_path: Path) -> None:
    """Network and target network differ, and each comes back as it was."""
    run = make_run(tmp_path)
    machinery = built(run)
    rng = np.random.default_rng(1)
    modules = (machinery.agent.network, machinery.agent.training_state["target"])
    for module in modules:
        for variable in module.variables:
            variable.assign(tf.constant(rng.normal(size=variable.shape), tf.float32))
    run.save_checkpoint()
    resumed = make_run(tmp_path, resume=True).machinery
    assert resumed is not None
    for module, restored in zip(modules, (resumed.agent.network, resumed.agent.training_state["target"]), strict=True):
        for variable, other in zip(module.variables, restored.variables, strict=True):
            np.testing.assert_array_equal(variable, other)
    kernels = [module.trainable_variables[0].numpy() for module in modules]
    assert (kernels[0] != kernels[1]).any()


def test_a_saved_replay_is_restored_with_its_checkpoint(tmp_path: Path) -> None:
    """Saved once more by the resumed run, every file is the same; the line in the log says how many unrolls."""
    run = make_run(tmp_path, **{"replay.save": True})
    machinery = fill(run)
    assert machinery.replay is not None
    directory = run.save_checkpoint() / "replay"
    with capture_logs() as logs:
        resumed = make_run(tmp_path, resume=True, **{"replay.save": True}).machinery
    assert resumed is not None
    assert resumed.replay is not None
    assert [line["unrolls"] for line in logs if line["event"] == "replay_restored"] == [12]
    resumed.replay.save(tmp_path / "again")
    files = sorted(path.name for path in directory.iterdir())
    assert "observation-0.raw" in files
    assert files == sorted(path.name for path in (tmp_path / "again").iterdir())
    for name in files:
        assert (directory / name).read_bytes() == (tmp_path / "again" / name).read_bytes(), name
    session = Session(resumed)
    while (batch := resumed.replay.next(0.0)) is None:
        session.tick()
    assert session.steps <= 7, "four new unrolls pay for a batch of four at once: nothing is refilled"
    assert batch.items.max() >= 0


@pytest.mark.parametrize("ratio", [0.25, 16.0])
def test_a_resumed_run_may_have_another_replay_ratio(tmp_path: Path, ratio: float) -> None:
    """It neither trains on for ever without new unrolls, nor makes up for what it would not have trained on."""
    run = make_run(tmp_path, **{"replay.save": True})
    fill(run)
    run.save_checkpoint()
    resumed = make_run(tmp_path, resume=True, **{"replay.ratio": ratio}).machinery
    assert resumed is not None
    assert resumed.replay is not None
    assert resumed.replay.next(0.0) is None
    session = Session(resumed)
    batches = 0
    while session.steps < 1 + 2 + 4 * 8:  # 8 unrolls of each of 4 environments
        session.tick()
        while resumed.replay.next(0.0) is not None:
            batches += 1
    assert batches == 32 * ratio / 4


def test_without_a_saved_replay_the_run_refills_and_says_so(tmp_path: Path) -> None:
    """The checkpoint has no replay directory; learning waits for the minimum fill again."""
    run = make_run(tmp_path)
    fill(run)
    assert not (run.save_checkpoint() / "replay").exists()
    with capture_logs() as logs:
        resumed = make_run(tmp_path, resume=True).machinery
    assert resumed is not None
    assert resumed.replay is not None
    assert [line["reason"] for line in logs if line["event"] == "replay_refills"] == [
        "the checkpoint holds no replay (learner.replay.save)"
    ]
    assert len(resumed.replay) == 0


def test_a_damaged_replay_does_not_start_a_run(tmp_path: Path) -> None:
    """A truncated file in the checkpoint: an error with its path, not a run that quietly refills."""
    run = make_run(tmp_path, **{"replay.save": True})
    fill(run)
    file = run.save_checkpoint() / "replay" / "reward.raw"
    file.write_bytes(file.read_bytes()[:-4])
    with pytest.raises(CheckpointError, match="reward.raw: expected .* bytes, got"):
        make_run(tmp_path, resume=True, **{"replay.save": True})


def test_the_defaults_for_images_build(tmp_path: Path) -> None:
    """Learning settings are those of the paper, with a queue shorter than a batch, which replay allows."""
    small = {"max_envs": 8, "replay.max_bytes": 256 * MiB, "network.core_size": 8, "network.head_size": 8}
    keys = {"agent": "r2d2", "run_dir": str(tmp_path), **small}
    machinery = built(
        Run(load_settings(None, {f"learner.{key}": value for key, value in keys.items()}).learner), IMAGES
    )
    config = machinery.config
    assert (config.unroll_length, config.r2d2.burn_in, config.r2d2.n_step, config.batch_unrolls) == (80, 40, 5, 32)
    assert machinery.replay is not None
    assert machinery.agent.overlap == 41


def test_serving_needs_no_replay(tmp_path: Path) -> None:
    """An evaluation from a checkpoint reserves no memory for one, however much the run had."""
    run = make_run(tmp_path)
    built(run)
    run.save_checkpoint()
    serving = make_run(tmp_path, mode="serve", **{"replay.min_unrolls": 1 << 40}).machinery
    assert serving is not None
    assert serving.replay is None
    session = Session(serving, greedy=True)
    assert session.tick().shape == (4,)


def test_a_replay_that_cannot_fill_is_refused(tmp_path: Path) -> None:
    """More unrolls before learning than there is room for."""
    with pytest.raises(ConfigError, match="min_unrolls=13 unrolls, got 12 unrolls"):
        built(make_run(tmp_path, **{"replay.min_unrolls": 13}))


def test_environments_keep_their_exploration_rate_while_others_come_and_go(tmp_path: Path) -> None:
    """Measured for each environment of a session that stays, while another closes and a third opens; EVAL is greedy."""
    base, exponent, steps = 0.9, 20.0, 200
    machinery = built(
        make_run(
            tmp_path,
            **{
                "r2d2.epsilon_levels": 2,
                "r2d2.epsilon_base": base,
                "r2d2.epsilon_exponent": exponent,
                # The same observation then always has the same best action.
                "network.core": "none",
                "network.previous_action": False,
                "network.previous_reward": False,
            },
        )
    )
    assert machinery.replay is not None
    rates = np.array([base, base ** (1 + exponent)]) * (1 - 1 / NUM_ACTIONS)
    evaluation = Session(machinery, 1, greedy=True)
    (best,) = evaluation.tick(constant=True)
    stays, other = Session(machinery, 4), Session(machinery, 5)

    def explored(session: Session) -> Array:
        """The share of actions that are not the best, of each environment."""
        count = np.zeros(len(session.slots))
        for _ in range(steps):
            count += session.tick(constant=True) != best
            while len(machinery.queue):
                machinery.replay.next(0.0)
        return count / steps

    for session in (stays, other, stays):
        np.testing.assert_allclose(explored(session), rates[session.slots % 2], atol=0.12)
    other.close()
    np.testing.assert_allclose(explored(stays), rates[stays.slots % 2], atol=0.12)
    third = Session(machinery, 3)
    for session in (third, stays):
        np.testing.assert_allclose(explored(session), rates[session.slots % 2], atol=0.12)
    assert sum(int(evaluation.tick(constant=True)[0] != best) for _ in range(200)) <= 3
