"""The files that an actor may be asked to write: results of episodes, and a recording of its first environment."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import IO, Any, BinaryIO, TextIO, TypeVar

import numpy as np

from seedrl_actor.environments import Step
from seedrl_core import recording
from seedrl_core.codec import FIRST, LAST, Episode, Explanation
from seedrl_core.config import ActorConfig
from seedrl_core.spec import Array

F = TypeVar("F", bound=IO[Any])


@dataclass(frozen=True)
class OutputFiles:
    """Open files of one actor; None for one that is not asked for."""

    results: TextIO | None
    recording: BinaryIO | None

    @classmethod
    @contextmanager
    def open(cls, config: ActorConfig) -> Iterator[OutputFiles]:
        """The files that `config` names, empty; they are closed at the end."""
        with ExitStack() as stack:
            yield cls(
                stack.enter_context(_closed(config.results.open("w"))) if config.results else None,
                stack.enter_context(_closed(config.recording.open("wb"))) if config.recording else None,
            )

    def add_episodes(self, first_env: int, episodes: Iterable[Episode]) -> None:
        """One JSON line each in the results; `first_env` is the number of the session's first environment."""
        if self.results is None:
            return
        with _named(self.results):
            for episode in episodes:
                line = {"env": first_env + episode.env, "return": episode.episode_return, "length": episode.length}
                self.results.write(json.dumps(line) + "\n")
                self.results.flush()

    def add_step(self, step: Step, action: tuple[Array, ...], explanation: Explanation | None) -> None:
        """The first environment's step in the recording, of a session that has a picture and an explanation of it."""
        if self.recording is None or step.picture is None or explanation is None:
            return
        recorded = recording.RecordedStep(
            picture=step.picture,
            first=bool(step.flags[0] & FIRST),
            last=bool(step.flags[0] & LAST),
            reward=float(step.reward[0]),
            action=tuple(np.concatenate([leaf[0].ravel() for leaf in action]).astype(np.float64).tolist()),
            value=float(explanation.value[0]),
            preference=tuple(explanation.preference[0].tolist()),
            action_names=step.action_names,
        )
        with _named(self.recording):
            recording.append(self.recording, recorded)


@contextmanager
def _closed(file: F) -> Iterator[F]:
    try:
        yield file
    finally:
        with _named(file):
            file.close()


@contextmanager
def _named(file: IO[Any]) -> Iterator[None]:
    """An error of the disk says which file it is of."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, file.name) from error
