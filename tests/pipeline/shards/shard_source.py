"""A source in memory that remembers the state of every table after each entry of its log. It fills new columns as a
server does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.pipeline.values_source import ValuesSource

from pidts.model import Column, LogEntry, Lsn, Table, TableName
from pidts.schema import apply, classify

Row = dict[str, Any]
Rename = Mapping[str, str]
"""A column's new name and its old name."""


@dataclass(frozen=True)
class Moment:
    """A table of a source, as it is after an entry of the log."""

    lsn: Lsn
    table: Table | None
    rows: tuple[Row, ...] = ()


class ShardSource(ValuesSource):
    """A source in memory that fills new columns as a server does.

    It remembers a table as it was after each entry of its log that has changed the table.
    """

    def __init__(self, name: str, tables: Sequence[Table]) -> None:
        super().__init__(tables, log_base=name)
        self.name = name
        self.moments: dict[TableName, list[Moment]] = {table.name: [Moment(self.received, table)] for table in tables}

    def commit(self, *steps: Any) -> LogEntry:
        entry = super().commit(*steps)
        self._remember({name for name, _ in steps})
        return entry

    def say(self, text: str, renamed: Rename | None = None) -> LogEntry:
        """Makes a schema change, as a user of the server would."""
        structures = apply(classify(text, "shop"), self.structures, {})
        had = {name: self.rows(name) for name in structures if name in self.structures}
        if " TO " in text and " RENAME INDEX " not in text:
            olds, news = (sorted(name for name in structures if (name in had) is there) for there in (True, False))
            had |= {new: had.pop(old) for old, new in zip(olds, news, strict=True)}
        entry = self.ddl(text, structures)
        if text.startswith("TRUNCATE"):
            structures = had = {TableName(*text.removeprefix("TRUNCATE TABLE ").split(".")): []}
        for name, rows in had.items():
            if (table := self.structures.get(name)) is not None:
                new = [filled(table, row, renamed or {}) for row in rows]
                self._rows[name] = {tuple(row[key] for key in table.identity): row for row in new}
        self._remember(structures)
        return entry

    def at(self, name: TableName, lsn: Lsn) -> Moment | None:
        """Returns the table as it was after everything up to this place."""
        return next((moment for moment in reversed(self.moments.get(name, [])) if moment.lsn <= lsn), None)

    def _remember(self, names: Any) -> None:
        for name in names:
            table = self.structures.get(name)
            rows = tuple(self.rows(name)) if table is not None else ()
            self.moments.setdefault(name, []).append(Moment(self.received, table, rows))


def filled(table: Table, row: Row, renamed: Rename) -> Row:
    return {
        column.name: row[name] if (name := renamed.get(column.name, column.name)) in row else fill(column)
        for column in table.columns
    }


def fill(column: Column) -> Any:
    """Returns the value that a row gets in a column that the row lacks; all values are numbers."""
    if column.default is not None:
        return int(column.default.strip("'"))
    return None if column.nullable else 0
