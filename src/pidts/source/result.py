"""Reads one query's rows as Arrow tables, without a Python object per row.

The driver would make an object per packet and decode each value separately. Here compiled code writes the server's
answer directly into the memory of Arrow's arrays; see `text_rows.cells`. `PIDTS_KERNEL=python` chooses
`text_rows.lists`, which is slower and has the same result.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa
import pymysql
from pymysql.constants import COMMAND

from pidts.binlog.machine_code import compiled
from pidts.binlog.values.charsets import charset_of
from pidts.model import Column, Kind, PidtsError, StructureChanged, Table, Transient, Where
from pidts.source.connection import Session, hang_up, where_of
from pidts.source.failures import explain
from pidts.source.packets import PacketReader

if TYPE_CHECKING:
    from pidts.text_rows.cells import Cells
    from pidts.text_rows.lists import Lists

Rows: TypeAlias = "Cells | Lists"
"""The rows of a result that have arrived so far."""
AT_ONCE = 16 << 20
_TIMEOUT = 3600.0
"""The longest time, in seconds, without a byte from the server, which may sort a large table before the first row."""

_WAIT = 60.0
_SHORT = 100
"""If the table's structure has changed, the rest of the answer is of no use. If the rest has at most this number of
packets, it is read; if it has more, the connection is closed.
"""
_MOMENT = 0.0005
"""A pause before the next read, in seconds, in which more bytes may arrive.

Servers send 16 KiB at a time. Without the pause, both sides would wake up for each part of 16 KiB, which takes longer
than sending and reading the part.
"""
_DETAILS = 13
"""The number of bytes after the names of a column: 0x0C, charset, length, type, flags, decimals, two unused bytes."""
_BINARY = 63
_UTF8 = frozenset({"utf8", "utf8mb3"})
_UNSIGNED = 32
_INTEGERS = {1: Kind.TINYINT, 2: Kind.SMALLINT, 9: Kind.MEDIUMINT, 3: Kind.INT, 8: Kind.BIGINT}
_NUMBERS = {Kind.DECIMAL: (246, 0), Kind.FLOAT: (5,), Kind.DOUBLE: (5,), Kind.YEAR: (13,)}
_MOMENTS = {Kind.DATE: (10, 14), Kind.TIME: (11, 19), Kind.DATETIME: (12, 18), Kind.TIMESTAMP: (7, 17)}
_TYPES = _NUMBERS | _MOMENTS
_STRINGS = frozenset({15, 242, *range(245, 256)} - {246})
"""The type codes of text and bytes of any size, ENUM and SET, JSON, geometries and vectors."""


def read_result(connection: Session, sql: str, table: Table, at_once: int) -> Iterator[pa.Table]:
    """Yields a query's rows, about `at_once` bytes at a time; `table` has the result's columns.

    If a caller stops early, the connection is closed.
    """
    where = Where(source=where_of(connection).source, table=str(table.name))
    driver: object = connection
    try:
        driver._execute_command(COMMAND.COM_QUERY, sql.encode())  # type: ignore[attr-defined]  # noqa: SLF001
        sock = driver._sock  # type: ignore[attr-defined]  # noqa: SLF001
    except (pymysql.err.Error, OSError) as error:
        raise explain(error, where) from error
    reader = PacketReader(sock, where)
    is_over = False
    try:
        what, is_over = _read_heading(reader, table, where)
        if what:
            is_over = is_over or any(_ends(_next(reader, where)) for _ in range(_SHORT))
            raise what
        yield from _read_rows(reader, _rows(table, where), at_once, where)
        is_over = True
    finally:
        if is_over:
            sock.settimeout(None)
        else:
            hang_up(connection)  # On an open connection, the next query would read the rest of this answer as its own.


def _rows(table: Table, where: Where) -> Rows:
    if compiled():
        from pidts.text_rows.cells import Cells

        return Cells(table, where)
    from pidts.text_rows.lists import Lists

    return Lists(table, where)


def _read_heading(reader: PacketReader, table: Table, where: Where) -> tuple[PidtsError | None, bool]:
    """Reads the column count, the columns and the packet after them.

    Returns the error if there is one, and whether the answer has ended.
    """
    if refusal := _refusal(_next(reader, where), where):
        return refusal, True
    definitions = [_next(reader, where) for _ in table.columns]
    _next(reader, where)
    for column, definition in zip(table.columns, definitions, strict=True):
        if what := changed(column, definition):
            return StructureChanged("structure-changed", what, where=where), False
    return None, False


def _read_rows(reader: PacketReader, rows: Rows, at_once: int, where: Where) -> Iterator[pa.Table]:
    while True:
        is_odd = rows.take_all(reader)
        if rows.size >= at_once:
            yield rows.table()
        if not is_odd:
            time.sleep(_MOMENT)
            _receive(reader, where)
            continue
        packet = _next(reader, where)
        if _ends(packet):
            if refusal := _refusal(packet, where):
                raise refusal
            if rows.size:
                yield rows.table()
            return
        rows.take_row(packet)


def _next(reader: PacketReader, where: Where) -> bytes:
    while (packet := reader.read_one(_WAIT)) is None:
        _check_silence(reader, where)
    return packet


def _receive(reader: PacketReader, where: Where) -> None:
    while not reader.receive(_WAIT):
        _check_silence(reader, where)


def _check_silence(reader: PacketReader, where: Where) -> None:
    if reader.silent() > _TIMEOUT:
        raise Transient("source-silent", f"no answer for {_TIMEOUT:.0f} seconds", where=where)


def _ends(packet: bytes) -> bool:
    return packet[:1] == b"\xff" or (packet[:1] == b"\xfe" and len(packet) < 9)


def _refusal(packet: bytes, where: Where) -> PidtsError | None:
    if packet[:1] != b"\xff":
        return None
    number = int.from_bytes(packet[1:3], "little")
    text = packet[3:].decode("utf-8", "replace")
    return explain(pymysql.err.OperationalError(number, text[6:] if text.startswith("#") else text), where)


def changed(column: Column, definition: bytes) -> str:
    """Returns the difference between a column's definition in a result and its known structure; empty if there is none.

    A different charset matters: text that is decoded in a wrong charset is wrong without any error.
    """
    details = definition[-_DETAILS:]
    charset, type_code = int.from_bytes(details[1:3], "little"), details[7]
    kind = column.type
    if kind.is_integer:
        is_unsigned = bool(int.from_bytes(details[8:10], "little") & _UNSIGNED)
        fits = _INTEGERS.get(type_code) is kind.kind and is_unsigned == kind.unsigned
    elif kind.kind is Kind.BIT:
        fits = type_code in _INTEGERS  # the column was selected as a number
    elif kind.kind in _TYPES:
        fits = type_code in _TYPES[kind.kind]
    else:
        fits = type_code in _STRINGS
        if fits and kind.is_text:
            found = charset_of(charset)
            if found is not None and _plain(found) != _plain(kind.charset or "utf8mb4"):
                return f"column {column.name} is no longer in {kind.charset}, but in {found}"
        if fits and kind.is_bytes and charset != _BINARY:
            return f"column {column.name} is no longer of type {kind.kind}, but text"
    return "" if fits else f"column {column.name} is no longer of type {kind.kind}"


def _plain(charset: str) -> str:
    return "utf8mb3" if charset in _UTF8 else charset
