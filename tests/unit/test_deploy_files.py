"""Files for containers: valid by their own schemas, and no setting in them that does not exist."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from compose_spec import PyCompose

from seedrl_core.config import load_settings

DEPLOY = Path(__file__).parents[2] / "deploy"
SERVICES = ("actor", "broker", "learner")


def check_settings(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]) -> None:
    """Loads settings from environment variables as a service would; ConfigError when one is wrong."""
    with monkeypatch.context() as environment:
        for name, value in variables.items():
            environment.setenv(name, re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", str(value)))
        load_settings()


def test_the_compose_file_is_valid_and_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    """It parses by the compose specification; every service of ours has valid settings and a read-only root."""
    content = yaml.safe_load((DEPLOY / "compose/compose.yaml").read_text())
    PyCompose.from_yaml(yaml.safe_dump(content)).validate()  # it knows no YAML merge keys, so they are resolved
    services = content["services"]
    assert services.keys() == {*SERVICES, "tensorboard", "prometheus", "grafana"}
    for name in SERVICES:
        assert services[name]["read_only"] is True
        assert (DEPLOY.parent / services[name]["build"]["dockerfile"]).is_file()
        check_settings(monkeypatch, services[name]["environment"])
    for name in ("prometheus", "grafana"):
        for volume in services[name]["volumes"]:
            if volume.startswith("."):
                assert (DEPLOY / "compose" / volume.split(":")[0]).exists(), volume


def test_a_setting_that_does_not_exist_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check of settings in this file is able to fail."""
    with pytest.raises(Exception, match="unknown key"):
        check_settings(monkeypatch, {"SEEDRL_ACTOR__NO_SUCH_THING": "1"})


@pytest.mark.parametrize("service", SERVICES)
def test_an_image_has_one_extra_and_no_root(service: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each Dockerfile installs its own service's extra, runs as a number, starts its command without a shell."""
    text = (DEPLOY / f"docker/{service}.Dockerfile").read_text()
    assert re.findall(r"\.\[(\w+)\]", text) == [service]
    assert re.search(r"^USER \d+:\d+$", text, re.MULTILINE)
    assert f'ENTRYPOINT ["seedrl-{service}"]' in text
    assert text.startswith("#") and "\nARG BASE=python:3.11-slim\n" in text
    check_settings(monkeypatch, dict(re.findall(r"(SEEDRL_\w+)=(\S+)", text)))


def resources(directory: Path) -> list[dict[str, Any]]:
    """The Kubernetes resources that a kustomization names, its base's included, before patches."""
    kustomization = yaml.safe_load((directory / "kustomization.yaml").read_text())
    names = [*kustomization["resources"], *(patch["path"] for patch in kustomization.get("patches", ()))]
    assert {path.name for path in directory.glob("*.yaml")} == {
        "kustomization.yaml",
        *(name for name in names if name.endswith(".yaml")),
    }
    found: list[dict[str, Any]] = []
    for name in names:
        path = directory / name
        found += resources(path) if path.is_dir() else yaml.safe_load_all(path.read_text())
    return found


def containers(resource: dict[str, Any]) -> list[dict[str, Any]]:
    """Those of a workload's pods."""
    pod = resource.get("spec", {}).get("template", {}).get("spec", {})
    return list(pod.get("containers", ()))


def test_kubernetes_resources_are_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each resource of the base holds by the schemas of the API, without unknown fields; settings exist."""
    base = resources(DEPLOY / "kubernetes/base")
    for resource in base:
        kubernetes_validate.validate(resource, kubernetes_validate.latest_version(), strict=True)
    assert {resource["kind"] for resource in base} >= {
        "Deployment",
        "StatefulSet",
        "HorizontalPodAutoscaler",
        "PodDisruptionBudget",
        "NetworkPolicy",
    }
    (scaler,) = (resource for resource in base if resource["kind"] == "HorizontalPodAutoscaler")
    adapter = yaml.safe_load((DEPLOY / "kubernetes/prometheus-adapter.yaml").read_text())
    asked = [metric["external"]["metric"]["name"] for metric in scaler["spec"]["metrics"]]
    assert asked == [rule["name"]["as"] for rule in adapter["rules"]["external"]]
    for resource in resources(DEPLOY / "kubernetes/overlays/atari"):
        for container in containers(resource):
            check_settings(monkeypatch, {variable["name"]: variable["value"] for variable in container["env"]})


def test_pods_of_the_base_run_without_rights() -> None:
    """No root, nothing to write to but volumes, no capability, as the namespace's policy `restricted` demands."""
    workloads = [resource for resource in resources(DEPLOY / "kubernetes/base") if containers(resource)]
    assert {workload["metadata"]["name"] for workload in workloads} == set(SERVICES)
    for workload in workloads:
        pod = workload["spec"]["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"]
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in pod["containers"]:
            security = container["securityContext"]
            assert security["readOnlyRootFilesystem"] and not security["allowPrivilegeEscalation"]
            assert security["capabilities"] == {"drop": ["ALL"]}
            assert "livenessProbe" in container


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_the_overlay_renders_to_valid_resources() -> None:
    """Kustomize applies its patches and images; what comes out is valid."""
    done = subprocess.run(
        ["kubectl", "kustomize", DEPLOY / "kubernetes/overlays/atari"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    rendered = list(yaml.safe_load_all(done.stdout))
    images = {container["image"] for resource in rendered for container in containers(resource)}
    assert images == {f"registry.example.com/seedrl-{service}:0.1.0" for service in SERVICES}
    for resource in rendered:
        kubernetes_validate.validate(resource, kubernetes_validate.latest_version(), strict=True)


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
@pytest.mark.parametrize(
    "command", ["check rules alerts.yml", "check config prometheus.yml", "test rules alerts_test.yml"]
)
def test_prometheus_accepts_its_files(command: str) -> None:
    """Prometheus' own tool finds no fault, and alerts fire when they should and not before."""
    done = subprocess.run(
        ["promtool", *command.split()], cwd=DEPLOY / "prometheus", capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("service", SERVICES)
def test_settings_of_systemd_exist(service: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each settings file, and what the unit sets itself, is accepted."""
    text = (DEPLOY / f"systemd/settings/{service}.env").read_text()
    (unit,) = (DEPLOY / "systemd").glob(f"seedrl-{service}*.service")
    check_settings(monkeypatch, dict(re.findall(r"(SEEDRL_\w+)=(\S+)", text + unit.read_text())))
