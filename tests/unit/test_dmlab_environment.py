"""Levels of DeepMind Lab on a stand-in for its module: actions, endings, seeds, instructions, settings, level cache."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from seedrl_actor import dmlab_environment, environments
from seedrl_actor.dmlab_environment import ACTIONS, LabEnvironment, LevelCache, word_ids
from seedrl_actor.environments import Step, VectorEnvironment
from seedrl_core.codec import FIRST, TERMINATED, Episode
from seedrl_core.config import ActorConfig
from seedrl_core.errors import ConfigError
from seedrl_core.spec import INSTRUCTION, Array

FAKE = Path(__file__).parents[1] / "fake_deepmind_lab" / "deepmind_lab.py"
GENERATED = "explore_goal_locations_small"


@pytest.fixture(autouse=True)
def lab(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The stand-in, new in each test, whatever is installed."""
    spec = importlib.util.spec_from_file_location("deepmind_lab", FAKE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "deepmind_lab", module)
    spec.loader.exec_module(module)
    return module


def make(level: str, num_envs: int = 1, **settings: Any) -> VectorEnvironment:
    """Environments of a level, in this process."""
    config = ActorConfig(env_id=f"dmlab/{level}", envs_per_process=0, **settings)
    return environments.make(config, 0, num_envs, 1)


def act(vector: VectorEnvironment, action: int = 0) -> Step:
    """One step of all by the same action, copied."""
    step = vector.step((np.full(vector.num_envs, action, np.int64),))
    return Step(tuple(leaf.copy() for leaf in step.observation), step.reward.copy(), step.flags.copy(), step.episodes)


def leaf(vector: VectorEnvironment, step: Step, name: str) -> Array:
    """Of the observation."""
    paths = [spec.path for spec in vector.spec.observation]
    return step.observation[paths.index(f"observation/{name}")]


def test_the_spec_is_an_image_and_an_instruction_for_nine_actions() -> None:
    """72 x 96 pixels in colour, 16 words of 1000, and four frames a step; no stack."""
    spec = make("rooms_watermaze").spec
    described = {leaf.path: (leaf.dtype.name, leaf.shape, leaf.low, leaf.high) for leaf in spec.observation}
    assert described == {
        "observation/pixels": ("uint8", (72, 96, 3), (0,), (255,)),
        INSTRUCTION: ("int64", (16,), (0,), (999,)),
    }
    assert next(leaf for leaf in spec.observation if leaf.path == INSTRUCTION).is_instruction
    assert [(leaf.path, leaf.low, leaf.high) for leaf in spec.action] == [("action", (0,), (8,))]
    assert (spec.action_repeat, spec.frame_stack) == (4, 1)


def test_an_episode_ends_with_the_level(lab: Any) -> None:
    """Ten frames are three steps of four at most; the last image comes a second time, every frame's reward counts."""
    vector = make("rooms_watermaze")
    steps = [vector.reset(), *(act(vector) for _ in range(4))]
    assert [int(step.flags[0]) for step in steps] == [FIRST, 0, 0, TERMINATED, FIRST]
    assert [float(step.reward[0]) for step in steps] == [0, 1 + 2 + 3 + 4, 5 + 6 + 7 + 8, 9 + 10, 0]
    assert [lab.read(leaf(vector, step, "pixels")[0]).frame for step in steps[1:]] == [4, 8, 8, 0]
    assert steps[3].episodes == (Episode(0, 55.0, 3),)


def test_actions_are_those_of_the_paper(lab: Any) -> None:
    """Each of the nine arrives as its row of table D.2: move, strafe, look, look while moving, fire."""
    vector = make("rooms_watermaze", env_kwargs={"action_repeat": 1})
    vector.reset()
    taken = [lab.read(leaf(vector, act(vector, action), "pixels")[0]).action for action in range(9)]
    assert taken == [tuple(row) for row in ACTIONS.tolist()]
    looks, moves = [row[0] for row in taken], [row[3] for row in taken]
    assert (looks, moves) == ([0, 0, 0, 0, -20, 20, -20, 20, 0], [1, -1, 0, 0, 0, 0, 1, 1, 0])
    assert ([row[2] for row in taken], [row[4] for row in taken]) == ([0, 0, -1, 1, 0, 0, 0, 0, 0], [0] * 8 + [1])
    assert vector.spec.action_repeat == 1


def test_every_episode_has_a_seed_of_its_own(lab: Any) -> None:
    """Those of environments differ from each other, and all are the same in the next run."""

    def seeds() -> list[list[int]]:
        lab.Lab.made.clear()
        vector = make("rooms_watermaze", num_envs=2, seed=3)
        vector.reset()
        for _ in range(12):
            act(vector)
        return [[seed for _, seed in made.episodes] for made in lab.Lab.made]

    (one, other), again = seeds(), seeds()
    assert len({*one, *other}) == len(one) + len(other) == 8
    assert again == [one, other]


