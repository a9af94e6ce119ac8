"""Certificates: what is read from the files that `AccessConfig` names, and what a handshake that failed means."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

from seedrl_core.access import AccessConfig
from seedrl_core.address import Address
from seedrl_core.errors import AccessDenied, ConfigError, PeerLost

_ALPN = ["h2"]


@dataclass(frozen=True)
class Files:
    """The contents of the PEM files of a process, which have proved to be usable; None where none is named."""

    certificate: bytes | None
    key: bytes | None
    authority: bytes | None


def speaks_tls(address: Address, access: AccessConfig) -> bool:
    """Whether a client goes to `address` by TLS: wherever an authority is set, but for Unix sockets."""
    return access.authority is not None and not address.path


def load_files(access: AccessConfig) -> Files:
    """Reads all that are named; ConfigError names one that is not usable."""
    client_context(access)
    return Files(_contents(access.certificate), _contents(access.key), _contents(access.authority))


def client_context(access: AccessConfig) -> ssl.SSLContext:
    """For a client that trusts `access.authority` and shows `access.certificate`.

    Raises:
      ConfigError: a file cannot be read, or is not what it should be.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(_ALPN)
    if access.authority is not None:
        _load_authority(context, access.authority)
    if access.certificate is not None and access.key is not None:
        _load_identity(context, access.certificate, access.key)
    return context


def _load_authority(context: ssl.SSLContext, authority: Path) -> None:
    try:
        context.load_verify_locations(authority)
    except OSError as error:  # of which ssl.SSLError is one
        raise ConfigError(f"access.authority={authority}: expected certificates in PEM: {_words(error)}") from error


def _load_identity(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    try:
        # With a password that is none, a key that needs one is an error instead of a question at the terminal.
        context.load_cert_chain(certificate, key, password="")
    except OSError as error:
        raise ConfigError(
            f"access.certificate={certificate}, access.key={key}: expected a certificate in PEM and its unencrypted "
            f"key: {_words(error)}"
        ) from error


def failure(address: Address, error: ssl.SSLError) -> AccessDenied | PeerLost:
    """What a handshake that failed means for a client: a lost peer, where another try may help."""
    if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return PeerLost(f"{address} is gone: it ended the TLS handshake")
    if isinstance(error, ssl.SSLCertVerificationError):
        return AccessDenied(f"{address} is not trusted: {error.verify_message} (access.authority, access.server_name)")
    return AccessDenied(
        f"{address} does not speak TLS as access.authority demands: {_words(error)}; has the server a certificate?"
    )


def meaning_of_silence(access: AccessConfig) -> str:
    """Why a server may close a connection before it has said anything: it tells nobody why a handshake failed."""
    if access.authority is None:
        return "does it expect TLS? then set access.authority"
    if access.certificate is None:
        return "does it require a client's certificate? then set access.certificate and access.key"
    return "does it trust access.certificate?"


def _words(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return (getattr(error, "reason", None) or str(error)).replace("_", " ").lower()
    return error.strerror or str(error)


def _contents(file: Path | None) -> bytes | None:
    return None if file is None else file.read_bytes()
