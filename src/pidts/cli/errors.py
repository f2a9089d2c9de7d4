"""Prints the error that ends a command: as text on stderr and, with --json, also as the last line of stdout."""

from __future__ import annotations

import errno
import json
import os
import shlex
import sys
import tempfile
import traceback
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Never

import structlog
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from pidts.cli.log_options import log_options, write_line
from pidts.model import DecodeError, PidtsError
from pidts.model.advice import with_place, with_service, with_tables, with_task
from pidts.model.errors import escaped

_log = structlog.get_logger(__name__)

_task: list[Path] = []
"""The task file of the current command; empty until it is known."""
_service: list[str] = ["", ""]
"""The options of the current command that name its service, and the options with which `pidts serve` starts it."""


def remember_task(path: Path | None) -> None:
    """Remembers the task file of the current command, so that errors can name it. None forgets it."""
    _task[:] = [] if path is None else [path]


def for_this_task(text: str) -> str:
    """Puts the current command's task file, if it is known, in place of `TASK` in a text."""
    return with_task(text, str(_task[0])) if _task else text


def remember_service(state: Path | None = None, url: str = "", token_file: Path | None = None) -> None:
    """Remembers the options of the current command that name a service. Without arguments, forgets them."""
    serve = f"--state {shlex.quote(str(state.absolute()))}" if state is not None and not url else ""
    token = f"--token-file {shlex.quote(str(token_file.absolute()))}" if token_file is not None else ""
    named = f"--service {shlex.quote(url)}" if url else serve
    _service[:] = [" ".join(filter(None, (named, token))), serve]


def for_this_service(text: str) -> str:
    """Adds the current command's options that name a service to the commands in a text."""
    return with_service(text, *_service)


def show_error(error: PidtsError, *, as_json: bool, beside: Mapping[str, object] = MappingProxyType({})) -> None:
    """Prints an error: its code, what happened, where, and what to do. The JSON also has the values `beside`."""
    todo = with_place(error.todo or error.usual_todo, error.where.source, error.where.position)
    if isinstance(error, DecodeError) and error.where.table:
        # Only this error always names a table of the source. The advice needs the name on the source.
        todo = with_tables(todo, "", [error.where.table])
    # The reasons why several servers or checks fail are one text, which may name commands.
    error.what = for_this_task(error.what)
    error.todo = for_this_service(for_this_task(todo))
    logs = log_options()
    if logs.file is not None or logs.has_json_on_stderr:
        _log.error("the command reports an error", **error.to_json())
    if not logs.has_json_on_stderr:
        with suppress(OSError):
            _show_text(error)
    if as_json:
        write_line(json.dumps({"error": error.to_json(), **beside}, ensure_ascii=False), sys.stdout)


class OutputConsole(Console):
    """Prints the result of a command to stdout."""

    def __init__(self) -> None:
        super().__init__(soft_wrap=True, highlight=False)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Escapes control characters, since a server may give its tables any names."""
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else escaped(text), style, control)

    def on_broken_pipe(self) -> Never:
        """Raises the error: rich would send stdout to /dev/null, and `has_lost_output` could not find the cause."""
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


def has_lost_output(probe: str = "") -> bool:
    """Returns whether stdout cannot be written to. If so, reports this on stderr, and drops the unwritten text.

    If the reader of stdout has closed the pipe, nothing is reported. `probe` is written first: after an error, the
    stream may have no text left, and nothing would fail.
    """
    stdout = getattr(sys.stdout, "wrapped", sys.stdout)  # Typer's wrapper hides that the reader has closed stdout
    if stdout is None:  # the command was started without stdout
        return False
    try:
        stdout.write(probe)
        stdout.flush()
    except OSError as error:
        # Without this, Python would write to stdout at its exit, and report the error again.
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stdout.fileno())
        os.close(null)
        if not isinstance(error, BrokenPipeError):
            what = f"the output of the command cannot be written: {error.strerror}"
            todo = "Make room where the output is written, or write it to another disk. Then repeat the command"
            show_error(PidtsError("unwritable-output", what, todo=todo), as_json=False)
        return True
    return False


def _show_text(error: PidtsError) -> None:
    console = Console(stderr=True, soft_wrap=True, highlight=False)
    console.print(Text.assemble(("error", "bold red"), f" [{error.code}] ", (error.what, "bold")))
    for label, text in (("where", str(error.where)), ("do", error.todo)):
        for number, line in enumerate(text.splitlines()):
            console.print(Text.assemble((f"  {'' if number else label:<6}", "dim"), line))


def as_unexpected(error: BaseException, *, debug: bool, folder: Path | None = None) -> PidtsError:
    """Returns an error of one line for an unexpected exception.

    The traceback is in a new file, which the error names. The file is in `folder`; None means the folder for temporary
    files. With `debug`, or if the file cannot be written, the traceback is printed to stderr.
    """
    text = "".join(traceback.format_exception(error))
    what = f"{type(error).__name__}: {error}".partition("\n")[0]
    place = "above"
    if not debug:
        with (
            suppress(OSError),
            tempfile.NamedTemporaryFile("w", prefix="pidts-", suffix=".log", dir=folder, delete=False) as log,
        ):
            log.write(text)
            log.flush()
            place = f"in {log.name}"
    if place == "above":
        write_line(text, sys.stderr)
    return PidtsError("unexpected", what, todo=f"This is a bug in pidts; the traceback is {place}")
