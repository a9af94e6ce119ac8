"""The error tree of every service. Each edge translates its library's errors into these, in one place.

SeedrlError
├── ExpectedError            the world did something normal: reported in one line, without a traceback
│   ├── BadRequest           a peer or a user sent something invalid (INVALID_ARGUMENT)
│   │   └── ConfigError      a setting is unknown or out of range
│   ├── SpecMismatch         the environment differs from the learner's (FAILED_PRECONDITION)
│   ├── Overloaded           a configured limit is reached (RESOURCE_EXHAUSTED)
│   ├── AccessDenied         a token or a certificate is missing or not accepted (UNAUTHENTICATED)
│   ├── PeerLost             a connection ended or stayed silent (UNAVAILABLE)
│   ├── AddressInUse         another server listens there
│   ├── EnvironmentFailed    the simulator raised or gave up
│   ├── CheckpointError      no checkpoint, or one that cannot be used
│   │   └── CheckpointDamaged its files are not those that were written
│   ├── ServiceFailed        a service process that we started ended by itself
│   └── RunFinished          training is complete; clients leave with success
└── InternalError            a bug of ours (INTERNAL): reported with its traceback
"""

from __future__ import annotations

import signal

_MAX_BYTES = 1000


class SeedrlError(Exception):
    """Base of all errors raised on purpose.

    Attributes:
      status: the gRPC status code that carries it over the wire.
      exit_code: of a process that ends with it; 2 when another try cannot help until somebody changes something.
    """

    status: int = 13
    exit_code: int = 1


class ExpectedError(SeedrlError):
    """Something that happens in a healthy system; the message says what was expected and what was got."""

    status = 2


class BadRequest(ExpectedError):
    """Invalid input from a peer or a user."""

    status = 3
    exit_code = 2


class ConfigError(BadRequest):
    """A setting that does not exist or has a value that is not allowed."""


class SpecMismatch(ExpectedError):
    """An environment spec that differs from the one the learner was taught."""

    status = 9
    exit_code = 2


class Overloaded(ExpectedError):
    """A configured limit is reached; trying again later may work."""

    status = 8


class AccessDenied(ExpectedError):
    """One side does not accept the other's token or certificate.

    A client ends with it at once, but with exit code 1: it may be the other side that has to change, and then the next
    start by a supervisor works.
    """

    status = 16


class PeerLost(ExpectedError):
    """The peer closed, was cut off or said nothing within the deadline."""

    status = 14


class AddressInUse(ExpectedError):
    """A server already listens on the address."""

    status = 6


class EnvironmentFailed(ExpectedError):
    """The environment raised, ended its process or broke its own spec."""

    status = 10


class CheckpointError(ExpectedError):
    """A checkpoint is missing, damaged or of another network, or cannot be written."""

    status = 5
    exit_code = 2


class CheckpointDamaged(CheckpointError):
    """Files of a checkpoint are missing or are not those that were written; an earlier one may do."""


class ServiceFailed(ExpectedError):
    """A service process that the launcher started ended by itself; its exit code is the launcher's."""

    def __init__(self, message: str, exit_code: int = 1) -> None:
        """`message` tells what the service said last."""
        super().__init__(message)
        self.exit_code = exit_code


class RunFinished(ExpectedError):
    """The run is complete: a client that sees this exits with success."""

    status = 11


class InternalError(SeedrlError):
    """A bug of ours."""


# Those that docs/protocol.md names to clients.
_BY_STATUS: dict[int, type[SeedrlError]] = {
    cls.status: cls
    for cls in (BadRequest, SpecMismatch, Overloaded, AccessDenied, PeerLost, RunFinished, InternalError)
}


def words_of(error: BaseException) -> str:
    """What an error says, short enough for the status that ends a gRPC stream: longer ones reach no client."""
    text = (str(error) or type(error).__name__).encode()
    return text.decode() if len(text) <= _MAX_BYTES else text[:_MAX_BYTES].decode(errors="ignore") + " ..."


def error_from_status(status: int, message: str) -> SeedrlError:
    """The error that a gRPC status code stands for; any other code is a lost peer, which clients come back to."""
    return _BY_STATUS.get(status, PeerLost)(message)


def exit_in_words(code: int) -> str:
    """How a process ended, as `subprocess` has it: `code` is minus the signal's number for one that a signal ended."""
    if code >= 0:
        return f"ended with exit code {code}"
    names = {int(each): each.name for each in signal.Signals}  # most real-time signals have none
    return f"was ended by {names.get(-code, f'signal {-code}')}"
