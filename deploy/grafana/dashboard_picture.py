"""Draws a Grafana dashboard from the answers to its queries: places, titles, units and legends. Asks nobody.

Grafana itself draws in its own way. A type of panel or a unit that is not in `DRAWN` or `UNITS` is a KeyError.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MultipleLocator
from PIL import Image

COLUMNS = 24  # of Grafana's grid
_CELL = (1600 / COLUMNS, 36)  # of the grid, pixels
_GAP = 4  # between two panels, half of it, pixels
_DPI = 100
_LEGEND: dict[str, Any] = {"borderaxespad": 0, "labelspacing": 0.35}
_TITLE, _SMALL = 9.5, 8.0  # points
_TICKS_S = (10, 20, 30, 60, 120, 300, 600, 1200, 3600)
_REMARK = "Drawn by deploy/grafana/try-dashboard from the panels' queries, not by Grafana."
# Unit in the dashboard -> what values are divided by, and how they are written.
UNITS: dict[str, tuple[float, Callable[[float], str]]] = {
    "short": (1.0, lambda value: EngFormatter(sep="")(value) if abs(value) >= 1000 else f"{value:g}"),
    "s": (1.0, EngFormatter("s")),
    "percentunit": (1.0, "{:.0%}".format),
    "bytes": (2.0**20, "{:,.0f} MiB".format),
}


@dataclass(frozen=True)
class Series:
    """A line of a panel: its name in the legend, times in seconds since the start, values."""

    name: str
    times: list[float]
    values: list[float]


@dataclass(frozen=True)
class Answers:
    """To the queries of all panels.

    Attributes:
      series: of each panel, by its id.
      seconds: from their start to their end.
    """

    series: dict[int, list[Series]]
    seconds: float


def drawn(panels: list[dict[str, Any]], answers: Answers) -> Figure:
    """All panels in their places, and a remark below."""
    rows = 1 + max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels)
    width, height = COLUMNS * _CELL[0], rows * _CELL[1]
    figure = Figure(figsize=(width / _DPI, height / _DPI), dpi=_DPI, facecolor="0.95")
    for panel in panels:
        left, top, w, h = (panel["gridPos"][key] * _CELL[key in "yh"] for key in "xywh")
        box = ((left + _GAP) / width, 1 - (top + h - _GAP) / height, (w - 2 * _GAP) / width, (h - 2 * _GAP) / height)
        frame = figure.add_axes(box)
        frame.set(xticks=[], yticks=[])
        frame.spines[:].set_color("0.85")
        DRAWN[panel["type"]](frame, panel, answers)
    figure.text(0.005, 0.4 / rows, _REMARK, fontsize=_TITLE, color="0.4", va="center")
    return figure


def save(figure: Figure, out: Path) -> None:
    """Writes it as a PNG of 256 colours, which is half the size."""
    whole = BytesIO()
    figure.savefig(whole, format="png")
    Image.open(whole).convert("RGB").quantize(256).save(out, optimize=True)


def _row(frame: Axes, panel: dict[str, Any], answers: Answers) -> None:
    """A heading."""
    _title(frame, panel, fontsize=12, fontweight="bold")
    frame.patch.set_alpha(0)
    frame.spines[:].set_visible(False)


def _stat(frame: Axes, panel: dict[str, Any], answers: Answers) -> None:
    """The last value of each series, or its name; its shape behind where the panel says so."""
    series, options = answers.series[panel["id"]], panel["options"]
    divisor, written = UNITS[panel["fieldConfig"]["defaults"]["unit"]]
    _title(frame, panel)
    for number, one in enumerate(series, 1):
        text = one.name if options["textMode"] == "name" else written(float(f"{one.values[-1] / divisor:.3g}"))
        frame.text(0.5, 1 - number / (len(series) + 1), text, fontsize=22, ha="center", va="center")
    if options["graphMode"] == "area":
        axes = frame.inset_axes((0, 0, 1, 0.36))
        axes.axis("off")
        axes.set_xlim(0, answers.seconds)
        for one in series:
            axes.fill_between(one.times, one.values, alpha=0.25)


def _timeseries(frame: Axes, panel: dict[str, Any], answers: Answers) -> None:
    """Lines, or areas one on the other, against the time since the start; the legend below."""
    series, defaults = answers.series[panel["id"]], panel["fieldConfig"]["defaults"]
    divisor, written = UNITS[defaults["unit"]]
    width, height = (panel["gridPos"][key] * pixels for key, pixels in zip("wh", _CELL, strict=True))
    longest = max((len(one.name) for one in series), default=0)
    columns = max(1, int((width - 20) // (6.2 * longest + 40)))
    left, below = 58, 30 + 15 * math.ceil(len(series) / columns)
    axes = frame.inset_axes((left / width, below / height, 1 - (left + 14) / width, 1 - (below + 32) / height))
    _plot(axes, series, divisor, stacked=defaults.get("custom", {}).get("stacking", {}).get("mode") == "normal")
    axes.set_xlim(0, answers.seconds)
    zero = not any(value for one in series for value in one.values)
    axes.set_ylim(defaults.get("min"), defaults.get("max", 1.0 if zero else None))
    axes.xaxis.set_major_locator(MultipleLocator(next((s for s in _TICKS_S if 7 * s >= answers.seconds), _TICKS_S[-1])))
    axes.xaxis.set_major_formatter(lambda time, _: "{:.0f}:{:02.0f}".format(*divmod(round(time), 60)))
    axes.yaxis.set_major_formatter(lambda value, _: written(value))
    axes.tick_params(labelsize=_SMALL)
    axes.grid(alpha=0.3)
    axes.spines[:].set_visible(False)
    _title(frame, panel)
    handles, names = axes.get_legend_handles_labels()
    frame.legend(handles, names, loc=(8 / width, 2 / height), ncols=columns, fontsize=_SMALL, frameon=False, **_LEGEND)


def _plot(axes: Axes, series: list[Series], divisor: float, *, stacked: bool) -> None:
    if not stacked:
        for one in series:
            axes.plot(one.times, [value / divisor for value in one.values], label=one.name, linewidth=1.3)
        return
    times = sorted({time for one in series for time in one.times})
    by_time = [dict(zip(one.times, one.values, strict=True)) for one in series]
    values = [[one.get(time, math.nan) / divisor for time in times] for one in by_time]
    axes.stackplot(times, values, labels=[one.name for one in series], alpha=0.6)


def _title(frame: Axes, panel: dict[str, Any], **look: Any) -> None:
    look = {"va": "top", "fontsize": _TITLE, **look}
    frame.annotate(panel["title"], (0, 1), (6, -4), xycoords="axes fraction", textcoords="offset points", **look)


DRAWN = {"row": _row, "stat": _stat, "timeseries": _timeseries}
