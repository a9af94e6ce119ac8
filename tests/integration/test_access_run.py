"""Real processes with certificates and tokens: who trains together, who is refused, and where services listen."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
import tomli_w
from certificates import LOOPBACK, Authority, token, token_files
from local_runs import call, command, last_json, until
from ports import free_port

from seedrl_core.access import Role

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

PATIENCE_S = 300.0
TOKENS = {role.variable: token(role) for role in Role}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Settings that every process of the installation shares: mutual TLS, and a token for each role."""
    authority = Authority(tmp_path)
    access = {"authority": authority.file, **authority.certify(*LOOPBACK), **token_files(tmp_path, *Role)}
    file = tmp_path / "access.toml"
    settings = {name: str(value) for name, value in access.items()} | {"require_client_certificate": True}
    file.write_text(tomli_w.dumps({"access": settings}))
    return file


@contextmanager
def process(log: Path, module: str, *arguments: str | Path, **variables: str) -> Iterator[subprocess.Popen[bytes]]:
    """A service in the background; killed at the end if it still runs."""
    line = [sys.executable, "-m", module, *map(str, arguments)]
    with log.open("wb") as output:
        started = subprocess.Popen(line, stdout=output, stderr=output, env={**os.environ, **variables})
    try:
        yield started
    finally:
        if started.poll() is None:
            started.kill()
        started.wait()


def ended(module: str, *arguments: str | Path, variables: Mapping[str, str] | None = None) -> tuple[int, str]:
    """Exit code and last line of a service that ends by itself."""
    line = [sys.executable, "-m", module, *map(str, arguments)]
    environment = {**os.environ, **(variables or {})}
    done = subprocess.run(line, capture_output=True, text=True, timeout=PATIENCE_S, check=False, env=environment)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr.splitlines()[-1]


def test_an_installation_trains_over_mutual_tls_with_a_token_for_each_role(tmp_path: Path, config: Path) -> None:
    """Learner, broker and actor reach the end of the run; operators see both; others are told what is missing."""
    learner, broker = (f"127.0.0.1:{free_port()}" for _ in range(2))
    shared = ("--config", config)
    training = ("--run-dir", tmp_path / "run", "--set", "learner.total_env_steps=3000")
    environment = ("--broker", broker, "--env-id", "CartPole-v1", "--num-envs", "8")
    with (
        process(tmp_path / "learner.log", "seedrl_learner", *shared, "--listen", learner, *training) as learning,
        process(
            tmp_path / "broker.log", "seedrl_broker", *shared, "--listen", broker, "--learner", learner
        ) as brokering,
    ):
        for name, address in (("broker", broker), ("learner", learner)):
            until(lambda name=name: f'"{name}_ready"' in (tmp_path / f"{name}.log").read_text(), name)
            told = call("status", address, *shared, "--json")
            assert last_json(told.stdout)["service"] == name, told.stderr
        refused = call("status", learner, *shared, "--set", f"access.operator_token_file={tmp_path / 'actor.token'}")
        assert refused.returncode == 1
        assert "expected a token of role broker or operator, got an unknown one" in refused.stderr
        plain = call("status", broker)
        assert plain.returncode == 1
        assert "does it expect TLS? then set access.authority" in plain.stderr
        code, told = ended("seedrl_actor", *shared, *environment, variables={Role.ACTOR.variable: token(Role.OPERATOR)})
        assert code == 1
        assert told.startswith("error: expected a token of role actor, got that of role operator")
        with process(tmp_path / "actor.log", "seedrl_actor", *shared, *environment) as acting:
            assert learning.wait(PATIENCE_S) == 0, (tmp_path / "learner.log").read_text()
            assert acting.wait(PATIENCE_S) == 0, (tmp_path / "actor.log").read_text()
        brokering.send_signal(signal.SIGTERM)
        assert brokering.wait(PATIENCE_S) == 0
    logs = "".join((tmp_path / f"{name}.log").read_text() for name in ("learner", "broker", "actor"))
    assert not [role for role in Role if token(role) in logs]


@pytest.mark.parametrize("service", ["broker", "learner"])
def test_a_service_does_not_listen_for_other_hosts_without_credentials(tmp_path: Path, service: str) -> None:
    """It ends with exit code 2 and a line that says what to set, for its metrics too."""
    everywhere = f"0.0.0.0:{free_port()}"
    run_dir = ("--set", f"learner.run_dir={tmp_path}")
    code, told = ended(f"seedrl_{service}", "--listen", everywhere, *run_dir)
    assert code == 2
    assert told.startswith(f"error: {service}.listen: {everywhere} is open to other hosts, which needs access.certific")
    metrics = ("--set", f"{service}.metrics_listen=0.0.0.0:0")
    code, told = ended(f"seedrl_{service}", "--listen", f"unix:{tmp_path / 'socket'}", *run_dir, *metrics)
    assert code == 2
    assert told.startswith(f"error: {service}.metrics_listen: 0.0.0.0:0 shows metrics to other hosts")


def test_a_network_that_is_trusted_needs_one_setting(tmp_path: Path) -> None:
    """The broker listens everywhere, without anything else."""
    everywhere = f"0.0.0.0:{free_port()}"
    log = tmp_path / "broker.log"
    flags = ("--listen", everywhere, "--set", "access.insecure_trust_network=true")
    with process(log, "seedrl_broker", *flags) as brokering:
        until(lambda: '"broker_ready"' in log.read_text(), "the broker")
        brokering.send_signal(signal.SIGTERM)
        assert brokering.wait(PATIENCE_S) == 0


def test_a_run_on_one_machine_takes_tokens_of_the_environment_and_keeps_none(tmp_path: Path) -> None:
    """`seedrl train` works with them as without, evaluation follows, and no file of the run has a token in it."""
    run_dir = tmp_path / "run"
    arguments = ("--run-dir", run_dir, "--env-steps", "2000", "--actors", "1", "--json")
    environment = {**os.environ, **TOKENS}
    line = command("train", "CartPole-v1", *arguments)
    done = subprocess.run(line, capture_output=True, text=True, timeout=PATIENCE_S, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert last_json(done.stdout)["env_steps"] >= 2000
    kept = [file for file in run_dir.rglob("*") if file.is_file()]
    assert len(kept) > 5
    assert not [file for file in kept if any(value.encode() in file.read_bytes() for value in TOKENS.values())]