def test_few_seeds_are_played_by_all(lab: Any) -> None:
    """With num_seeds all environments play the same few levels."""
    vector = make("rooms_watermaze", num_envs=3, env_kwargs={"num_seeds": 2})
    vector.reset()
    for _ in range(40):
        act(vector)
    assert {seed for made in lab.Lab.made for _, seed in made.episodes} == {0, 1}


def test_an_instruction_is_words_by_number(lab: Any) -> None:
    """The same word has the same number wherever it stands and however it is written; the rest is zeros."""
    vector = make("language_select_located_object")
    pick, up, the, red, ball, then, the_again, red_again, hat, *rest = leaf(vector, vector.reset(), "instruction")[0]
    assert (the, red) == (the_again, red_again)
    words = [pick, up, the, red, ball, then, hat]
    assert len(set(words)) == len(words)
    assert all(0 < word < 1000 for word in words)
    assert rest == [0] * 7
    assert not leaf(vector, make("rooms_watermaze").reset(), "instruction").any()


def test_word_numbers_are_stable_and_long_instructions_are_cut() -> None:
    """Numbers belong to checkpoints, so they must never change; the 17th word and all after it are left out."""
    assert word_ids("red ball").tolist() == [346, 783] + [0] * 14
    numbers = word_ids(" ".join(f"word{i}" for i in range(40)))
    np.testing.assert_array_equal(numbers, word_ids(" ".join(f"word{i}" for i in range(16))))
    assert (numbers > 0).all()


def test_a_level_without_instructions(lab: Any) -> None:
    """The error says what to set; then the image is all there is."""
    with pytest.raises(ConfigError, match="tests/empty_room_test gives no instructions: set .*instruction=false"):
        make("tests/empty_room_test")
    spec = make("tests/empty_room_test", env_kwargs={"instruction": False}).spec
    assert [leaf.path for leaf in spec.observation] == ["observation/pixels"]


def test_settings_reach_the_lab(lab: Any, tmp_path: Path) -> None:
    """As texts, under the Lab's own names; of the level's own settings any."""
    make(
        "language_select_located_object",
        env_kwargs={
            "width": 64,
            "height": 48,
            "renderer": "hardware",
            "dataset_path": "/images",
            "runfiles_path": str(tmp_path),
            "settings": {"episodeLengthSeconds": 30, "randomSpawn": True, "logLevel": "ERROR"},
        },
    )
    (made,) = lab.Lab.made
    assert made.config == {
        "width": "64",
        "height": "48",
        "logLevel": "ERROR",
        "datasetPath": "/images",
        "episodeLengthSeconds": "30",
        "randomSpawn": "true",
    }
    assert (made.level, made.renderer) == ("contributed/dmlab30/language_select_located_object", "hardware")
    assert lab.runfiles_path() == str(tmp_path)


def test_an_evaluation_plays_other_seeds_and_held_out_levels(lab: Any) -> None:
    """As on DMLab-30: the mixer seed of the paper's code; training may not open a level that is held out."""
    make("rooms_collect_good_objects_test", role="eval")
    assert lab.Lab.made[0].config["mixerSeed"] == str(0x600D5EED)
    assert lab.Lab.made[0].config["allowHoldOutLevels"] == "true"
    with pytest.raises(ConfigError, match="held out"):
        make("rooms_collect_good_objects_test")


@pytest.mark.parametrize(
    ("level", "env_kwargs", "message"),
    [
        ("rooms_watermaz", {}, "making dmlab/rooms_watermaz failed: .*no such level: rooms_watermaz"),
        ("rooms_watermaze", {"widht": 1}, "widht"),
        ("rooms_watermaze", {"renderer": "vulkan"}, "renderer must be"),
        ("rooms_watermaze", {"num_seeds": -1}, r"actor\.env_kwargs\.num_seeds: expected 0 to 2147483647, got -1"),
    ],
)
def test_wrong_settings_are_one_line(level: str, env_kwargs: dict[str, Any], message: str) -> None:
    """An unknown level, argument or renderer is a ConfigError that names it."""
    with pytest.raises(ConfigError, match=message):
        make(level, env_kwargs=env_kwargs)


