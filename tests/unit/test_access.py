"""Who may speak with whom: tokens from files and variables, and the rules for addresses that other hosts reach."""

from __future__ import annotations

import hmac
from pathlib import Path

import pytest
from certificates import LOOPBACK, Authority, access, token, token_files

from seedrl_core.access import (
    NO_CREDENTIALS,
    Role,
    TokenCheck,
    check_listening,
    check_metrics,
    metadata_of,
    tokens_of,
)
from seedrl_core.address import Address
from seedrl_core.errors import AccessDenied, ConfigError

ROLES = tuple(Role)


def bearer(value: str) -> dict[str, str]:
    """Metadata of a call with a token."""
    return {"authorization": f"Bearer {value}"}


def test_a_token_comes_from_the_environment_or_else_from_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The variable wins; a file may have several, for the time of a change; without both there is none."""
    assert tokens_of(Role.ACTOR, NO_CREDENTIALS) == ()
    file = tmp_path / "tokens"
    file.write_text("new-0123456789abcdef\nold-0123456789abcdef\n")
    config = access(actor_token_file=file)
    assert tokens_of(Role.ACTOR, config) == ("new-0123456789abcdef", "old-0123456789abcdef")
    assert tokens_of(Role.BROKER, config) == ()
    monkeypatch.setenv("SEEDRL_ACTOR_TOKEN", "variable-0123456789")
    assert tokens_of(Role.ACTOR, config) == ("variable-0123456789",)


@pytest.mark.parametrize("content", ["", "\n", "short", "0123456789abcdeé", "x" * 1025])
def test_a_file_or_variable_without_a_token_is_an_error_and_never_no_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str
) -> None:
    """A secret that was not mounted, say, must not open the door; the error does not show what was there."""
    file = tmp_path / "token"
    file.write_text(content)
    with pytest.raises(ConfigError, match=r"access\.broker_token_file=.*expected") as caught:
        TokenCheck(access(broker_token_file=file), ROLES)
    monkeypatch.setenv("SEEDRL_BROKER_TOKEN", content)
    with pytest.raises(ConfigError, match="SEEDRL_BROKER_TOKEN: expected a token of 16 to 1024"):
        TokenCheck(NO_CREDENTIALS, ROLES)
    assert content.strip() == "" or content not in str(caught.value)
    monkeypatch.delenv("SEEDRL_BROKER_TOKEN")
    with pytest.raises(ConfigError, match="none: "):
        tokens_of(Role.BROKER, access(broker_token_file=tmp_path / "none"))


def test_a_caller_is_let_in_by_a_token_of_an_allowed_role(tmp_path: Path) -> None:
    """Everybody else is told which token is expected, and never sees one."""
    check = TokenCheck(access(**token_files(tmp_path, *ROLES)), ROLES)
    for role in ROLES:
        check.admit(bearer(token(role)), (role,))
    check.admit(bearer(token(Role.OPERATOR)), (Role.ACTOR, Role.OPERATOR))
    for metadata, words in (
        ({}, "expected a token of role actor, got none: set SEEDRL_ACTOR_TOKEN"),
        (bearer("nobody-0123456789abcdef"), "got an unknown one"),
        (bearer(""), "got an unknown one"),
        (bearer(token(Role.ACTOR)[:-1]), "got an unknown one"),
        ({"authorization": token(Role.ACTOR)}, "got something else than `Bearer TOKEN`"),
        (bearer(token(Role.BROKER)), "got that of role broker"),
    ):
        with pytest.raises(AccessDenied, match=words) as caught:
            check.admit(metadata, (Role.ACTOR,))
        assert "0123456789abcdef" not in str(caught.value)


def test_every_token_is_compared_in_constant_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever token comes, it is compared with all of them, by equally long digests."""
    check = TokenCheck(access(**token_files(tmp_path, *ROLES)), ROLES)
    compared: list[tuple[int, int]] = []
    constant_time = hmac.compare_digest

    def watched(one: bytes, other: bytes) -> bool:
        compared.append((len(one), len(other)))
        return constant_time(one, other)

    monkeypatch.setattr(hmac, "compare_digest", watched)
    for given in (token(Role.ACTOR), token(Role.OPERATOR), "", "x" * 500):
        compared.clear()
        check.roles(given)
        assert compared == [(32, 32)] * len(ROLES)


