"""`pidts failover`: lets a task continue at a standby of its source."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from pidts.cli.command import Debug, JsonAtEnd, TaskFile, opened
from pidts.model import ConfigError


def failover(
    task: TaskFile,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="HOST:PORT",
            help="The standby. Without this option: the first standby that has executed all received transactions.",
            show_default=False,
        ),
    ] = "",
    source: Annotated[
        str,
        typer.Option(
            "--source", "-s", metavar="SOURCE-ID", help="The source, if the task has several.", show_default=False
        ),
    ] = "",
    force: Annotated[
        bool,
        typer.Option("--force", help="Choose the server of --to even if it has transactions that the source lacks."),
    ] = False,
    as_json: JsonAtEnd = False,
    debug: Debug = False,
) -> int:
    """Let a task continue with a standby of its source; a running task changes to the standby within seconds."""
    parts = [part for part in opened(task, debug=debug) if part.source.source_id == (source or part.source.source_id)]
    if len(parts) != 1:
        what = f"the task has no source {source!r}" if not parts else "the task has several sources"
        raise ConfigError("usage", what, todo="Name one: --source SOURCE-ID")
    from pidts.task.operate.standbys import fail_over

    chosen = fail_over(parts[0], to, force=force)
    if as_json:
        print(json.dumps({"task": parts[0].name, "source": parts[0].source.source_id, "server": chosen}))
    else:
        # A running task may have begun before the server was added to the task file: then it does not know the server.
        print(
            f"{parts[0].name}: {chosen} was chosen for source {parts[0].source.source_id}. A running task changes to "
            "it within seconds. If the server was added to the task file after the run began, the task changes to it "
            "at the next start"
        )
    return 0
