"""Configuration: precedence, one-line errors that name the key, and a round trip through TOML."""

from __future__ import annotations

import resource
import socket
from pathlib import Path

import pytest

from seedrl_core.address import Address
from seedrl_core.config import load_settings, parse_assignments, write_settings
from seedrl_core.errors import AddressInUse, ConfigError


def test_flags_beat_environment_beats_file_beats_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The strongest source wins for each key, and the others still count for their own keys."""
    file = tmp_path / "seedrl.toml"
    file.write_text("[learner]\nunroll_length = 1\nseed = 2\n[learner.vtrace]\ndiscount = 0.5\n")
    monkeypatch.setenv("SEEDRL_LEARNER__UNROLL_LENGTH", "3")
    monkeypatch.setenv("SEEDRL_LEARNER__VTRACE__BASELINE_COST", "0.25")
    settings = load_settings(file, {"learner.vtrace.clip_rho": 2.0})
    learner = settings.learner
    assert (learner.unroll_length, learner.seed) == (3, 2)
    vtrace = learner.vtrace
    assert (vtrace.discount, vtrace.baseline_cost, vtrace.clip_rho, vtrace.clip_c) == (0.5, 0.25, 2.0, 1.0)
    assert load_settings(file, {"learner.unroll_length": 4}).learner.unroll_length == 4


def test_settings_survive_a_round_trip(tmp_path: Path) -> None:
    """What the run directory keeps loads to the same settings."""
    overrides = parse_assignments(
        [
            "learner.network.mlp_sizes=[3, 4]",
            "actor.env_kwargs={size = 5, name = 'a'}",
            "learner.vtrace.trace_lambda=0.9",
        ]
    )
    settings = load_settings(None, overrides)
    assert settings.learner.network.mlp_sizes == (3, 4)
    assert settings.actor.env_kwargs == {"size": 5, "name": "a"}
    file = tmp_path / "config.toml"
    write_settings(settings, file)
    assert load_settings(file) == settings


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        (
            "learner.unroll_lenght=2",
            r"^learner\.unroll_lenght: unknown key \(did you mean unroll_length\?\); allowed here: listen",
        ),
        (
            "learnr.seed=2",
            r"^learnr: unknown key \(did you mean learner\?\); allowed here: actor, broker, learner, access$",
        ),
        ("learner.unroll_length=-2", r"^learner\.unroll_length: input should be greater than 0, got -2$"),
        (
            "learner.network.torso=vgg",
            r"^learner\.network\.torso: expected mlp, .* or package.module:function, got 'vgg'$",
        ),
        ("broker.listen=nowhere", r"^broker\.listen: .*expected host:port or unix:PATH, got 'nowhere'"),
        ("learner.seed.x=1", r"^learner\.seed"),
    ],
)
def test_a_bad_setting_is_one_line_that_names_it(assignment: str, message: str) -> None:
    """Unknown key: what is allowed. Bad value: why."""
    with pytest.raises(ConfigError, match=message) as caught:
        load_settings(None, parse_assignments([assignment]))
    assert "\n" not in str(caught.value)


def test_a_bad_environment_variable_or_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same errors for the other two sources, and for a missing or malformed file."""
    with pytest.raises(ConfigError, match="none.toml does not exist"):
        load_settings(tmp_path / "none.toml")
    file = tmp_path / "bad.toml"
    file.write_text("[learner\n")
    with pytest.raises(ConfigError, match="bad.toml"):
        load_settings(file)
    file.write_bytes(b"learner = '\xff'\n")
    with pytest.raises(ConfigError, match="bad.toml"):
        load_settings(file)
    file.write_text("[broker]\nlisten_on = 'x'\n")
    with pytest.raises(ConfigError, match=r"broker\.listen_on: unknown key"):
        load_settings(file)
    monkeypatch.setenv("SEEDRL_LEARNER__SEEED", "1")
    with pytest.raises(ConfigError, match=r"SEEDRL_LEARNER__SEEED: .*did you mean seed"):
        load_settings()


def test_set_needs_a_key_and_an_equals_sign() -> None:
    """A malformed --set says what it expects."""
    with pytest.raises(ConfigError, match=r"--set: expected section\.key=value, got 'learner\.seed'"):
        parse_assignments(["learner.seed"])


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("localhost:80", "localhost:80"),
        ("[::1]:80", "[::1]:80"),
        ("unix:/tmp/a.sock", "unix:/tmp/a.sock"),
        ("unix:///tmp/a.sock", "unix:/tmp/a.sock"),
    ],
)
def test_addresses_parse_to_what_grpc_takes(text: str, shown: str) -> None:
    """Both kinds of address, in their usual spellings."""
    assert str(Address.parse(text)) == shown


@pytest.mark.parametrize("text", ["", "host", "host:", ":80", "host:x", "host:70000", "unix:", "unix:" + "a" * 200])
def test_a_bad_address_is_refused(text: str) -> None:
    """The error shows both accepted forms, or the length limit."""
    with pytest.raises(ConfigError, match="expected (host:port or )?unix:PATH"):
        Address.parse(text)


def test_the_socket_of_a_server_that_hangs_is_not_taken_away(tmp_path: Path) -> None:
    """It accepts nobody, and nobody else can wait: still its address is in use. That of one that is gone is free."""
    path = tmp_path / "server.sock"
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as waiting:
        server.bind(str(path))
        server.listen(0)
        waiting.connect(str(path))
        with pytest.raises(AddressInUse, match="a server already listens"):
            Address(path=str(path)).ensure_free()
        assert path.exists()
    Address(path=str(path)).ensure_free()
    assert not path.exists()


def test_what_is_no_socket_is_not_removed(tmp_path: Path) -> None:
    """A file or a directory where a server was told to listen is somebody's, and the error names it."""
    file = tmp_path / "results"
    file.write_text("precious")
    for path in (file, tmp_path):
        with pytest.raises(ConfigError, match=f"unix:{path}: expected a socket or nothing there"):
            Address(path=str(path)).ensure_free()
    assert file.read_text() == "precious"
    Address(path=str(tmp_path / "nothing")).ensure_free()


def test_settings_stay_where_new_ones_have_no_room(tmp_path: Path) -> None:
    """A full disk costs a run that is to be resumed nothing: what it was started with is still there."""
    file = tmp_path / "config.toml"
    write_settings(load_settings(None, {"learner.seed": 7}), file)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            write_settings(load_settings(None, {"learner.seed": 8}), file)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert load_settings(file).learner.seed == 7
    assert list(tmp_path.iterdir()) == [file]


def test_an_actor_takes_several_brokers() -> None:
    """Addresses with commas between them, and an error that shows the one that is none."""
    overrides = {"actor.broker": "one:1, unix:///two.sock"}
    assert load_settings(None, overrides).actor.broker == "one:1,unix:/two.sock"
    with pytest.raises(ConfigError, match=r"actor\.broker: address: expected host:port or unix:PATH, got 'two'"):
        load_settings(None, {"actor.broker": "one:1,two"})
