"""Logging of every process: structlog to stderr, for people at a terminal and as JSON lines elsewhere.

The same keys mean the same everywhere, so that a run can be followed across services: `service`, `run`, `actor_id`,
`session`, `module`, besides `event`, `level` and `timestamp`.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import MutableMapping
from contextlib import suppress
from typing import Any

import structlog

_SESSION_DIGITS = 8
# Of the process, threads included, which is why these are no context variables.
_bound: dict[str, Any] = {}


def configure(service: str, **bound: Any) -> None:
    """Sets logging up once a process; `service` and `bound` (run, actor_id) go with every line.

    Warnings of libraries that use the standard library's logging come out in the same form.
    """
    _bound.clear()
    bind(service=service, **bound)
    renderer: Any = structlog.dev.ConsoleRenderer() if sys.stderr.isatty() else structlog.processors.JSONRenderer()
    common: list[Any] = [
        _add_bound,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    structlog.configure(
        processors=[*common, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(_StandardError()),  # type: ignore[arg-type]
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(_StandardError())
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*common, _add_module],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)


class _StandardError:
    """Standard error as a stream that drops what it cannot write: neither a full disk nor a lost pipe ends anything."""

    def __init__(self) -> None:
        self._descriptor = sys.stderr.fileno()
        self._text = ""

    def write(self, text: str) -> None:
        """Until `flush`."""
        self._text += text

    def flush(self) -> None:
        """Past Python's buffer, in which a line would stay for the end of the process to fail with."""
        text, self._text = self._text, ""
        with suppress(OSError):
            os.write(self._descriptor, text.encode(errors="backslashreplace"))


def bind(**keys: Any) -> None:
    """Adds keys to every later line of the process, for what is learned late: the run, say."""
    _bound.update(keys)


def get(name: str) -> Any:
    """The logger of a module."""
    return structlog.get_logger(module=name.rsplit(".", 1)[-1])


def session_keys(actor_id: str, session_id: bytes) -> dict[str, str]:
    """The keys of a line about one session, the same in actor, broker and learner."""
    return {"actor_id": actor_id, "session": session_id.hex()[:_SESSION_DIGITS]}


def _add_bound(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    return {**_bound, **event}


def _add_module(logger: Any, _: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    return {**event, "module": event["_record"].name}
