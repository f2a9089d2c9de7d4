"""`pidts ddl`: lists schema changes that failed or wait for other shards, and takes the operator's decisions.

`pidts binlog`, `shard-ddl-lock`, `show-ddl-locks` and `unlock-ddl-lock` are the same commands with dmctl's names.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pidts.cli.command import Debug, JsonInstead, TaskFile, opened
from pidts.model import CommandKind, ConfigError

if TYPE_CHECKING:
    from pidts.task.operate.ddl_commands import TaskCommands


ddl_commands = typer.Typer(
    name="ddl",
    help="List halted tables and schema changes that wait for other shards, and decide about them.",
    short_help="List halted tables, and decide about schema changes.",
)
binlog_commands = typer.Typer(name="binlog", help="The same as `pidts ddl`, with dmctl's name.", hidden=True)

At = Annotated[
    str,
    typer.Option(
        "--at",
        "-b",
        "--binlog-pos",
        metavar="PLACE",
        help="The Lsn or file:position of the schema change. Without it: the change that waits, if it is the only one.",
        show_default=False,
    ),
]
Source = Annotated[
    str,
    typer.Option("--source", "-s", metavar="SOURCE-ID", help="The source of the schema change.", show_default=False),
]
OfTable = Annotated[
    str,
    typer.Option(
        "--table",
        metavar="TABLE",
        help="The halted table, by its name on a source or on the target: shop.orders, or orders if no other blocked "
        "table has this name.",
        show_default=False,
    ),
]
AllOfTable = Annotated[
    str,
    typer.Option(
        "--table",
        metavar="TABLE",
        help="Show only this table with all of its shards, by its name on a source or on the target.",
        show_default=False,
    ),
]
Lock = Annotated[
    str,
    typer.Argument(metavar="LOCK", help="The same as --table, or the name of a lock in dmctl.", show_default=False),
]
Statements = Annotated[
    list[str],
    typer.Argument(
        metavar="SQL...", help="SQL for the target, with the names on the target. Write `;` between several statements."
    ),
]
Yes = Annotated[
    bool,
    typer.Option("--yes", "-y", help="Carry the command out. Without it, the command only shows what it would do."),
]


_LIST = "pidts shard-ddl-lock TASK"


def list_ddl(task: TaskFile, table: AllOfTable = "", as_json: JsonInstead = False, debug: Debug = False) -> None:
    """Show halted tables, schema changes that wait for other shards, and the ddl commands given so far."""
    parts = opened(task, debug=debug)
    from pidts.cli.ddl.view import show_ddl_list
    from pidts.task.operate.ddl_commands import task_commands
    from pidts.task.operate.shard_locks import named_locks, open_locks

    with task_commands(parts) as commands:
        changes = commands.with_backlogs(commands.blocked_changes())
        table = table and commands.whole_name(table, [one for one in changes if one.is_blocked])
        locks = named_locks(open_locks(commands, changes), table)
        if table:
            of_locks = {one.place for lock in locks for one in lock.arrived}
            changes = [one for one in changes if one.place in of_locks or commands.concerns(one, table)]
        show_ddl_list(parts[0].name, task, changes, locks, commands.held_tables(), as_json=as_json, whole=bool(table))


def unlock(
    task: TaskFile,
    lock: Lock = "",
    table: OfTable = "",
    at: At = "",
    source: Source = "",
    yes: Yes = False,
    as_json: JsonInstead = False,
    debug: Debug = False,
) -> None:
    """Run a schema change now, without waiting for the shards that have not reached it.

    When a later shard reaches its own change, the target does not run it again.
    """
    if "`" in task.name and not task.exists():  # this is a lock's name in dmctl
        raise _no_task(f"{task} is the name of a lock; the task file must come before it", str(task))
    parts = opened(task, debug=debug)
    from pidts.cli.ddl.view import show_command
    from pidts.task.operate.ddl_commands import task_commands
    from pidts.task.operate.shard_locks import chosen_change, find_lock, open_locks

    with task_commands(parts) as commands:
        if source:
            commands.part(source)
        waiting = commands.with_backlogs(commands.matching())
        name = table or lock
        name = name and commands.whole_name(name, [one for one in waiting if one.waits_for_shards])
        found = find_lock(open_locks(commands, waiting), name, at, source)
        change = chosen_change(found, at, source)
        commands.require_effect(change, CommandKind.UNLOCK)
        if yes:
            commands.give(change, CommandKind.UNLOCK)
        show_command(change, CommandKind.UNLOCK, (), given=yes, as_json=as_json, lock=found)


def retry(
    task: TaskFile,
    table: OfTable = "",
    at: At = "",
    source: Source = "",
    yes: Yes = False,
    as_json: JsonInstead = False,
    debug: Debug = False,
) -> None:
    """Try again to run a halted schema change, or to write rows that the target has refused."""
    parts = opened(task, debug=debug)
    from pidts.cli.ddl.view import show_retry
    from pidts.task.operate.ddl_commands import is_refused_rows, task_commands

    with task_commands(parts) as commands:
        waiting = [] if at else commands.matching(source, table)
        rows = [one for one in waiting if one.halt is not None and is_refused_rows(one.halt)]
        if not rows or len(rows) < len(waiting):
            _give(commands, (at, source, table), CommandKind.REVERT, (), yes=yes, as_json=as_json, name="retry")
            return
        if yes:
            commands.retry_rows(rows)
        show_retry(rows, given=yes, as_json=as_json)


def _plain(kind: CommandKind, says: str) -> Callable[..., None]:
    """Returns the function of a command that gives ddl commands of this kind. `says` is its help text."""

    def command(
        task: TaskFile,
        at: At = "",
        source: Source = "",
        table: OfTable = "",
        yes: Yes = False,
        as_json: JsonInstead = False,
        debug: Debug = False,
    ) -> None:
        _give_command(task, (at, source, table), kind, (), yes=yes, as_json=as_json, debug=debug)

    command.__doc__ = says
    return command


def _with_statements(kind: CommandKind, says: str) -> Callable[..., None]:
    """Does the same as `_plain`, for a kind of ddl command that has SQL."""

    def command(
        task: TaskFile,
        statements: Statements,
        at: At = "",
        source: Source = "",
        table: OfTable = "",
        yes: Yes = False,
        as_json: JsonInstead = False,
        debug: Debug = False,
    ) -> None:
        _give_command(task, (at, source, table), kind, tuple(statements), yes=yes, as_json=as_json, debug=debug)

    command.__doc__ = says
    return command


_COMMANDS = {
    "skip": _plain(CommandKind.SKIP, "Do not run a schema change: the target already has it, or must not get it."),
    "replace": _with_statements(CommandKind.REPLACE, "Run these statements instead of a schema change."),
    "inject": _with_statements(CommandKind.INJECT, "Run these statements first, then the schema change."),
    "revert": _plain(CommandKind.REVERT, "Forget an earlier ddl command, and run the schema change unchanged."),
}

_SHORT_HELP = {
    "skip": "Do not run a schema change on the target.",
    "revert": "Forget an earlier ddl command.",
}


def _as_dmctl(command: Callable[..., None]) -> Callable[..., None]:
    """Returns the command for its name in dmctl. Without `--yes`, it ends with exit code 2 after the preview.

    dmctl needs no `--yes`. With exit code 0, a script that was written for dmctl would take the preview for a success.
    """

    @wraps(command)
    def strict(*args: Any, **kwargs: Any) -> None:
        command(*args, **kwargs)
        if not kwargs["yes"]:
            raise typer.Exit(ConfigError.exit_code)

    return strict


for _commands in (ddl_commands, binlog_commands):
    _commands.command("list", short_help="Show halted tables and waiting schema changes.")(list_ddl)
    for _name, _command in _COMMANDS.items():
        _with_name = _commands.command(_name, short_help=_SHORT_HELP.get(_name))
        _with_name(_as_dmctl(_command) if _commands is binlog_commands else _command)
ddl_commands.command("retry", short_help="Try a halted schema change, or refused rows, again.")(retry)
ddl_commands.command("unlock", short_help="Run a schema change without waiting for all shards.")(unlock)


unlock_ddl_lock = _as_dmctl(unlock)


def shard_ddl_lock(
    words: Annotated[list[str], typer.Argument(metavar="[list|unlock] TASK [LOCK]")],
    table: OfTable = "",
    at: At = "",
    source: Source = "",
    yes: Yes = False,
    as_json: JsonInstead = False,
    debug: Debug = False,
) -> None:
    """List or unlock shards that wait for each other, with dmctl's name."""
    verb, *rest = words if words[0] in {"list", "unlock"} else ["list", *words]
    if not 1 <= len(rest) <= (2 if verb == "unlock" else 1):
        found = "the task file is missing" if not rest else f"too many words: {' '.join(rest)}"
        raise _no_task(found, "LOCK") if verb == "unlock" else ConfigError("usage", found, todo=f"Write: {_LIST}")
    if verb == "list":
        list_ddl(Path(rest[0]), table, as_json, debug)
    else:
        lock = "".join(rest[1:])
        unlock_ddl_lock(Path(rest[0]), lock, table, at, source, yes=yes, as_json=as_json, debug=debug)


