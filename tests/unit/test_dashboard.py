"""The Grafana dashboard: its places and queries by Grafana's and Prometheus' rules, and what tries and draws it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import Counter
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Any

import dashboard_picture
import pytest
import yaml
from dashboard_picture import COLUMNS, Answers, Series, drawn
from deployed_settings import DEPLOY
from matplotlib.text import Text
from PIL import Image

PANELS: list[dict[str, Any]] = json.loads((DEPLOY / "grafana/seedrl.json").read_text())["panels"]
ASKING = [panel for panel in PANELS if "targets" in panel]
EXPRESSIONS = [target["expr"] for panel in ASKING for target in panel["targets"]]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    """deploy/grafana/try-dashboard, whose name has no ending that Python knows."""
    loader = SourceFileLoader("try_dashboard", str(DEPLOY / "grafana/try-dashboard"))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    module = sys.modules[loader.name] = module_from_spec(spec)
    loader.exec_module(module)
    return module


def test_panels_have_places_of_their_own() -> None:
    """Within the grid, none over another, without a hole; ids and the letters of a panel's queries are unique."""
    cells: Counter[tuple[int, int]] = Counter()
    for panel in PANELS:
        x, y, w, h = (panel["gridPos"][key] for key in "xywh")
        cells.update((column, row) for column in range(x, x + w) for row in range(y, y + h))
    rows = max(row for _, row in cells) + 1
    assert cells == Counter((column, row) for column in range(COLUMNS) for row in range(rows))
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)
    for panel in ASKING:
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"]), panel["title"]


def test_panels_say_what_they_show() -> None:
    """Each has a title, a description, and a legend for each query; types and units are those that the picture has."""
    for panel in PANELS:
        assert panel["type"] in dashboard_picture.DRAWN, panel["title"]
    for panel in ASKING:
        assert panel["title"]
        assert panel["description"], panel["title"]
        assert all(target["legendFormat"] for target in panel["targets"]), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"] in dashboard_picture.UNITS, panel["title"]
        assert panel["fieldConfig"]["overrides"] == [], "the picture has none"


def test_a_line_has_more_than_one_moment() -> None:
    """A panel with a line, be it small and behind a number, asks for the whole time and not for its end."""
    for panel in ASKING:
        if panel["type"] == "timeseries" or panel["options"]["graphMode"] != "none":
            assert not any(target.get("instant") for target in panel["targets"]), panel["title"]


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_queries_are_of_prometheus_language(script: ModuleType, tmp_path: Path) -> None:
    """With values for its variables Prometheus' own tool takes each query; one that is none would be found."""

    def checked(queries: list[str]) -> int:
        variables = script.Window(0, 3600).variables
        rules = [
            {"record": f"query:{number}", "expr": script.filled(query, script.VARIABLE, variables)}
            for number, query in enumerate(queries)
        ]
        (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}))
        command = ["promtool", "check", "rules", "--lint=none", "rules.yml"]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, check=False).returncode

    assert checked(EXPRESSIONS) == 0
    assert checked([*EXPRESSIONS, "rate(up)"]) != 0


def test_variables_get_values_as_from_grafana(script: ModuleType) -> None:
    """A rate is taken over four scrapes, or over an interval and a scrape where that is more; others are refused."""

    def filled(seconds: float) -> str:
        text: str = script.filled(
            "rate(a[$__rate_interval]) + b[${__interval}]", script.VARIABLE, script.Window(100, 100 + seconds).variables
        )
        return text

    assert filled(60) == "rate(a[8s]) + b[2s]"
    assert filled(36000) == "rate(a[92s]) + b[90s]"
    with pytest.raises(script.WrongQuery, match=r"^expected __interval, .*, got run in a\{run=\$run\}$"):
        script.filled("a{run=$run}", script.VARIABLE, script.Window(0, 60).variables)


def test_legends_get_labels_of_series(script: ModuleType) -> None:
    """A label that a series does not have is refused, where Grafana would show nothing."""
    assert script.filled("{{job}} at {{ instance }}", script.LABEL, {"job": "a", "instance": "b:1"}) == "a at b:1"
    with pytest.raises(script.WrongQuery, match="expected job, got instance"):
        script.filled("{{instance}}", script.LABEL, {"job": "a"})


def test_grafana_knows_how_often_prometheus_looks() -> None:
    """The data source's interval, from which rates get theirs, is that of the Prometheus that it asks."""
    (source,) = yaml.safe_load((DEPLOY / "grafana/provisioning/datasources/prometheus.yaml").read_text())["datasources"]
    config = yaml.safe_load((DEPLOY / "prometheus/prometheus.yml").read_text())
    assert source["jsonData"]["timeInterval"] == config["global"]["scrape_interval"]


def test_the_try_has_all_jobs_of_prometheus(script: ModuleType) -> None:
    """Only targets and intervals differ from deploy/prometheus; the rules are those."""
    original = yaml.safe_load((DEPLOY / "prometheus/prometheus.yml").read_text())
    jobs = [job["job_name"] for job in original["scrape_configs"]]
    config = script.configuration({job: [f"{job}:1"] for job in jobs})
    assert config.keys() == original.keys()
    assert config["scrape_configs"] == [
        {"job_name": job, "static_configs": [{"targets": [f"{job}:1"]}]} for job in jobs
    ]
    assert all(Path(file).is_file() for file in config["rule_files"])


def test_the_picture_has_titles_and_legends(tmp_path: Path) -> None:
    """All panels are drawn, with answers and without; of the parts of a whole each stands on the one before."""
    stacked = next(panel for panel in ASKING if "stacking" in panel["fieldConfig"]["defaults"].get("custom", {}))
    names = [target["legendFormat"] for target in stacked["targets"]]
    series = {panel["id"]: [] for panel in PANELS}
    series[stacked["id"]] = [Series(name, [0.0, 30.0, 60.0], [0.25, 0.5, 0.25]) for name in names]
    figure = drawn(PANELS, Answers(series, 60.0))
    told = {text.get_text() for text in figure.findobj(Text)}
    assert {panel["title"] for panel in PANELS} | set(names) <= told
    (frame,) = (axes for axes in figure.axes if axes.texts[0].get_text() == stacked["title"])
    tops = [area.get_paths()[0].vertices[:, 1].max() for area in frame.child_axes[0].collections]
    assert tops == [0.5 * (number + 1) for number in range(len(names))]
    dashboard_picture.save(figure, tmp_path / "dashboard.png")
    assert Image.open(tmp_path / "dashboard.png").width == 1600
