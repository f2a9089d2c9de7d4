"""`pidts locks`: lists rows that differ from the source and were set aside, shows them, and resolves them."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pidts.cli.command import Debug, JsonInstead, TaskFile, opened
from pidts.model import ConfigError

if TYPE_CHECKING:
    from pidts.apply.locks.resolve import ResolveWith, UnfinishedResolves
    from pidts.task.config.task_file import TaskConfig
    from pidts.task.config.zones_file import Direction
    from pidts.task.operate.row_locks import ChosenRows

locks_commands = typer.Typer(
    name="locks",
    help="Rows that differ from the source and were set aside (on-divergence: lock).",
    short_help="List and resolve rows that differ from the source.",
)

Ids = Annotated[
    list[str] | None,
    typer.Argument(metavar="[ID]...", help="Ids as `pidts locks list` shows them; the first characters are enough."),
]
OfTable = Annotated[
    str,
    typer.Option(
        "--table", metavar="TABLE", help="The table, by its name on the source or on the target.", show_default=False
    ),
]


@locks_commands.command("list", short_help="Show the locked rows of each table.")
def list_locks(task: TaskFile, table: OfTable = "", as_json: JsonInstead = False, debug: Debug = False) -> None:
    """Show the locked rows of each table, the oldest first (zones: of all directions); change nothing."""
    from pidts.task.config.task_file import load_directions
    from pidts.task.config.zones_file import path_of

    directions = load_directions(task)
    paths = {str(one): path_of(task, one) for one in directions} or {"": task}
    tasks = {direction: _opened(path, debug=debug) for direction, path in paths.items()}
    from pidts.cli.locks.view import TaskLockedRows, show_lists
    from pidts.task.operate.row_locks import task_locks

    with ExitStack() as stack:
        found = []
        for direction, parts in tasks.items():
            locks = stack.enter_context(task_locks(parts))
            found.append(TaskLockedRows(parts[0].name, direction, locks, locks.all_of(table)))
        show_lists(found, as_json=as_json)


@locks_commands.command("show", short_help="Show a locked row and its held changes.")
def show_lock(
    task: TaskFile,
    id_: Annotated[str, typer.Argument(metavar="ID", help="The id; its first characters are enough.")],
    table: OfTable = "",
    as_json: JsonInstead = False,
    debug: Debug = False,
) -> None:
    """Show a locked row: as it was on the source, as it is on the target, and as it would be with its held changes."""
    parts = _opened(task, debug=debug)
    from pidts.apply.locks.resolve import ResolveWith
    from pidts.cli.locks.view import show_outlooks
    from pidts.task.operate.row_locks import task_locks

    with task_locks(parts) as locks:
        rows = [row for one in locks.named([id_], table) for row in locks.rows(one)]
        show_outlooks([(one, locks.outlook(one, ResolveWith.SOURCE, {})) for one in rows], as_json=as_json)


@locks_commands.command("resolve", short_help="Resolve locked rows.")
def resolve_locks(
    task: TaskFile,
    ids: Ids = None,
    take: Annotated[
        str,
        typer.Option(
            "--take",
            metavar="source|target|keep",
            help="source: apply the held changes to the source's row. target: apply the held changes to the target's "
            "row. keep: leave the target's row as it is, and drop the held changes. Between zones that all feed each "
            "other, source gives all zones the row of this task's source, and keep gives all zones the row of its "
            "target.",
            show_default=False,
        ),
    ] = "",
    values: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="COLUMN=VALUE", help="Give the source's row this value; COLUMN=NULL for NULL."),
    ] = None,
    values_file: Annotated[
        str,
        typer.Option(
            "--values",
            metavar="FILE",
            help="A JSON object of columns and values, as --set gives them; - is the standard input.",
            show_default=False,
        ),
    ] = "",
    table: OfTable = "",
    every: Annotated[bool, typer.Option("--all", help="Resolve all locked rows of --table.")] = False,
    only_here: Annotated[
        bool,
        typer.Option(
            "--only-here",
            help="Between zones that all feed each other: resolve only this task's lock, and not the locks of the row "
            "in other zones. Also resolves a lock that a killed command was resolving in all zones.",
        ),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would happen.")] = False,
    yes: Annotated[
        bool,
        typer.Option(
            "--yes", "-y", help="With --all: carry the command out. Without it, --all only shows what it would do."
        ),
    ] = False,
    as_json: JsonInstead = False,
    debug: Debug = False,
) -> None:
    """Resolve locked rows: apply the held changes to the source's or target's row, set values, or drop the changes."""
    set_values = dict(map(_pair, values or [])) | (_read_values(values_file) if values_file else {})
    chosen, given = _taken(take, set_values), ids or []
    if bool(given) == every or (every and not table):
        raise ConfigError(
            "usage",
            "name either some ids, or --table TABLE --all",
            todo=f"See: pidts locks list {shlex.quote(str(task))}",
        )
    if dry_run and yes:
        raise ConfigError("usage", "give --dry-run or --yes, not both", todo="See: pidts locks resolve --help")
    does = yes or (bool(given) and not dry_run)
    parts = _opened(task, debug=debug)
    from pidts.apply.locks.resolve import ResolveWith
    from pidts.cli.locks.view import Resolutions
    from pidts.task.operate.row_locks import task_locks

    directions = _directions(task)
    with task_locks(parts) as locks:
        rows = locks.named(given, table) if given else locks.all_of(table)
        if directions and not only_here and not set_values and chosen in {"source", "keep"}:
            _resolve_in_all(task, directions, rows, chosen, does=does, every=every, as_json=as_json)
            return
        asked = sum(len(one.ids) for one in rows)
        if not does:
            Resolutions(locks.outlooks(rows, ResolveWith(chosen), set_values), as_json=as_json).show(
                asked=asked, done=False, every=every
            )
            return
        begun = _begun_here(task, directions, ResolveWith(chosen), sets=bool(set_values)) if only_here else None
        done = Resolutions(locks.resolve(rows, ResolveWith(chosen), set_values, begun), as_json=as_json)
        for winner in sorted(done.winners):
            what = (
                f"a command had begun to give all zones the row of zone {winner}: some zones may already have that row"
            )
            print(f"{what}. Compare the zones (pidts verify {shlex.quote(str(task))})", file=sys.stderr)
        done.show(asked=asked, done=True, every=every)


def _opened(task: Path, *, debug: bool) -> Sequence[TaskConfig]:
    parts = opened(task, debug=debug)
    from pidts.task.checks.channel import demand_tables

    demand_tables(
        parts[0], "pidts locks", "records for a datacenter are never compared with rows, so no row is set aside", ""
    )
    return parts


def _directions(task: Path) -> Sequence[Direction]:
    """Returns all directions of the task's file, if the task is one of them and all zones feed each other.

    Otherwise returns none. For a direction in a file whose zones do not all feed each other, also prints a message.
    """
    from pidts.task.config.task_file import load_directions
    from pidts.task.config.zones_file import split_path
    from pidts.task.zones.resolve_in_all import feeds_all

    file, name = split_path(task)
    found = load_directions(file) if name else ()
    if found and not feeds_all({(one.source, one.target): bool(one.forwards) for one in found}):
        what = "the zones of this file do not all feed each other: only locks of this direction are resolved"
        print(f"{what}; resolve the locks of the other directions, too", file=sys.stderr)
        return ()
    return found


def _begun_here(task: Path, directions: Sequence[Direction], take: ResolveWith, *, sets: bool) -> UnfinishedResolves:
    """Returns the killed commands that this command may complete: they were to resolve locks in all zones."""
    from pidts.task.config.zones_file import split_path
    from pidts.task.zones.resolve_in_all import begun_here

    zones = {one.source for one in directions}
    named = next((one for one in directions if str(one) == split_path(task)[1]), None)
    return begun_here(zones, named.source if named else "", named.target if named else "", take, sets=sets)


def _resolve_in_all(
    task: Path,
    directions: Sequence[Direction],
    rows: Sequence[ChosenRows],
    take: str,
    *,
    does: bool,
    every: bool,
    as_json: bool,
) -> None:
    """Resolves the locks in all zones: all zones get the row of the task's source, or the row of its target."""
    from pidts.cli.locks.view import Resolutions
    from pidts.cli.zones.command import say
    from pidts.task.zones.resolve_in_all import ResolveInAll
    from pidts.task.zones.servers import tasks_into

    tasks = tasks_into(task, directions, say)
    named = next(one for direction, one in zip(directions, tasks, strict=True) if task.name.endswith(f"@{direction}"))
    winner = named.zone if take == "source" else named.target
    done = []
    for one in rows:
        command = ResolveInAll(tasks, named, one.table, set(one.ids), winner)
        done += command.run() if does else command.outlooks()
    zones = [(one.target, one.zone) for one, _ in done]
    asked = sum(len(one.ids) for one in rows)
    Resolutions([one for _, one in done], as_json=as_json, places=zones).show(asked=asked, done=does, every=every)


def _taken(take: str, values: Mapping[str, str | None]) -> str:
    if take not in ("source", "target", "keep", "") or not (take or values) or (take in {"target", "keep"} and values):
        what = "give --take source, --take target, --take keep, or --set COLUMN=VALUE"
        raise ConfigError("usage", what, todo="See: pidts locks resolve --help")
    return take or "source"


def _pair(text: str) -> tuple[str, str | None]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ConfigError("usage", f"--set takes COLUMN=VALUE, not {text!r}", todo="See: pidts locks resolve --help")
    return name, None if value == "NULL" else value


def _read_values(file: str) -> dict[str, str | None]:
    """Reads the values of columns from a file of JSON; None is NULL.

    A file hides values that are secrets: all users of the machine can see a program's arguments.
    """
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text("utf-8")
        found = json.loads(text)
    except (OSError, ValueError) as error:
        raise ConfigError(
            "usage", f"--values cannot be read: {error}", todo="Write a JSON object of columns and values"
        ) from None
    if not isinstance(found, dict) or not all(one is None or isinstance(one, str) for one in found.values()):
        raise ConfigError("usage", "--values takes a JSON object of texts and nulls", todo='As in {"city": "Bern"}')
    return found
