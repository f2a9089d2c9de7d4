"""Writes random tables to a server.

Finds each difference between the log as PiDTS decodes it and what the server shows.
"""

from __future__ import annotations

import ipaddress
import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pymysql
from tests.binlog.logs.all_types import as_text
from tests.binlog.logs.random_tables import RandomTable

from pidts.binlog import Format, LogWalker, decode_slice, iter_raw
from pidts.binlog.compressed import payload_events
from pidts.binlog.events import EventType
from pidts.binlog.table_map import TableMap
from pidts.model import ChangeBatch, Column, ColumnType, Kind, Op, Position, Table, TableName
from pidts.sandbox import Server
from pidts.source import Session, SourceConfig, connect, log_end, read_structures, select_range

IDENTIFIERS = (Kind.UUID, Kind.INET4, Kind.INET6)
KERNELS = ("python", "compiled")
Row = list[Any]
Rows = dict[int, Row]


@dataclass
class WrittenRows:
    """A written table, and how the server showed it after its INSERT and after its UPDATEs."""

    name: TableName
    random: RandomTable
    structure: Table
    copied: pa.Table
    states: list[list[tuple[Any, ...]]] = field(default_factory=list)


class RoundTrip:
    """One server in one mode, with two connections: one of a client, and one of PiDTS."""

    def __init__(self, server: Server, settings: Sequence[str], schema: str) -> None:
        self._logs = server.directory / "binlog"
        self.schema = schema
        self._session: Session = connect(
            SourceConfig(server.host, server.port, server.user, server.password, source_id="s1")
        )
        self._client = pymysql.connect(
            host=server.host, port=server.port, user=server.user, password=server.password, charset="utf8mb4", autocommit=True
        )  # fmt: skip
        self._cursor = self._client.cursor()
        # MySQL 9.7 sorts whole rows, and a JSON value of a megabyte does not fit into the default buffer.
        sorting = "SET sort_buffer_size = 64 * 1024 * 1024"
        for statement in ("SET sql_mode = ''", "SET time_zone = '+00:00'", sorting, *settings):
            self.run(statement)

    def close(self) -> None:
        self._session.close()
        self._client.close()

    def run(self, statement: str) -> list[tuple[Any, ...]]:
        try:
            self._cursor.execute(statement)
        except pymysql.err.Error as error:
            raise AssertionError(f"{error}: {statement[:3000]}") from error
        return list(self._cursor.fetchall())

    def write(self, tables: Sequence[RandomTable]) -> tuple[list[WrittenRows], bytes, Format, tuple[str, int]]:
        """Runs all statements on the tables. Returns what the server shows, and the log."""
        begin = self.begin()
        todo = []
        for number, table in enumerate(tables):
            create, insert, *rest = table.statements(f"{self.schema}.t{number}")
            self.run(create)
            self.run(insert)
            todo.append(rest)
        structures = self.structures()
        written = []
        for number, (table, (*updates, delete)) in enumerate(zip(tables, todo, strict=True)):
            name = TableName(self.schema, f"t{number}")
            query = _query(name, table)
            shown = [self.run(query)]
            copied = select_range(self._session, structures[name], None, None)
            for update in updates:
                self.run(update)
            shown.append(self.run(query))
            self.run(delete)
            written.append(WrittenRows(name, table, structures[name], copied, shown))
        return written, *self.log_since(begin)

    def begin(self) -> Position:
        """Makes an empty schema, and returns the end of the log."""
        self.run(f"DROP DATABASE IF EXISTS {self.schema}")
        self.run(f"CREATE DATABASE {self.schema}")
        return self.end()

    def end(self) -> Position:
        """Returns the end of the log."""
        return log_end(self._session)

    def structures(self) -> dict[TableName, Table]:
        """Returns the tables of the schema."""
        return read_structures(self._session, lambda name: name.schema == self.schema)

    def log_since(self, begin: Position) -> tuple[bytes, Format, tuple[str, int]]:
        """Returns the log from this position on."""
        end = self.end()
        assert begin.file == end.file
        log = (self._logs / begin.file).read_bytes()
        walker = LogWalker(begin.file)
        walker.feed(next(iter_raw(log[4:])))
        assert walker.format is not None
        return log[begin.offset : end.offset], walker.format, (begin.file, begin.offset)


