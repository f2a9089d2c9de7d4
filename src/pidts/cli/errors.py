"""Prints the error that ends a command: as text on stderr, and with --json also as the last line of stdout."""

from __future__ import annotations

import json
import shlex
import sys
import tempfile
import traceback
from pathlib import Path

import structlog
from rich.console import Console
from rich.text import Text

from pidts.cli.log_options import log_options
from pidts.model import DecodeError, PidtsError
from pidts.model.advice import with_place, with_service, with_tables, with_task

_log = structlog.get_logger(__name__)

_task: list[Path] = []
"""The task file of the current command, as soon as it is known."""
_service: list[str] = ["", ""]
"""The options that name the service of the current command, and those with which `pidts serve` starts this service."""


def remember_task(path: Path | None) -> None:
    """Remembers the task file of the current command, which the remedies of errors name; None forgets it."""
    _task[:] = [] if path is None else [path]


def for_this_task(text: str) -> str:
    """Adds the current command's task file, if it is known, to the commands in a text."""
    return with_task(text, str(_task[0])) if _task else text


def remember_service(state: Path | None = None, url: str = "", token_file: Path | None = None) -> None:
    """Remembers the options of the current command that name a service; without arguments, forgets them."""
    serve = f"--state {shlex.quote(str(state.absolute()))}" if state is not None and not url else ""
    token = f"--token-file {shlex.quote(str(token_file.absolute()))}" if token_file is not None else ""
    named = f"--service {shlex.quote(url)}" if url else serve
    _service[:] = [" ".join(filter(None, (named, token))), serve]


def for_this_service(text: str) -> str:
    """Adds the options of the current command that name a service to the commands in a text."""
    return with_service(text, *_service)


def show_error(error: PidtsError, *, as_json: bool) -> None:
    """Prints an error: its code, what happened, where, and what to do. Names and values are never read as markup."""
    todo = with_place(error.todo or error.usual_todo, error.where.source, error.where.position)
    if isinstance(error, DecodeError) and error.where.table:
        # Other errors may name a table of the target, which may have another name on the source.
        todo = with_tables(todo, "", [error.where.table])
    error.todo = for_this_service(for_this_task(todo))
    logs = log_options()
    if logs.file is not None or logs.has_json_on_stderr:
        _log.error("the command reports an error", **error.to_json())
    if not logs.has_json_on_stderr:
        _show_text(error)
    if as_json:
        print(json.dumps({"error": error.to_json()}, ensure_ascii=False), flush=True)


def _show_text(error: PidtsError) -> None:
    console = Console(stderr=True, soft_wrap=True, highlight=False)
    console.print(Text.assemble(("error", "bold red"), f" [{error.code}] ", (error.what, "bold")))
    for label, text in (("where", str(error.where)), ("do", error.todo)):
        for number, line in enumerate(text.splitlines()):
            console.print(Text.assemble((f"  {'' if number else label:<6}", "dim"), line))


def as_unexpected(error: Exception, *, debug: bool) -> PidtsError:
    """Turns an unexpected exception into an error of one line.

    With --debug, the traceback is printed to stderr; otherwise it is written to a new file, which the error names.
    """
    text = "".join(traceback.format_exception(error))
    what = f"{type(error).__name__}: {error}".partition("\n")[0]
    if debug:
        print(text, file=sys.stderr)
        return PidtsError("unexpected", what, todo="This is a bug in pidts; the traceback is above")
    with tempfile.NamedTemporaryFile("w", prefix="pidts-", suffix=".log", delete=False) as log:
        log.write(text)
    return PidtsError("unexpected", what, todo=f"This is a bug in pidts; the traceback is in {log.name}")
