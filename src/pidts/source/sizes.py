"""Reads the sizes of tables, as the server guesses them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pidts.model import TableName
from pidts.source.connection import Session, named


@dataclass(frozen=True, slots=True)
class Size:
    """A table's size by the storage engine's statistics: for InnoDB rows may be off by half."""

    rows: int
    bytes: int


def table_sizes(connection: Session, names: Iterable[TableName]) -> dict[TableName, Size]:
    """Returns the sizes of those tables that have statistics; one query for each schema."""
    wanted = set(names)
    found = {}
    for schema in sorted({name.schema for name in wanted}):
        sql = (
            "SELECT table_name, table_rows, data_length FROM information_schema.tables "
            "WHERE table_schema = %s AND table_rows IS NOT NULL"
        )
        for row in named(connection, sql, [schema]):
            name = TableName(schema, str(row["table_name"]))
            if name in wanted:
                found[name] = Size(int(row["table_rows"]), int(row["data_length"] or 0))
    return found
