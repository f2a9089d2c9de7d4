"""TABLE_MAP events have the names, types and keys of their tables."""

from __future__ import annotations

import pytest
from tests.binlog.logs.scenarios import FUNCTIONAL, kept, load

from pidts.binlog import EventType, LogWalker, TableMap, iter_raw, table_name
from pidts.binlog.wire import Wire, WireType, read_wires
from pidts.model import ColumnType, DecodeError, Key, Kind, TableName


def maps(name):
    recording = load(name)
    walker = LogWalker(recording.log_file)
    events = [walker.feed(raw) for raw in iter_raw(recording.events)]
    found = [event for event in events if event.type == EventType.TABLE_MAP]
    assert [table_name(event.body) for event in found] == [TableMap.parse(event.body).name for event in found]
    return {table_name(event.body).name: TableMap.parse(event.body) for event in found}


def test_full_metadata_is_a_structure():
    found = maps("mysql97-metadata")
    functional = found["f"].to_table()
    assert [(column.name, column.type, column.nullable) for column in functional.columns] == [
        (column.name, column.type, column.nullable) for column in FUNCTIONAL.columns
    ]
    assert functional.keys == FUNCTIONAL.keys
    rich = found["k"].to_table()
    assert rich.keys == (Key("PRIMARY", ("a", "b"), unique=True, primary=True),)
    assert [(column.name, column.type) for column in rich.columns] == [
        ("a", ColumnType(Kind.VARCHAR, length=20, charset="utf8mb4")),
        ("b", ColumnType(Kind.CHAR, length=5, charset="ascii")),
        ("c", ColumnType(Kind.BLOB)),
        ("d", ColumnType(Kind.TEXT, charset="latin1")),
        ("e", ColumnType(Kind.DECIMAL, unsigned=True, precision=7, scale=3)),
        ("s", ColumnType(Kind.SET, charset="latin1", labels=("x", "y"))),
        ("p", ColumnType(Kind.VARBINARY, length=7)),
        ("t", ColumnType(Kind.TIMESTAMP, fsp=3)),
        ("y", ColumnType(Kind.YEAR)),
        ("o", ColumnType(Kind.BIT, length=11)),
        ("geo", ColumnType(Kind.GEOMETRY)),
        ("ve", ColumnType(Kind.VECTOR, length=5)),
    ]
    assert [column.type.unsigned for column in found["l"].to_table().columns] == [False, False, True]


@pytest.mark.parametrize("name", [name for name in kept() if name.endswith("transactions")])
def test_without_names_the_columns_are_numbered(name):
    table_map = maps(name)["i"]
    assert table_map.to_table() is None
    table = table_map.to_table(placeholders=True)
    assert table.name == TableName("tx", "i")
    assert [column.name for column in table.columns] == ["@1", "@2"]
    expected = Kind.VARCHAR if name.startswith("mysql97") else Kind.VARBINARY  # Only MySQL 9.7 logs the charset.
    assert [column.type.kind for column in table.columns] == [Kind.INT, expected]
    assert [column.nullable for column in table.columns] == [False, True]


@pytest.mark.parametrize(
    ("types", "metadata", "expected"),
    [
        (b"\xfe", b"\xce\xfc", Wire(WireType.STRING, 1020)),
        (b"\xfe", b"\xfe\x10", Wire(WireType.STRING, 16)),
        (b"\xfe", b"\xf7\x02", Wire(WireType.ENUM, 2)),
        (b"\xf6", b"\x0a\x02", Wire(WireType.DECIMAL, 10, 2)),
        (b"\x10", b"\x05\x01", Wire(WireType.BIT, 13)),
        (b"\x12", b"\x06", Wire(WireType.DATETIME2, scale=6)),
        (b"\x0f", b"\x2c\x01", Wire(WireType.VARCHAR, 300)),
    ],
)
def test_forms(types, metadata, expected):
    assert read_wires(types, metadata) == (expected,)


@pytest.mark.parametrize(
    ("types", "metadata"), [(b"\x0f", b"\x01"), (b"\x03", b"\x01"), (b"\xc8", b""), (b"\xfe", b"\xf5\x01")]
)
def test_impossible_forms_are_refused(types, metadata):
    with pytest.raises(DecodeError):
        read_wires(types, metadata)
