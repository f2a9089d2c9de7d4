"""Reads rows of a source's table: by ranges of the key that identifies them, by single keys, or all in any order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from pidts.model import Halted, Table, Where
from pidts.schema.row_digest import UNKNOWN, sum_query
from pidts.source.connection import Session, query, where_of
from pidts.source.keys import after, all_keys, key_expression, key_table, last_key, same, upto
from pidts.source.result import AT_ONCE, read_result
from pidts.source.structures import quoted, quoted_table
from pidts.text_rows.values import expression

_PRIMARY = "PRIMARY"
_WHOLE = 256 << 20
_KEYS_A_QUERY = 500


def highest_key(connection: Session, table: Table, *, lock: str = "") -> list[Any] | None:
    """Returns the highest key in the table; None if the table is empty."""
    return _key(connection, table, f"{_order(table, ' DESC')} LIMIT 1 {lock}")


def boundary(
    connection: Session, table: Table, where_after: Sequence[Any] | None, size: int, *, highest: Sequence[Any] | None
) -> list[Any] | None:
    """Returns the key of the row that is `size` rows above a key; None if there are fewer rows up to `highest`."""
    where = _where(table, where_after, highest)
    return _key(connection, table, f"{where}{_order(table)} LIMIT 1 OFFSET {size - 1}")


def select_range(
    connection: Session,
    table: Table,
    where_after: Sequence[Any] | None,
    highest: Sequence[Any] | None,
    *,
    lock: str = "",
) -> pa.Table:
    """Returns all rows above the key `where_after`, up to and including the key `highest`; None: no limit."""
    where = _where(table, where_after, highest)
    return _select(connection, table, f"{_by_key(table)}{where}{_order(table)} {lock}")


def find_rows(connection: Session, table: Table, keys: pa.Table, *, whole: bool, lock: str = "") -> pa.Table:
    """Returns the rows with these keys (without `whole`, only the rows' keys), in any order.

    The server decides which keys are equal: under a collation that ignores case, `A` finds the row `a`, which is
    returned unchanged.
    """
    asked = list(all_keys(keys, table))
    wanted = table if whole else replace(table, columns=tuple(table.column(name) for name in table.identity))
    parts = (asked[begin : begin + _KEYS_A_QUERY] for begin in range(0, len(asked), _KEYS_A_QUERY))
    wheres = filter(None, (same(table, part) for part in parts))
    found = (_select(connection, wanted, f"WHERE {where} {lock}") for where in wheres)
    return pa.concat_tables([wanted.arrow.empty_table(), *found])


def row_sum(
    connection: Session,
    table: Table,
    after_key: Sequence[Any] | None,
    highest: Sequence[Any] | None,
    *,
    floats: bool,
    constants: Mapping[str, str] | None = None,
) -> tuple[int, int] | None:
    """Returns number and checksum of the rows above `after_key` up to `highest`; None if they cannot be computed.

    The checksum is computed as if the texts `constants` followed each row's own columns. `floats`: whether the server
    with which the rows are compared writes floating point numbers as this server does. If not, a table with a FLOAT or
    DOUBLE has no checksum, and the result is None. See `pidts.schema.row_digest`.
    """
    where = _where(table, after_key, highest).rstrip()
    sql = sum_query(table, f"{_by_key(table)}{where}" if where else "", floats=floats, constants=constants)
    if sql is None:
        return None
    rows, total = query(connection, sql)[0]
    digest = int(total or 0)
    return None if digest >= UNKNOWN else (int(rows), digest)


def stream_rows(connection: Session, table: Table) -> Iterator[pa.Table]:
    """Yields all rows in any order, some megabytes at a time; if a caller stops early, the connection is closed."""
    return _stream(connection, table, "", AT_ONCE)


def _key(connection: Session, table: Table, clauses: str) -> list[Any] | None:
    _demand_identity(connection, table)
    asked = key_table(table)
    selected = ", ".join(key_expression(table.column(name)) for name in table.identity)
    sql = f"SELECT {selected} FROM {quoted_table(table.name)} {_by_key(table)}{clauses}".rstrip()
    return last_key(pa.concat_tables([asked.arrow.empty_table(), *_read(connection, asked, sql, _WHOLE)]), asked)


def _where(table: Table, after_key: Sequence[Any] | None, highest: Sequence[Any] | None) -> str:
    bounds = [] if after_key is None else [f"({after(table, after_key)})"]
    bounds += [] if highest is None else [f"({upto(table, highest)})"]
    return f"WHERE {' AND '.join(bounds)} " if bounds else ""


def _by_key(table: Table) -> str:
    """Returns the clause that demands the primary key's index, since servers with poor statistics may not choose it."""
    return f"FORCE INDEX ({_PRIMARY}) " if any(key.primary for key in table.keys) else ""


def _order(table: Table, direction: str = "") -> str:
    return "ORDER BY " + ", ".join(f"{quoted(name)}{direction}" for name in table.identity)


def _select(connection: Session, table: Table, clauses: str) -> pa.Table:
    _demand_identity(connection, table)
    return pa.concat_tables([table.arrow.empty_table(), *_stream(connection, table, clauses, _WHOLE)])


def _demand_identity(connection: Session, table: Table) -> None:
    if not table.identity:
        where = Where(source=where_of(connection).source, table=str(table.name))
        todo = "Give it a primary key, or a unique key without NULLs"
        raise Halted("no-key", "the table has no key by which its rows can be read in chunks", where=where, todo=todo)


def _stream(connection: Session, table: Table, clauses: str, at_once: int) -> Iterator[pa.Table]:
    selected = ", ".join(expression(quoted(column.name), column.type) for column in table.columns)
    return _read(connection, table, f"SELECT {selected} FROM {quoted_table(table.name)} {clauses}".rstrip(), at_once)


def _read(connection: Session, table: Table, sql: str, at_once: int) -> Iterator[pa.Table]:
    # The server sends text as it is stored, and the text is decoded like text from the log. If the server converted the
    # text, some characters would become question marks.
    query(connection, "SET character_set_results = NULL")
    try:
        yield from read_result(connection, sql, table, at_once)
    finally:
        if connection.open:
            query(connection, "SET character_set_results = utf8mb4")
