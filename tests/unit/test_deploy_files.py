"""Files for images, Kubernetes, Prometheus and systemd: valid by their own schemas, with settings that exist."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from certificates import access
from cryptography import x509
from deployed_settings import DEPLOY, SERVICES, check_settings

from seedrl_core.access import Role, check_listening, metadata_of, tokens_of
from seedrl_core.address import Address
from seedrl_core.tls import load_files


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


@pytest.fixture
def secured(tmp_path: Path) -> list[dict[str, Any]]:
    """The resources of an overlay with the component that puts TLS and tokens on every link."""
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed")
    shutil.copytree(DEPLOY / "kubernetes", tmp_path / "kubernetes")
    file = tmp_path / "kubernetes/overlays/atari/kustomization.yaml"
    file.write_text(file.read_text() + "components: [../../components/access]\n")
    done = subprocess.run(["kubectl", "kustomize", file.parent], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def test_pods_with_access_trust_no_network(secured: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Valid resources and settings; probes ask by a command that speaks TLS, since Kubernetes' own does not."""
    names = set()
    for resource in secured:
        kubernetes_validate.validate(resource, kubernetes_validate.latest_version(), strict=True)
        for container in containers(resource):
            names.add(container["name"])
            variables = {variable["name"]: variable["value"] for variable in container["env"]}
            check_settings(monkeypatch, variables)
            assert variables.get("SEEDRL_ACCESS__INSECURE_TRUST_NETWORK", "false") == "false"
            probes = [
                container[kind] for kind in ("startupProbe", "readinessProbe", "livenessProbe") if kind in container
            ]
            assert not [probe for probe in probes if "grpc" in probe]
            if container["name"] != "actor":
                assert {probe["exec"]["command"][0] for probe in probes} == {"seedrl-health"}
    assert names == set(SERVICES)


