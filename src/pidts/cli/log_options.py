"""The options for logs, which every command has: the lowest level, the form and the file of log lines.

A user may write these options before or after the command. This module moves the options to the front, so that not
every command needs three more parameters.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, TextIO

import structlog

from pidts.model import ConfigError, Where
from pidts.model.errors import in_one_line

OPTIONS = ("--log-level", "--log-format", "--log-file")
LEVELS = ("debug", "info", "warning", "error")

Form = Literal["text", "json"]


@dataclass(frozen=True, slots=True)
class LogOptions:
    """The options for logs of one command line."""

    level: str = ""
    """The lowest level that is shown. Empty: the usual level of the command."""
    form: Form = "text"
    file: Path | None = None
    """The file to which log lines are appended, instead of stderr."""

    @property
    def shows_progress(self) -> bool:
        """Whether lines about the progress (level `info`) are shown."""
        return self.level in {"", "debug", "info"}

    @property
    def has_json_on_stderr(self) -> bool:
        """Whether log lines are written to stderr as JSON, for a program that reads stderr line by line."""
        return self.form == "json" and self.file is None


_chosen: ContextVar[LogOptions] = ContextVar("log options", default=LogOptions())  # noqa: B039 - it is frozen


def log_options() -> LogOptions:
    """Returns the options of the running command."""
    return _chosen.get()


def choose(level: str, form: str, file: Path | None) -> None:
    """Stores the options of a command line; raises if a value is not allowed."""
    for name, value, allowed in (("--log-level", level, ("", *LEVELS)), ("--log-format", form, ("text", "json"))):
        if value not in allowed:
            words = ", ".join(filter(None, allowed))
            raise ConfigError("usage", f"{name}: {value!r} is none of {words}", todo="See: pidts --help")
    if file is not None:
        try:
            with _appended(file):
                pass
        except OSError as error:
            what = f"the log file cannot be written: {error.strerror}"
            raise ConfigError("unwritable-file", what, where=Where(file=str(file)), todo="Name another file") from None
    _chosen.set(LogOptions(level, "json" if form == "json" else "text", file))


def options_first(arguments: Sequence[str]) -> list[str]:
    """Returns the command line with the options for logs before the command."""
    first: list[str] = []
    rest: list[str] = []
    words = iter(arguments)
    for word in words:
        if word == "--":
            return [*first, *rest, word, *words]
        name, equals, _ = word.partition("=")
        (first if name in OPTIONS else rest).append(word)
        if name in OPTIONS and not equals and (value := next(words, None)) is not None:
            first.append(value)
    return [*first, *rest]


def is_not_of_py4j(record: logging.LogRecord) -> bool:
    """Whether a record of the root logger is not from py4j, which logs a traceback if the JVM is lost."""
    return record.module != "java_gateway"


def set_up_logs(*, debug: bool = False, quiet: bool = False) -> None:
    """Sets the level, the form and the file of log lines.

    The level is the first of these that applies:

    1. With `debug`: everything.
    2. The level that the user has chosen.
    3. With `quiet` and without a log file: warnings, since a live view already shows the rest.
    4. Information and warnings.
    """
    options = log_options()
    debug = debug or options.level == "debug"
    usual = "debug" if debug else "warning" if quiet and options.file is None else "info"
    level = getattr(logging, (options.level if options.level and not debug else usual).upper())
    # If a connection breaks, the command reports it. psycopg would also warn about statements still in a pipeline.
    logging.getLogger("psycopg").setLevel(logging.DEBUG if debug else logging.ERROR)
    # If the JVM has died, the command reports `spark-died`. py4j would also log each call into the JVM.
    logging.getLogger("py4j").setLevel(logging.DEBUG if debug else logging.CRITICAL)
    if not debug:
        logging.getLogger().addFilter(is_not_of_py4j)
    place = _Lines(options.file)
    if options.form == "json":
        last: list[structlog.typing.Processor] = [
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(ensure_ascii=False, default=str),
        ]
    else:
        colours = options.file is None and sys.stderr.isatty()
        fmt = "%H:%M:%S" if options.file is None else "%Y-%m-%d %H:%M:%S"
        last = [
            structlog.processors.TimeStamper(fmt=fmt, utc=False),
            _escaped,
            # The default also shows the variables of each function: passwords, and rows.
            structlog.dev.ConsoleRenderer(colors=colours, exception_formatter=structlog.dev.plain_traceback),
        ]
    first = [structlog.contextvars.merge_contextvars, structlog.processors.add_log_level, _with_task]
    structlog.configure(
        processors=[*first, *last],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=lambda *_: place,
        cache_logger_on_first_use=False,
    )


def _with_task(_: object, __: str, line: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Puts the task file of the current command in place of `TASK` in a log line's advice."""
    from pidts.cli.errors import for_this_task  # that module imports this one

    if isinstance(todo := line.get("todo"), str):
        line["todo"] = for_this_task(todo)
    return line


def _escaped(_: object, __: str, line: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Escapes control characters: a source may give a table a name that changes what the terminal shows."""
    for name, value in line.items():
        if isinstance(value, str) and not value.isprintable():
            line[name] = in_one_line(value)
    return line


@contextmanager
def _appended(path: Path) -> Iterator[TextIO]:
    """Opens the file so that only this user can read it, since log lines may name rows."""
    opener = partial(os.open, mode=0o600)
    with open(path, "a", encoding="utf-8", errors="backslashreplace", opener=opener) as file:
        yield file


class _Lines:
    """Writes log lines to a file or to stderr.

    - `sys.stderr` is looked up for each line: a live view replaces it, so that log lines stay above the view.
    - The file is opened anew for each line, so that another program may move the file away.
    - A line that cannot be written is lost: a full disk, or a reader that has ended (`2>&1 | tee`), must not end a run.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path

    def msg(self, message: str) -> None:
        if self._path is None:
            write_line(message, sys.stderr)
            return
        with suppress(OSError), _appended(self._path) as file:
            write_line(message, file)

    debug = info = warning = error = critical = exception = log = msg


def write_line(text: str, file: TextIO) -> bool:
    """Writes and flushes a line; returns False if this has failed."""
    try:
        print(text, file=file, flush=True)
    except OSError:
        return False
    return True
