"""Reads learning curves from run directories and draws them; matplotlib is imported when there is something to draw."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from seedrl_core.errors import ConfigError
from seedrl_launcher.run_directory import RunDirectory

_RETURN = "episode/mean_return_100"
_FORMATS = (".png", ".svg")
# A longer silence between two windows means that the run was not going.
_MAX_GAP_S = 60.0
_GRID_POINTS = 200
# Settings in which the runs of one group may differ: seeds, places, how long and how they are watched.
_INCIDENTAL = ("seed", "run_dir", "listen", "total_env_steps", "log_every_s", "tensorboard", "checkpoint")

Floats = npt.NDArray[np.float64]


class Against(StrEnum):
    """The horizontal axis."""

    ENV_STEPS = "env-steps"
    WALL_TIME = "wall-time"
    BOTH = "both"


@dataclass(frozen=True)
class Curve:
    """Mean return of the last 100 episodes over a run.

    Attributes:
      name: of the run.
      settings: dotted key -> value, without what is incidental.
      env_steps, wall_s, returns: arrays [points]; both axes rise.
    """

    name: str
    settings: dict[str, Any]
    env_steps: Floats
    wall_s: Floats
    returns: Floats

    def axis(self, against: Against) -> Floats:
        """Horizontal values: env steps, or minutes."""
        return self.env_steps if against is Against.ENV_STEPS else self.wall_s / 60


@dataclass(frozen=True)
class Group:
    """Runs that differ in nothing but what is incidental, their seeds say."""

    label: str
    curves: tuple[Curve, ...]

    def band(self, against: Against) -> tuple[Floats, Floats, Floats, Floats]:
        """Horizontal values, mean, lowest and highest return, where all runs have been."""
        axes = [curve.axis(against) for curve in self.curves]
        if len(axes) == 1:
            returns = self.curves[0].returns
            return axes[0], returns, returns, returns
        grid = np.linspace(max(axis[0] for axis in axes), min(axis[-1] for axis in axes), _GRID_POINTS)
        returns = np.stack(
            [np.interp(grid, axis, curve.returns) for axis, curve in zip(axes, self.curves, strict=True)]
        )
        return grid, returns.mean(0), returns.min(0), returns.max(0)


def read_curve(path: Path) -> Curve:
    """The curve of the run in a directory.

    A part that a resume from an earlier checkpoint has thrown away is left out, and so is the time between two parts.

    Raises:
      ConfigError: it is no run's, no episode has ended in it, or a file is damaged.
    """
    run = RunDirectory(path)
    if not run.config_file.is_file() or not run.metrics_file.is_file():
        raise ConfigError(f"{path} is not a run's directory: expected config.toml and metrics.jsonl in it")
    points: list[tuple[float, float, float]] = []
    wall_s, last_time = 0.0, None
    for time, steps, mean_return in _records(run.metrics_file):
        gap_s = 0.0 if last_time is None else time - last_time
        wall_s += gap_s if 0.0 <= gap_s <= _MAX_GAP_S else 0.0  # a clock that is set back is no time, either
        last_time = time
        while points and points[-1][0] > steps:
            points.pop()
        if mean_return is not None:
            points.append((steps, wall_s, mean_return))
    if not points:
        raise ConfigError(f"{path}: no episode has ended in this run yet")
    env_steps, walls, returns = np.array(points, np.float64).T
    try:
        settings = dict(_flat(tomllib.loads(run.config_file.read_text())))
    except ValueError as error:
        raise ConfigError(f"{run.config_file}: expected settings in TOML: {error}") from error
    return Curve(path.resolve().name, settings, env_steps, walls, returns)


def _records(file: Path) -> Iterator[tuple[float, float, float | None]]:
    """Time, env steps and mean return, None before the first episode, of each window."""
    for number, line in enumerate(file.read_bytes().splitlines(), 1):
        try:
            record = json.loads(line)
            mean_return = record.get(_RETURN)
            yield float(record["time"]), float(record["env_steps"]), None if mean_return is None else float(mean_return)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigError(f"{file}, line {number}: expected a window of metrics, got {line[:80]!r}") from error


def grouped(curves: Sequence[Curve]) -> list[Group]:
    """Groups in the order of their first runs, labelled by the settings in which they differ."""
    by_settings: dict[tuple[tuple[str, str], ...], list[Curve]] = {}
    for curve in curves:
        by_settings.setdefault(tuple(sorted((key, str(value)) for key, value in curve.settings.items())), []).append(
            curve
        )
    texts = [dict(settings) for settings in by_settings]
    keys = sorted({key for text in texts for key in text})
    differing = [key for key in keys if len({text.get(key) for text in texts}) > 1]
    return [
        Group(_label(text, differing, members), tuple(members))
        for text, members in zip(texts, by_settings.values(), strict=True)
    ]


def draw(groups: Sequence[Group], against: Against, out: Path) -> None:
    """Writes the picture: a line a group, and where it has several runs a band from the lowest to the highest return.

    Raises:
      ConfigError: matplotlib is missing, or `out` is no PNG or SVG.
    """
    if out.suffix.lower() not in _FORMATS:
        raise ConfigError(f"--out: expected a file that ends with .png or .svg, got {out}")
    try:
        from matplotlib.figure import Figure
        from matplotlib.ticker import EngFormatter
    except ImportError as error:
        raise ConfigError("`seedrl plot` needs matplotlib: pip install 'seedrl[plot]'") from error
    panels = [Against.ENV_STEPS, Against.WALL_TIME] if against is Against.BOTH else [against]
    figure = Figure(figsize=(5.5 * len(panels), 4 + 0.2 * len(groups)), layout="constrained")
    rows = figure.subplots(1, len(panels), squeeze=False, sharey=True)
    for panel, axes in zip(panels, rows[0], strict=True):
        for group in groups:
            horizontal, mean, low, high = group.band(panel)
            (line,) = axes.plot(horizontal, mean, label=group.label)
            if len(group.curves) > 1:
                axes.fill_between(horizontal, low, high, color=line.get_color(), alpha=0.2, linewidth=0)
        if panel is Against.ENV_STEPS:
            axes.xaxis.set_major_formatter(EngFormatter())
        axes.set_xlabel("env steps" if panel is Against.ENV_STEPS else "wall time, minutes")
        axes.grid(alpha=0.3)
    rows[0][0].set_ylabel("mean return, last 100 episodes")
    figure.legend(*rows[0][0].get_legend_handles_labels(), loc="outside lower center", fontsize="small")
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=120)


def _label(settings: dict[str, str], differing: Sequence[str], members: Sequence[Curve]) -> str:
    told = [f"{key.rsplit('.', 1)[-1]}={settings[key]}" for key in differing if key in settings]
    label = ", ".join(told) or ("defaults" if differing else settings.get("actor.env_id", members[0].name))
    return f"{label} ({len(members)} runs)" if len(members) > 1 else label


def _flat(values: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        elif not any(word in key for word in _INCIDENTAL):
            yield f"{prefix}{key}", value
