"""Makes histories of one table: changes as plain rows, logged in full or in part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from pidts.model import ChangeBatch, Column, ColumnType, Key, Kind, Lsn, Op, Table, TableName, change_schema

INT = ColumnType(Kind.INT)
TEXT = ColumnType(Kind.TEXT, charset="utf8mb4", collation="utf8mb4_bin")
PRIMARY = Key("PRIMARY", ("id",), unique=True, primary=True)
Row = dict[str, Any]
Change = tuple[Op, Row | None, Row | None]

PLAIN = Table(
    TableName("shop", "cart"),
    (
        Column("id", INT, nullable=False),
        Column("a", INT, default="7"),
        Column("b", TEXT),
        Column("u", INT),
    ),
    (PRIMARY,),
)
UNIQUE = Table(PLAIN.name, PLAIN.columns, (PRIMARY, Key("by_u", ("u",), unique=True)))


def batch_of(
    table: Table, changes: Sequence[Change], start: int = 0, held: Sequence[tuple[Any, Any] | None] = ()
) -> ChangeBatch:
    """Returns a batch.

    `held` names the columns of the before image and the after image of each change; None: all columns.
    """
    schema = change_schema(table)
    lsn = [Lsn(0, 1, 100 + start + i).to_bytes() for i in range(len(changes))]
    partial: list[bytes | None] = [None] * len(changes)
    shown = []
    for number, (op, before, after) in enumerate(changes):
        names = held[number] if held else None
        if names is not None:
            partial[number] = b"".join(
                _bitmap(table, some) for image, some in zip((before, after), names, strict=True) if image is not None
            )
            before, after = (  # noqa: PLW2901
                None if image is None else {name: value for name, value in image.items() if name in some}
                for image, some in zip((before, after), names, strict=True)
            )
        shown.append((int(op), before, after))
    ops, befores, afters = zip(*shown, strict=True) if shown else ((), (), ())
    columns = (lsn, ops, befores, afters, partial)
    return ChangeBatch.of(table, *(pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)))


def minimal(table: Table, change: Change, *, keep_default: bool = False) -> tuple[Any, Any]:
    """Returns the columns that MINIMAL images have: the key, and the columns that differ."""
    op, before, after = change
    key = list(table.identity)
    if op is Op.INSERT:
        assert after is not None
        defaults = {"a": 7}
        return (), [n for n, v in after.items() if n in key or v != defaults.get(n) or keep_default]
    if op is Op.DELETE:
        return key, ()
    assert before is not None
    assert after is not None
    return key, [name for name in after if before[name] != after[name]] or ["u"]


def noblob(table: Table, change: Change) -> tuple[Any, Any]:
    """Returns the columns that NOBLOB images have: all columns except unchanged blobs."""
    op, before, after = change
    small = [column.name for column in table.columns if column.type.kind is not Kind.TEXT]
    if op is Op.UPDATE and before is not None and after is not None:
        return small, small + [n for n in after if n not in small and before[n] != after[n]]
    if op is Op.INSERT and after is not None:
        return (), small + [n for n in after if n not in small and after[n] is not None]
    return small, ()


def rows_of(table: Table, rows: Sequence[Row]) -> pa.Table:
    """Returns rows in the form in which a target returns them."""
    return pa.Table.from_pylist(list(rows), schema=table.arrow)


def _bitmap(table: Table, names: Sequence[str]) -> bytes:
    bits = sum(1 << place for place, column in enumerate(table.columns) if column.name in names)
    return bits.to_bytes((len(table.columns) + 7) // 8, "little")
