"""Changes of merged tables that have different structures are written as changes under one structure."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import pyarrow as pa
import pytest
from tests.apply.table_history import INT, PLAIN, TEXT, batch_of
from tests.apply.test_prepare import StructureSession
from tests.target.conformance.samples import create
from tests.values_target import ValuesTarget

from pidts.apply import ApplyRules, prepared
from pidts.apply.merge.align import aligned
from pidts.model import Column, ColumnType, Halted, Key, Kind, Op, Table, TableName
from pidts.reduce import Counts, NetChange
from pidts.reduce.column_presence import column_presence

ONE, TWO, THREE = (TableName("shop", f"cart_{number}") for number in (1, 2, 3))
NEWER = replace(PLAIN, columns=(*PLAIN.columns, Column("state", TEXT, nullable=False, default="'new'")))
LATER = replace(PLAIN, columns=(*PLAIN.columns[:2], Column("at", INT), *PLAIN.columns[2:]))
ROW = {"id": 1, "a": 7, "b": "x", "u": 1}


def changes(table: Table, upstream: TableName, *rows: tuple[Op, dict | None, dict | None], **more: object):
    return replace(batch_of(table, rows, **more), upstream=upstream)


def whole_change(table: Table, rows: list[dict]) -> NetChange:
    upserts = pa.Table.from_pylist(rows, schema=table.arrow)
    return NetChange(table, upserts.select(list(table.identity)).slice(0, 0), upserts, Counts())


def test_a_batch_of_one_structure_stays_as_it_is() -> None:
    batches = [changes(PLAIN, ONE, (Op.INSERT, None, ROW)), changes(PLAIN, TWO, (Op.DELETE, {**ROW, "id": 2}, None))]
    assert all(one is other for one, other in zip(aligned(batches), batches, strict=True))


def test_each_row_is_written_with_the_columns_that_its_own_table_has() -> None:
    batches = [
        changes(PLAIN, ONE, (Op.INSERT, None, ROW)),
        changes(NEWER, TWO, (Op.INSERT, None, {**ROW, "id": 2, "state": "old"}), start=10),
        changes(LATER, THREE, (Op.UPDATE, {**ROW, "id": 3, "at": 1}, {**ROW, "id": 3, "at": 2}), start=20),
    ]
    whole = replace(PLAIN, columns=(*NEWER.columns, *LATER.columns[2:3]))
    first, *others = prepared(StructureSession(whole), batches, ApplyRules(source="s", merged=frozenset({PLAIN.name})))
    assert first.deletes["id"].to_pylist() == [1, 2], "rows that come get the target's defaults, whatever stands there"
    assert [one.deletes.num_rows for one in others] == [0, 0]
    assert [one.counts.total for one in (first, *others)] == [3, 0, 0]
    for change in (first, *others):
        assert change.upserts.schema == change.table.arrow
        assert change.table.identity == ("id",)
    assert [change.upserts.to_pylist() for change in (first, *others)] == [
        [ROW],
        [{**ROW, "id": 2, "state": "old"}],
        [{**ROW, "id": 3, "at": 2}],
    ]


@pytest.mark.parametrize("default", [("7", "8"), ("CURRENT_TIMESTAMP", "CURRENT_TIMESTAMP")])
def test_the_target_fills_columns_that_a_shard_lacks_whatever_other_shards_have(default: tuple[str, str]) -> None:
    """It does so even if two shards have different defaults for the column, or if the default is the current time."""
    store = ValuesTarget("what a table lacks")
    seven, eight = (replace(PLAIN, columns=(*PLAIN.columns, Column("c", INT, default=text))) for text in default)
    target = replace(PLAIN, columns=(*PLAIN.columns, Column("c", INT, default="7")))
    batches = [
        changes(seven, ONE, (Op.INSERT, None, {**ROW, "id": 1, "c": 1})),
        changes(eight, TWO, (Op.INSERT, None, {**ROW, "id": 2, "c": 2}), start=10),
        changes(PLAIN, THREE, (Op.INSERT, None, {**ROW, "id": 3}), (Op.UPDATE, ROW, {**ROW, "id": 4}), start=20),
        changes(PLAIN, THREE, (Op.UPDATE, {**ROW, "id": 5}, {**ROW, "id": 5, "a": 9}), start=30),
    ]
    with closing(store.connect()) as session:
        create(session, target)
        session.begin()
        session.write(whole_change(target, [{**ROW, "id": 5, "c": 11}, {**ROW, "id": 1, "c": 12}]))
        for change in prepared(session, batches, ApplyRules(source="s", merged=frozenset({PLAIN.name}))):
            session.write(change)
        session.commit()
    rows = {row["id"]: (row["a"], row["c"]) for row in store.store.content(PLAIN.name).values()}
    assert rows == {1: (7, 1), 2: (7, 2), 3: (7, 7), 4: (7, 7), 5: (9, 11)}
    store.forget()


@pytest.mark.parametrize("version", ["", "version"])
def test_rows_have_the_targets_own_default_under_a_version_guard_too(version: str) -> None:
    store = ValuesTarget("what a guarded table lacks")
    plain = replace(PLAIN, columns=(*PLAIN.columns, Column("version", INT, nullable=False)))
    wide = replace(plain, columns=(*plain.columns, Column("c", INT, default="9")))
    target = replace(plain, columns=(*plain.columns, Column("c", INT, default="7")))
    row = {**ROW, "version": 2}
    batches = [
        changes(plain, ONE, (Op.INSERT, None, row), (Op.UPDATE, {**row, "id": 4, "version": 1}, {**row, "id": 4})),
        changes(wide, TWO, (Op.INSERT, None, {**row, "id": 2, "c": 5}), start=10),
        changes(wide, TWO, (Op.UPDATE, {**row, "id": 5, "c": 1}, {**row, "id": 6, "c": 1, "version": 3}), start=20),
    ]
    rules = ApplyRules(source="s", version_column=version, merged=frozenset({PLAIN.name}))
    with closing(store.connect()) as session:
        create(session, target)
        session.begin()
        there = [
            {**row, "id": 4, "version": 1, "c": 11},
            {**row, "id": 5, "c": 1},
            {**row, "id": 1, "version": 1, "c": 3},
        ]
        session.write(whole_change(target, there))
        for change in prepared(session, batches, rules):
            session.write(change)
        session.commit()
    rows = {row["id"]: (row["version"], row["c"]) for row in store.store.content(PLAIN.name).values()}
    assert rows == {1: (2, 7), 2: (2, 5), 4: (2, 11), 6: (3, 1)}
    store.forget()


def test_the_wider_of_two_types_holds_both() -> None:
    wide = replace(PLAIN, columns=(*PLAIN.columns[:3], Column("u", ColumnType(Kind.BIGINT))))
    batches = [
        changes(PLAIN, ONE, (Op.INSERT, None, ROW)),
        changes(wide, TWO, (Op.INSERT, None, {**ROW, "id": 2, "u": 2**40})),
    ]
    (change,) = prepared(StructureSession(wide), batches, ApplyRules(source="s", merged=frozenset({PLAIN.name})))
    assert change.upserts["u"].to_pylist() == [1, 2**40]
    assert [batch.upstream for batch in aligned(batches)] == [ONE, TWO]


def test_column_presence_is_reported_for_the_columns_of_the_aligned_table() -> None:
    reported = [(("id",), ("b",)), None]
    some = changes(PLAIN, ONE, (Op.UPDATE, ROW, {**ROW, "b": "y"}), (Op.DELETE, ROW, None), held=reported)
    other = changes(LATER, TWO, (Op.INSERT, None, {**ROW, "id": 2, "at": 3}))
    found, _ = aligned([some, other])
    names = found.table.arrow.names
    assert names == ["id", "a", "b", "u", "at"]
    columns = column_presence(found)
    assert [[name for name, has in zip(names, row, strict=True) if has] for row in columns.before] == [
        ["id", "at"],
        names,
    ]
    assert [name for name, has in zip(names, columns.after[0], strict=True) if has] == ["b", "at"]
    swapped, _ = aligned([changes(LATER, TWO, (Op.DELETE, {**ROW, "at": 3}, None), held=[(("id", "at"), ())]), some])
    assert column_presence(swapped).before.tolist() == [[True, False, True, False, False]]


@pytest.mark.parametrize(
    "other",
    [
        replace(PLAIN, columns=(*PLAIN.columns[:3], Column("u", TEXT))),
        replace(PLAIN, keys=(Key("PRIMARY", ("id", "a"), unique=True, primary=True),), columns=NEWER.columns),
    ],
    ids=["a column of two families", "another key"],
)
def test_structures_that_cannot_be_combined_are_refused(other: Table) -> None:
    row = {column.name: None for column in other.columns} | {"id": 2, "a": 1}
    with pytest.raises(Halted, match="cannot be combined") as raised:
        aligned([changes(PLAIN, ONE, (Op.INSERT, None, ROW)), changes(other, TWO, (Op.INSERT, None, row))])
    assert (raised.value.code, raised.value.where.table) == ("structures-differ", "shop.cart")
