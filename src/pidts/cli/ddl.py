"""`pidts ddl`: schema changes that fail or wait for those of other shards, and what to do about them.

`pidts binlog`, `shard-ddl-lock`, `show-ddl-locks` and `unlock-ddl-lock` say the same as dmctl does.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pidts.cli.logs import set_up_logs
from pidts.model import ConfigError, OrderKind

if TYPE_CHECKING:
    from pidts.task.config import TaskConfig
    from pidts.task.orders import OrderDesk


ddl_commands = typer.Typer(name="ddl", help="Schema changes that fail or wait for other shards, and what to do.")
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
Source = Annotated[
    str, typer.Option("--source", "-s", metavar="SOURCE-ID", help="Of which source.", show_default=False)
]
OfTable = Annotated[
    str, typer.Option("--table", metavar="TABLE", help="Of which table, on a source or the target.", show_default=False)
]
AllOfTable = Annotated[
    str,
    typer.Option(
        "--table",
        metavar="TABLE",
        help="Of this table alone, by its name on a source or the target, and all of its shards.",
        show_default=False,
    ),
]
Lock = Annotated[
    str, typer.Argument(metavar="LOCK", help="Like --table; dmctl's name of a lock, too.", show_default=False)
]
Statements = Annotated[
    list[str], typer.Argument(metavar="SQL...", help="In the target's words, about its names; `;` between several.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do it; without, only show what would happen.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks and all logs.")]


_LIST = "pidts shard-ddl-lock TASK"


def list_standing(task: TaskFile, table: AllOfTable = "", as_json: AsJson = False, debug: Debug = False) -> None:
    """Show what waits, for whom, and what was ordered."""
    parts = _opened(task, debug=debug)
    from pidts.cli.ddl_view import show_standing
    from pidts.task.locks import named_locks, open_locks
    from pidts.task.orders import order_desk

    with order_desk(parts) as desk:
        standing = desk.counted(desk.standing())
        locks = named_locks(open_locks(desk, standing), table)
        if table:
            of_locks = {one.place for lock in locks for one in lock.arrived}
            standing = [one for one in standing if one.place in of_locks or desk.is_called(one, table)]
        show_standing(parts[0].name, task, standing, locks, desk.held(), as_json=as_json, whole=bool(table))


def unlock(
    task: TaskFile,
    lock: Lock = "",
    table: OfTable = "",
    at: At = "",
    source: Source = "",
    yes: Yes = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Run it without the shards that have not come.

    Their own change passes when it comes.
    """
    if "`" in task.name and not task.exists():  # the name of a lock, as dmctl takes it
        raise _no_task(f"{task} is the name of a lock, and the task file comes before it", str(task))
    parts = _opened(task, debug=debug)
    from pidts.cli.ddl_view import show_order
    from pidts.task.locks import find_lock, open_locks, whose
    from pidts.task.orders import order_desk

    with order_desk(parts) as desk:
        if source:
            desk.part(source)
        waiting = desk.counted(desk.matching())
        found = find_lock(open_locks(desk, waiting), table or lock, at, source)
        meant = whose(found, at, source)
        desk.demand_heard(meant, OrderKind.UNLOCK)
        if yes:
            desk.give(meant, OrderKind.UNLOCK)
        show_order(meant, OrderKind.UNLOCK, (), given=yes, as_json=as_json, lock=found)


