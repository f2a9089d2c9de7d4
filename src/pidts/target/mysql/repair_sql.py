"""Makes readable SQL for a repair: it is printable, and does not depend on the session's settings."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from pidts.model import Column, Table
from pidts.reduce import NetChange
from pidts.target.json_decimals import reads_documents, with_decimals
from pidts.target.mysql.dialect import identifier, qualified
from pidts.target.mysql.encode import literals
from pidts.target.mysql.prepared_tables import target_only_columns, would_lose
from pidts.target.mysql.session import MySqlSession
from pidts.target.text import combined, hex_text

_MODES = "NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES,STRICT_ALL_TABLES,STRICT_TRANS_TABLES,NO_BACKSLASH_ESCAPES"
_BYTES = pa.large_binary()
PREAMBLE = (
    "SET NAMES utf8mb4;",
    f"SET time_zone = '+00:00', foreign_key_checks = 0, sql_mode = '{_MODES}';",
)


def repair_sql(session: MySqlSession, change: NetChange) -> Iterator[str]:
    """Yields one statement for each key: first the removals, then the written rows."""
    table = change.table
    yield from _removals(table, change.deletes)
    there = session.schema.structure(table.name)
    computed = {column.name.lower() for column in there.columns if column.generated} if there else set()
    here = {column.name.lower(): column for column in there.columns} if there else {}
    columns = [column for column in table.columns if column.name.lower() not in computed]
    names = ", ".join(identifier(column.name) for column in columns)
    sets = ", ".join(f"{identifier(column.name)} = VALUES({identifier(column.name)})" for column in columns)
    update = f" ON DUPLICATE KEY UPDATE {sets}"
    if any(session.server.misreads((here.get(column.name.lower()) or column).type) for column in columns):
        if there is not None and (own := target_only_columns(table, there)) and change.upserts.num_rows:
            raise would_lose(table.name, own)
        yield from _removals(table, change.upserts)
        update = ""
    texts = (_texts(column, change.upserts[column.name], here.get(column.name.lower())) for column in columns)
    for values in zip(*texts, strict=True):
        given = ", ".join(values)
        yield f"INSERT INTO {qualified(table.name)} ({names}) VALUES ({given}){update};"


def _removals(table: Table, rows: pa.Table) -> Iterator[str]:
    keys = [table.column(name) for name in table.identity]
    for values in zip(*(_texts(column, rows[column.name]) for column in keys), strict=True):
        same = " AND ".join(f"{identifier(key.name)} = {value}" for key, value in zip(keys, values, strict=True))
        yield f"DELETE FROM {qualified(table.name)} WHERE {same};"


def _quoted(text: bytes) -> bytes:
    return b"'" + text.replace(b"'", b"''") + b"'"


def _texts(column: Column, values: pa.ChunkedArray, found: Column | None = None) -> list[str]:
    data = combined(values)
    if column.type.is_bytes:
        return [f"X'{text}'" if text is not None else "NULL" for text in hex_text(data).to_pylist()]
    if column.type.is_text or pa.types.is_string(data.type):
        texts = pa.array([None if text is None else _quoted(text.encode()) for text in data.to_pylist()], _BYTES)
        stored = with_decimals(texts, data, _quoted) if reads_documents(column, found) else texts
        return [text.decode() if text is not None else "NULL" for text in stored.to_pylist()]
    return [text.decode() if text is not None else "NULL" for text in literals(column, data).to_pylist()]
