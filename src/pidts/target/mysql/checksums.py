"""Computes a checksum of a target's rows on the server; see `pidts.schema.row_digest`."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from pidts.model import Table
from pidts.schema.row_digest import UNKNOWN, sum_query
from pidts.target.mysql.dialect import identifier
from pidts.target.mysql.encode import literals
from pidts.target.mysql.session import MySqlSession


def row_sum(
    session: MySqlSession, table: Table, after_key: Sequence[object] | None, highest: Sequence[object] | None
) -> tuple[int, int] | None:
    """Returns the number and the checksum of the rows with keys above `after_key`, up to and including `highest`.

    Returns None if equal values of a column may have different texts, or if a value is too large for the server.
    """
    bounds = [] if after_key is None else [_bounded(table, after_key, b">", b"")]
    bounds += [] if highest is None else [_bounded(table, highest, b"<", b"=")]
    sql = sum_query(table, "", floats=True)
    if sql is None:
        return None
    where = b" WHERE " + b" AND ".join(bounds) if bounds else b""
    rows, total = session.pipeline.now(sql.encode() + where, str(table.name)).rows[0]
    digest = int(total or 0)
    return None if digest >= UNKNOWN else (int(rows), digest)


def _bounded(table: Table, key: Sequence[object], sign: bytes, last: bytes) -> bytes:
    """Returns `(a <= x AND (a < x OR (a = x AND b <= y)))`, a form for which servers use the key's index."""
    columns = [table.column(name) for name in table.identity]
    names = [identifier(column.name).encode() for column in columns]
    values = [
        literals(column, pa.array([value], column.type.arrow))[0].as_py()
        for column, value in zip(columns, key, strict=True)
    ]
    found = names[-1] + b" " + sign + last + b" " + values[-1]
    for name, value in zip(reversed(names[:-1]), reversed(values[:-1]), strict=True):
        found = name + b" " + sign + b" " + value + b" OR (" + name + b" = " + value + b" AND (" + found + b"))"
    if len(names) > 1:
        found = names[0] + b" " + sign + b"= " + values[0] + b" AND (" + found + b")"
    return bytes(b"(" + found + b")")