def faults(written: Sequence[WrittenRows], log: bytes, form: Format, place: tuple[str, int], structures: Mapping[TableName, Table]) -> list[str]:  # fmt: skip
    """Returns each value that either decoder reads from the log, with these structures, differently than the server
    shows it.
    """
    found = []
    for kernel in KERNELS:
        batches = _decoded(kernel, log, form, place, structures)
        found += [f"{kernel}: {fault}" for fault in _batch_faults(written, batches, structures)]
    return found


def _decoded(
    kernel: str, log: bytes, form: Format, place: tuple[str, int], structures: Mapping[TableName, Table]
) -> list[ChangeBatch]:
    file, offset = place
    with patch.dict(os.environ, PIDTS_KERNEL=kernel):
        return decode_slice(log, format=form, log_file=file, change_no=0, structures=structures, offset=offset)


def _batch_faults(
    written: Sequence[WrittenRows], batches: Sequence[ChangeBatch], structures: Mapping[TableName, Table]
) -> list[str]:
    by_table = {batch.table.name: batch for batch in batches}
    found: list[str] = []
    for table in written:
        batch = by_table[table.name]
        batch.rows.validate(full=True)
        reported = structures[table.name]
        old, new = (_images(batch.rows.column(side), reported) for side in ("before", "after"))
        ops = [Op(op) for op in batch.rows.column("op").to_pylist()]
        rows: Rows = {}
        states = [_expected(state, table, reported) for state in table.states]
        for number, op in enumerate(ops):
            if op is not Op.INSERT and states:
                if op is Op.UPDATE and len(states) == 2:
                    found += _differences(f"{table.name} inserted", reported, rows, states.pop(0))
                elif op is Op.DELETE:
                    found += _differences(f"{table.name} updated", reported, rows, states.pop())
                    states = []
            if op is not Op.INSERT:
                key = old[number][0]
                found += _differences(
                    f"{table.name} before {op.name}", reported, {key: old[number]}, {key: rows.pop(key)}
                )
            if op is not Op.DELETE:
                rows[new[number][0]] = new[number]
        if rows or states:
            found.append(f"{table.name}: the log ends with {len(rows)} rows left and {len(states)} states not seen")
    return found


def copy_faults(table: WrittenRows, log: bytes, form: Format, place: tuple[str, int]) -> list[str]:
    """Returns each difference, bit by bit, between rows read by SELECT and the same rows decoded from the log."""
    (batch,) = _decoded("python", log, form, place, {table.name: table.structure})
    inserts = batch.rows.filter(pa.compute.equal(batch.rows.column("op"), int(Op.INSERT))).column("after")
    found = []
    for number, column in enumerate(table.structure.columns):
        decoded, copied = inserts.field(number), table.copied.column(column.name).combine_chunks()
        if _bits(decoded) != _bits(copied):
            found.append(f"{table.name}.{column.name} {column.type}: decoded {_bits(decoded)}, copied {_bits(copied)}")
    return found


def logged_tables(log: bytes, form: Format, *, placeholders: bool) -> dict[TableName, Table]:
    """Returns the structures that the log itself describes."""
    walker = LogWalker("bin.000001", 4, form)
    found = {}
    for raw in iter_raw(log):
        event = walker.feed(raw)
        inner = [part for _, part in payload_events(event)] if event.type == EventType.TRANSACTION_PAYLOAD else [event]
        for part in inner:
            if part.type == EventType.TABLE_MAP:
                table_map = TableMap.parse(part.body, mariadb=form.is_mariadb)
                table = table_map.to_table(placeholders=placeholders)
                assert table is not None
                found[table.name] = table
    return found


def _bits(array: pa.Array) -> list[Any]:
    if pa.types.is_floating(array.type):
        return [None if value is None else float(value).hex() for value in array.to_pylist()]
    if pa.types.is_date32(array.type):
        return array.cast(pa.int32()).to_pylist()
    if pa.types.is_temporal(array.type):
        return array.cast(pa.int64()).to_pylist()
    return array.to_pylist()


def _images(images: pa.StructArray, logged: Table) -> list[Row]:
    columns = [as_text(images.field(place), column.type) for place, column in enumerate(logged.columns)]
    columns[0] = images.field(0).to_pylist()
    return [list(row) for row in zip(*columns, strict=True)]


def _differences(what: str, logged: Table, found: Rows, wanted: Rows) -> list[str]:
    if found.keys() != wanted.keys():
        return [f"{what}: rows {sorted(found)} instead of {sorted(wanted)}"]
    return [
        f"{what}, row {key}: {column.name} {column.type.to_json()} is {_brief(mine)}, not {_brief(theirs)}"
        for key in found
        for column, mine, theirs in zip(logged.columns, found[key], wanted[key], strict=True)
        if mine != theirs
    ]


