"""Addresses of services: `host:port` or `unix:PATH`."""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass
from pathlib import Path

from seedrl_core.errors import AddressInUse, ConfigError

_MAX_UNIX_PATH = 107  # sun_path of Linux, without its closing zero


@dataclass(frozen=True)
class Address:
    """Either a TCP host and port, or the path of a Unix socket."""

    host: str = ""
    port: int = 0
    path: str = ""

    @classmethod
    def parse(cls, text: str) -> Address:
        """Parses `host:port`, `[v6]:port` or `unix:PATH`; ConfigError otherwise."""
        if text.startswith("unix:"):
            path = text.removeprefix("unix:").removeprefix("//")
            if not path or len(path.encode()) > _MAX_UNIX_PATH:
                raise ConfigError(f"address: expected unix:PATH of 1 to {_MAX_UNIX_PATH} bytes, got {text!r}")
            return cls(path=path)
        host, colon, port = text.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not colon or not host or not port.isdecimal() or not 0 <= int(port) < 65536:
            raise ConfigError(f"address: expected host:port or unix:PATH, got {text!r}")
        return cls(host=host, port=int(port))

    @classmethod
    def parse_all(cls, text: str) -> tuple[Address, ...]:
        """Parses one address, or several with commas between them."""
        return tuple(cls.parse(part.strip()) for part in text.split(","))

    def __str__(self) -> str:
        """The form that gRPC takes as a target and as a listening address."""
        if self.path:
            return f"unix:{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_local(self) -> bool:
        """True for what no other host reaches: a Unix socket, or a loopback address written as such."""
        if self.path or self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False  # a name, of which nobody knows where it leads

    def ensure_free(self) -> None:
        """Makes sure that nobody listens here, and removes a dead Unix socket.

        gRPC would share a TCP port and take over a Unix socket without a word.

        Raises:
          AddressInUse: a server accepts connections here.
          ConfigError: there is something else than a socket at the path, which is left alone.
        """
        family = socket.AF_UNIX if self.path else socket.AF_INET6 if ":" in self.host else socket.AF_INET
        is_any = self.host in ("0.0.0.0", "::")  # noqa: S104, it is compared and not bound
        target = self.path or ("localhost" if is_any else self.host, self.port)
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.settimeout(1.0)
            try:
                probe.connect(target)
            except (BlockingIOError, TimeoutError):
                pass  # so many wait already that a server must be there, which hangs
            except ConnectionRefusedError:
                if self.path:
                    _remove_socket(Path(self.path))
                return
            except OSError:
                return  # nothing is there, or nobody can be asked: then listening fails, too
        raise AddressInUse(f"a server already listens on {self}")


def _remove_socket(path: Path) -> None:
    """Connections to what is no socket are refused, too."""
    if not path.is_socket():
        raise ConfigError(f"unix:{path}: expected a socket or nothing there, got a file or a directory")
    path.unlink(missing_ok=True)
