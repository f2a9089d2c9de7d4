"""`pidts plan`: what a task would do, for people and for machines."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from pidts.model import PrecheckFailed
from pidts.task.config import TaskConfig
from pidts.task.outlook import TableOutlook, Way

_STYLES = {Way.CREATE: "green", Way.USE: "cyan", Way.REFUSED: "bold red"}


def show_outlook(config: TaskConfig, found: Mapping[str, Sequence[TableOutlook]], *, as_json: bool) -> int:
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
        print(json.dumps({"task": config.name, "mode": config.mode, "tables": told}, ensure_ascii=False))
        return code
    console = Console(soft_wrap=True, highlight=False)
    for source, of_source in found.items():
        for table in of_source:
            _show_table(console, table, source if several else "")
    rows = sum(table.size.rows for table in tables if table.size)
    size = sum(table.size.bytes for table in tables if table.size)
    count = "1 table" if len(tables) == 1 else f"{len(tables)} tables"
    total = f"{config.name}: {count}, about {rows:,} rows in {size / 1e6:,.1f} MB"
    console.print(Text(total + (f"; {refused} refused" if refused else "")))
    for source in (source for source, of_source in found.items() if not of_source):
        of = f" {source}" if several else ""
        console.print(Text(f"block-allow-list lets no table of the source{of} pass", "bold red"))
    return code


def _show_table(console: Console, table: TableOutlook, source: str) -> None:
    size = f"about {table.size.rows:,} rows" if table.size else "size unknown"
    route = f"{table.source}" if table.source == table.target else f"{table.source} -> {table.target}"
    route = f"{source}: {route}" if source else route
    key = f"key ({', '.join(table.key)})" if table.key else "no key: copied whole, rows are found by all their columns"
    console.print(Text.assemble((table.way.value, _STYLES[table.way]), "  ", (route, "bold"), f"  {size}, {key}"))
    for rule in table.rules:
        console.print(Text.assemble(f"  {rule.map} ", (rule.name, "bold"), f": {rule.says}"))
    grid = Grid(box=None, show_header=False, padding=(0, 2, 0, 2))
    for column in table.columns:
        origin = column.source_type if column.value is None else f"extracted {column.value!r}"
        grid.add_row(column.name, Text(origin), "->", Text(column.target_type))
    console.print(grid)
    for statement in table.statements:
        console.print(Text(f"  {statement};", "dim"))
    for statement in table.finish:
        console.print(Text.assemble(("  when all rows are there: ", "cyan"), (f"{statement};", "dim")))
    if table.merged:
        console.print(Text.assemble(("  becomes one with ", "cyan"), ", ".join(table.merged)))
    for note in table.notes:
        console.print(Text(f"  note: {note}", "yellow"))
    for problem in table.problems:
        console.print(Text(f"  refused: {problem}", "red"))
    console.print()
