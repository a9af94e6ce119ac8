"""`seedrl-learner --serve` as a process behind a broker's: it answers by a run's policy and leaves the run alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from recorded_runs import process

from seedrl_client import Session
from seedrl_core.codec import FIRST, TickArrays
from seedrl_core.config import load_settings
from seedrl_core.errors import SpecMismatch
from seedrl_core.spec import Array, EnvironmentSpec, TensorSpec
from seedrl_launcher.status import connect, learner_values
from seedrl_learner.run import Run

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

NUM_ENVS, NUM_TICKS = 8, 40
UNROLL_LENGTH = 10  # so that training would have enough
POLICY_VERSION, ENV_STEPS = 56, 1234
SPEC = EnvironmentSpec(
    "Noise-v0",
    (TensorSpec("observation", np.dtype(np.float32), (6,)),),
    (TensorSpec("action", np.dtype(np.int64), (), (0.0,), (3.0,)),),
)
SETTINGS = {"compute_dtype": "float32", "batch_unrolls": 1, "queue_unrolls": 2}


def ticks() -> list[TickArrays]:
    """One long episode of noise in each environment."""
    rng = np.random.default_rng(1)
    reward = np.ones(NUM_ENVS, np.float32)
    flags = [np.full(NUM_ENVS, 0 if t else FIRST, np.uint8) for t in range(NUM_TICKS)]
    noise = rng.normal(size=(NUM_TICKS, NUM_ENVS, 6)).astype(np.float32)
    return [TickArrays(t, (noise[t],), reward, flags[t]) for t in range(NUM_TICKS)]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A run with a checkpoint of a policy that has hardly been trained: no action is much more likely than others."""
    keys = SETTINGS | {"run_dir": str(tmp_path / "run"), "unroll_length": UNROLL_LENGTH, "max_envs": 2 * NUM_ENVS}
    run = Run(load_settings(None, {f"learner.{key}": value for key, value in keys.items()}).learner)
    run.build(SPEC)
    run.progress.policy_version, run.progress.env_steps = POLICY_VERSION, ENV_STEPS
    run.save_checkpoint()
    return run


def answers(run: Run, *, greedy: bool) -> list[Array]:
    """The actions that the run's own network takes, in this process."""
    assert run.machinery is not None
    slots = run.machinery.inference.open(NUM_ENVS, greedy=greedy)
    replies = [run.machinery.inference.run([(slots, tick)]) for tick in ticks()]
    return [action[0] for ((action, _),) in replies]


async def test_a_serving_learner_is_greedy_trains_nothing_and_ends_well(run: Run, tmp_path: Path) -> None:
    """EVAL sessions get the best actions of the checkpoint, TRAIN ones a refusal; SIGTERM ends it with exit code 0."""
    run_dir = run.config.run_dir
    before = {path: path.stat().st_mtime_ns for path in run_dir.rglob("*")}
    expected = answers(run, greedy=True)
    learner, broker = (f"unix:{tmp_path / name}.sock" for name in ("learner", "broker"))
    settings = [word for key, value in SETTINGS.items() for word in ("--set", f"learner.{key}={value}")]
    async with (
        process("seedrl_learner", "--serve", str(run_dir), "--listen", learner, *settings) as serving,
        process("seedrl_broker", "--listen", broker, "--learner", learner),
        Session(broker, SPEC, NUM_ENVS, role="eval") as session,
    ):
        assert (session.run_id, session.policy_version) == ("run", POLICY_VERSION)
        given = []
        for tick in ticks():
            given += await session.tick(tick.observation, tick.reward, tick.flags)
            assert session.policy_version == POLICY_VERSION
        np.testing.assert_array_equal(given, expected)
        assert (np.array(answers(run, greedy=False)) != expected).any(), "sampled actions would look the same"
        with pytest.raises(SpecMismatch, match="^this learner only serves: expected role ROLE_EVAL, got ROLE_TRAIN$"):
            await Session(broker, SPEC, NUM_ENVS, role="train").open()
        async with connect(learner) as client:
            status = learner_values(await client.learner())
        assert (status["policy_version"], status["env_steps"], status["sessions"]) == (POLICY_VERSION, ENV_STEPS, 1)
        serving.terminate()
        assert await serving.wait() == 0
    assert {path: path.stat().st_mtime_ns for path in run_dir.rglob("*")} == before
