"""Sets up log lines on stderr. Stdout carries only the result of a command."""

from __future__ import annotations

import logging
import sys

import structlog


class _Stderr:
    """Writes to the current `sys.stderr`, which a live view replaces so that log lines stay above it."""

    def msg(self, message: str) -> None:
        print(message, file=sys.stderr, flush=True)

    debug = info = warning = error = critical = exception = log = msg


def set_up_logs(*, debug: bool = False, quiet: bool = False) -> None:
    """Shows warnings always, information unless a live view shows it already (`quiet`), and all with `debug`."""
    level = logging.DEBUG if debug else logging.WARNING if quiet else logging.INFO
    # psycopg warns about the rest of a pipeline when a connection breaks; the error itself is reported.
    logging.getLogger("psycopg").setLevel(logging.DEBUG if debug else logging.ERROR)
    # py4j logs each call into a JVM that died; the command reports `spark-died`.
    logging.getLogger("py4j").setLevel(logging.DEBUG if debug else logging.CRITICAL)
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
