"""Logging of every process: structlog to stderr, for people at a terminal and as JSON lines elsewhere."""

from __future__ import annotations

import logging
import sys
from typing import Any

import structlog


def configure(service: str, **bound: Any) -> None:
    """Sets logging up once a process; `service` and `bound` (run, actor_id, ...) go with every line."""
    renderer: Any = structlog.dev.ConsoleRenderer() if sys.stderr.isatty() else structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.bind_contextvars(service=service, **bound)


def get(name: str) -> Any:
    """The logger of a module."""
    return structlog.get_logger(module=name.rsplit(".", 1)[-1])
