"""The value in a record is equal to the value that the server prints."""

from __future__ import annotations

import json
from contextlib import closing
from typing import Any

import pymysql
import pytest
from tests.binlog.logs import all_types
from tests.binlog.logs.scenarios import Recording, Scenario, play

from pidts.binlog import decode_slice
from pidts.binlog.decode import LogFacts, times_of
from pidts.gate.records import of_rows
from pidts.model import Column, ColumnType, Key, Kind, Table, TableName
from pidts.sandbox import Server

_FLOATS = "0 1 -1.5 0.1 100000 999999 1000000 1234567 16777216 3.4e38 1e15 123456e10 1e16 1e-14 1e-15 9.9e-5 -2.5e-30 0.3333333"
_DOUBLES = (
    f"{_FLOATS} 123456789012345678 1e14 1e17 0.1234567890123456 -9.999999999999999e22 5e-324 1.7976931348623157e308"
)
NUMBERS = Table(
    TableName("zoo", "numbers"),
    (
        Column("id", ColumnType(Kind.INT), nullable=False),
        Column("f", ColumnType(Kind.FLOAT)),
        Column("d", ColumnType(Kind.DOUBLE)),
        Column("fixed", ColumnType(Kind.FLOAT, precision=9, scale=3)),
        Column("wide", ColumnType(Kind.DOUBLE, precision=20, scale=2)),
    ),
    (Key("PRIMARY", ("id",), unique=True, primary=True),),
)


def _numbers() -> list[str]:
    made = f"CREATE TABLE {NUMBERS.name} (id int PRIMARY KEY, f float, d double, fixed float(9,3), wide double(20,2))"
    doubles = _DOUBLES.split()
    floats = (_FLOATS.split() * 2)[: len(doubles)]
    rows = [
        f"INSERT INTO {NUMBERS.name} VALUES ({place}, {float_}, {double}, {place}.{place}5, -{place}.005)"
        for place, (float_, double) in enumerate(zip(floats, doubles, strict=True))
    ]
    return [made, *rows]


def _shown(cursor: Any, table: Table) -> dict[str, list[str | None]]:
    """Returns the rows as the server's own text, by their first column."""
    columns = ", ".join(_expression(column) for column in table.columns)
    cursor.execute(f"SELECT {columns} FROM {table.name}")
    return {row[0]: list(row) for row in cursor.fetchall()}


def _expression(column: Column) -> str:
    if column.type.is_bytes:
        return f"hex({column.name})"
    return f"{column.name}+0" if column.type.kind is Kind.BIT else column.name


def _recorded(recording: Recording, zone: str) -> dict[str, dict[str, list[str | None]]]:
    """Returns the rows that the records give. Each old image must be equal to the row as it was."""
    facts: LogFacts = {
        "format": recording.format,
        "log_file": recording.log_file,
        "change_no": 0,
        "structures": recording.structures,
    }
    times = times_of(facts)
    times.add(recording.events)
    records = of_rows(decode_slice(recording.events, **facts), times.of, zone)
    assert records is not None
    found: dict[str, dict[str, list[str | None]]] = {str(table.name): {} for table in recording.tables}
    for record in records.to_pylist():
        rows, document = found[f"{record['dbname']}.{record['tablename']}"], json.loads(record["data"])
        assert [*document] == {"INSERT": ["NEW"], "UPDATE": ["OLD", "NEW"], "DELETE": ["OLD"]}[record["optype"]]
        images = {side: [next(iter(pair.values())) for pair in pairs] for side, pairs in document.items()}
        if "OLD" in images:
            assert rows.pop(images["OLD"][0]) == images["OLD"]
        if "NEW" in images:
            rows[images["NEW"][0]] = images["NEW"]
    return found


@pytest.mark.parametrize("zone", ["+00:00", "+08:00"])
def test_values_are_what_the_server_prints(mysql_like: Server, zone: str) -> None:
    statements = ["DROP DATABASE IF EXISTS zoo", "FLUSH LOGS", *all_types.statements(mysql_like.kind), *_numbers()]
    types = all_types.table(mysql_like.kind)
    scenario = Scenario("values", (mysql_like.kind,), statements, (types,))
    with (
        closing(
            pymysql.connect(
                host=mysql_like.host,
                port=mysql_like.port,
                user=mysql_like.user,
                password=mysql_like.password,
                charset="utf8mb4",
                autocommit=True,
                ssl_disabled=True,
                conv={},  # The driver does not convert the server's texts.
            )
        ) as connection,
        connection.cursor() as cursor,
    ):
        recording = play(cursor, mysql_like.kind, _without_tables(scenario), mysql_like.directory / "binlog")
        cursor.execute(f"SET time_zone = '{zone}'")
        tables = (types, NUMBERS)
        shown = {str(table.name): _shown(cursor, table) for table in tables}
        cursor.execute("DROP DATABASE zoo")
    recorded = _recorded(Recording(recording.log_file, recording.log, tables, {}), zone)
    for table in tables:
        mine, theirs = recorded[str(table.name)], shown[str(table.name)]
        assert mine.keys() == theirs.keys()
        for key, row in theirs.items():
            for column, ours, there in zip(table.columns, mine[key], row, strict=True):
                assert ours == there, f"{table.name} {key} {column}"


def _without_tables(scenario: Scenario) -> Scenario:
    """Returns the scenario without its tables, which this test reads as text."""
    return Scenario(scenario.name, scenario.kinds, scenario.statements, ())
