"""`pidts plan`: what a task would do, for people and for machines."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from pidts.cli.waiting_words import named
from pidts.model import PrecheckFailed
from pidts.task.config import TaskConfig
from pidts.task.outlook import TableOutlook, Way

_VALUES = 2
"""So many of the values that a route extracts are shown of one column."""
_STYLES = {Way.CREATE: "green", Way.USE: "cyan", Way.REFUSED: "bold red"}


def show_outlook(
    config: TaskConfig, found: Mapping[str, Sequence[TableOutlook]], notes: Sequence[str] = (), *, as_json: bool
) -> int:
    """Print what becomes of each source's tables; the exit code says whether some table is refused."""
    tables = [table for of_source in found.values() for table in of_source]
    refused = sum(table.way is Way.REFUSED for table in tables)
    code = PrecheckFailed.exit_code if refused or not all(found.values()) else 0
    several = len(found) > 1
    if as_json:
        told = [
            ({"source_id": source} if several else {}) | table.to_json()
            for source, of_source in found.items()
            for table in of_source
        ]
        about = {"task": config.name, "mode": config.mode, "tables": told, "notes": list(notes)}
        print(json.dumps(about, ensure_ascii=False))
        return code
    console = Console(soft_wrap=True, highlight=False)
    for alike in _alike(found):
        _show_table(console, alike, several=several)
    rows = sum(table.size.rows for table in tables if table.size)
    size = sum(table.size.bytes for table in tables if table.size)
    count = "1 table" if len(tables) == 1 else f"{len(tables)} tables"
    total = f"{config.name}: {count}, about {rows:,} rows in {size / 1e6:,.1f} MB"
    console.print(Text(total + (f"; {refused} refused" if refused else "")))
    for note in notes:
        console.print(Text(f"note: {note}", "yellow"))
    for source in (source for source, of_source in found.items() if not of_source):
        of = f" {source}" if several else ""
        console.print(Text(f"block-allow-list lets no table of the source{of} pass", "bold red"))
    return code


@dataclass(frozen=True, slots=True)
class _Alike:
    """Tables that become one in the same way; mostly there is one of them."""

    shards: Sequence[tuple[str, TableOutlook]]
    """Each with its source."""

    @property
    def first(self) -> TableOutlook:
        """What is true of all of them."""
        return self.shards[0][1]

    @property
    def size(self) -> str:
        """Of all of them together."""
        sizes = [table.size for _, table in self.shards if table.size]
        unknown = len(self.shards) - len(sizes)
        if not sizes:
            return "size unknown"
        more = f", and those of {unknown} tables" if unknown else ""
        return f"about {sum(size.rows for size in sizes):,} rows{more}"

    def names(self, *, several: bool) -> list[str]:
        """With their sources, where the task has several."""
        return [f"{source}: {table.source}" if several else f"{table.source}" for source, table in self.shards]

    @property
    def others(self) -> list[str]:
        """Those that land there, too, and not in the same way."""
        own = self.shards[0][0]
        here = {f"{table.source}" if source == own else f"{source}: {table.source}" for source, table in self.shards}
        return [name for name in self.first.merged if name not in here]


def _alike(found: Mapping[str, Sequence[TableOutlook]]) -> list[_Alike]:
    """Those that differ in nothing but their names, sizes, and what is extracted from their names."""
    groups: dict[tuple[object, ...], list[tuple[str, TableOutlook]]] = {}
    for source, of_source in found.items():
        for table in of_source:
            columns = tuple(replace(column, value=None if column.value is None else "") for column in table.columns)
            same = (table.target, table.rules, table.way, table.key, columns, table.statements, table.finish)
            groups.setdefault((*same, table.notes, table.problems), []).append((source, table))
    return [_Alike(shards) for shards in groups.values()]


def _show_table(console: Console, alike: _Alike, *, several: bool) -> None:
    table, names = alike.first, alike.names(several=several)
    if len(names) > 1:
        route = f"{len(names):,} tables -> {table.target}"
    else:
        route = names[0] if table.source == table.target else f"{names[0]} -> {table.target}"
    key = f"key ({', '.join(table.key)})" if table.key else "no key: copied whole, rows are found by all their columns"
    console.print(Text.assemble((table.way.value, _STYLES[table.way]), "  ", (route, "bold"), f"  {alike.size}, {key}"))
    if len(names) > 1:
        console.print(Text.assemble(("  of ", "cyan"), named(names)))
    for rule in table.rules:
        console.print(Text.assemble(f"  {rule.map} ", (rule.name, "bold"), f": {rule.says}"))
    grid = Grid(box=None, show_header=False, padding=(0, 2, 0, 2))
    for number, column in enumerate(table.columns):
        values = dict.fromkeys(f"{one.columns[number].value!r}" for _, one in alike.shards)
        origin = column.source_type if column.value is None else f"extracted {named(values, _VALUES)}"
        grid.add_row(column.name, Text(origin), "->", Text(column.target_type))
    console.print(grid)
    for statement in table.statements:
        console.print(Text(f"  {statement};", "dim"))
    for statement in table.finish:
        console.print(Text.assemble(("  when all rows are there: ", "cyan"), (f"{statement};", "dim")))
    if alike.others:
        console.print(Text.assemble(("  becomes one with ", "cyan"), named(alike.others)))
    for note in table.notes:
        console.print(Text(f"  note: {note}", "yellow"))
    for problem in table.problems:
        console.print(Text(f"  refused: {problem}", "red"))
    console.print()
