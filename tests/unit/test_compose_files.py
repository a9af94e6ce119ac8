"""Files for compose, together as they are started: valid, with settings that exist and secrets that are read."""

from __future__ import annotations

import re
import shutil
import subprocess
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
import yaml
from compose_spec import PyCompose
from deployed_settings import DEPLOY, SERVICES, check_settings

from seedrl_core.access import Role, check_listening, check_metrics, metadata_of
from seedrl_core.address import Address
from seedrl_core.tls import load_files

ALONE = ("compose.yaml",)
WITH_ACCESS = ("compose.yaml", "access.yaml")
SECRETS = "/run/secrets/"
GIVEN = {"CREDENTIALS_GID": "1000"}  # what a caller has to set


def merged(base: Any, other: Any) -> Any:
    """Of two files what compose makes: mappings key by key, lists one after the other, else what comes later."""
    if isinstance(base, dict) and isinstance(other, dict):
        return base | {key: merged(base[key], value) if key in base else value for key, value in other.items()}
    return base + other if isinstance(base, list) and isinstance(other, list) else other


def interpolated(text: str) -> str:
    """With variables put in as compose does: those that are given, else their defaults."""
    return re.sub(r"\$\{(\w+):(?:-([^}]*)|\?[^}]+)\}", lambda found: GIVEN.get(found[1], found[2]), text)


def composed(names: tuple[str, ...]) -> dict[str, Any]:
    """The files as one, which holds by the compose specification."""
    files = (yaml.safe_load(interpolated((DEPLOY / "compose" / name).read_text())) for name in names)
    content: dict[str, Any] = reduce(merged, files)
    PyCompose.from_yaml(yaml.safe_dump(content)).validate()  # it knows no YAML merge keys, so they are resolved
    return content


@pytest.mark.parametrize("names", [ALONE, WITH_ACCESS])
def test_compose_files_are_valid_and_complete(names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Every service of ours has a read-only root and valid settings, of its own section and of `access`."""
    services = composed(names)["services"]
    assert services.keys() == {*SERVICES, "tensorboard", "prometheus", "grafana"}
    for name in SERVICES:
        assert services[name]["read_only"] is True
        assert (DEPLOY.parent / services[name]["build"]["dockerfile"]).is_file()
        variables = services[name]["environment"]
        check_settings(monkeypatch, variables)
        sections = {variable.partition("__")[0] for variable in variables}
        assert sections <= {f"SEEDRL_{name.upper()}", "SEEDRL_ACCESS"}
    for name in ("prometheus", "grafana"):
        for volume in services[name]["volumes"]:
            if volume.startswith("."):
                assert (DEPLOY / "compose" / volume.split(":")[0]).exists(), volume


@pytest.mark.parametrize("names", [ALONE, WITH_ACCESS])
def test_compose_publishes_on_its_own_host_alone(names: tuple[str, ...]) -> None:
    """Every published port is one of loopback; without access it is none of ours."""
    services = composed(names)["services"]
    ports = {name: port for name in services for port in services[name].get("ports", ())}
    assert all(port.startswith("127.0.0.1:") for port in ports.values())
    ours = {} if names == ALONE else {"learner": "127.0.0.1:50052:50052", "broker": "127.0.0.1:50051:50051"}
    assert {name: port for name, port in ports.items() if name in SERVICES} == ours


@pytest.fixture
def credentials(tmp_path: Path) -> Path:
    """What the commands make that stand at the top of access.yaml, and on the page, called as it says there."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    shutil.copytree(DEPLOY, tmp_path / "deploy")
    text = (DEPLOY / "compose/access.yaml").read_text()
    lines = re.findall(r"^#   ((?:deploy/make-credentials|chmod) .+)$", text, re.MULTILINE)
    assert len(lines) == 2
    assert "\n".join(lines) in (DEPLOY.parent / "docs/security.md").read_text()
    subprocess.run(["bash", "-ec", "\n".join(lines)], cwd=tmp_path, check=True)
    return tmp_path / "credentials"


def test_every_secret_of_compose_is_made_readable_and_read(credentials: Path) -> None:
    """Each is a file that the group may read; a service gets those that its settings name, and no other."""
    content = composed(WITH_ACCESS)
    for name, secret in content["secrets"].items():
        file = credentials.parent / "deploy/compose" / secret["file"]
        assert file.resolve() == credentials / name
        assert file.stat().st_mode & 0o040, name
    for name in SERVICES:
        service = content["services"][name]
        assert service["group_add"] == [GIVEN["CREDENTIALS_GID"]]
        values = map(str, service["environment"].values())
        assert {value.removeprefix(SECRETS) for value in values if value.startswith(SECRETS)} == set(service["secrets"])
    assert {name for service in SERVICES for name in content["services"][service]["secrets"]} == set(content["secrets"])


@pytest.mark.parametrize(
    ("name", "callers", "role", "server"),
    [
        ("learner", (Role.BROKER, Role.OPERATOR), None, ""),
        ("broker", (Role.ACTOR, Role.OPERATOR), Role.BROKER, "SEEDRL_BROKER__LEARNER"),
        ("actor", (), Role.ACTOR, "SEEDRL_ACTOR__BROKER"),
    ],
)
def test_compose_with_access_trusts_no_network(
    credentials: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    callers: tuple[Role, ...],
    role: Role | None,
    server: str,
) -> None:
    """Servers may listen for other hosts by what they are given; clients show tokens, to whom the certificate is of."""
    services = composed(WITH_ACCESS)["services"]
    variables = {key: str(value) for key, value in services[name]["environment"].items()}
    access = check_settings(
        monkeypatch, {key: value.replace(SECRETS, f"{credentials}/") for key, value in variables.items()}
    ).access
    assert not access.insecure_trust_network
    assert load_files(access).authority
    check_metrics("metrics_listen", "0.0.0.0:9100", access)
    if callers:
        check_listening("listen", "0.0.0.0:1", access, callers)
    if role is not None:
        address = Address.parse(variables[server])
        assert metadata_of(role, address, access)
        assert services[address.host]["environment"]["SEEDRL_ACCESS__CERTIFICATE"] == f"{SECRETS}{address.host}.pem"
