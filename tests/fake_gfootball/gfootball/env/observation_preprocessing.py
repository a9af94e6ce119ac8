"""Planes from what the game tells."""

from __future__ import annotations

from typing import Any

import numpy as np

HEIGHT, WIDTH = 72, 96
LAYERS = ("left_team", "right_team", "ball", "active")


def generate_smm(observation: list[dict[str, Any]], config: Any = None) -> Any:
    """[players, 72, 96, 4] uint8, 255 where something stands."""
    frame = np.zeros((len(observation), HEIGHT, WIDTH, len(LAYERS)), np.uint8)
    for planes, raw in zip(frame, observation, strict=True):
        for index, layer in enumerate(LAYERS):
            for row, column in raw[layer]:
                planes[row, column, index] = 255
    return frame
