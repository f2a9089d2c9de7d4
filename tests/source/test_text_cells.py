"""Compiled and plain code make the same tables from what a server sends, in whatever pieces it arrives."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from pidts.model import Column, ColumnType, Halted, Kind, StructureChanged, Table, TableName, Where
from pidts.source.packets import PacketReader
from pidts.text_rows.cells import Cells
from pidts.text_rows.lists import Lists

NAME = TableName("d", "t")
END = b"\x05\0\0\x09\xfe\0\0\2\0"
KINDS = {
    "tinyint": ColumnType(Kind.TINYINT),
    "smallint unsigned": ColumnType(Kind.SMALLINT, unsigned=True),
    "int": ColumnType(Kind.INT),
    "bigint": ColumnType(Kind.BIGINT),
    "bigint unsigned": ColumnType(Kind.BIGINT, unsigned=True),
    "bit": ColumnType(Kind.BIT, length=64),
    "year": ColumnType(Kind.YEAR),
    "short year": ColumnType(Kind.YEAR, length=2),
    "decimal": ColumnType(Kind.DECIMAL, precision=18, scale=4),
    "fraction": ColumnType(Kind.DECIMAL, precision=5, scale=5),
    "whole decimal": ColumnType(Kind.DECIMAL, precision=18),
    "large decimal": ColumnType(Kind.DECIMAL, precision=38, scale=10),
    "huge decimal": ColumnType(Kind.DECIMAL, precision=65, scale=30),
    "float": ColumnType(Kind.FLOAT),
    "double": ColumnType(Kind.DOUBLE),
    "date": ColumnType(Kind.DATE),
    "datetime": ColumnType(Kind.DATETIME, fsp=6),
    "timestamp": ColumnType(Kind.TIMESTAMP, fsp=3),
    "time": ColumnType(Kind.TIME, fsp=6),
    "latin1": ColumnType(Kind.VARCHAR, charset="latin1"),
    "utf8": ColumnType(Kind.TEXT, charset="utf8mb4"),
    "gbk": ColumnType(Kind.CHAR, charset="gbk"),
    "enum": ColumnType(Kind.ENUM, labels=("a", "b"), charset="latin1"),
    "json": ColumnType(Kind.JSON),
    "blob": ColumnType(Kind.BLOB),
}


def value(text: bytes | None) -> bytes:
    if text is None:
        return b"\xfb"
    size = len(text)
    if size < 251:
        return bytes([size]) + text
    if size < 1 << 16:
        return b"\xfc" + size.to_bytes(2, "little") + text
    if size < 1 << 24:
        return b"\xfd" + size.to_bytes(3, "little") + text
    return b"\xfe" + size.to_bytes(8, "little") + text


def packets(payload: bytes) -> Iterator[bytes]:
    while True:
        part, payload = payload[:0xFFFFFF], payload[0xFFFFFF:]
        yield len(part).to_bytes(3, "little") + b"\1" + part
        if len(part) < 0xFFFFFF:
            return


def table_of(*kinds: ColumnType) -> Table:
    return Table(NAME, tuple(Column(f"c{number}", kind) for number, kind in enumerate(kinds)))


def sent(rows: list[list[bytes | None]]) -> bytes:
    return b"".join(b"".join(packets(b"".join(map(value, row)))) for row in rows) + END


def read(make: Callable[[Table, Where], Cells | Lists], table: Table, data: bytes, piece: int = 1 << 20) -> pa.Table:
    theirs, ours = socket.socketpair()

    def send() -> None:
        for begin in range(0, len(data), piece):
            theirs.sendall(data[begin : begin + piece])

    with theirs, ours:
        sender = threading.Thread(target=send)
        sender.start()
        reader, rows = PacketReader(ours, Where()), make(table, Where())
        try:
            while True:
                if not rows.take_all(reader):
                    assert reader.receive(5)
                    continue
                packet = reader.read_one(5)
                assert packet is not None
                if packet == END[4:]:
                    return rows.table()
                rows.take_row(packet)
        finally:
            while sender.is_alive():
                reader.receive(0.01)
                reader.skip(len(reader.here))
            sender.join()


def numbers(low: int, high: int) -> st.SearchStrategy[bytes]:
    return st.integers(low, high).map(lambda number: str(number).encode())


def decimals(precision: int, scale: int) -> st.SearchStrategy[bytes]:
    def text(number: int) -> bytes:
        digits = str(abs(number)).rjust(scale + 1, "0")
        whole, fraction = (digits[:-scale], digits[-scale:]) if scale else (digits, "")
        return ("-" * (number < 0) + whole + "." * bool(scale) + fraction).encode()

    return st.integers(1 - 10**precision, 10**precision - 1).map(text)


def texts(charset: str) -> st.SearchStrategy[bytes]:
    return st.text(st.characters(codec=charset), max_size=300).map(lambda text: text.encode(charset))


DAYS = st.builds("{:04}-{:02}-{:02}".format, st.integers(0, 9999), st.integers(0, 12), st.integers(0, 31))
CLOCKS = st.builds("{:02}:{:02}:{:02}".format, st.integers(0, 23), st.integers(0, 59), st.integers(0, 59))
FRACTIONS = st.text("0123456789", max_size=6).map(lambda digits: f".{digits}" if digits else "")
MOMENTS = st.builds("{} {}{}".format, DAYS, CLOCKS, FRACTIONS).map(str.encode)
TIMES = st.builds("{}{:02}:{:02}:{:02}{}".format, st.sampled_from(["", "-"]), st.integers(0, 838), st.integers(0, 59), st.integers(0, 59), FRACTIONS).map(str.encode)  # fmt: skip
VALUES = {
    "tinyint": numbers(-128, 127),
    "smallint unsigned": numbers(0, 65535).map(lambda text: text.rjust(30, b"0")),
    "int": numbers(-(2**31), 2**31 - 1),
    "bigint": numbers(-(2**63), 2**63 - 1) | st.sampled_from([b"-9223372036854775808", b"9223372036854775807"]),
    "bigint unsigned": numbers(0, 2**64 - 1) | st.sampled_from([b"18446744073709551615", b"9223372036854775808"]),
    "bit": numbers(0, 2**64 - 1),
    "year": numbers(1901, 2155) | st.just(b"0000"),
    "short year": st.integers(0, 99).map(lambda year: f"{year:02}".encode()),
    "decimal": decimals(18, 4),
    "fraction": decimals(5, 5),
    "whole decimal": decimals(18, 0),
    "large decimal": decimals(38, 10),
    "huge decimal": decimals(65, 30),
    "float": st.floats(width=32, allow_nan=False, allow_infinity=False).map(lambda number: repr(number).encode()),
    "double": st.floats(allow_nan=False, allow_infinity=False).map(lambda number: repr(number).encode()),
    "date": DAYS.map(str.encode),
    "datetime": MOMENTS,
    "timestamp": MOMENTS,
    "time": TIMES,
    "latin1": texts("latin1"),
    "utf8": texts("utf8"),
    "gbk": texts("gbk"),
    "enum": st.sampled_from([b"a", b"b", b""]),
    "json": texts("utf8"),
    "blob": st.binary(max_size=70_000),
}


@given(data=st.data())
@settings(max_examples=examples(15), deadline=None)
def test_compiled_and_plain_code_agree(data):
    names = data.draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=6))
    row = st.tuples(*(st.none() | VALUES[name] for name in names)).map(list)
    rows = data.draw(st.lists(row, max_size=12)) * data.draw(st.sampled_from([1, 1, 200]))
    table, piece = table_of(*(KINDS[name] for name in names)), data.draw(st.sampled_from([1 << 20, 4099, 977]))
    answer = sent(rows)
    compiled = read(Cells, table, answer, max(piece, len(answer) // 500))
    assert compiled.num_rows == len(rows)
    assert compiled.equals(read(Lists, table, answer))
    compiled.validate(full=True)


@pytest.mark.parametrize("name", [name for name in KINDS if name in VALUES])
@given(data=st.data())
@settings(max_examples=examples(8), deadline=None)
def test_each_type(name, data):
    rows = [[text] for text in data.draw(st.lists(st.none() | VALUES[name], min_size=1, max_size=40))]
    table, answer = table_of(KINDS[name]), sent(rows)
    assert read(Cells, table, answer).equals(read(Lists, table, answer))


@pytest.mark.parametrize("size", [250, 251, 65_535, 65_536, (1 << 20) + 7, 0xFFFFFF - 4, 0xFFFFFF + 3, 2 * 0xFFFFFF])
def test_a_row_may_be_larger_than_a_packet(size):
    table = table_of(ColumnType(Kind.INT), ColumnType(Kind.LONGBLOB), ColumnType(Kind.INT))
    rows: list[list[bytes | None]] = [[b"1", b"x" * size, b"2"], [b"3", None, b"4"], [None, b"y" * size, b"-5"]]
    found = read(Cells, table, sent(rows))
    assert found.to_pylist() == [
        {"c0": 1, "c1": b"x" * size, "c2": 2},
        {"c0": 3, "c1": None, "c2": 4},
        {"c0": None, "c1": b"y" * size, "c2": -5},
    ]


def test_a_table_that_was_taken_is_not_written_any_more():
    table = table_of(KINDS["int"], KINDS["latin1"])
    theirs, ours = socket.socketpair()
    with theirs, ours:
        reader, cells = PacketReader(ours, Where()), Cells(table, Where())
        tables = []
        for number in range(3):
            theirs.sendall(sent([[str(number).encode(), b"\xe9" * number]] * 2000)[: -len(END)])
            while cells._rows < 2000:
                reader.receive(5)
                cells.take_all(reader)
            assert cells.size > 0
            tables.append(cells.table())
            assert cells.size == 0
    for number, found in enumerate(tables):
        assert found.column("c0").to_pylist() == [number] * 2000
        assert found.column("c1").to_pylist() == ["é" * number] * 2000


@pytest.mark.parametrize("make", [Cells, Lists])
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("tinyint", b"128"),
        ("tinyint", b"-129"),
        ("tinyint", b"1x"),
        ("tinyint", b""),
        ("smallint unsigned", b"65536"),
        ("smallint unsigned", b"-1"),
        ("bigint", b"9223372036854775808"),
        ("bigint", b"-9223372036854775809"),
        ("bigint", b"99999999999999999999"),
        ("bigint unsigned", b"18446744073709551616"),
        ("bigint unsigned", b"19999999999999999999"),
        ("bigint unsigned", b"99999999999999999999"),
        ("decimal", b"1.23456"),
        ("decimal", b"123456789012345.0000"),
        ("decimal", b"one"),
        ("huge decimal", b"word"),
        ("double", b"1e"),
        ("date", b"2024-1-1"),
        ("date", b"2024-01-01x"),
        ("datetime", b"word"),
        ("datetime", b"2024-01-01 00-00-00"),
        ("time", b"1:2:3"),
        ("time", b"00:00:00."),
        ("year", b"word"),
    ],
)
def test_a_value_that_the_type_does_not_have_names_its_column(make, name, text):
    table = table_of(KINDS["int"], KINDS[name])
    with pytest.raises(StructureChanged, match="column c1 has a value that a column of type"):
        read(make, table, sent([[b"1", text]]))


def test_text_that_is_none_names_its_column():
    with pytest.raises(Halted, match="column c0 has bytes that are not valid utf8mb4 text"):
        read(Cells, table_of(KINDS["utf8"]), sent([[b"fine"], [b"\xc3\x28"]]))


@pytest.mark.parametrize("row", [b"\1", b"\1a\1", b"\1a\1b\1c", b"\1a\xfc\1", b"\1a\xfe" + b"\xff" * 8, b"\1a\5b"])
def test_a_row_with_too_much_or_too_little_is_refused(row):
    table = table_of(KINDS["latin1"], KINDS["latin1"])
    with pytest.raises(Halted, match="does not contain one value for each column"):
        Cells(table, Where()).take_row(row)
