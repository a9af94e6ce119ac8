"""Certificates: files that are not what they should be, and handshakes that fail."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from certificates import LOOPBACK, Authority, access
from cryptography.hazmat.primitives import serialization

from seedrl_core import tls
from seedrl_core.address import Address
from seedrl_core.errors import AccessDenied, ConfigError, PeerLost

ADDRESS = Address.parse("broker.example:50051")


def encrypted(key: Path) -> Path:
    """The same key, with a password."""
    loaded = serialization.load_pem_private_key(key.read_bytes(), None)
    secret = serialization.BestAvailableEncryption(b"password")
    file = key.with_suffix(".encrypted")
    file.write_bytes(loaded.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, secret))
    return file


def test_files_that_are_not_usable_are_named(tmp_path: Path) -> None:
    """Missing, no PEM, a key of another certificate, a key with a password: one line each, and no question."""
    authority = Authority(tmp_path)
    good, other = authority.certify(*LOOPBACK), authority.certify("other")
    text = tmp_path / "text"
    text.write_text("no certificate")
    for settings, words in (
        ({"authority": tmp_path / "none"}, r"access\.authority=.*none: .*No such file"),
        ({"authority": text}, r"access\.authority=.*text: expected certificates in PEM"),
        ({**good, "certificate": text}, r"access\.certificate=.*text, .*: expected a certificate in PEM"),
        ({**good, "key": tmp_path / "none"}, r"access\.key=.*none: .*No such file"),
        ({**good, "key": other["key"]}, "key values mismatch"),
        ({**good, "key": encrypted(good["key"])}, "unencrypted key"),
    ):
        with pytest.raises(ConfigError, match=words) as caught:
            tls.load_files(access(**settings))
        assert "\n" not in str(caught.value)
    files = tls.load_files(access(**good, authority=authority.file))
    assert files.authority == authority.file.read_bytes()
    assert (files.certificate, files.key) == (good["certificate"].read_bytes(), good["key"].read_bytes())


def test_tls_is_spoken_to_every_port_where_an_authority_is_set(tmp_path: Path) -> None:
    """Loopback included; Unix sockets have the protection of their files."""
    trusting = access(authority=Authority(tmp_path).file)
    assert tls.speaks_tls(ADDRESS, trusting)
    assert tls.speaks_tls(Address.parse("127.0.0.1:1"), trusting)
    assert not tls.speaks_tls(Address.parse("unix:/tmp/socket"), trusting)
    assert not tls.speaks_tls(ADDRESS, access())


def test_a_handshake_that_was_cut_off_is_a_lost_peer_and_another_try() -> None:
    """Everything else needs somebody: it ends the client."""
    assert isinstance(tls.failure(ADDRESS, ssl.SSLEOFError("eof")), PeerLost)
    assert isinstance(tls.failure(ADDRESS, ssl.SSLZeroReturnError("closed")), PeerLost)
    assert isinstance(tls.failure(ADDRESS, ssl.SSLError(1, "[SSL] wrong version number")), AccessDenied)
