"""Reads rows from PostgreSQL in the Arrow types of the source: COPY TO as CSV, parsed by Arrow."""

from __future__ import annotations

import io
import re
import socket
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import numpy as np
import psycopg
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
from psycopg import sql
from psycopg.abc import PQGen
from psycopg.errors import InvalidSavepointSpecification, error_from_result
from psycopg.generators import fetch_many
from psycopg.pq import ExecStatus
from psycopg.waiting import Wait

from pidts.binlog.values.identifiers import inet6_text
from pidts.model import Column, Halted, Kind, Table, Where
from pidts.target.postgres.dialect import array, identifier, literal, qualified
from pidts.target.postgres.encode.arrays import Element
from pidts.target.postgres.encode.columns import Form, text
from pidts.target.postgres.encode.geometry import stored_hex
from pidts.target.postgres.errors import StatementRefused, mapped
from pidts.target.postgres.shape import PgColumn, PgTable
from pidts.target.postgres.statements import found_column
from pidts.target.text import combined

_KEYS = 10_000
"""The largest number of keys in one query that locks rows."""
_NOT_FINITE = frozenset({"22008", "22003", "0A000"})
"""SQLSTATEs of calculations with a date or time that is `infinity`."""


def read_rows(
    connection: psycopg.Connection,
    table: Table,
    shape: PgTable,
    *,
    keys: pa.Table | None,
    after: Sequence[object] | None,
    limit: int | None,
    lock: bool = False,
    only: Mapping[str, str] | None,
) -> pa.Table:
    """Reads rows, sorted as PostgreSQL sorts the identities.

    `lock` locks the rows until the transaction ends. With `lock` and `keys`, the rows are in any order, since sorting
    whole rows would take longer than reading them. The rows of many keys are parsed while the server finds the next
    rows.
    """
    if keys is None or not lock or limit is not None or keys.num_rows <= _KEYS:
        query = _query(table, shape, keys=keys, after=after, limit=limit, lock=lock, only=only)
        return _parsed(_answer(connection, table, shape, query), table, shape)
    keys = keys.sort_by([(name, "ascending") for name in keys.column_names])  # neighbouring keys are found faster
    parts = [keys.slice(first, _KEYS) for first in range(0, keys.num_rows, _KEYS)]
    queries = (_query(table, shape, keys=part, after=after, limit=None, lock=lock, only=only) for part in parts)
    with ThreadPoolExecutor(1, thread_name_prefix="rows") as parser:
        found = [parser.submit(_parsed, _answer(connection, table, shape, each), table, shape) for each in queries]
    return pa.concat_tables(each.result() for each in found)


def _query(
    table: Table,
    shape: PgTable,
    *,
    keys: pa.Table | None,
    after: Sequence[object] | None,
    limit: int | None,
    lock: bool,
    only: Mapping[str, str] | None,
) -> str:
    query = f"SELECT {', '.join(_selected(column, shape) for column in table.columns)} FROM {qualified(table.name)} t"
    identity = [f"t.{identifier(name)}" for name in table.identity]
    asked = [f"t.{identifier(name)} = {_constant(value)}" for name, value in (only or {}).items()]
    if keys is not None:
        query += _wanted(table, shape, keys)
    if after is not None:
        values = ", ".join(
            f"{_constant(value)}::{found_column(shape, name).base}"
            for name, value in zip(table.identity, after, strict=True)
        )
        asked.append(f"({', '.join(identity)}) > ({values})")
    if asked:
        query += f" WHERE {' AND '.join(asked)}"
    if identity and not (lock and keys is not None):
        query += f" ORDER BY {', '.join(identity)}"
    if limit is not None:
        query += f" LIMIT {limit}"
    if lock:
        query += " FOR UPDATE OF t"
    return query


def _answer(connection: psycopg.Connection, table: Table, shape: PgTable, query: str) -> bytes:
    try:
        return _copied(connection, query, str(table.name))
    except StatementRefused as error:
        if error.sqlstate in _NOT_FINITE and (found := _infinite(connection, table, shape)) is not None:
            raise found from error
        raise


def _infinite(connection: psycopg.Connection, table: Table, shape: PgTable) -> Halted | None:
    """Returns the error for the first row with an infinite date or time; None if there is none.

    After a failed query the server answers no query in the same transaction, so this function ends the transaction
    first. At the end, it begins another transaction and makes it fail. Without this, the caller, which does not know
    that its transaction has ended, would commit its next writes without the earlier writes.
    """
    with mapped(str(table.name)):
        connection.execute("ROLLBACK")
        try:
            return _first_infinite(connection, table, shape)
        finally:
            connection.execute("BEGIN")
            with suppress(InvalidSavepointSpecification):
                connection.execute("ROLLBACK TO SAVEPOINT pidts_none")


