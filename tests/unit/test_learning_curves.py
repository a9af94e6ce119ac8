"""Learning curves: what is read from a run, which runs share a band, and the pictures."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from seedrl_core.config import load_settings, write_settings
from seedrl_core.errors import ConfigError
from seedrl_launcher.learning_curves import Against, draw, grouped, read_curve


def run(
    path: Path, returns: list[float], *, steps: list[int] | None = None, times: list[float] | None = None, **keys: Any
) -> Path:
    """A run's directory, with one window of metrics a return; NaN is a window in which no episode has ended yet."""
    path.mkdir()
    settings = {"actor.env_id": "CartPole-v1", "learner.run_dir": str(path)} | {
        key.replace("__", "."): value for key, value in keys.items()
    }
    write_settings(load_settings(None, settings), path / "config.toml")
    steps = steps or [1000 * (number + 1) for number in range(len(returns))]
    times = times or [5.0 * number for number in range(len(returns))]
    records = [
        {"time": 1e9 + time, "env_steps": step} | ({} if math.isnan(value) else {"episode/mean_return_100": value})
        for time, step, value in zip(times, steps, returns, strict=True)
    ]
    (path / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def test_a_curve_begins_with_the_first_episode_and_counts_time_from_the_start(tmp_path: Path) -> None:
    """Windows without a return are left out, but their time is not."""
    curve = read_curve(run(tmp_path / "a", [math.nan, 20.0, 30.0]))
    assert curve.env_steps.tolist() == [2000, 3000]
    assert curve.wall_s.tolist() == [5.0, 10.0]
    assert curve.returns.tolist() == [20.0, 30.0]


def test_a_resumed_run_has_neither_its_pause_nor_what_was_thrown_away(tmp_path: Path) -> None:
    """A run that died at 3000 steps and went on from its checkpoint at 1000, an hour later."""
    path = run(tmp_path / "a", [1.0, 2.0, 3.0, 4.0], steps=[1000, 2000, 3000, 1500], times=[0.0, 5.0, 10.0, 3610.0])
    curve = read_curve(path)
    assert curve.env_steps.tolist() == [1000, 1500]
    assert curve.returns.tolist() == [1.0, 4.0]
    assert curve.wall_s.tolist() == [0.0, 10.0]


def test_runs_that_differ_in_seeds_share_a_band(tmp_path: Path) -> None:
    """Two seeds of one setting are a group, another setting is one of its own, labelled by what differs."""
    flat = run(tmp_path / "a", [10.0, 20.0], learner__seed=1, actor__seed=1)
    steep = run(tmp_path / "b", [20.0, 40.0], learner__seed=2, actor__seed=2, learner__total_env_steps=9)
    other = run(tmp_path / "c", [5.0, 6.0], learner__optimizer__learning_rate=0.01)
    groups = grouped([read_curve(path) for path in (flat, other, steep)])
    assert [group.label for group in groups] == ["defaults (2 runs)", "learning_rate=0.01"]
    grid, mean, low, high = groups[0].band(Against.ENV_STEPS)
    assert (grid[0], grid[-1]) == (1000, 2000)
    np.testing.assert_allclose([mean[0], low[0], high[0]], [15, 10, 20])
    np.testing.assert_allclose([mean[-1], low[-1], high[-1]], [30, 20, 40])


def test_a_band_spans_only_where_all_runs_have_been(tmp_path: Path) -> None:
    """A shorter run ends the band: beyond it a mean over fewer runs would jump."""
    paths = [run(tmp_path / "a", [1.0, 2.0, 3.0]), run(tmp_path / "b", [1.0, 2.0], learner__seed=1)]
    (group,) = grouped([read_curve(path) for path in paths])
    assert group.band(Against.ENV_STEPS)[0][-1] == 2000
    assert group.label == "CartPole-v1 (2 runs)"


@pytest.mark.parametrize("against", list(Against))
def test_pictures_show_the_curves(tmp_path: Path, against: Against) -> None:
    """A PNG has the colours of line and band, an SVG is one; the directory is made."""
    paths = [run(tmp_path / "a", [1.0, 9.0]), run(tmp_path / "b", [5.0, 20.0], learner__seed=1)]
    groups = grouped([read_curve(path) for path in paths])
    draw(groups, against, tmp_path / "pictures/curve.png")
    with Image.open(tmp_path / "pictures/curve.png") as picture:
        colours = {colour for count, colour in picture.convert("RGB").getcolors(1 << 24) if count > 300}
        assert picture.width == (1320 if against is Against.BOTH else 660)
    assert len(colours - {(255, 255, 255)}) >= 2
    draw(groups, against, tmp_path / "curve.svg")
    assert "<svg" in (tmp_path / "curve.svg").read_text()


def test_a_clock_that_is_set_back_turns_no_time_back(tmp_path: Path) -> None:
    """Wall time never falls: bands are drawn between points whose axes rise."""
    curve = read_curve(run(tmp_path / "a", [1.0, 2.0, 3.0, 4.0], times=[0.0, 5.0, -20.0, -15.0]))
    assert curve.wall_s.tolist() == [0.0, 5.0, 5.0, 10.0]


@pytest.mark.parametrize(
    "line", ['{"time": 1.0, "env_st', '{"env_steps": 1}', "[]", '{"time": "x", "env_steps": 1}', "\0"]
)
def test_a_damaged_file_is_named(tmp_path: Path, line: str) -> None:
    """A window that is none, with its line; and settings that are none."""
    path = run(tmp_path / "a", [1.0, 2.0])
    whole = (path / "metrics.jsonl").read_text()
    (path / "metrics.jsonl").write_text(whole + line + "\n")
    with pytest.raises(ConfigError, match=r"metrics\.jsonl, line 3: expected a window of metrics"):
        read_curve(path)
    (path / "metrics.jsonl").write_text(whole)
    (path / "config.toml").write_bytes(b"a = '\xff'")
    with pytest.raises(ConfigError, match=r"config\.toml: expected settings in TOML"):
        read_curve(path)


def test_what_cannot_be_drawn_is_told(tmp_path: Path) -> None:
    """A directory that is no run's, a run without an episode, and another kind of file are errors of one line."""
    with pytest.raises(ConfigError, match="not a run's directory"):
        read_curve(tmp_path)
    with pytest.raises(ConfigError, match="no episode has ended"):
        read_curve(run(tmp_path / "new", [math.nan]))
    groups = grouped([read_curve(run(tmp_path / "a", [1.0, 2.0]))])
    with pytest.raises(ConfigError, match=r"ends with \.png or \.svg, got curve\.gif"):
        draw(groups, Against.BOTH, Path("curve.gif"))
