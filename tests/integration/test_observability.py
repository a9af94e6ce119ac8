"""A training run as an operator sees it: the metrics that its services really export, and logs that can be joined."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from local_runs import started, until
from metrics_page import log_lines, page, samples

pytestmark = pytest.mark.integration

DEPLOY = Path(__file__).parents[2] / "deploy"
SERVICES = ("learner", "broker", "actor")


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The directory of a run that trains, with metrics on, and whose services have each closed a window."""
    directory = tmp_path_factory.mktemp("observed") / "run"
    flags = [flag for name in SERVICES for flag in ("--set", f"{name}.metrics_listen=127.0.0.1:0")]
    with started(directory, "--actors", "1", *flags, "--set", "learner.log_every_s=1", "--set", "actor.sessions=2"):
        until(lambda: "seedrl_learner_loss_baseline" in page(log(directory, "learner")), "an update of the learner")
        until(lambda: "seedrl_broker_batch_rows" in page(log(directory, "broker")), "a window of the broker")
        yield directory


def log(run_dir: Path, service: str) -> Path:
    """Where a service of the run writes."""
    return run_dir / "logs" / ("actor-0.log" if service == "actor" else f"{service}.log")


def test_the_numbers_of_the_services_agree(run_dir):
    """Env steps that the actor makes are those that the learner counts; sessions are the same everywhere."""
    learner, broker, actor = (samples(page(log(run_dir, service))) for service in SERVICES)
    assert actor["seedrl_actor_sessions"] == broker["seedrl_broker_sessions"] == learner["seedrl_learner_sessions"] == 2
    assert actor["seedrl_actor_num_envs"] == broker["seedrl_broker_num_envs"] == 32
    # Pages are read one after the other while the run goes on, so later ones have more.
    assert 0 < learner["seedrl_learner_env_steps_total"] <= actor["seedrl_actor_env_steps_total"] * 1.01
    assert learner["seedrl_learner_run_env_steps"] >= learner["seedrl_learner_env_steps_total"] * 0.99
    assert broker["seedrl_broker_learner_connected"] == 1
    # One at a time, so their seconds cannot exceed the life of the process.
    life_s = time.time() - learner["process_start_time_seconds"]
    for name in ("inference_step_seconds", "train_update_seconds"):
        assert learner[f"seedrl_learner_{name}_count"] > 0
        assert 0 < learner[f"seedrl_learner_{name}_sum"] < life_s


def test_a_session_is_followed_through_all_logs(run_dir):
    """Lines of actor, broker and learner share actor_id, session and run; every line says who wrote it and when."""
    opened = {}
    for service in SERVICES:
        lines = log_lines(log(run_dir, service))
        assert all({"event", "level", "timestamp", "service", "module"} <= line.keys() for line in lines)
        assert {line["service"] for line in lines} == {service}
        opened[service] = {(line["actor_id"], line["session"]) for line in lines if line["event"] == "session_opened"}
        # The run is the learner's, so the others' lines have it once they have heard of it.
        assert {line["run"] for line in lines if "run" in line} == {run_dir.name}
    assert len(opened["learner"]) == 2
    assert opened["actor"] == opened["learner"]
    assert opened["broker"] == opened["learner"]


def test_every_panel_and_alert_asks_for_a_metric_that_exists(run_dir):
    """Dashboard and alerts name no metric that the services do not export, and each has some to ask for."""
    exported = {name for service in SERVICES for name in samples(page(log(run_dir, service)))} | {"up"}
    dashboard = json.loads((DEPLOY / "grafana/seedrl.json").read_text())
    alerts = yaml.safe_load((DEPLOY / "prometheus/alerts.yml").read_text())
    asked = {
        f"panel {panel['title']}, query {target['refId']}": target["expr"]
        for panel in dashboard["panels"]
        for target in panel.get("targets", ())
    } | {f"alert {rule['alert']}": rule["expr"] for group in alerts["groups"] for rule in group["rules"]}
    adapter = yaml.safe_load((DEPLOY / "kubernetes/prometheus-adapter.yaml").read_text())
    asked |= {f"autoscaler {rule['name']['as']}": rule["seriesQuery"] for rule in adapter["rules"]["external"]}
    assert len(asked) > 40
    for what, expression in asked.items():
        names = set(re.findall(r"\b(?:seedrl_\w+|process_\w+|up)\b", expression))
        assert names, what
        assert names <= exported, f"{what}: {names - exported}"


def families(run_dir: Path, *services: str) -> set[str]:
    """The metrics of seedrl that services export, of durations without `_sum` and `_count`."""
    exported = {name for service in services for name in samples(page(log(run_dir, service)))}
    return {re.sub(r"_(sum|count)$", "", name) for name in exported if name.startswith("seedrl_")}


def explained(*headings: str) -> set[str]:
    """The metrics in those tables of docs/operations.md, each known by the first cell of its head."""
    text = (DEPLOY.parent / "docs/operations.md").read_text()
    tables = [text.partition(f"\n| {heading} |")[2].partition("\n\n")[0] for heading in headings]
    return set(re.findall(r"^\| `(seedrl_\w+)`", "\n".join(tables), re.MULTILINE))


def test_operations_page_explains_every_metric(run_dir):
    """docs/operations.md has each metric that is exported, and no other."""
    assert families(run_dir, *SERVICES) == explained(*SERVICES)


def test_operations_page_explains_the_metrics_of_r2d2(tmp_path):
    """Those that only its learner exports stand in a table of their own."""
    settings = {
        "learner.metrics_listen": "127.0.0.1:0",
        "learner.log_every_s": 1,
        "learner.replay.min_unrolls": 8,
        "learner.replay.capacity_unrolls": 32,
        "learner.batch_unrolls": 4,
        "learner.unroll_length": 10,
        "learner.r2d2.burn_in": 2,
    }
    flags = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    of_r2d2 = explained("learner, R2D2 alone")
    with started(tmp_path / "run", "--agent", "r2d2", "--actors", "1", *flags):
        until(lambda: of_r2d2 <= families(tmp_path / "run", "learner"), "all metrics of R2D2")
        assert families(tmp_path / "run", "learner") - explained("learner") == of_r2d2
