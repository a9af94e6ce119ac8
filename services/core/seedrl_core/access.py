"""Who may speak with whom: the settings of TLS and tokens, alike in every process, and the rules that follow.

A token is a secret and therefore no setting, which a run's directory would keep: it stands in a file that a setting
names, or in a variable of the environment. Nothing here knows gRPC; `tls` reads the certificates.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Collection, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from seedrl_core.address import Address
from seedrl_core.errors import AccessDenied, ConfigError

METADATA_KEY = "authorization"
_SCHEME = "Bearer "
_MIN_CHARACTERS = 16
_MAX_CHARACTERS = 1024


class Role(StrEnum):
    """What a caller is.

    Attributes:
      ACTOR: opens sessions at a broker.
      BROKER: has a link to a learner.
      OPERATOR: asks services what they do, and controls a learner.
    """

    ACTOR = "actor"
    BROKER = "broker"
    OPERATOR = "operator"

    @property
    def variable(self) -> str:
        """Variable of the environment with the role's token."""
        return f"SEEDRL_{self.upper()}_TOKEN"

    @property
    def setting(self) -> str:
        """Setting that names the file with the role's tokens."""
        return f"access.{self}_token_file"


class AccessConfig(BaseModel):
    """TLS and tokens: the same names in every process, each uses what it needs. See docs/security.md."""

    certificate: Path | None = Field(
        None, description="PEM file with this process's certificate: a server speaks TLS with it, a client shows it"
    )
    key: Path | None = Field(None, description="PEM file with the key of access.certificate")
    authority: Path | None = Field(
        None, description="PEM file with the authorities whose certificates are trusted: a client speaks TLS with it"
    )
    require_client_certificate: bool = Field(
        False, description="a server refuses clients without a certificate of access.authority"
    )
    server_name: str = Field("", description="name in a server's certificate; empty: the host in its address")
    actor_token_file: Path | None = Field(None, description="file with the token of actors; several: one a line")
    broker_token_file: Path | None = Field(None, description="file with the token of brokers; several: one a line")
    operator_token_file: Path | None = Field(None, description="file with the token of operators; several: one a line")
    metrics_to_network: bool = Field(
        False, description="metrics pages, which have neither TLS nor tokens, may be read from other hosts"
    )
    insecure_trust_network: bool = Field(
        False, description="listen for other hosts without TLS and tokens: whoever reaches the port may do everything"
    )

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    @model_validator(mode="after")
    def _check_files_that_belong_together(self) -> Self:
        if (self.certificate is None) != (self.key is None):
            raise ValueError("expected certificate and key together")
        if self.require_client_certificate and not (self.certificate and self.authority):
            raise ValueError("require_client_certificate: expected certificate, key and authority with it")
        return self


NO_CREDENTIALS = AccessConfig()


def tokens_of(role: Role, access: AccessConfig) -> tuple[str, ...]:
    """The role's tokens, from its variable or else from its file: a server takes any of them, a client shows the first.

    None when neither is given; a file or variable without a token is a ConfigError.
    """
    file: Path | None = getattr(access, f"{role}_token_file")
    if role.variable in os.environ:
        source, text = role.variable, os.environ[role.variable]
    elif file is not None:
        source = f"{role.setting}={file}"
        try:
            text = file.read_text("ascii")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{source}: expected a readable file with a token: {error}") from error
    else:
        return ()
    tokens = tuple(text.split())
    if not tokens or not all(_MIN_CHARACTERS <= len(token) <= _MAX_CHARACTERS and token.isascii() for token in tokens):
        raise ConfigError(f"{source}: expected a token of {_MIN_CHARACTERS} to {_MAX_CHARACTERS} ASCII characters")
    return tokens


def metadata_of(role: Role, address: Address, access: AccessConfig) -> tuple[tuple[str, str], ...]:
    """What a client in this role sends with every call to `address`; nothing when it has no token.

    Raises:
      ConfigError: the token would cross a network in the clear.
    """
    tokens = tokens_of(role, access)
    if not tokens:
        return ()
    if not (address.is_local or access.authority or access.insecure_trust_network):
        raise ConfigError(
            f"the {role}'s token would go to {address} unencrypted: expected access.authority, for TLS; "
            "access.insecure_trust_network=true sends it nevertheless"
        )
    return ((METADATA_KEY, _SCHEME + tokens[0]),)


def check_listening(setting: str, listen: str, access: AccessConfig, roles: Collection[Role]) -> None:
    """Refuses to serve other hosts unless links are encrypted and callers of `roles` are told from others.

    Raises:
      ConfigError: says what to set.
    """
    if Address.parse(listen).is_local or access.insecure_trust_network:
        return
    missing = []
    if access.certificate is None:
        missing.append("access.certificate and access.key")
    if not access.require_client_certificate and not any(tokens_of(role, access) for role in roles):
        missing.append(f"{' or '.join(role.setting for role in roles)} (or access.require_client_certificate)")
    if missing:
        raise ConfigError(
            f"{setting}: {listen} is open to other hosts, which needs {' and '.join(missing)}; in a network that you "
            "trust, access.insecure_trust_network=true listens without; see docs/security.md"
        )


def check_metrics(setting: str, listen: str, access: AccessConfig) -> None:
    """Refuses to show metrics to other hosts unless that is said; ConfigError says how."""
    trusted = access.metrics_to_network or access.insecure_trust_network
    if listen and not trusted and not Address.parse(listen).is_local:
        raise ConfigError(
            f"{setting}: {listen} shows metrics to other hosts, without TLS and tokens: expected a loopback address, "
            "or access.metrics_to_network=true"
        )


class TokenCheck:
    """Tells a caller's roles by its token."""

    def __init__(self, access: AccessConfig, roles: Collection[Role]) -> None:
        """Reads the tokens of `roles`; ConfigError when a file has none."""
        self._digests = {role: [_digest(token) for token in tokens_of(role, access)] for role in roles}

    def __bool__(self) -> bool:
        """False when no role has a token: then nobody is asked for one."""
        return any(self._digests.values())

    def roles(self, token: str) -> frozenset[Role]:
        """Every role that has this token. Takes the same time whichever it is, and whether it is one."""
        given = _digest(token)
        matches = {
            role: [hmac.compare_digest(given, digest) for digest in digests] for role, digests in self._digests.items()
        }
        return frozenset(role for role, found in matches.items() if any(found))

    def admit(self, metadata: Mapping[str, str], allowed: Collection[Role]) -> None:
        """Lets a caller in that one of the roles `allowed` has.

        Raises:
          AccessDenied: says which token is expected; never what was got.
        """
        names = " or ".join(allowed)
        header = metadata.get(METADATA_KEY, "")
        if not header:
            got = "none"
        elif not header.startswith(_SCHEME):
            got = "something else than `Bearer TOKEN`"
        elif not (roles := self.roles(header.removeprefix(_SCHEME))):
            got = "an unknown one"
        elif roles.isdisjoint(allowed):
            got = f"that of role {' and '.join(sorted(roles))}"
        else:
            return
        variables = " or ".join(role.variable for role in allowed)
        raise AccessDenied(f"expected a token of role {names}, got {got}: set {variables}, or access.ROLE_token_file")


def _digest(token: str) -> bytes:
    """Of one length, so that a comparison tells nothing of the token's."""
    return hashlib.sha256(token.encode(errors="surrogateescape")).digest()
