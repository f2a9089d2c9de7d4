"""Rows of a source's table, page by page in the order of its identity."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from pidts.model import Halted, Table, Where
from pidts.source.connection import Session, query, where_of
from pidts.source.failures import StructureChanged
from pidts.source.keys import after, last_key
from pidts.source.structures import quoted, quoted_table
from pidts.source.text_result import fetch_columns
from pidts.source.text_values import expression, to_arrow

__all__ = ["highest_key", "last_key", "select_rows"]


def highest_key(connection: Session, table: Table, *, lock: str = "") -> list[Any] | None:
    """The identity of the row that comes last now; None in an empty table."""
    return last_key(_select(connection, table, f"{_order(table, ' DESC')} LIMIT 1 {lock}"), table)


def select_rows(
    connection: Session,
    table: Table,
    where_after: Sequence[Any] | None,
    limit: int,
    *,
    upto: Sequence[Any] | None = None,
    lock: str = "",
) -> pa.Table:
    """Up to `limit` rows behind the key `where_after` and not behind `upto`, exactly as they are stored."""
    bounds = [] if where_after is None else [f"({after(table, where_after)})"]
    bounds += [] if upto is None else [f"NOT ({after(table, upto)})"]
    where = f"WHERE {' AND '.join(bounds)} " if bounds else ""
    return _select(connection, table, f"{where}{_order(table)} LIMIT {limit} {lock}")


def _order(table: Table, direction: str = "") -> str:
    return "ORDER BY " + ", ".join(f"{quoted(name)}{direction}" for name in table.identity)


def _select(connection: Session, table: Table, clauses: str) -> pa.Table:
    source = where_of(connection).source
    where = Where(source=source, table=str(table.name))
    if not table.identity:
        todo = "Give it a primary key, or a unique key without NULLs"
        raise Halted("no-key", "the table has nothing by which its rows can be paged", where=where, todo=todo)
    # Text comes as it is stored and is decoded as the log's is: the server would put question marks for what it cannot.
    query(connection, "SET character_set_results = NULL")
    columns = fetch_columns(connection, f"{_from(table)} {clauses}".rstrip(), len(table.columns), where)
    query(connection, "SET character_set_results = utf8mb4")
    arrays = []
    for column, values in zip(table.columns, columns, strict=True):
        try:
            arrays.append(to_arrow(values, table.name, column))
        except pa.ArrowInvalid as error:
            what = f"column {column.name} holds what a column of type {column.type.kind} cannot: {error}"
            raise StructureChanged("structure-changed", what, where=where) from error
    return pa.Table.from_arrays(arrays, schema=table.arrow)


def _from(table: Table) -> str:
    selected = ", ".join(expression(quoted(column.name), column.type) for column in table.columns)
    return f"SELECT {selected} FROM {quoted_table(table.name)}"
