"""Prints what `pidts plan` found, as text or as JSON."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from pidts.cli.errors import OutputConsole, for_this_task
from pidts.model import PrecheckFailed
from pidts.model.errors import listed, plural
from pidts.task.checks.preview import FirstRunAction, TablePreview
from pidts.task.config.task_file import TaskConfig

_VALUES = 2
"""The most extracted values that are shown for one column."""
_STYLES = {
    FirstRunAction.CREATE: "green",
    FirstRunAction.USE: "cyan",
    FirstRunAction.RECORD: "cyan",
    FirstRunAction.REFUSED: "bold red",
}


def show_plan(
    config: TaskConfig,
    found: Mapping[str, Sequence[TablePreview]],
    notes: Sequence[str] = (),
    *,
    as_json: bool,
    brief: bool = False,
    with_sql: bool = False,
) -> int:
    """Prints what the task would do with each table. Returns the exit code, which shows whether a table is refused."""
    tables = [table for of_source in found.values() for table in of_source]
    refused = sum(table.way is FirstRunAction.REFUSED for table in tables)
    code = PrecheckFailed.exit_code if refused or not any(found.values()) else 0
    several = len(found) > 1
    notes = [for_this_task(note) for note in notes]
    if as_json:
        previews = [
            ({"source_id": source} if several else {}) | table.to_json()
            for source, of_source in found.items()
            for table in of_source
        ]
        about = {"task": config.name, "mode": config.mode, "tables": previews, "notes": notes}
        print(json.dumps(about, ensure_ascii=False))
        return code
    console = OutputConsole()
    groups = _alike(found)
    shared = _shared_notes(groups)
    for alike in groups:
        _show_table(console, alike, several=several, brief=brief, with_sql=with_sql, shared=shared.keys())
    if brief:
        console.print()
    for note, names in shared.items():
        console.print(Text.assemble((f"note on {len(names):,} tables: {note}", "yellow"), f"  ({listed(names)})"))
    rows = sum(table.size.rows for table in tables if table.size)
    size = sum(table.size.bytes for table in tables if table.size)
    count = plural("table", len(tables))
    total = f"{config.name}: {count}, about {rows:,} rows in {size / 1e6:,.1f} MB"
    console.print(Text(total + (f"; {refused} refused" if refused else "")))
    if not with_sql and any(table.statements for table in tables):
        console.print(Text(f"to see the SQL that creates tables: pidts plan {config.shell_path} --sql", "dim"))
    for note in notes:
        console.print(Text(f"note: {note}", "yellow"))
    for source in (source for source, of_source in found.items() if not of_source):
        of = f" {source}" if several else ""
        console.print(Text(f"the block-allow-list selects no table of the source{of}", "bold red"))
    return code


@dataclass(frozen=True, slots=True)
class _TablesInOneEntry:
    """One table, or several tables that are copied in the same way."""

    shards: Sequence[tuple[str, TablePreview]]
    """Each table with its source."""

    @property
    def first(self) -> TablePreview:
        """The first table. The entry shows only its columns and notes, which are the same for all of these tables."""
        return self.shards[0][1]

    @property
    def size(self) -> str:
        """The size of all tables together."""
        sizes = [table.size for _, table in self.shards if table.size]
        unknown = len(self.shards) - len(sizes)
        if not sizes:
            return "size unknown"
        more = f", and {unknown} tables of unknown size" if unknown else ""
        return f"about {sum(size.rows for size in sizes):,} rows{more}"

    def names(self, *, several: bool) -> list[str]:
        """Returns the tables' names, with their sources if the task has several."""
        return [f"{source}: {table.source}" if several else f"{table.source}" for source, table in self.shards]

    @property
    def others(self) -> list[str]:
        """The names of the other tables with the same target table, which have entries of their own."""
        own = self.shards[0][0]
        here = {f"{table.source}" if source == own else f"{source}: {table.source}" for source, table in self.shards}
        return [name for name in self.first.merged if name not in here]


def _alike(found: Mapping[str, Sequence[TablePreview]]) -> list[_TablesInOneEntry]:
    """Groups tables that differ only in their names, their sizes, and the values extracted from their names."""
    groups: dict[tuple[object, ...], list[tuple[str, TablePreview]]] = {}
    for source, of_source in found.items():
        for table in of_source:
            columns = tuple(replace(column, value=None if column.value is None else "") for column in table.columns)
            same = (table.target, table.rules, table.way, table.key, columns, table.statements, table.finish)
            groups.setdefault((*same, table.notes, table.problems), []).append((source, table))
    return [_TablesInOneEntry(shards) for shards in groups.values()]


def _shared_notes(groups: Sequence[_TablesInOneEntry]) -> dict[str, list[str]]:
    """Returns the notes that several entries have in the same words, each with the name of each entry's first table."""
    found: dict[str, list[str]] = {}
    for alike in groups:
        for note in dict.fromkeys(alike.first.notes):
            found.setdefault(note, []).append(str(alike.first.source))
    return {note: names for note, names in found.items() if len(names) > 1}


def _show_table(
    console: Console, alike: _TablesInOneEntry, *, several: bool, brief: bool, with_sql: bool, shared: Collection[str]
) -> None:
    table, names = alike.first, alike.names(several=several)
    if len(names) > 1:
        route = f"{len(names):,} tables -> {table.target}"
    else:
        route = names[0] if table.source == table.target else f"{names[0]} -> {table.target}"
    key = f", key ({', '.join(table.key)})" if table.key else ", no key: rows are found by the values of all columns"
    if table.way is FirstRunAction.RECORD:
        key = ""
    console.print(Text.assemble((table.way.value, _STYLES[table.way]), "  ", (route, "bold"), f"  {alike.size}{key}"))
    if len(names) > 1:
        console.print(Text.assemble(("  of ", "cyan"), listed(names)))
    if brief:
        _show_problems(console, table, shared)
        return
    for rule in table.rules:
        console.print(Text.assemble(f"  {rule.map} ", (rule.name, "bold"), f": {rule.says}"))
    grid = Grid(box=None, show_header=False, padding=(0, 2, 0, 2))
    for _ in range(4):
        grid.add_column(overflow="fold")  # the user compares labels, so none is cut
    for number, column in enumerate(table.columns):
        values = dict.fromkeys(f"{one.columns[number].value!r}" for _, one in alike.shards)
        origin = column.source_type if column.value is None else f"extracted {listed(values, _VALUES)}"
        grid.add_row(column.name, Text(origin), "->", Text(column.target_type))
    console.print(grid)
    for statement in table.statements if with_sql else ():
        console.print(Text(f"  {statement};", "dim"))
    for statement in table.finish if with_sql else ():
        console.print(Text.assemble(("  after the copy: ", "cyan"), (f"{statement};", "dim")))
    if alike.others:
        console.print(Text.assemble(("  shares its target with ", "cyan"), listed(alike.others)))
    _show_problems(console, table, shared)
    console.print()


def _show_problems(console: Console, table: TablePreview, shared: Collection[str]) -> None:
    for note in table.notes:
        if note not in shared:
            console.print(Text(f"  note: {note}", "yellow"))
    for problem in table.problems:
        console.print(Text(f"  refused: {problem}", "red"))