def test_a_token_may_have_two_roles_and_a_role_two_tokens(tmp_path: Path) -> None:
    """For installations that want one secret only, and for the time in which a token is changed."""
    file = tmp_path / "tokens"
    file.write_text("one-0123456789abcdef\ntwo-0123456789abcdef\n")
    check = TokenCheck(access(actor_token_file=file, operator_token_file=file), ROLES)
    for given in file.read_text().split():
        assert check.roles(given) == {Role.ACTOR, Role.OPERATOR}


@pytest.mark.parametrize("listen", ["unix:/tmp/a", "127.0.0.1:1", "127.9.9.9:1", "localhost:1", "[::1]:1"])
def test_this_host_is_served_without_credentials(listen: str) -> None:
    """Unix sockets and loopback addresses need no setting, for metrics neither."""
    check_listening("broker.listen", listen, NO_CREDENTIALS, ROLES)
    check_metrics("broker.metrics_listen", listen, NO_CREDENTIALS)


@pytest.mark.parametrize("listen", ["0.0.0.0:1", "[::]:1", "10.0.0.1:1", "learner.example:1", "localhost.evil:1"])
def test_other_hosts_are_served_with_certificate_and_authentication_only(listen: str, tmp_path: Path) -> None:
    """The line names what is missing, one or both, and what to set in a network that is trusted."""
    authority = Authority(tmp_path)
    certificate = authority.certify(*LOOPBACK)
    tokens = token_files(tmp_path, Role.ACTOR)

    def check(**settings: object) -> None:
        check_listening("broker.listen", listen, access(**settings), (Role.ACTOR, Role.OPERATOR))

    with pytest.raises(ConfigError, match=r"access\.certificate.*access\.actor_token_file.*insecure_trust_network"):
        check()
    with pytest.raises(ConfigError, match=r"needs access\.certificate and access\.key;"):
        check(**tokens)
    for others in ({}, token_files(tmp_path, Role.BROKER)):
        with pytest.raises(ConfigError, match=r"needs access\.actor_token_file or access\.operator_token_file"):
            check(**certificate, **others)
    check(**certificate, **tokens)
    check(**certificate, authority=authority.file, require_client_certificate=True)
    check(insecure_trust_network=True)


def test_metrics_are_shown_to_other_hosts_only_where_that_is_said() -> None:
    """They have neither TLS nor tokens; either setting allows it."""
    with pytest.raises(ConfigError, match=r"^actor\.metrics_listen: .*access\.metrics_to_network=true"):
        check_metrics("actor.metrics_listen", "0.0.0.0:9100", NO_CREDENTIALS)
    check_metrics("actor.metrics_listen", "", NO_CREDENTIALS)
    check_metrics("actor.metrics_listen", "0.0.0.0:9100", access(metrics_to_network=True))
    check_metrics("actor.metrics_listen", "0.0.0.0:9100", access(insecure_trust_network=True))


def test_a_token_does_not_cross_a_network_in_the_clear(tmp_path: Path) -> None:
    """It goes over TLS, to this host, and elsewhere only where the network is said to be trusted."""
    tokens = token_files(tmp_path, Role.ACTOR)
    far = Address.parse("10.0.0.2:50051")
    sent = (("authorization", f"Bearer {token(Role.ACTOR)}"),)
    with pytest.raises(ConfigError, match=r"10\.0\.0\.2:50051 unencrypted: expected access\.authority"):
        metadata_of(Role.ACTOR, far, access(**tokens))
    assert metadata_of(Role.ACTOR, far, access(**tokens, authority=Authority(tmp_path).file)) == sent
    assert metadata_of(Role.ACTOR, far, access(**tokens, insecure_trust_network=True)) == sent
    assert metadata_of(Role.ACTOR, Address.parse("127.0.0.1:1"), access(**tokens)) == sent
    assert metadata_of(Role.ACTOR, far, NO_CREDENTIALS) == ()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"certificate": "a.pem"}, "^access: expected certificate and key together$"),
        ({"key": "a.key"}, "^access: expected certificate and key together$"),
        ({"require_client_certificate": True}, "^access: require_client_certificate: expected certificate, key and au"),
        ({"token": "x"}, r"^access\.token: unknown key"),
    ],
)
def test_settings_that_do_not_belong_together_are_one_line(settings: dict[str, object], message: str) -> None:
    """Half an identity, client certificates that nobody could check, and a token in a setting."""
    with pytest.raises(ConfigError, match=message):
        access(**settings)
