"""A diary whose steps take time, so that faults meet a system that has processor time to spare."""

from __future__ import annotations

import time
from typing import Any

import gymnasium
from counter_environment import Diary

STEP_S = 0.01


class PacedDiary(Diary):
    """See Diary."""

    def step(self, action: int) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        time.sleep(STEP_S)  # what a simulator would compute for
        return super().step(action)


gymnasium.register("PacedDiary-v0", PacedDiary)
