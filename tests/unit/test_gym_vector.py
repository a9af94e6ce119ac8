"""Own vectorization of Gymnasium environments: order of observations and flags, seeds, episodes, misbehaviour."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from counter_environment import Counter, Misbehaving

from seedrl_actor import environments
from seedrl_actor.environments import Step
from seedrl_actor.gym_vector import GymVector
from seedrl_core.codec import FIRST, RESTARTED, TERMINATED, TRUNCATED, Episode
from seedrl_core.config import ActorConfig
from seedrl_core.errors import ConfigError, EnvironmentFailed
from seedrl_core.spec import Array


def make(
    env_id: str = "Counter-v0", num_envs: int = 2, first_env: int = 0, clock: Any = None, **config: Any
) -> GymVector:
    """Environments of one actor."""
    settings = ActorConfig(env_id=env_id, env_import="counter_environment", **config)
    return GymVector(settings, first_env, num_envs, **({"clock": clock} if clock else {}))


def misbehaving(how: str, fails: int = 0, num_envs: int = 1, **more: Any) -> GymVector:
    """Environments that go wrong in their second step, `fails` times in all."""
    Misbehaving.fails = fails
    return make("Misbehaving-v0", num_envs, env_kwargs={"how": how}, **more)


def actions(vector: GymVector) -> tuple[Array, ...]:
    """The same action for all."""
    return (np.full(vector.num_envs, 5, np.int64),)


def play(vector: GymVector, steps: int) -> list[Step]:
    """Copies of the reset and `steps` steps."""
    return [_copy(vector.reset()), *(_copy(vector.step(actions(vector))) for _ in range(steps))]


def _copy(step: Step) -> Step:
    leaves = tuple(leaf.copy() for leaf in step.observation)
    return Step(leaves, step.reward.copy(), step.flags.copy(), step.episodes, step.restarts)


@pytest.mark.parametrize(("truncates", "ending"), [(False, TERMINATED), (True, TRUNCATED)])
def test_next_step_autoreset(truncates: bool, ending: int) -> None:
    """The last observation of an episode has its own step, and the step after it is FIRST with reward 0."""
    steps = play(make(env_kwargs={"truncates": truncates}), 10)
    assert [int(step.observation[0][1, 0]) for step in steps] == [0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0]
    assert [int(step.flags[1]) for step in steps] == [FIRST, 0, 0, 0, ending, FIRST, 0, 0, 0, ending, FIRST]
    assert [float(step.reward[1]) for step in steps] == [0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0]
    whole = (Episode(0, 10.0, 4), Episode(1, 10.0, 4))
    assert [step.episodes for step in steps if step.episodes] == [whole, whole]
    assert steps[4].episodes == whole


def test_spec_of_a_float64_box_and_a_shifted_discrete() -> None:
    """float64 observations travel as float32; unbounded means no bounds; Discrete(start) keeps its range."""
    (observation,), (action,) = make().spec.observation, make().spec.action
    assert (observation.dtype, observation.shape, observation.low, observation.high) == (np.float32, (2,), (), ())
    assert (action.dtype, action.shape, action.low, action.high) == (np.int64, (), (5,), (7,))


class Named(Counter):
    """Renders, and calls its actions something."""

    render_mode = "rgb_array"

    def render(self) -> Any:
        return np.zeros((8, 8, 3), np.uint8)

    def get_action_meanings(self) -> list[str]:
        return ["left", "stay", "right"]


class Unnamed(Named):
    """Renders alone."""

    get_action_meanings = None  # type: ignore[assignment]


@pytest.mark.parametrize(("environment", "names"), [(Named, ("left", "stay", "right")), (Unnamed, ())])
def test_a_recording_has_the_environments_names_of_actions(
    environment: type[Named], names: tuple[str, ...], tmp_path: Path
) -> None:
    """Where it has some, beside what it renders."""
    config = ActorConfig(env_id="any", role="eval", recording=tmp_path / "recording")
    step = GymVector(config, 0, 1, make=lambda _: environment()).reset()
    assert step.action_names == names
    assert step.picture is not None and step.picture.shape == (8, 8, 3)


class Broken(Named):
    """Renders, and makes no step."""

    def step(self, action: int) -> Any:
        raise RuntimeError("no step")


def test_a_recording_goes_on_while_the_environment_is_away(tmp_path: Path) -> None:
    """One that failed a second time is built again later: until then there is nothing to show, and no error."""
    config = ActorConfig(env_id="any", role="eval", recording=tmp_path / "recording")
    vector = GymVector(config, 0, 1, clock=lambda: 0.0, make=lambda _: Broken())
    shown = [step.picture is not None for step in (vector.reset(), *(vector.step(actions(vector)) for _ in range(3)))]
    assert shown == [True, True, False, False]


def test_seeds_are_distinct_and_reproducible() -> None:
    """Each environment of each actor has a seed of its own, the same in every run."""

    def seeds(actor_index: int, first_env: int) -> list[float]:
        step = make(num_envs=3, first_env=first_env, actor_index=actor_index, seed=7).reset()
        return step.observation[0][:, 1].tolist()

    everywhere = seeds(0, 0) + seeds(0, 3) + seeds(1, 0)
    assert len(set(everywhere)) == 9
    assert seeds(0, 3) == everywhere[3:6]


def test_replicas_with_the_same_settings_have_seeds_by_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """With seed_by_host the host's name separates seeds, and actor_index does not."""

    def seeds(host: str, **settings: Any) -> list[float]:
        monkeypatch.setattr("socket.gethostname", lambda: host)
        return make(num_envs=3, **settings).reset().observation[0][:, 1].tolist()

    assert seeds("a", seed_by_host=True) != seeds("b", seed_by_host=True)
    assert seeds("a", seed_by_host=True) == seeds("a", seed_by_host=True, actor_index=3)
    assert seeds("a") == seeds("b")