def _give_command(
    task: Path,
    which: tuple[str, str, str],
    kind: CommandKind,
    texts: tuple[str, ...],
    *,
    yes: bool,
    as_json: bool,
    debug: bool,
) -> None:
    if texts and not any(text.strip(" ;\n") for text in texts):
        raise _nothing_to_run(kind)
    parts = opened(task, debug=debug)
    from pidts.task.operate.command_parser import statements
    from pidts.task.operate.ddl_commands import task_commands

    found = statements(texts, postgres=parts[0].target.type == "postgresql")
    if texts and not found:
        raise _nothing_to_run(kind)
    with task_commands(parts) as commands:
        _give(commands, which, kind, found, yes=yes, as_json=as_json)


def _give(
    commands: TaskCommands,
    which: tuple[str, str, str],
    kind: CommandKind,
    statements: tuple[str, ...],
    *,
    yes: bool,
    as_json: bool,
    name: str = "",
) -> None:
    from pidts.cli.ddl.view import show_command
    from pidts.task.operate.shard_locks import open_locks

    found = commands.find(*which)
    commands.require_effect(found, kind)
    waiting = commands.with_backlogs(commands.matching()) if found.waits_for_shards else []
    lock = next((lock for lock in open_locks(commands, waiting) if lock.target in commands.target_tables(found)), None)
    if yes:
        commands.give(found, kind, statements)
    (found,) = commands.with_backlogs([found])
    changed = commands.changed_tables(found, kind)
    show_command(found, kind, statements, given=yes, as_json=as_json, lock=lock, changed=changed, name=name)


def _no_task(what: str, lock: str) -> ConfigError:
    todo = (
        f"Write: pidts shard-ddl-lock unlock TASK '{lock}'. With a single lock, leave LOCK out. "
        f"To see the locks, run: {_LIST}"
    )
    return ConfigError("usage", what, todo=todo)


def _nothing_to_run(kind: CommandKind) -> ConfigError:
    return ConfigError("usage", "there is no statement to run", todo=f"See: pidts ddl {kind} --help")
