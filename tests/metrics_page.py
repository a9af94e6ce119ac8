"""Reads what services export for Prometheus: ports from their logs, samples from their pages."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families


def log_lines(log: Path) -> list[dict[str, Any]]:
    """The JSON lines of a service's log; other output (of TensorFlow's C++ parts) is left out."""
    lines = log.read_text().splitlines() if log.exists() else []
    return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]


def page(log: Path) -> str:
    """What the service with that log exports now; empty while it does not."""
    served = [line["listen"] for line in log_lines(log) if line["event"] == "metrics_served"]
    if not served:
        return ""
    with urllib.request.urlopen(f"http://{served[-1]}/metrics", timeout=20) as answer:
        return str(answer.read().decode())


def samples(text: str) -> dict[str, float]:
    """Name -> value; of several with one name the last."""
    return {sample.name: sample.value for family in text_string_to_metric_families(text) for sample in family.samples}
