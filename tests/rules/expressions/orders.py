"""A table in memory, and conditions on its rows."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from decimal import Decimal

import pyarrow as pa

from pidts.model import ChangeBatch, Column, ColumnType, Kind, Lsn, Op, Table, TableName
from pidts.rules.expressions import ExpressionFilter, ExpressionRule

TEXT = {"charset": "utf8mb4", "collation": "utf8mb4_general_ci"}
TABLE = Table(
    TableName("shop", "orders"),
    (
        Column("id", ColumnType(Kind.INT)),
        Column("b", ColumnType(Kind.BIGINT)),
        Column("u", ColumnType(Kind.BIGINT, unsigned=True)),
        Column("price", ColumnType(Kind.DECIMAL, precision=10, scale=2)),
        Column("wide", ColumnType(Kind.DECIMAL, precision=40, scale=10)),
        Column("g", ColumnType(Kind.DOUBLE)),
        Column("name", ColumnType(Kind.VARCHAR, length=20, **TEXT)),
        Column("code", ColumnType(Kind.VARCHAR, length=20, charset="utf8mb4", collation="utf8mb4_bin")),
        Column("day", ColumnType(Kind.DATE)),
        Column("at", ColumnType(Kind.DATETIME)),
        Column("instant", ColumnType(Kind.TIMESTAMP)),
        Column("span", ColumnType(Kind.TIME)),
        Column("born", ColumnType(Kind.YEAR)),
        Column("doc", ColumnType(Kind.JSON)),
        Column("raw", ColumnType(Kind.VARBINARY, length=10)),
        Column("state", ColumnType(Kind.ENUM, labels=("new", "done"), **TEXT)),
        Column("big5", ColumnType(Kind.VARCHAR, length=20, charset="big5", collation="big5_chinese_ci")),
        Column("rough", ColumnType(Kind.FLOAT, precision=7, scale=2)),
    ),
)
ROW = {
    "id": 7, "b": 2**63 - 1, "u": 2**64 - 1, "price": Decimal("9.50"), "wide": Decimal("1.5"), "g": 0.5, "name": "Ada",
    "code": "Ab", "day": date(2024, 2, 29), "at": datetime(2024, 2, 29, 12, 30), "instant": datetime(2024, 2, 29, 20),
    "span": timedelta(hours=-1), "born": 2024, "doc": "{}", "raw": b"a\0", "state": "done", "big5": "a", "rough": 0.5,
}  # fmt: skip


def images(rows, table=TABLE):
    """Returns images as structs; None where a change lacks the image."""
    return pa.array(rows, pa.struct(list(table.arrow)))


def batch(op, before, after, partial=None, table=TABLE):
    """Returns a batch of changes of one op, from the rows before and after."""
    size = len(before)
    return ChangeBatch.of(
        table,
        pa.array([Lsn(0, 1, 4, row).to_bytes() for row in range(size)], pa.binary()),
        pa.array([int(op)] * size, pa.int8()),
        images(before, table),
        images(after, table),
        None if partial is None else pa.array(partial, pa.binary()),
    )


def rule(table=TABLE, **texts):
    return ExpressionRule(schema=table.name.schema, table=table.name.name, **texts)


def dropped(text, *rows, zone="+00:00"):
    """Returns for each row whether its INSERT is dropped. Without rows, `ROW` is inserted."""
    rows = rows or (ROW,)
    found = ExpressionFilter((rule(insert=text),), zone).dropped(batch(Op.INSERT, [None] * len(rows), list(rows)))
    return found.to_pylist() if len(rows) > 1 else found[0].as_py()