def retry(
    task: TaskFile,
    table: OfTable = "",
    at: At = "",
    source: Source = "",
    yes: Yes = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Try a change, or rows that were refused, again."""
    parts = _opened(task, debug=debug)
    from pidts.cli.ddl_view import show_lifted
    from pidts.task.orders import is_of_rows, order_desk

    with order_desk(parts) as desk:
        waiting = [] if at else desk.matching(source, table)
        rows = [one for one in waiting if one.halt is not None and is_of_rows(one.halt)]
        if not rows or len(rows) < len(waiting):
            _give(desk, (at, source, table), OrderKind.REVERT, (), yes=yes, as_json=as_json)
            return
        if yes:
            desk.lift(rows)
        show_lifted(rows, given=yes, as_json=as_json)


def _plain(kind: OrderKind, says: str) -> Callable[..., None]:
    """The command that gives this order."""

    def command(
        task: TaskFile,
        at: At = "",
        source: Source = "",
        table: OfTable = "",
        yes: Yes = False,
        as_json: AsJson = False,
        debug: Debug = False,
    ) -> None:
        _order(task, (at, source, table), kind, (), yes=yes, as_json=as_json, debug=debug)

    command.__doc__ = says
    return command


def _with_statements(kind: OrderKind, says: str) -> Callable[..., None]:
    """The command that gives this order, and the statements that are its content."""

    def command(
        task: TaskFile,
        statements: Statements,
        at: At = "",
        source: Source = "",
        table: OfTable = "",
        yes: Yes = False,
        as_json: AsJson = False,
        debug: Debug = False,
    ) -> None:
        _order(task, (at, source, table), kind, tuple(statements), yes=yes, as_json=as_json, debug=debug)

    command.__doc__ = says
    return command


_COMMANDS = {
    "skip": _plain(OrderKind.SKIP, "Do not run it: it is there, or not to be there."),
    "replace": _with_statements(OrderKind.REPLACE, "Run these statements instead of it."),
    "inject": _with_statements(OrderKind.INJECT, "Run these statements first, and then it."),
    "revert": _plain(OrderKind.REVERT, "Run it as it is: what was ordered is forgotten."),
}
for _commands in (ddl_commands, binlog_commands):
    _commands.command("list")(list_standing)
    for _name, _command in _COMMANDS.items():
        _commands.command(_name)(_command)
ddl_commands.command("retry")(retry)
ddl_commands.command("unlock")(unlock)


def shard_ddl_lock(
    words: Annotated[list[str], typer.Argument(metavar="[list|unlock] TASK [LOCK]")],
    table: OfTable = "",
    at: At = "",
    source: Source = "",
    yes: Yes = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Shards that wait for each other, as dmctl spells it."""
    verb, *rest = words if words[0] in {"list", "unlock"} else ["list", *words]
    if not 1 <= len(rest) <= (2 if verb == "unlock" else 1):
        found = "there is no task file" if not rest else f"too many words: {' '.join(rest)}"
        raise _no_task(found, "LOCK") if verb == "unlock" else ConfigError("usage", found, todo=f"Say: {_LIST}")
    if verb == "list":
        list_standing(Path(rest[0]), table, as_json, debug)
    else:
        unlock(Path(rest[0]), "".join(rest[1:]), table, at, source, yes, as_json, debug)


def _order(
    task: Path,
    which: tuple[str, str, str],
    kind: OrderKind,
    texts: tuple[str, ...],
    *,
    yes: bool,
    as_json: bool,
    debug: bool,
) -> None:
    if texts and not any(text.strip(" ;\n") for text in texts):
        raise _nothing_to_run(kind)
    parts = _opened(task, debug=debug)
    from pidts.task.order_text import statements
    from pidts.task.orders import order_desk

    found = statements(texts, postgres=parts[0].target.type == "postgresql")
    if texts and not found:
        raise _nothing_to_run(kind)
    with order_desk(parts) as desk:
        _give(desk, which, kind, found, yes=yes, as_json=as_json)


def _give(
    desk: OrderDesk,
    which: tuple[str, str, str],
    kind: OrderKind,
    statements: tuple[str, ...],
    *,
    yes: bool,
    as_json: bool,
) -> None:
    from pidts.cli.ddl_view import show_order
    from pidts.task.locks import open_locks

    found = desk.find(*which)
    desk.demand_heard(found, kind)
    waiting = desk.counted(desk.matching()) if found.is_shard else []
    lock = next((lock for lock in open_locks(desk, waiting) if lock.target in desk.landed(found)), None)
    if yes:
        desk.give(found, kind, statements)
    (found,) = desk.counted([found])
    show_order(found, kind, statements, given=yes, as_json=as_json, lock=lock)


def _opened(task: Path, *, debug: bool) -> tuple[TaskConfig, ...]:
    set_up_logs(debug=debug)
    from pidts.task.config import load_parts

    return load_parts(task)


def _no_task(what: str, lock: str) -> ConfigError:
    todo = (
        f"Say: pidts shard-ddl-lock unlock TASK '{lock}'; LOCK may be left out where there is one. All of them: {_LIST}"
    )
    return ConfigError("usage", what, todo=todo)


def _nothing_to_run(kind: OrderKind) -> ConfigError:
    return ConfigError("usage", "there is no statement to run", todo=f"See: pidts ddl {kind} --help")
