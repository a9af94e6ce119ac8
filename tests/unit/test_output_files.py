"""The files that an actor writes when asked to, on a disk that is full."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest

from seedrl_actor.output_files import OutputFiles
from seedrl_core.codec import Episode
from seedrl_core.config import ActorConfig

EPISODE = Episode(env=1, episode_return=2.5, length=7, info={})


def write(results: Path) -> None:
    """One episode of a session whose first environment has the number 4."""
    config = ActorConfig.model_validate({"env_id": "CartPole-v1", "results": results})
    with OutputFiles.open(config) as files:
        files.add_episodes(4, [EPISODE])


def test_each_episode_is_a_line(tmp_path: Path) -> None:
    """With the number that the environment has in its actor."""
    write(tmp_path / "results.jsonl")
    assert json.loads((tmp_path / "results.jsonl").read_text()) == {"env": 5, "return": 2.5, "length": 7}


def test_a_full_disk_is_an_error_that_names_the_file() -> None:
    """Which a command line tells in one line."""
    with pytest.raises(OSError, match="No space left on device") as raised:
        write(Path("/dev/full"))
    assert (raised.value.errno, raised.value.filename) == (errno.ENOSPC, "/dev/full")
