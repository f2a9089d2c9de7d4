"""A geometry that PostGIS cannot have is reported with its table and row."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

import pyarrow as pa
import pytest

from pidts.model import Column, ColumnType, Halted, Key, Kind, Table, TableName
from pidts.reduce import Counts, NetChange
from pidts.sandbox import Server
from pidts.target import PostgresTarget

RunSql = Callable[..., list[tuple[Any, ...]]]
NAME = TableName("drawn", "t")
TABLE = Table(
    NAME,
    (Column("id", ColumnType(Kind.INT), nullable=False), Column("g", ColumnType(Kind.GEOMETRY))),
    (Key("PRIMARY", ("id",), unique=True, primary=True),),
)
POINT = b"\x01\x01\x00\x00\x00" + bytes(16)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"\xff\xff\xff\xff" + POINT, "SRID 4294967295"),
        (b"\0\0\0\0\x01", "5 bytes that are not a geometry"),
        (b"\0\0\0\0\0\0\0\0\x01" + bytes(16), "25 bytes that are not a geometry"),
    ],
)
@pytest.mark.parametrize("by", ["load", "write"])
def test_an_unfit_geometry_is_reported_with_table_and_key(
    postgres: Server, database: str, run_sql: RunSql, value: bytes, expected: str, by: str
) -> None:
    """No extension is needed: any type of this name is treated as the type of PostGIS."""
    run_sql(postgres, "CREATE SCHEMA drawn", database=database)
    run_sql(postgres, "CREATE TYPE drawn.geometry AS ENUM ()", database=database)
    run_sql(postgres, "CREATE TABLE drawn.t (id INT PRIMARY KEY, g drawn.geometry)", database=database)
    rows = pa.table([[1, 2], [None, value]], TABLE.arrow.names).cast(TABLE.arrow)
    target = PostgresTarget(postgres.host, postgres.port, postgres.user, postgres.password, database)
    change = NetChange(TABLE, TABLE.arrow.empty_table().select(["id"]), rows, Counts())
    with closing(target.connect()) as session:
        session.begin()
        with pytest.raises(Halted, match=expected) as error:
            _ = session.load(TABLE, rows) if by == "load" else session.write(change)
    assert (error.value.code, error.value.where.table, error.value.where.key) == (
        "type-not-possible",
        str(NAME),
        "id=2",
    )
    assert "--resync" in error.value.todo
