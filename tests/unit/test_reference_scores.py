"""Human-normalized scores: the table of Atari-57, and which environment ids have a place in it."""

from __future__ import annotations

import ale_py
import gymnasium
import pytest

from seedrl_actor import environments
from seedrl_core.atari57 import ATARI57
from seedrl_core.config import ActorConfig, AtariConfig
from seedrl_core.reference_scores import ReferenceScore, reference_score


def games_by_id() -> dict[str, str]:
    """Every id that ale_py registers, with the name of its game's ROM."""
    gymnasium.register_envs(ale_py)
    return {
        env_id: registered.kwargs["game"]
        for env_id, registered in gymnasium.registry.items()
        if registered.entry_point == "ale_py.env:AtariEnv"
    }


def test_atari_57_are_57_games_in_which_people_are_better() -> None:
    """So a normalized score grows with the return, and never divides by zero."""
    assert len(ATARI57) == 57
    assert [game for game, (random, human) in ATARI57.items() if human <= random] == []


@pytest.mark.parametrize(
    ("game", "random", "human"),
    [
        ("Alien", 227.8, 7127.7),
        ("Breakout", 1.7, 30.5),
        ("MontezumaRevenge", 0.0, 4753.3),
        ("Pitfall", -229.4, 6463.7),
        ("Skiing", -17098.1, -4336.9),
        ("VideoPinball", 16256.9, 17667.9),
        ("Zaxxon", 32.5, 9173.3),
    ],
)
def test_scores_are_those_of_the_paper(game: str, random: float, human: float) -> None:
    """Wang et al. 2016; Mnih et al. 2015 have the same random policy, and other people."""
    assert ATARI57[game] == (random, human)


def test_every_registered_id_of_a_game_has_the_games_scores() -> None:
    """All 57 are registered as ALE/GAME-v5; older ids of the same ROM agree, and other games have no scores."""
    games = games_by_id()
    by_rom = {games[f"ALE/{game}-v5"]: ReferenceScore(*scores) for game, scores in ATARI57.items()}
    assert len(by_rom) == 57
    assert {env_id: reference_score(env_id) for env_id in games} == {
        env_id: by_rom.get(rom) for env_id, rom in games.items()
    }
    assert sum(reference_score(env_id) is not None for env_id in games) > 200


def test_the_actor_has_every_game() -> None:
    """Each of the 57 is built as Atari, and the id in its spec leads back to its scores."""
    for game, scores in ATARI57.items():
        config = ActorConfig(env_id=f"ALE/{game}-v5", atari=AtariConfig(threads=1))
        vector = environments.make(config, 0, 1, 1)
        assert vector.spec.observation[0].shape == (84, 84, 1)
        assert reference_score(vector.spec.environment_id) == ReferenceScore(*scores)
        vector.close()


@pytest.mark.parametrize("env_id", ["ALE/Pong-v5", "Pong-v0", "Pong-v4", "PongNoFrameskip-v4", "ale_py:ALE/Pong-v5"])
def test_ids_of_one_game(env_id: str) -> None:
    """Old and new ids, with and without the module that registers them."""
    assert reference_score(env_id) == ReferenceScore(-20.7, 14.6)


@pytest.mark.parametrize(
    "env_id",
    ["", "Pong", "Pong-v1", "pong-v4", "MyPong-v4", "ALE/Adventure-v5", "CartPole-v1", "dm_env_rpc://127.0.0.1:5555"],
)
def test_other_environments_have_none(env_id: str) -> None:
    """Environments with a similar name, games outside the 57, and everything else."""
    assert reference_score(env_id) is None


def test_a_return_is_put_between_the_random_policy_and_the_person() -> None:
    """0 and 1 are theirs; below and above go on in a straight line, where all returns are negative too."""
    skiing = ReferenceScore(random=-17098.1, human=-4336.9)
    assert skiing.normalized(-17098.1) == 0.0
    assert skiing.normalized(-4336.9) == 1.0
    assert skiing.normalized(-4336.9 + 12761.2) == pytest.approx(2.0)
    assert skiing.normalized(-30000.0) < 0.0


def test_levels_of_dmlab_30_have_scores() -> None:
    """By the id that the actor knows them by; a level outside of the thirty has none."""
    assert reference_score("dmlab/rooms_watermaze") == ReferenceScore(4.065, 54.0)
    assert reference_score("dmlab/lt_chasm") is None