def _first_infinite(connection: psycopg.Connection, table: Table, shape: PgTable) -> Halted | None:
    for column in table.columns:
        if not found_column(shape, column.name).base.startswith(("date", "timestamp")):
            continue
        shown = ", ".join(f"{identifier(name)}::text" for name in (column.name, *table.identity))
        where = f"{identifier(column.name)} IN ('infinity', '-infinity')"
        row = connection.execute(f"SELECT {shown} FROM {qualified(table.name)} WHERE {where} LIMIT 1").fetchone()
        if row is None:
            continue
        key = ", ".join(f"{name}={value}" for name, value in zip(table.identity, row[1:], strict=True))
        return Halted(
            "target-refused",
            f"the target has a value that the source's column cannot hold: {column.name}, {row[0]}",
            where=Where(table=str(table.name), key=key),
            todo="Give the row on the target a value that the source can have, or remove the row; then try again",
        )
    return None


def _copied(connection: psycopg.Connection, query: str, table: str) -> bytes:
    sink = io.BytesIO()
    with (
        mapped(table),
        connection.cursor() as cursor,
        cursor.copy(f"COPY ({query}) TO STDOUT (FORMAT csv)".encode()),
    ):
        connection.wait(_blocks(connection, sink))
    return sink.getvalue()


def _blocks(connection: psycopg.Connection, sink: io.BytesIO) -> PQGen[None]:
    """Collects all blocks of the answer. Each row is a block, so the loop does as little as possible for a block."""
    server, write = connection.pgconn, sink.write
    receive = server.get_copy_data
    while True:
        size, block = receive(1)
        if size > 0:
            write(block)
        elif size < 0:
            break
        else:
            while not (yield Wait.R):
                pass
            server.consume_input()
    for result in (yield from fetch_many(server)):
        if result.status != ExecStatus.COMMAND_OK:
            raise error_from_result(result)


def _wanted(table: Table, shape: PgTable, keys: pa.Table) -> str:
    """Returns the end of a query for these keys. This text contains the keys, since COPY takes no parameters."""
    forms = [Form(table.column(name), found_column(shape, name), Element.TEXT) for name in table.identity]
    lists = (_list(each, table, keys) for each in forms)
    names = [identifier(each.column.name) for each in forms]
    given = f"unnest({', '.join(f'{literal(each)}::text[]' for each in lists)}) AS s({', '.join(names)})"
    if len(forms) == 1 and forms[0].column.type.kind is not Kind.SET:
        # With a list, the server searches the index in one pass; with a join, it searches the index once for each key.
        return f" WHERE t.{names[0]} = ANY(ARRAY(SELECT {forms[0].value(f's.{names[0]}')} FROM {given}))"
    matches = (f"t.{name} = {each.value(f's.{name}')}" for each, name in zip(forms, names, strict=True))
    return f" JOIN {given} ON {' AND '.join(matches)}"


def compared_sql(table: Table, shape: PgTable, keys: pa.Table, texts: Sequence[str]) -> str:
    """Returns a query that converts the texts of keys to the table's column types and back, in the order of the keys.

    Collations need no attention: a table whose key treats different texts as equal is refused.
    """
    forms = [Form(table.column(name), found_column(shape, name), Element.TEXT) for name in texts]
    names = [identifier(name) for name in texts]
    lists = ", ".join(f"{literal(_list(each, table, keys))}::text[]" for each in forms)
    given = f"unnest({lists}) WITH ORDINALITY AS s({', '.join(names)}, pidts_place)"
    values = ", ".join(f"({each.value(f's.{name}')})::text" for each, name in zip(forms, names, strict=True))
    return f"SELECT {values} FROM {given} ORDER BY pidts_place"


def _list(form: Form, table: Table, keys: pa.Table) -> str:
    values = form.real(keys[form.column.name], table, lambda *_: None)  # for a zero date in a key, it raises
    texts = text(form.column, form.target, values).to_pylist()
    return "{" + ",".join(texts) + "}" if form.column.type.is_integer else array(texts)


def set_text(name: str) -> str:
    """Returns SQL that shows a SET as MySQL does.

    If the array contains NULL, or an element with a comma, it is no SET, and is shown in PostgreSQL's form.
    """
    text = f"array_to_string({name}, ',')"
    return f"CASE WHEN string_to_array({text}, ',') = {name} THEN {text} ELSE {name}::text END"


def inet_text(name: str) -> str:
    """Returns SQL for the text of an address, with its mask if it has one; addresses of the source have none.

    The server writes a single group of zeros, and some of the lowest addresses, in another way than the source.
    """
    return f"abbrev({name})"


