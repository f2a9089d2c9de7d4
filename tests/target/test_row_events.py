"""Row events that are made from Arrow columns are decoded to the same columns."""

from __future__ import annotations

import base64
import random
import struct
from dataclasses import replace

import pyarrow as pa
import pytest
from tests.target.conformance.locks.test_rows_that_differ import random_rows
from tests.target.conformance.samples import INT, every_type, rows, table, text

from pidts.binlog import decode_slice
from pidts.binlog.events import HEADER, HEADER_SIZE, EventType, Format
from pidts.model import ChangeBatch, Column, ColumnType, Kind, Op, Table, TableName
from pidts.target.mysql.row_events.cells import cell_type
from pidts.target.mysql.row_events.statements import RowLayout, format_statement, row_statements

NAME = TableName("shop", "cart")
COUNT = 200
_LARGE = 1 << 20


def layout_of(structure: Table) -> RowLayout:
    types = [kind for column in structure.columns if (kind := cell_type(column)) is not None]
    assert len(types) == len(structure.columns)
    names = [column.name for column in structure.columns]
    return RowLayout(
        structure.name,
        tuple(names),
        tuple(types),
        tuple(column.nullable for column in structure.columns),
        tuple(sorted(names.index(name) for name in structure.identity)),
    )


def events_of(statement: bytes) -> bytes:
    assert statement.startswith(b"BINLOG '")
    return base64.b64decode(statement[8:-1])


def decoded(structure: Table, *statements: bytes) -> list[ChangeBatch]:
    """Returns the changes of a log with these statements' events in one transaction."""
    gtid = HEADER.pack(1, EventType.MARIADB_GTID, 1, HEADER_SIZE + 19, 0, 0) + b"\1" + bytes(18)
    xid = HEADER.pack(1, EventType.XID, 1, HEADER_SIZE + 8, 0, 0) + bytes(8)
    raw = b"".join([gtid, *map(events_of, statements), xid])
    form = Format(checksum=False, server_version="10.11.0-MariaDB", is_mariadb=True)
    return decode_slice(
        raw, format=form, log_file="bin.000001", change_no=0, structures={structure.name: structure}, offset=4
    )


def made(layout: RowLayout, kind: EventType, there: pa.Table, size: int = _LARGE) -> list[bytes]:
    if kind is EventType.DELETE_ROWS_V1:
        images = layout.keys(there)
    else:
        images = layout.rows(there, updates=kind is EventType.UPDATE_ROWS_V1)
    assert images is not None
    statements = row_statements(layout, kind, images, size)
    assert statements is not None
    return list(statements)


def column(kind: ColumnType) -> Table:
    return table(NAME, {"id": ColumnType(Kind.BIGINT), "c": kind})


TYPES = [
    replace(one, name="c")
    for one in every_type(NAME).columns[1:]
    if cell_type(one) is not None and one.name != "c_decimal_wide"
]
DECIMALS = [
    Column("c", ColumnType(Kind.DECIMAL, precision=precision, scale=scale))
    for precision, scale in [
        (1, 0),
        (1, 1),
        (5, 5),
        (9, 0),
        (10, 0),
        (18, 9),
        (19, 1),
        (20, 20),
        (38, 0),
        (38, 19),
        (38, 30),
    ]
]


@pytest.mark.parametrize(
    "one", [*TYPES, *DECIMALS], ids=lambda one: f"{one.type.kind}-{one.type.precision}-{one.type.fsp}"
)
def test_inserted_values_are_decoded_as_they_were(one: Column) -> None:
    structure = column(one.type)
    structure = replace(structure, columns=(structure.columns[0], one))
    there = random_rows(structure, random.Random(5), 0, COUNT)
    layout = layout_of(structure)
    images = layout.rows(there, updates=False)
    if images is None:  # If a value cannot be encoded, its row is left out.
        kept = [there.slice(at, 1) for at in range(COUNT) if layout.rows(there.slice(at, 1), updates=False) is not None]
        assert len(kept) > COUNT // 10
        there = pa.concat_tables(kept).combine_chunks()
    (batch,) = decoded(structure, *made(layout, EventType.WRITE_ROWS_V1, there))
    assert set(batch.rows["op"].to_pylist()) == {Op.INSERT}
    assert batch.rows["after"].field("c").equals(there["c"].combine_chunks())
    assert batch.rows["after"].field("id").equals(there["id"].combine_chunks())