@pytest.mark.parametrize("how", ["raise", "exit"])
def test_an_environment_that_fails_is_replaced(how: str) -> None:
    """It comes back in the same step as FIRST and RESTARTED; its broken episode is not counted; others go on."""
    vector = misbehaving(how, fails=1, num_envs=2)
    steps = play(vector, 6)
    assert [int(step.flags[0]) for step in steps] == [FIRST, 0, FIRST | RESTARTED, 0, 0, 0, TERMINATED]
    assert [int(step.observation[0][0, 0]) for step in steps] == [0, 1, 0, 1, 2, 3, 4]
    assert [int(step.flags[1]) for step in steps] == [FIRST, 0, 0, 0, TERMINATED, FIRST, 0]
    assert [step.restarts for step in steps] == [0, 0, 1, 0, 0, 0, 0]
    assert steps[6].episodes == (Episode(0, 9.0, 4),)


def test_repeated_failures_back_off_without_holding_up_the_others() -> None:
    """While one environment waits for its next try its ticks are RESTARTED placeholders; the clock ends the wait."""
    now = [0.0]
    vector = misbehaving("raise in reset", fails=2, num_envs=2, clock=lambda: now[0])
    steps = play(vector, 2)
    assert [int(step.flags[0]) for step in steps] == [FIRST | RESTARTED] * 3
    assert [int(step.observation[0][1, 0]) for step in steps] == [0, 1, 2]
    now[0] = 1.5
    after = [_copy(vector.step(actions(vector))) for _ in range(2)]
    assert [int(step.flags[0]) for step in after] == [FIRST | RESTARTED, 0]
    assert [int(step.observation[0][0, 0]) for step in after] == [0, 1]


def test_a_spent_budget_tells_the_first_error() -> None:
    """After env_restarts replacements the environment is given up, with its first error."""
    vector = misbehaving("raise", fails=2, env_restarts=1)
    with pytest.raises(EnvironmentFailed, match=r"environment 0 .* failed 2 times, .* RuntimeError: simulator broke"):
        play(vector, 10)


def test_an_environment_that_has_played_enough_is_built_anew() -> None:
    """After env_recycle_episodes episodes it is closed; the next one has another seed, and all else is as before."""
    vector = make(env_recycle_episodes=2)
    before = list(vector._envs)
    steps = play(vector, 20)
    assert [int(step.flags[1]) for step in steps] == [*[FIRST, 0, 0, 0, TERMINATED] * 4, FIRST]
    assert [len(step.episodes) for step in steps] == [*[0, 0, 0, 0, 2] * 4, 0]
    seeds = [int(step.observation[0][1, 1]) for step in steps]
    assert [len(set(seeds[begin:end])) for begin, end in ((0, 10), (10, 20), (0, 21))] == [1, 1, 3]
    assert not set(map(id, before)) & set(map(id, vector._envs))


def test_one_that_cannot_be_built_anew_is_replaced_like_one_that_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its slot is RESTARTED, and its next try has the budget of failures."""
    vector = make(num_envs=1, env_recycle_episodes=1)
    play(vector, 4)
    making = vector._make

    def fail_once() -> Any:
        monkeypatch.setattr(vector, "_make", making)
        raise ConfigError("no licence")

    monkeypatch.setattr(vector, "_make", fail_once)
    step = vector.step(actions(vector))
    assert (int(step.flags[0]), step.restarts) == (FIRST | RESTARTED, 1)
    assert int(vector.step(actions(vector)).flags[0]) == 0


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("nan", r"environment 0 .*reward: expected a finite float32, got nan"),
        ("array", r"environment 0 .*reward: expected a number, got shape \(1,\)"),
        ("shape", r"environment 0 .*observation: expected float32 \(2,\), got float64 \(2, 1\)"),
    ],
)
def test_a_broken_spec_is_an_error_at_once(how: str, message: str) -> None:
    """Wrong shapes and rewards that are no numbers name environment, leaf, expected and got."""
    vector = misbehaving(how)
    vector.reset()
    vector.step(actions(vector))
    with pytest.raises(EnvironmentFailed, match=message):
        vector.step(actions(vector))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"env_id": "CartPol-v1"}, "actor.env_id: .*CartPol"),
        ({"env_id": "CartPole-v1", "env_kwargs": {"colour": 1}}, "actor.env_id: making CartPole-v1 failed: .*colour"),
        ({"env_id": "CartPole-v1", "env_import": "no_such_module"}, "actor.env_import: .*no_such_module"),
    ],
)
def test_wrong_settings_are_one_line(settings: dict[str, Any], message: str) -> None:
    """An unknown id, argument or module is a ConfigError that names the setting."""
    with pytest.raises(ConfigError, match=message):
        environments.make(ActorConfig(**settings), 0, 1, 1)


def test_every_environment_is_closed_whatever_the_others_do() -> None:
    """One that raises in closing, which costs a run nothing any more, does not keep the others open."""
    vector = make(num_envs=3)
    closed: list[int] = []

    def close(env: int) -> None:
        closed.append(env)
        if env == 1:
            raise RuntimeError("no window to close")

    for number, env in enumerate(vector._envs):
        env.close = lambda number=number: close(number)
    vector.close()
    assert closed == [0, 1, 2]
