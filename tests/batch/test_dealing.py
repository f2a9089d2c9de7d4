"""If an update concerns rows of two workers, neither worker writes the rows, unless a copy reads them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from tests.values_target import ValuesTarget

from pidts.apply import ApplyRules
from pidts.batch.context import JobContext
from pidts.model import ChangeBatch, Column, ColumnType, Halted, Key, Kind, Lsn, Op, Table, TableName, change_schema
from pidts.reduce import with_whole_keys
from pidts.schema import Dialect
from pidts.source import SourceConfig

INT = ColumnType(Kind.INT)
PRIMARY = Key("PRIMARY", ("id",), unique=True, primary=True)
TABLE = Table(TableName("shop", "t"), (Column("id", INT, nullable=False), Column("v", INT)), (PRIMARY,))
CONTEXT = JobContext(
    task="t", source=SourceConfig("memory", 1, source_id="s"), relay=Path(), staging=Path(),
    target=ValuesTarget("never asked"), workers=2, epoch=1, change_no=0, structures={TABLE.name: TABLE},
    dialect=Dialect(), charsets={}, copying=frozenset({TABLE.name}),
)  # fmt: skip


def moves() -> ChangeBatch:
    """Returns updates of keys, some of which concern two workers. The log has only the keys of their rows."""
    schema, keys = change_schema(TABLE), range(20)
    columns = [
        [Lsn(0, 1, 100 + key).to_bytes() for key in keys],
        [int(Op.UPDATE)] * 20,
        [{"id": key} for key in keys],
        [{"id": key + 100} for key in keys],
        [b"\1\1"] * 20,
    ]
    arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
    return with_whole_keys(ChangeBatch.of(TABLE, *arrays))


def test_an_update_of_a_row_that_the_copy_reads_again_may_be_split() -> None:
    ops = {op for part in CONTEXT.dealt(moves()) if part is not None for op in part.rows["op"].to_pylist()}
    assert ops == {Op.UPDATE, Op.DELETE, Op.INSERT}


@pytest.mark.parametrize(
    "context",
    [
        replace(CONTEXT, copying=frozenset()),
        replace(CONTEXT, copying=frozenset({TableName("shop", "other")})),
        replace(CONTEXT, writing=ApplyRules(version_column="v")),
    ],
)
def test_an_update_of_a_row_that_no_copy_reads_again_is_not_split(context: JobContext) -> None:
    with pytest.raises(Halted, match="two workers") as caught:
        context.dealt(moves())
    assert (caught.value.code, caught.value.where.table) == ("partial-row-image", "shop.t")
    assert "worker-count: 1" in caught.value.todo
