"""`pidts schema`: prints the JSON Schema with which an editor completes and checks task files."""

from __future__ import annotations

import json
from typing import Annotated

import typer


def schema(
    source: Annotated[bool, typer.Option("--source", help="Print the schema of a DM source file instead.")] = False,
) -> None:
    """Print the JSON Schema of a task file, with which editors complete and check it."""
    from pidts.task.config.json_schema import source_schema, task_schema

    print(json.dumps(source_schema() if source else task_schema(), indent=1))
