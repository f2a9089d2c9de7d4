"""Change events in readable form have one line for each change, followed by the changed values."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from pidts.cli.events.changes import Change
from pidts.cli.events.text import lines, shown
from pidts.excerpt.json_value import json_value
from pidts.model import Column, ColumnType, DataChange, Key, Kind, Lsn, SchemaEvent, Table, TableName

TABLE = Table(
    TableName("a", "t"),
    (
        Column("id", ColumnType(Kind.INT)),
        Column("s", ColumnType(Kind.VARCHAR, length=9)),
        Column("f", ColumnType(Kind.FLOAT)),
    ),
    (Key("PRIMARY", ("id",), unique=True, primary=True),),
)
PLACE: dict[str, Any] = {
    "lsn": Lsn(0, 1, 42),
    "prev_lsn": Lsn(0, 1, 4),
    "source_zone_id": 1,
    "timestamp": 0,
    "gtid": "0-1-1",
}
TAIL = "  0-1-1  0000.0000000001.000000000042.0000000000"


def text(old: dict[str, Any] | None, new: dict[str, Any] | None) -> list[str]:
    change = DataChange(**PLACE, table=TABLE.name, old_data=old, new_data=new)
    return [line.plain for line in lines(Change(change, TABLE))]


def test_a_name_cannot_control_the_terminal() -> None:
    name = "a\x1b[2Jb"
    change = DataChange(**PLACE, table=TableName(name, name), old_data=None, new_data={name: name})
    statement = SchemaEvent(**PLACE, schema=name, statement=f"CREATE TABLE t COMMENT '{name}'")
    shown = [line.plain for event in (change, statement) for line in lines(Change(event, None))]
    assert len(shown) == 4
    assert all(line.isprintable() for line in shown)


def test_an_insert_shows_all_columns() -> None:
    assert text(None, {"id": 1, "s": "x", "f": None}) == [
        f"1970-01-01 00:00:00Z insert a.t id=1{TAIL}",
        "  + id 1",
        "  + s 'x'",
        "  + f NULL",
    ]


def test_an_update_shows_what_changed() -> None:
    assert text({"id": 1, "s": "x", "f": 0.5}, {"id": 1, "s": "y", "f": 0.5}) == [
        f"1970-01-01 00:00:00Z update a.t id=1{TAIL}",
        "    s 'x' → 'y'",
    ]


def test_values_that_the_log_omits_are_marked() -> None:
    assert text({"id": 1}, {"s": "y"}) == [
        f"1970-01-01 00:00:00Z update a.t id=1{TAIL}",
        "    s (not in the log) → 'y'",
        "    not in the log: f",
    ]
    assert text({"id": 1}, None)[1:] == ["  - id 1", "    not in the log: f, s"]


def test_a_statement_is_shown_as_it_is() -> None:
    event = SchemaEvent(**PLACE, schema="a", statement="DROP TABLE t\n  , u")
    assert [line.plain for line in lines(Change(event))] == [
        f"1970-01-01 00:00:00Z ddl    a{TAIL}",
        "    DROP TABLE t",
        "      , u",
    ]


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        (None, None, "NULL"),
        ("it\x1b[2J", None, "'it\\x1b[2J'"),
        ("x" * 201, None, f"'{'x' * 200}'… (201 characters)"),
        (b"\x00\xff", None, "x'00ff'"),
        (bytes(101), None, f"x'{'00' * 100}'… (101 bytes)"),
        (Decimal("1.50"), None, "1.50"),
        (b"\x00\x00\x80\x3f", Kind.VECTOR, "[1.0]"),
    ],
)
def test_values_stay_on_one_line_and_leave_the_terminal_alone(value: Any, kind: Kind | None, expected: str) -> None:
    assert shown(value, kind and ColumnType(kind)) == expected


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        (0.10000000149011612, 0.1),
        (3.4028234663852886e38, 3.4028235e38),
        (1.5, 1.5),
        (-0.0, -0.0),
        (1e-45, 1e-45),
        (16777216.0, 16777216.0),
    ],
)
def test_a_float_has_the_digits_that_four_bytes_have(stored: float, expected: float) -> None:
    assert repr(json_value(stored, ColumnType(Kind.FLOAT))) == repr(expected)
