"""Finds the shard from which a refused row comes."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import pyarrow as pa
import pytest
from tests.target.conformance.samples import create
from tests.values_target import ValuesTarget

from pidts.apply import ApplyRules, RefusedRow
from pidts.batch.applying import _CommitInput
from pidts.batch.log_parts import LogPart
from pidts.batch.source_of_row import source_table
from pidts.model import ChangeBatch, Column, ColumnType, Halted, Key, Kind, Lsn, Op, Table, TableName, change_schema

COLUMNS = (Column("id", ColumnType(Kind.INT), nullable=False), Column("at", ColumnType(Kind.INT), nullable=False))
TABLE = Table(TableName("all", "t"), COLUMNS, (Key("PRIMARY", ("id", "at"), unique=True, primary=True),))
WIDER = Table(TABLE.name, (Column("id", ColumnType(Kind.BIGINT), nullable=False), COLUMNS[1]), TABLE.keys)
A, B, C = (TableName("shop", f"t_{name}") for name in "abc")
N, U, D, COPY = Op.INSERT, Op.UPDATE, Op.DELETE, Op.COPY
Change = tuple[TableName, int, Op, int | None, int | None]
"""The shard, the place in the log, and the keys before and after the change."""


def batches(*changes: Change, table: Table = TABLE) -> list[ChangeBatch]:
    """Returns one batch for each change."""
    found = []
    for name, at, op, before, after in changes:
        image = lambda key: None if key is None else {"id": key, "at": 1}  # noqa: E731
        values = (Lsn(0, 1, at).to_bytes(), int(op), image(before), image(after), None)
        arrays = [pa.array([value], one.type) for value, one in zip(values, change_schema(table), strict=True)]
        batch = ChangeBatch.of(table, *arrays)
        found.append(ChangeBatch(table, batch.rows, name))
    return found


def refused(key: int, *, written: bool = True, table: Table = TABLE) -> RefusedRow:
    row = pa.Table.from_pylist([{"id": key, "at": 1}], schema=table.arrow)
    return RefusedRow(table, row, written, Halted("no", "no"))


@pytest.mark.parametrize(
    ("changes", "written", "removed"),
    [
        ([(A, 1, N, None, 7), (B, 2, N, None, 8)], A, A),
        ([(A, 1, N, None, 7), (B, 2, N, None, 8), (A, 3, U, 7, 7)], A, A),
        # The row moves, in either order.
        ([(B, 1, N, None, 7), (A, 2, D, 7, None)], B, A),
        ([(A, 1, D, 7, None), (B, 2, N, None, 7)], B, B),
        ([(A, 1, N, None, 7), (B, 2, N, None, 7)], B, B),
        # An update gives the row another key.
        ([(A, 1, N, None, 7), (B, 2, U, 7, 9)], A, B),
        ([(A, 1, U, 9, 7), (B, 2, N, None, 9)], A, A),
        # One shard both adds and removes the row; the other shard's change is before or after that.
        ([(B, 1, N, None, 7), (A, 2, N, None, 7), (A, 3, D, 7, None)], B, A),
        ([(B, 1, N, None, 7), (A, 2, N, None, 7), (A, 3, U, 7, 9)], B, A),
        ([(A, 1, D, 7, None), (A, 2, N, None, 7), (B, 3, D, 7, None)], A, B),
        # Copied rows count as earlier than all changes of the log.
        ([(B, 0, COPY, None, 7), (A, 2, U, 7, 7)], A, A),
        ([(A, 1, N, None, 8), (B, 2, N, None, 9)], None, None),
        ([(A, 1, D, 7, None), (B, 2, N, None, 9)], None, A),
        # No other shard has changes.
        ([(C, 1, N, None, 8)], C, C),
        ([], None, None),
    ],
)
def test_a_row_belongs_to_the_last_table_that_has_it_or_that_names_it(
    changes: list[Change], written: TableName | None, removed: TableName | None
) -> None:
    assert source_table(refused(7), batches(*changes)) == written
    assert source_table(refused(7, written=False), batches(*changes)) == removed


def test_other_tables_of_the_target_say_nothing_and_widths_may_differ() -> None:
    elsewhere = Table(TableName("all", "o"), COLUMNS, TABLE.keys)
    changes = batches((A, 1, N, None, 7), (B, 2, N, None, 8)) + batches((C, 3, N, None, 7), table=elsewhere)
    assert source_table(refused(7, table=WIDER), changes) == A
    assert source_table(refused(7), changes[2:]) is None
    assert source_table(refused(7), changes[1:]) == B, "the only one"


def test_the_refused_row_of_an_early_part_belongs_to_a_table_of_that_part() -> None:
    """In the second part, the row moves from A to B. The target has refused it in the first part."""
    first, second = batches((A, 1, N, None, 7)), batches((A, 2, D, 7, None), (B, 3, N, None, 7))
    target = ValuesTarget("refused row")
    commit = _CommitInput(lambda: iter([LogPart(first), LogPart(second)]), ApplyRules(merged={TABLE.name}), {}, None, 1)
    with closing(target.connect()) as session:
        create(session, TABLE)
        session.begin()
        changes = [change for change in commit(session) if change.table.name == TABLE.name]
        session.rollback()
    target.forget()
    assert len(changes) > 1
    assert commit.source_table(replace(refused(7), change=0)) == A
    assert commit.source_table(replace(refused(7), change=len(changes) - 1)) == B