def test_an_update_names_the_key_and_then_has_all_columns() -> None:
    structure = table(NAME, {"a": text(), "id": INT, "b": INT}, key=("id", "a"))
    there = rows(structure, *[(f"text {number}", number, None if number % 3 else number) for number in range(COUNT)])
    (batch,) = decoded(structure, *made(layout_of(structure), EventType.UPDATE_ROWS_V1, there))
    assert set(batch.rows["op"].to_pylist()) == {Op.UPDATE}
    after, before = batch.rows["after"], batch.rows["before"]
    for name in ("a", "id", "b"):
        assert after.field(name).equals(there[name].combine_chunks())
    assert before.field("a").equals(there["a"].combine_chunks())
    assert before.field("id").equals(there["id"].combine_chunks())
    assert before.field("b").null_count == COUNT


def test_an_update_in_a_table_without_a_key_has_all_columns_twice() -> None:
    structure = replace(table(NAME, {"a": text(), "id": INT, "b": INT}), keys=())
    old = rows(structure, *[(f"text {number}", number, None if number % 3 else number) for number in range(COUNT)])
    new = rows(structure, *[(f"new {number}", number, None if number % 2 else number) for number in range(COUNT)])
    layout = replace(layout_of(structure), key=(0, 1, 2))
    images = layout.updates(old, new)
    statements = row_statements(layout, EventType.UPDATE_ROWS_V1, images, _LARGE)
    assert statements is not None
    (batch,) = decoded(structure, *statements)
    assert set(batch.rows["op"].to_pylist()) == {Op.UPDATE}
    for name in ("a", "id", "b"):
        assert batch.rows["before"].field(name).equals(old[name].combine_chunks())
        assert batch.rows["after"].field(name).equals(new[name].combine_chunks())
    strict = replace(layout, nullable=(True, True, False))
    assert strict.updates(old, new) is None
    assert strict.updates(new.slice(0, 1), old.slice(0, 1)) is not None


def test_a_delete_names_the_key_alone() -> None:
    structure = table(NAME, {"a": text(), "id": INT, "b": INT}, key=("id", "a"))
    keys = pa.table({"id": pa.array(range(COUNT), pa.int32()), "a": [f"text {number}" for number in range(COUNT)]})
    (batch,) = decoded(structure, *made(layout_of(structure), EventType.DELETE_ROWS_V1, keys))
    assert set(batch.rows["op"].to_pylist()) == {Op.DELETE}
    for name in ("id", "a"):
        assert batch.rows["before"].field(name).equals(keys[name].combine_chunks())


def test_statements_have_no_more_bytes_than_allowed() -> None:
    structure = table(NAME, {"id": INT, "s": text(2000)})
    there = rows(structure, *[(number, "x" * (number * 4)) for number in range(COUNT)])
    layout = layout_of(structure)
    statements = made(layout, EventType.WRITE_ROWS_V1, there, 2000)
    assert len(statements) > 10
    assert max(map(len, statements)) <= 2000
    batches = decoded(structure, *statements)
    assert [number for batch in batches for number in batch.rows["after"].field("id").to_pylist()] == list(range(COUNT))
    images = layout.rows(there, updates=False)
    assert row_statements(layout, EventType.WRITE_ROWS_V1, images, 900) is None


def test_null_needs_a_column_that_can_be_null() -> None:
    structure = table(NAME, {"id": INT, "v": INT})
    layout = replace(layout_of(structure), nullable=(False, False))
    assert layout.rows(rows(structure, (1, None)), updates=False) is None
    assert layout.keys(pa.table({"id": pa.array([None], pa.int32())})) is None


@pytest.mark.parametrize("value", ["0000-00-00", "é", "too long"])
def test_values_without_an_encoding(value: str) -> None:
    kinds = {
        "0000-00-00": (ColumnType(Kind.DATE), -(2**25)),
        "é": (ColumnType(Kind.VARCHAR, length=9, charset="latin1", collation="latin1_bin"), "é"),
        "too long": (ColumnType(Kind.VARCHAR, length=2, charset="ascii", collation="ascii_bin"), "abc"),
    }
    kind, odd = kinds[value]
    structure = column(kind)
    assert layout_of(structure).rows(rows(structure, (1, odd)), updates=False) is None


def test_the_format_is_that_of_the_server() -> None:
    raw = events_of(format_statement("10.11.6-MariaDB-log"))
    body = raw[HEADER_SIZE:]
    assert Format.parse(body[: len(body) - Format.checksum_tail(body)]) == Format(
        checksum=False, server_version="10.11.6-MariaDB-log", is_mariadb=True
    )
    assert struct.unpack_from("<I", body, 52) == (0,), "a time of creation would end the open transaction"