def _selected(column: Column, shape: PgTable) -> str:
    name, found = f"t.{identifier(column.name)}", found_column(shape, column.name)
    match column.type.kind:
        case Kind.DATE:
            return f"({name} - date '1970-01-01')"
        case Kind.DATETIME | Kind.TIMESTAMP | Kind.TIME:
            return f"(extract(epoch from {name}) * 1000000)::bigint"
        case Kind.BIT if found.type == "boolean":
            return f"{name}::integer"
        case Kind.BIT if found.type.startswith("bit"):
            return f"{name}::bigint"
        case Kind.SET if found.type == "text[]":
            return set_text(name)
        case Kind.INET4 | Kind.INET6 if found.type == "inet":
            return inet_text(name)
        case Kind.VECTOR if found.type != "bytea":
            return f"{name}::text"
        case Kind.TINYINT if found.type == "boolean":
            return f"{name}::integer"
        case Kind.GEOMETRY if found.is_geometry:
            return stored_hex(name, found.base)
        case _ if found.type == "bytea":
            return f"encode({name}, 'hex')"
        case _:
            return f"{name}::text" if found.type.startswith("character(") else name


def _parsed(data: bytes, table: Table, shape: PgTable) -> pa.Table:
    if not data:
        return table.arrow.empty_table()
    try:
        return _table(data, table, shape)
    except pa.ArrowInvalid as error:
        raise Halted(
            "target-refused",
            f"the target has a value that the source's column cannot hold: {_with_name(str(error), table)}",
            where=Where(table=str(table.name)),
            todo="Give the row on the target a value that the source can have, or remove the row; then try again",
        ) from error


def _with_name(said: str, table: Table) -> str:
    """Adds the name of the column to an error text that has only the column's number."""
    number = re.match(r"In CSV column #(\d+): CSV conversion error to \w+: ", said)
    return said if number is None else f"{table.columns[int(number[1])].name}, {said[number.end() :]}"


def _table(data: bytes, table: Table, shape: PgTable) -> pa.Table:
    names = [f"c{number}" for number in range(len(table.columns))]
    raw = pa_csv.read_csv(
        _arrow_memory(data),
        read_options=pa_csv.ReadOptions(column_names=names, block_size=max(len(data) + 1, 1 << 20)),
        parse_options=pa_csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        convert_options=pa_csv.ConvertOptions(
            column_types={name: _wire_type(column) for name, column in zip(names, table.columns, strict=True)},
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    columns = [
        _value(column, found_column(shape, column.name), combined(values))
        for column, values in zip(table.columns, raw.columns, strict=True)
    ]
    return pa.table(columns, schema=table.arrow)


def _arrow_memory(data: bytes) -> pa.BufferReader:
    """Copies the data into Arrow's memory, and returns it as a file object.

    A thread of Arrow releases the file that it has read, sometimes after `read_csv` has returned. If the file were a
    Python object, and the interpreter ended meanwhile, this would abort the process.
    """
    memory = pa.BufferOutputStream()
    memory.write(data)
    return pa.BufferReader(memory.getvalue())


def _wire_type(column: Column) -> pa.DataType:
    match column.type.kind:
        case Kind.DATE:
            return pa.int32()
        case Kind.DATETIME | Kind.TIMESTAMP | Kind.TIME | Kind.BIT:
            return pa.int64()
        case Kind.FLOAT | Kind.DOUBLE:
            return column.type.arrow
        case _:
            return column.type.arrow if column.type.is_integer or column.type.kind is Kind.YEAR else pa.string()


def _value(column: Column, found: PgColumn, wire: pa.Array) -> pa.Array:
    kind = column.type.arrow
    match column.type.kind:
        case Kind.DATE | Kind.DATETIME | Kind.TIMESTAMP | Kind.TIME | Kind.BIT:
            return wire.view(kind)
        case Kind.VECTOR:
            return pa.array([_floats(text) for text in wire.to_pylist()], kind)
        case Kind.INET6 if found.type == "inet":
            return pa.array([_address(text) for text in wire.to_pylist()], kind)
        case _ if column.type.is_bytes:
            return pa.array([None if text is None else bytes.fromhex(text) for text in wire.to_pylist()], kind)
        case _:
            return wire if wire.type == kind else pc.cast(wire, kind)


def _address(text: str | None) -> str | None:
    """Returns an IPv6 address in the form that it has in the log; all other texts are unchanged."""
    if text is None or ":" not in text:
        return text
    try:
        return inet6_text(socket.inet_pton(socket.AF_INET6, text))
    except OSError:
        return text


def _floats(text: str | None) -> bytes | None:
    if text is None:
        return None
    inside = text.strip("{}[]")
    return np.array([float(item) for item in inside.split(",")] if inside else [], "<f4").tobytes()


def _constant(value: Any) -> str:
    if isinstance(value, bytes | bytearray | memoryview):
        return literal("\\x" + bytes(value).hex())
    if isinstance(value, bool | int):
        return literal(str(int(value)))
    return literal(str(value)) if isinstance(value, str) else str(sql.Literal(value).as_string(None))