def test_the_module_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says where it comes from."""
    monkeypatch.setitem(sys.modules, "deepmind_lab", None)
    with pytest.raises(ConfigError, match=r"module deepmind_lab, which is built from the source"):
        make("rooms_watermaze")


def test_a_level_is_generated_once_where_there_is_a_cache(lab: Any, tmp_path: Path) -> None:
    """All environments share it, also those of the next process; without one each episode generates its own."""
    kwargs = {"num_seeds": 1, "level_cache": str(tmp_path / "new" / "cache")}
    vector = make(GENERATED, num_envs=2, env_kwargs=kwargs)
    vector.reset()
    for _ in range(8):
        act(vector)
    make(GENERATED, env_kwargs=kwargs).reset()
    assert lab.Lab.generated == 1
    make(GENERATED, num_envs=2, env_kwargs={"num_seeds": 1}).reset()
    assert lab.Lab.generated == 3


def test_the_cache_keeps_keys_apart_whatever_they_are(tmp_path: Path) -> None:
    """Also such that are no file names; a key that was never written is not there."""
    cache, source, target = LevelCache(tmp_path / "cache"), tmp_path / "source", tmp_path / "target"
    keys = ("plain", "../plain", "a/b", "ä" * 300)
    for key in keys:
        source.write_text(key)
        cache.write(key, str(source))
    for key in keys:
        assert cache.fetch(key, str(target))
        assert target.read_text() == key
    assert not cache.fetch("b", str(target))
    assert len(list((tmp_path / "cache").iterdir())) == len(keys)


def test_a_map_is_never_seen_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy that breaks off, on a full disk say, leaves nothing behind and does not end the episode."""
    cache, source, target = LevelCache(tmp_path / "cache"), tmp_path / "source", tmp_path / "target"
    source.write_text("whole")
    seen: list[bool] = []

    def break_off(_: Any, to: Path | str) -> None:
        Path(to).write_text("half")
        seen.append(cache._path("key").exists())
        raise OSError("no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(dmlab_environment.shutil, "copyfile", break_off)
        cache.write("key", str(source))
        assert not cache.fetch("key", str(target)), "a map that cannot be read is generated"
    assert seen == [False, False]
    assert list((tmp_path / "cache").iterdir()) == []
    cache.write("key", str(source))
    assert cache.fetch("key", str(target))
    assert target.read_text() == "whole"


def test_ids_of_dmlab_gym_are_gymnasium_ids(lab: Any) -> None:
    """What that package registers, an image and seven integers, has a spec, and its actions arrive as they are."""

    class LikeDmlabGym(gymnasium.Env[Any, Any]):
        """The spaces of its environments with several observations."""

        observation_space = gymnasium.spaces.Dict(
            {
                "RGB_INTERLEAVED": gymnasium.spaces.Box(0, 255, (84, 84, 3), np.uint8),
                "VEL.TRANS": gymnasium.spaces.Box(-np.inf, np.inf, (3,), np.float64),
            }
        )
        action_space = gymnasium.spaces.Box(
            np.array([-512, -512, -1, -1, 0, 0, 0], np.intc),
            np.array([512, 512, 1, 1, 1, 1, 1], np.intc),
            dtype=np.intc,
        )

        def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
            self._lab = lab.Lab("lt_chasm", ["RGB_INTERLEAVED"], {"width": "84", "height": "84"})
            self._lab.reset(seed=seed)
            return self._observe(), {}

        def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
            return self._observe() if self._lab.step(action) else None, 0.0, False, False, {}

        def _observe(self) -> Any:
            return {**self._lab.observations(), "VEL.TRANS": np.zeros(3)}

    gymnasium.register("dmlab_gym/lt_chasm-v0", LikeDmlabGym)
    try:
        vector = environments.make(ActorConfig(env_id="dmlab_gym/lt_chasm-v0", envs_per_process=0), 0, 1, 1)
        assert [leaf.describe() for leaf in vector.spec.observation] == [
            "observation/RGB_INTERLEAVED: uint8 (84, 84, 3)",
            "observation/VEL.TRANS: float32 (3,)",
        ]
        assert (vector.spec.action[0].low[:3], vector.spec.action[0].high[:3]) == ((-512, -512, -1), (512, 512, 1))
        vector.reset()
        step = vector.step((np.array([[-20, 10, 1, -1, 1, 0, 1]], np.intc),))
        assert lab.read(step.observation[0][0]).action == (-20, 10, 1, -1, 1, 0, 1)
    finally:
        gymnasium.registry.pop("dmlab_gym/lt_chasm-v0")


def test_one_environment_of_a_level_can_be_played_alone() -> None:
    """It is a Gymnasium environment like any other: observations and actions are of its spaces."""
    environment = LabEnvironment("language_select_located_object")
    observation, _ = environment.reset(seed=1)
    while True:
        assert environment.observation_space.contains(observation)
        observation, reward, terminated, truncated, _ = environment.step(environment.action_space.sample())
        assert reward > 0 and not truncated
        if terminated:
            break
    environment.close()
