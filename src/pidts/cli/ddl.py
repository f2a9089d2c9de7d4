"""`pidts ddl`: schema changes that fail, and what to do about them; `pidts binlog` says the same as dmctl does."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from pidts.cli.logs import set_up_logs
from pidts.model import ConfigError, OrderKind

ddl_commands = typer.Typer(name="ddl", help="Schema changes that fail, and what to do about them.")
binlog_commands = typer.Typer(name="binlog", help="The same, as dmctl spells it.", hidden=True)

TaskFile = Annotated[Path, typer.Argument(metavar="TASK", help="The task file (YAML).")]
At = Annotated[
    str,
    typer.Option(
        "--at",
        "-b",
        "--binlog-pos",
        metavar="PLACE",
        help="Which one: its Lsn, or file:position. Without, the one that waits.",
        show_default=False,
    ),
]
Statements = Annotated[
    list[str], typer.Argument(metavar="SQL...", help="In the target's words, about its names; `;` between several.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do it; without, only show what would happen.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks and all logs.")]


def list_standing(task: TaskFile, as_json: AsJson = False, debug: Debug = False) -> None:
    """Show what waits for an operator, and what was ordered; change nothing."""
    set_up_logs(debug=debug)
    from pidts.cli.ddl_view import show_standing
    from pidts.task.config import load_task
    from pidts.task.orders import order_desk

    config = load_task(task)
    with order_desk(config) as desk:
        show_standing(config.name, desk.halts(), desk.standing(), as_json=as_json)


def skip(task: TaskFile, at: At = "", yes: Yes = False, as_json: AsJson = False, debug: Debug = False) -> None:
    """Do not run it: the target has it by your hand, or is not to have it."""
    _order(task, at, OrderKind.SKIP, (), yes=yes, as_json=as_json, debug=debug)


def replace(
    task: TaskFile,
    statements: Statements,
    at: At = "",
    yes: Yes = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Run these statements instead of it."""
    _order(task, at, OrderKind.REPLACE, split(statements), yes=yes, as_json=as_json, debug=debug)


def inject(
    task: TaskFile,
    statements: Statements,
    at: At = "",
    yes: Yes = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Run these statements first, and then it."""
    _order(task, at, OrderKind.INJECT, split(statements), yes=yes, as_json=as_json, debug=debug)


def revert(task: TaskFile, at: At = "", yes: Yes = False, as_json: AsJson = False, debug: Debug = False) -> None:
    """Run it as it is, once more: what was ordered before does not count."""
    _order(task, at, OrderKind.REVERT, (), yes=yes, as_json=as_json, debug=debug)


for _commands in (ddl_commands, binlog_commands):
    _commands.command("list")(list_standing)
    for _command in (skip, replace, inject, revert):
        _commands.command(_command.__name__)(_command)
ddl_commands.command("retry", help="The same as revert.")(revert)


def _order(
    task: Path, place: str, kind: OrderKind, statements: tuple[str, ...], *, yes: bool, as_json: bool, debug: bool
) -> None:
    set_up_logs(debug=debug)
    from pidts.cli.ddl_view import show_order
    from pidts.task.config import load_task
    from pidts.task.orders import order_desk

    if kind in {OrderKind.REPLACE, OrderKind.INJECT} and not statements:
        raise ConfigError("usage", "there is no statement to run", todo=f"See: pidts ddl {kind} --help")
    config = load_task(task)
    with order_desk(config) as desk:
        found = desk.find(place)
        if yes:
            desk.give(found, kind, statements)
        show_order(found, kind, statements, given=yes, as_json=as_json)


def split(texts: Sequence[str]) -> tuple[str, ...]:
    """At each `;` outside of quotes. PostgreSQL's `$$` may quote anything, so such a text is one statement."""
    found: list[str] = []
    for text in texts:
        quote, begin = "", 0
        for place, letter in enumerate("" if "$$" in text else text):
            if quote:
                quote = "" if letter == quote else quote
            elif letter in "'\"`":
                quote = letter
            elif letter == ";":
                found.append(text[begin:place])
                begin = place + 1
        found.append(text[begin:])
    return tuple(filter(None, (text.strip().rstrip(";").strip() for text in found)))
