"""`pidts status`: shows a task's state as its target records it. In dmctl the command is `query-status`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pidts.cli.logs import set_up_logs


def status(
    task: Annotated[Path, typer.Argument(metavar="TASK", help="The task file (YAML).")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks and all log lines.")] = False,
) -> int:
    """Show how far a task is and which tables are halted or waiting; the task need not run.

    Exit code 5: something needs an operator.
    """
    set_up_logs(debug=debug)
    from pidts.task.config.task_file import load_parts

    parts = load_parts(task)
    from pidts.cli.status_view import show_status
    from pidts.task.operate.status import task_status

    return show_status(task_status(parts), task, as_json=as_json)
