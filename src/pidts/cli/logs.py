"""Logs go to stderr: stdout belongs to what a command was asked for."""

from __future__ import annotations

import logging
import sys

import structlog


class _Stderr:
    """Whatever `sys.stderr` is at the moment: a live view puts itself in front of it to keep lines apart."""

    def msg(self, message: str) -> None:
        print(message, file=sys.stderr, flush=True)

    debug = info = warning = error = critical = exception = log = msg


def set_up_logs(*, debug: bool = False, quiet: bool = False) -> None:
    """Warnings always; what goes on as well, unless a view shows it already; everything with `debug`."""
    level = logging.DEBUG if debug else logging.WARNING if quiet else logging.INFO
    # What a broken connection leaves in a pipeline is told as the error that it is.
    logging.getLogger("psycopg").setLevel(logging.DEBUG if debug else logging.ERROR)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="%H:%M:%S", utc=False),
            structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty()),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=lambda *_: _Stderr(),
        cache_logger_on_first_use=False,
    )
