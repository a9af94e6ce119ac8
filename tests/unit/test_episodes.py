"""Counts of episodes and fair shares of them."""

from __future__ import annotations

import numpy as np

from seedrl_actor.actor import split
from seedrl_actor.episodes import EpisodeCounter, EpisodeQuota
from seedrl_core.codec import Episode


def test_whole_episodes_are_counted_without_their_resets() -> None:
    """Return and length are those of the steps, and start anew after an ending or a restart."""
    counter = EpisodeCounter(2)
    all_step, none_end = np.array([True, True]), np.array([False, False])
    assert counter.count(np.array([1.0, 0.5]), all_step, none_end) == ()
    assert counter.count(np.array([2.0, 0.5]), all_step, np.array([True, False])) == (Episode(0, 3.0, 2),)
    counter.count(np.array([0.0, 0.5]), np.array([False, True]), none_end)
    counter.restart(np.array([False, True]))
    ended = counter.count(np.array([7.0, 1.0]), all_step, np.array([True, True]))
    assert ended == (Episode(0, 7.0, 1), Episode(1, 1.0, 1))


def test_a_quota_takes_as_many_episodes_from_each_environment() -> None:
    """Short episodes beyond an environment's share are not taken; all shares together are the total."""
    quotas = [EpisodeQuota(5, 2, 0, 3), EpisodeQuota(5, 1, 2, 3)]
    short = Episode(0, 1.0, 1)
    taken = quotas[0].take([short, short, short])
    assert len(taken) == 2
    assert not quotas[0].done
    assert len(quotas[0].take([Episode(1, 1.0, 9)] * 3)) == 2
    assert quotas[0].done
    assert len(quotas[1].take([short] * 9)) == 1
    assert quotas[1].done


def test_no_quota_takes_everything_for_ever() -> None:
    """0 episodes stand for no limit."""
    quota = EpisodeQuota(0, 1, 0, 1)
    assert len(quota.take([Episode(0, 1.0, 1)] * 3)) == 3
    assert not quota.done


def test_shares_cover_all_environments_once() -> None:
    """Sessions get nearly equal numbers, and never none."""
    for num_envs in range(1, 12):
        for sessions in range(1, 6):
            shares = split(num_envs, sessions)
            covered = [share.first_env + i for share in shares for i in range(share.num_envs)]
            assert covered == list(range(num_envs))
            assert max(share.num_envs for share in shares) - min(share.num_envs for share in shares) <= 1
            assert all(share.num_envs for share in shares)
