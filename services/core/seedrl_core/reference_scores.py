"""What a return is worth beside a random policy and a person, in environments for which both are known."""

from __future__ import annotations

import re
from dataclasses import dataclass

from seedrl_core.atari57 import ATARI57
from seedrl_core.dmlab30 import DMLAB30

# What the ids of a collection look like, and its scores by the `name` in them.
_COLLECTIONS = (
    (re.compile(r"(?:ALE/)?(?P<name>[A-Za-z]+?)(?:NoFrameskip)?-v[045]"), ATARI57),
    (re.compile(r"dmlab/(?P<name>\w+)"), DMLAB30),
)


@dataclass(frozen=True)
class ReferenceScore:
    """Mean raw returns of whole episodes.

    Attributes:
      random: of a policy that chooses uniformly.
      human: of a person.
    """

    random: float
    human: float

    def normalized(self, mean_return: float) -> float:
        """The human-normalized score of a mean return: 0.0 for the random policy, 1.0 for the person."""
        return (mean_return - self.random) / (self.human - self.random)


def reference_score(environment_id: str) -> ReferenceScore | None:
    """The scores for an id, with or without `module:` before it; None where there are none.

    Atari's ids are `ALE/Pong-v5`, and `Pong-v4` or `PongNoFrameskip-v4` as Gymnasium has them from earlier times;
    DMLab-30's are `dmlab/LEVEL`.
    """
    name = environment_id.rpartition(":")[2]
    for pattern, scores in _COLLECTIONS:
        match = pattern.fullmatch(name)
        if match and match["name"] in scores:
            return ReferenceScore(*scores[match["name"]])
    return None
