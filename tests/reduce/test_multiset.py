"""In a table without a key, the sum of the images of each row is the effect of a batch, whatever its size."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

from pidts.model import ChangeBatch, Column, ColumnType, Kind, Lsn, Op, Table, TableName, change_schema
from pidts.reduce import net_changes

TEXT = ColumnType(Kind.VARCHAR, length=20, charset="utf8mb4", collation="utf8mb4_bin")
COLUMNS = {
    "numbers and texts": {"n": ColumnType(Kind.INT), "t": TEXT, "d": ColumnType(Kind.DOUBLE)},
    "texts": {"t": TEXT, "u": TEXT},
    "doubles": {"d": ColumnType(Kind.DOUBLE)},
}


def image(columns: dict[str, ColumnType], chance: random.Random, values: int) -> dict[str, Any]:
    """Returns a row; few `values` make many equal rows, and rows that differ in a text of the same length."""
    found: dict[str, Any] = {}
    for name, kind in columns.items():
        value = chance.randrange(values)
        if value == 0:
            found[name] = None
        elif kind.kind is Kind.DOUBLE:
            found[name] = float(value // 2)
        else:
            found[name] = value if kind.kind is Kind.INT else f"text {value:04}"
    return found


def batch_of(columns: dict[str, ColumnType], images: list[tuple[Any, Any]]) -> ChangeBatch:
    table = Table(TableName("s", "t"), tuple(Column(name, kind) for name, kind in columns.items()), ())
    ops = [Op.INSERT if old is None else Op.DELETE if new is None else Op.UPDATE for old, new in images]
    values = (
        [Lsn(0, 1, 100 + place).to_bytes() for place in range(len(images))],
        list(map(int, ops)),
        [old for old, _ in images],
        [new for _, new in images],
        [None] * len(images),
    )
    arrays = (pa.array(each, field.type) for each, field in zip(values, change_schema(table), strict=True))
    return ChangeBatch.of(table, *arrays)


@pytest.mark.parametrize("columns", COLUMNS.values(), ids=COLUMNS)
@pytest.mark.parametrize("size", [5, 300])
@pytest.mark.parametrize("values", [4, 40, 5000])
@pytest.mark.parametrize("seed", range(4))
def test_the_sum_of_each_row_is_the_sum_of_its_images(
    columns: dict[str, ColumnType], size: int, values: int, seed: int
) -> None:
    chance = random.Random(seed)
    images: list[tuple[Any, Any]] = []
    for _ in range(size):
        old, new = (image(columns, chance, values) for _ in range(2))
        images.append(chance.choice([(old, new), (old, None), (None, new), (old, dict(old))]))
    sums: Counter[tuple[Any, ...]] = Counter()
    for old, new in images:
        for row, copies in ((old, -1), (new, 1)):
            if row is not None:
                sums[tuple(row.values())] += copies
    (change,) = net_changes([batch_of(columns, images)])
    assert change.times is not None
    removed = zip(change.deletes.to_pylist(), change.times.to_pylist(), strict=True)
    assert {tuple(row.values()): times for row, times in removed} == {row: -n for row, n in sums.items() if n < 0}
    assert change.deletes.num_rows == len({row for row, n in sums.items() if n < 0})
    assert Counter(tuple(row.values()) for row in change.upserts.to_pylist()) == +sums


def test_no_images_have_no_effect() -> None:
    old = {"n": 1, "t": "x", "d": 0.5}
    (change,) = net_changes([batch_of(COLUMNS["numbers and texts"], [(old, dict(old))] * 100)])
    assert (change.deletes.num_rows, change.upserts.num_rows) == (0, 0)