def _brief(value: Any) -> str:
    return f"{value!r}"[:300]


def _query(name: TableName, table: RandomTable) -> str:
    """Returns a query that selects two forms of each column's value.

    The first form is exact. The second form is the number of an ENUM or SET, the stored bytes of a text, and otherwise
    NULL.
    """
    forms = [f"{_shown(column.quoted, column.kind)}, {_raw(column.quoted, column.kind)}" for column in table.columns]
    return f"SELECT `i d`, {', '.join(forms)} FROM {name} ORDER BY `i d`"


def _shown(name: str, kind: Kind) -> str:
    plain = ColumnType(kind)
    if plain.is_bytes:
        return f"hex({name})"
    if plain.is_text:
        return f"hex(convert({name} using utf8mb4))"
    if plain.is_integer or kind is Kind.BIT:
        return f"{name} + 0"
    return f"{name} * 1e0" if kind in (Kind.FLOAT, Kind.DOUBLE) else f"cast({name} as char)"


def _raw(name: str, kind: Kind) -> str:
    if kind in (Kind.ENUM, Kind.SET):
        return f"cast({name} AS unsigned)"  # With `+ 0`, the server would return a double.
    return f"hex({name})" if ColumnType(kind).is_text else "NULL"


def _expected(state: Sequence[tuple[Any, ...]], table: WrittenRows, logged: Table) -> Rows:
    rows = {}
    for row in state:
        values: Row = [row[0]]
        for place, column in enumerate(table.random.columns):
            mine, known = logged.columns[place + 1], table.structure.columns[place + 1]
            values.append(_value(row[1 + 2 * place], row[2 + 2 * place], column.kind, known, mine))
        rows[row[0]] = values
    return rows


def _value(shown: Any, raw: Any, kind: Kind, known: Column, logged: Column) -> Any:
    """Returns the value that must be decoded.

    It is not `shown` if the log lacks the column's charset, labels or sign.
    """
    if shown is None:
        return None
    make = _MAKE.get(kind)
    if kind in IDENTIFIERS and logged.type.kind is Kind.BINARY:
        return _identifier_bytes(shown, kind).hex().upper()
    if ColumnType(kind).is_text:
        if logged.type.is_bytes:
            return _padded(raw, logged.type)
        if logged.type.labels[:1] == ("#1",) and known.type.labels[:1] != ("#1",):
            return _numbered(int(raw), kind)
        return bytes.fromhex(shown).decode()
    if ColumnType(kind).is_integer and known.type.unsigned and not logged.type.unsigned:
        bits = {Kind.TINYINT: 8, Kind.SMALLINT: 16, Kind.MEDIUMINT: 24, Kind.INT: 32, Kind.BIGINT: 64}[kind]
        return str((int(shown) + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1))
    return make(shown, known.type) if make else shown


def _padded(raw: str, logged: ColumnType) -> str:
    """Returns the value, with zeros at its end if the log calls it a BINARY: without charsets, a CHAR looks like a
    BINARY.
    """
    return raw.ljust(2 * (logged.length or 0), "0") if logged.kind is Kind.BINARY else raw


def _numbered(number: int, kind: Kind) -> str:
    if kind is Kind.ENUM:
        return f"#{number}" if number else ""
    return ",".join(f"#{place + 1}" for place in range(64) if number >> place & 1)


def _identifier_bytes(text: Any, kind: Kind) -> bytes:
    return uuid.UUID(text).bytes if kind is Kind.UUID else ipaddress.ip_address(text).packed


def _decimal(text: str, kind: ColumnType) -> str:
    sign, digits = ("-", text[1:]) if text.startswith("-") else ("", text)
    whole, point, fraction = digits.partition(".")
    return f"{sign}{whole.lstrip('0') or '0'}{point}{fraction}"


def _year(text: str, kind: ColumnType) -> str:
    if kind.length != 2:
        return text
    return f"{1900 + int(text)}" if int(text) >= 70 else f"{2000 + int(text)}"


_MAKE: dict[Kind, Callable[[Any, ColumnType], Any]] = {
    **dict.fromkeys(
        (Kind.TINYINT, Kind.SMALLINT, Kind.MEDIUMINT, Kind.INT, Kind.BIGINT), lambda value, _: str(int(value))
    ),
    **dict.fromkeys((Kind.FLOAT, Kind.DOUBLE), lambda value, _: float(value).hex()),
    Kind.DECIMAL: _decimal,
    Kind.YEAR: _year,
}
