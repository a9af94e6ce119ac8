"""Certificates and tokens made for a test, as the files that the settings of `access` name."""

from __future__ import annotations

import datetime
from pathlib import Path

import trustme

from seedrl_core.access import AccessConfig, Role
from seedrl_core.config import load_settings

LOOPBACK = ("localhost", "127.0.0.1")
_YEAR = datetime.timedelta(days=365)


def access(**settings: object) -> AccessConfig:
    """The settings of `access`, checked as those of a service are."""
    return load_settings(None, {f"access.{name}": _plain(value) for name, value in settings.items()}).access


def flags(**settings: object) -> list[str]:
    """The same for a command line."""
    return [word for name, value in settings.items() for word in ("--set", f"access.{name}={_plain(value)}")]


def token_files(directory: Path, *roles: Role) -> dict[str, Path]:
    """A token for each role, in files; as settings."""
    files = {f"{role}_token_file": directory / f"{role}.token" for role in roles}
    for role in roles:
        (directory / f"{role}.token").write_text(token(role) + "\n")
    return files


def token(role: Role) -> str:
    """The token that the role has in a test."""
    return f"{role}-0123456789abcdef"


class Authority:
    """One that signs certificates into files of a directory."""

    def __init__(self, directory: Path, name: str = "authority") -> None:
        self._ca = trustme.CA()
        self._directory = directory
        self._name = name
        self.file = directory / f"{name}.pem"
        self._ca.cert_pem.write_to_path(str(self.file))

    def certify(self, *names: str, expired: bool = False) -> dict[str, Path]:
        """A certificate for `names` and its key; as settings."""
        now = datetime.datetime.now(datetime.UTC)
        ends = now - _YEAR if expired else now + _YEAR
        signed = self._ca.issue_cert(*names, not_before=now - 2 * _YEAR, not_after=ends)
        stem = f"{self._name}-{names[0]}{'-expired' if expired else ''}"
        certificate, key = self._directory / f"{stem}.pem", self._directory / f"{stem}.key"
        certificate.write_bytes(b"".join(pem.bytes() for pem in signed.cert_chain_pems))
        signed.private_key_pem.write_to_path(str(key))
        return {"certificate": certificate, "key": key}


def _plain(value: object) -> object:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, Path) else value
