"""If an update concerns rows of two workers, neither worker writes the rows, unless a copy reads them.

A row that moves between two shards has one worker.
"""

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
from pidts.rules import RouteRule, Routes, Rules
from pidts.schema import Dialect
from pidts.source import SourceConfig

INT = ColumnType(Kind.INT)
INT_V = Column("v", INT)
PRIMARY = Key("PRIMARY", ("id",), unique=True, primary=True)
TABLE = Table(TableName("shop", "t"), (Column("id", INT, nullable=False), INT_V), (PRIMARY,))
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


A, B = TableName("shop", "t_a"), TableName("shop", "t_b")
ROUTES = Rules(routes=Routes((RouteRule("shop", "t_*", "all", "t"),)))
UNIQUE = replace(TABLE, keys=(PRIMARY, Key("u", ("v",), unique=True)))
NUMBERED = replace(TABLE, columns=(Column("id", ColumnType(Kind.DECIMAL, precision=9, scale=0), nullable=False), INT_V))
LARGER = replace(TABLE, columns=(Column("id", ColumnType(Kind.BIGINT), nullable=False), INT_V))


def context_of_shards(one: Table, other: Table) -> JobContext:
    structures = {A: replace(one, name=A), B: replace(other, name=B)}
    return replace(CONTEXT, structures=structures, rules=ROUTES, copying=frozenset(), workers=3).with_different_shards()


def workers_of(context: JobContext, name: TableName, op: Op) -> dict[int, int]:
    """Returns the worker of each key if a shard's rows are inserted or deleted."""
    table, keys = context.structures[name], range(20)
    rows = [{"id": key, "v": key} for key in keys]
    images = ([None] * 20, rows) if op is Op.INSERT else (rows, [None] * 20)
    columns = [[Lsn(0, 1, 100 + key).to_bytes() for key in keys], [int(op)] * 20, *images]
    arrays = [pa.array(values, field.type) for values, field in zip(columns, change_schema(table), strict=False)]
    batch = context.rules.changes(ChangeBatch.of(table, *arrays))
    assert batch is not None
    found: dict[int, int] = {}
    for worker, part in enumerate(context.dealt(batch)):
        column = "after" if op is Op.INSERT else "before"
        found |= {int(row["id"]): worker for row in (part.rows[column].to_pylist() if part is not None else [])}
    return found


@pytest.mark.parametrize("other", [UNIQUE, NUMBERED, LARGER])
def test_a_row_has_one_worker_whichever_shard_has_it(other: Table) -> None:
    """A row moves from one shard to the other. If another worker deleted it, it could do so after the INSERT."""
    context = context_of_shards(TABLE, other)
    assert workers_of(context, A, Op.DELETE) == workers_of(context, B, Op.INSERT)
    assert workers_of(context, B, Op.DELETE) == workers_of(context, A, Op.INSERT)


def test_only_shards_that_differ_belong_to_one_worker() -> None:
    different, alike = context_of_shards(TABLE, UNIQUE), context_of_shards(TABLE, LARGER)
    assert len(set(workers_of(different, A, Op.INSERT).values())) == 1
    assert len(set(workers_of(alike, A, Op.INSERT).values())) == 3
    assert (bool(different.dealing), bool(alike.dealing)) == (True, False), "a crash must not change the workers"
