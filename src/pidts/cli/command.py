"""Options that all commands share, and the function that opens the task file."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pidts.cli.errors import remember_task
from pidts.cli.log_options import set_up_logs

if TYPE_CHECKING:
    from pidts.task.config.task_file import TaskConfig


def plain_path(path: Path) -> Path:
    """Returns the path without `.` and `..`, as messages show it, if this still is the same file.

    If `a` is a symbolic link, `a/../b` may be another file than `b`: such a path stays as it is. A path that begins
    with `-` becomes absolute: in a printed command it would be an option, and a `Path` cannot begin with `./`.
    """
    plain = Path(os.path.normpath(path))
    found = plain if os.path.realpath(plain) == os.path.realpath(path) else path
    return found.absolute() if str(found).startswith("-") else found


TaskFile = Annotated[Path, typer.Argument(metavar="TASK", help="The task file (YAML).", callback=plain_path)]
JsonAtEnd = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout at the end.")]
JsonInstead = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks and all log lines, whatever --log-level says.")]


def opened(task: Path, *, debug: bool, quiet: bool = False, notes: bool = False) -> tuple[TaskConfig, ...]:
    """Reads the task file, and sets up the log lines of the command.

    Commands call this before they load large modules, so a mistake in the file is reported at once.

    With `quiet`, log lines about the progress are left out on a terminal, since the command itself shows the progress.
    With `notes`, prints notes about keys of the task file that have no effect.
    """
    from pidts.task.config.task_file import load_parts

    set_up_logs(debug=debug, quiet=quiet and sys.stderr.isatty())
    remember_task(task)
    parts = load_parts(task)
    for note in parts[0].notes if notes else ():
        print(f"note: {note}", file=sys.stderr)
    return parts