def test_secrets_have_the_files_that_pods_with_access_read(secured: list[dict[str, Any]]) -> None:
    """The commands of docs/security.md make, for each service, the files that its settings name, and no other."""
    text = (DEPLOY.parent / "docs/security.md").read_text().replace("\\\n", " ")
    made = {
        secret: set(re.findall(r"--from-file=(\S+)", files))
        for secret, files in re.findall(r"create secret generic (\S+) (.*)", text)
    }
    read = {}
    for resource in secured:
        for container in containers(resource):
            (volume,) = (one for one in resource["spec"]["template"]["spec"]["volumes"] if one["name"] == "access")
            files = (Path(str(variable["value"])) for variable in container["env"])
            read[volume["secret"]["secretName"]] = {file.name for file in files if file.parent == Path("/access")}
    assert read == made


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_credentials_are_made_once_and_for_each_host(tmp_path: Path) -> None:
    """Certificates of names and addresses are of the authority and sign nothing themselves; what is there stays."""
    script = DEPLOY / "make-credentials"
    for hosts in (["broker.example", "10.77.0.1"], ["::1", "broker.example"]):
        before = {file: file.read_bytes() for file in tmp_path.iterdir() if file.suffix != ".srl"}
        done = subprocess.run([script, tmp_path, *hosts], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        assert {file: file.read_bytes() for file in before} == before
    authority = x509.load_pem_x509_certificate((tmp_path / "authority.pem").read_bytes())
    for host, names in (("broker.example", ["broker.example", "localhost"]), ("10.77.0.1", ["localhost"])):
        certificate = x509.load_pem_x509_certificate((tmp_path / f"{host}.pem").read_bytes())
        certificate.verify_directly_issued_by(authority)
        assert not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
        alternatives = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert alternatives.get_values_for_type(x509.DNSName) == names
        assert "127.0.0.1" in map(str, alternatives.get_values_for_type(x509.IPAddress))
    for name in ("authority.key", "10.77.0.1.key", "operator.token"):
        assert (tmp_path / name).stat().st_mode & 0o077 == 0
    tokens = {f"{role}_token_file": tmp_path / f"{role}.token" for role in Role}
    config = access(
        authority=tmp_path / "authority.pem", certificate=tmp_path / "::1.pem", key=tmp_path / "::1.key", **tokens
    )
    assert load_files(config).authority == (tmp_path / "authority.pem").read_bytes()
    assert len({tokens_of(role, config) for role in Role}) == 3
    done = subprocess.run([script, tmp_path], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "error: expected a directory and one or more hosts\n")


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_the_commands_for_three_machines_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what their page makes and copies, services may listen for other hosts, and clients have tokens."""
    text = (DEPLOY.parent / "docs/three-machines.md").read_text()
    (hosts,) = re.findall(r"^you\$ +deploy/make-credentials credentials (.+)$", text, re.MULTILINE)
    monkeypatch.chdir(tmp_path)
    subprocess.run([DEPLOY / "make-credentials", "credentials", *hosts.split()], check=True)
    copied_to: dict[str, set[str]] = defaultdict(set)
    for names, host in re.findall(r"^you\$ +scp credentials/\{(\S+)\} (\w+)-host:credentials/$", text, re.MULTILINE):
        copied_to[host] |= {f"credentials/{name}" for name in names.split(",")}
    for host, role, callers in (
        ("learner", None, (Role.BROKER, Role.OPERATOR)),
        ("broker", Role.BROKER, (Role.ACTOR, Role.OPERATOR)),
        ("actor", Role.ACTOR, ()),
        ("you", Role.OPERATOR, ()),
    ):
        lines = [line for line in text.splitlines() if line.startswith(f"{host}$")]
        variables = dict(re.findall(r"(SEEDRL_\w+)=(\S+)", "\n".join(lines)))
        config = check_settings(monkeypatch, variables).access
        load_files(config)
        if callers:
            check_listening("listen", "0.0.0.0:1", config, callers)
        if role is not None:
            assert metadata_of(role, Address.parse("OTHER:1"), config)
        if host != "you":
            assert copied_to[host] == set(variables.values())


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


def test_every_alert_is_tried_where_it_fires_and_where_it_does_not() -> None:
    """Each has a test of its own, which expects it at one time and not at another."""
    rules, tests = (
        yaml.safe_load((DEPLOY / f"prometheus/{name}.yml").read_text()) for name in ("alerts", "alerts_test")
    )
    alerts = [rule["alert"] for group in rules["groups"] for rule in group["rules"]]
    assert [test["name"] for test in tests["tests"]] == alerts
    for test in tests["tests"]:
        cases = test["alert_rule_test"]
        assert {case["alertname"] for case in cases} == {test["name"]}
        assert {bool(case["exp_alerts"]) for case in cases} == {True, False}, test["name"]


@pytest.mark.parametrize("service", SERVICES)
def test_settings_of_systemd_exist(service: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each settings file, and what the unit sets itself, is accepted."""
    text = (DEPLOY / f"systemd/settings/{service}.env").read_text()
    (unit,) = (DEPLOY / "systemd").glob(f"seedrl-{service}*.service")
    check_settings(monkeypatch, dict(re.findall(r"(SEEDRL_\w+)=(\S+)", text + unit.read_text())))


def test_the_football_installer_says_what_it_needs() -> None:
    """Its packages with --packages; without a directory, how it is called. NumPy's version is its own."""
    script = str(DEPLOY / "install-football")
    packages = subprocess.run([script, "--packages"], capture_output=True, text=True, check=True).stdout.split()
    assert {"cmake", "libsdl2-dev", "libboost-python-dev"} <= set(packages)
    refused = subprocess.run([script], capture_output=True, text=True)
    assert refused.returncode == 2
    assert refused.stderr.startswith("error: expected one directory for the environment")
    assert re.search(r"^numpy==", (DEPLOY.parent / "constraints.txt").read_text(), re.MULTILINE)
