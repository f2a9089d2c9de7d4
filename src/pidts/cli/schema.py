"""`pidts schema`: what an editor needs to know of task files."""

from __future__ import annotations

import json
from typing import Annotated

import typer


def schema(
    source: Annotated[bool, typer.Option("--source", help="Of a DM source file instead of a task file.")] = False,
) -> None:
    """Print the JSON Schema of a task file, for editors that complete and check it."""
    from pidts.task.config_schema import source_schema, task_schema

    print(json.dumps(source_schema() if source else task_schema(), indent=1))
