"""What Prometheus reads: names and units by its conventions, from a server that really listens."""

from __future__ import annotations

import asyncio
import socket
import urllib.request

import pytest

from seedrl_core.config import load_settings
from seedrl_core.errors import AddressInUse, ConfigError
from seedrl_core.exporter import Readings, ServiceCollector, exported
from seedrl_core.metrics import Metrics

READINGS = Readings({"sessions": 3, "batch_fill": 0.5, "train/loss": -1.5, "loss/total": float("nan")}, {"run": 'a"b'})


async def scrape(port: int | None) -> list[str]:
    """The lines that Prometheus would read."""

    def read() -> bytes:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
            return answer.read()

    return (await asyncio.to_thread(read)).decode().splitlines()


async def test_names_and_units_are_those_of_prometheus() -> None:
    """Durations are summaries in seconds, counts and busy time counters, the rest gauges; NaN stays NaN."""
    now = [0.0]
    metrics = Metrics(lambda: now[0])
    metrics.count("env_steps_per_s", 7)
    metrics.observe("inference/step_ms", 250.0, weight=2)
    metrics.observe("train/loss", -1.5)
    with metrics.busy("learner/busy_share"):
        now[0] = 2.0
    window = metrics.collect()
    collector = ServiceCollector("learner", metrics.totals, lambda: Readings(window | READINGS.gauges, READINGS.info))
    with exported("127.0.0.1:0", collector) as port:
        lines = await scrape(port)
    ours = [line for line in lines if line.startswith("seedrl_")]
    assert sorted(ours) == [
        "seedrl_learner_batch_fill_ratio 0.5",
        "seedrl_learner_busy_seconds_total 2.0",
        "seedrl_learner_env_steps_total 7.0",
        "seedrl_learner_inference_step_seconds_count 2.0",
        "seedrl_learner_inference_step_seconds_sum 0.5",
        'seedrl_learner_info{run="a\\"b"} 1.0',
        "seedrl_learner_loss NaN",
        "seedrl_learner_sessions 3.0",
        "seedrl_learner_train_loss -1.5",
    ]
    assert any(line.startswith("process_resident_memory_bytes ") for line in lines)


async def test_totals_grow_over_windows_and_within_one() -> None:
    """A counter does not fall when a window closes, and has what the open window has."""
    metrics = Metrics()
    metrics.count("steps_per_s", 2)
    metrics.collect()
    metrics.count("steps_per_s", 3)
    with exported("127.0.0.1:0", ServiceCollector("actor", metrics.totals, Readings)) as port:
        assert "seedrl_actor_steps_total 5.0" in await scrape(port)


async def test_a_port_in_use_is_an_expected_error() -> None:
    """The error names the address."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        listen = f"127.0.0.1:{other.getsockname()[1]}"
        with (
            pytest.raises(AddressInUse, match=f"cannot serve metrics on {listen}"),
            exported(listen, ServiceCollector("actor", Metrics().totals, Readings)),
        ):
            pass


async def test_nothing_listens_by_default() -> None:
    """No service has an address for metrics unless one is set, and a Unix socket is refused."""
    settings = load_settings()
    assert [settings.actor.metrics_listen, settings.broker.metrics_listen, settings.learner.metrics_listen] == [""] * 3
    with exported("", ServiceCollector("actor", Metrics().totals, Readings)) as port:
        assert port is None
    with pytest.raises(ConfigError, match=r"actor\.metrics_listen: expected host:port or nothing"):
        load_settings(None, {"actor.metrics_listen": "unix:/tmp/metrics"})
