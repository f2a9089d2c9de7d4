"""What the commands share: options, the task file that they open, and log lines on stderr; stdout has the result."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import structlog
import typer

if TYPE_CHECKING:
    from pidts.task.config.task_file import TaskConfig

TaskFile = Annotated[Path, typer.Argument(metavar="TASK", help="The task file (YAML).")]
JsonAtEnd = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout at the end.")]
JsonInstead = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks and all log lines.")]


def opened(task: Path, *, debug: bool, quiet: bool = False, notes: bool = False) -> tuple[TaskConfig, ...]:
    """Reads the task file before anything that takes long to load, so that a mistake in it is reported at once.

    `quiet`: on a terminal the command shows its progress itself. `notes`: print what the file's keys do not do.
    """
    from pidts.task.config.task_file import load_parts

    set_up_logs(debug=debug, quiet=quiet and sys.stderr.isatty())
    parts = load_parts(task)
    for note in parts[0].notes if notes else ():
        print(f"note: {note}", file=sys.stderr)
    return parts


class _Stderr:
    """Writes to the current `sys.stderr`, which a live view replaces so that log lines stay above it."""

    def msg(self, message: str) -> None:
        print(message, file=sys.stderr, flush=True)

    debug = info = warning = error = critical = exception = log = msg


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    """Whether a record of the root logger comes from elsewhere: py4j reports a lost JVM there, with a traceback."""
    return record.module != "java_gateway"


def set_up_logs(*, debug: bool = False, quiet: bool = False) -> None:
    """Shows warnings always, information unless a live view shows it already (`quiet`), and all with `debug`."""
    level = logging.DEBUG if debug else logging.WARNING if quiet else logging.INFO
    # psycopg warns about the rest of a pipeline when a connection breaks; the error itself is reported.
    logging.getLogger("psycopg").setLevel(logging.DEBUG if debug else logging.ERROR)
    # py4j logs each call into a JVM that died; the command reports `spark-died`.
    logging.getLogger("py4j").setLevel(logging.DEBUG if debug else logging.CRITICAL)
    if not debug:
        logging.getLogger().addFilter(_is_not_of_py4j)
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
