"""The source in memory behaves like a log and like a database."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pidts.model import Column, ColumnType, Key, Kind, Lsn, Op, Table, TableName

from .values_source import ValuesSource

NAME = TableName("shop", "orders")
TABLE = Table(
    NAME,
    (Column("id", ColumnType(Kind.INT), nullable=False), Column("v", ColumnType(Kind.VARCHAR, length=9, charset="utf8mb4"))),
    (Key("PRIMARY", ("id",), unique=True, primary=True),),
)  # fmt: skip
OTHER = replace(TABLE, name=TableName("shop", "items"))


def row(key: int, value: str | None = None) -> dict[str, object]:
    return {"id": key, "v": value}


def changes(source: ValuesSource, after: Lsn, until: Lsn) -> list[tuple[str, Op, object, object]]:
    return [
        (batch.table.name.name, Op(item["op"]), item["before"], item["after"])
        for batch in source.decode(after, until)
        for item in batch.rows.to_pylist()
    ]


def test_the_index_is_a_chain():
    source = ValuesSource([TABLE])
    for key in range(3):
        source.insert(NAME, row(key))
    source.rotate()
    source.insert(NAME, row(9))
    last = source.start
    for entry in source.entries():
        assert entry.transaction.prev_lsn == last
        assert entry.transaction.begin < entry.transaction.lsn
        last = entry.transaction.lsn
    assert last == source.received
    assert [entry.transaction.is_empty for entry in source.entries()] == [False, False, False, True, False]
    assert source.position.file == "values.000002"


def test_entries_continue_after_an_lsn():
    source = ValuesSource([TABLE])
    first = source.insert(NAME, row(1))
    second = source.insert(NAME, row(2))
    assert list(source.entries(first.transaction.lsn)) == [second]
    assert list(source.entries(source.received)) == []


def test_a_range_brings_exactly_its_own_changes():
    source = ValuesSource([TABLE, OTHER])
    source.insert(NAME, row(1, "a"), row(2, "b"))
    middle = source.received
    source.commit(
        (NAME, [(Op.UPDATE, row(1, "a"), row(1, "c"))]),
        (OTHER.name, [(Op.INSERT, None, row(5))]),
        (NAME, [(Op.DELETE, row(2, "b"), None)]),
    )
    assert changes(source, source.start, middle) == [
        ("orders", Op.INSERT, None, row(1, "a")),
        ("orders", Op.INSERT, None, row(2, "b")),
    ]
    assert changes(source, middle, source.received) == [
        ("orders", Op.UPDATE, row(1, "a"), row(1, "c")),
        ("orders", Op.DELETE, row(2, "b"), None),
        ("items", Op.INSERT, None, row(5)),
    ]
    assert changes(source, source.received, source.received) == []
    assert [batch.table.name for batch in source.decode(source.start, source.received, {OTHER.name: OTHER})] == [
        OTHER.name
    ]


def test_a_rows_lsn_is_inside_its_transaction():
    source = ValuesSource([TABLE])
    before = source.insert(NAME, row(1)).transaction
    entry = source.insert(NAME, row(2), row(3)).transaction
    batch = source.decode(before.lsn, entry.lsn)[0]
    lsns = [Lsn.from_bytes(value.as_py()) for value in batch.rows["lsn"]]
    assert before.lsn < lsns[0] < lsns[1] < entry.lsn


def test_rows_are_paged_in_the_order_of_the_key():
    source = ValuesSource([TABLE])
    source.insert(NAME, *(row(key) for key in (5, 1, 3)))
    source.delete(NAME, [3])
    source.update(NAME, [5], v="x")
    first = source.select_rows(TABLE, None, 1)
    key = source.last_key(first, TABLE)
    assert (first.to_pylist(), key) == ([row(1)], [1])
    assert source.select_rows(TABLE, key, 5).to_pylist() == [row(5, "x")]
    assert source.rows(NAME) == [row(1), row(5, "x")]


def test_a_ddl_changes_rows_and_later_batches():
    source = ValuesSource([TABLE])
    source.insert(NAME, row(1, "a"))
    wide = replace(TABLE, columns=(*TABLE.columns, Column("n", ColumnType(Kind.INT))))
    entry = source.ddl("ALTER TABLE orders ADD n INT", {NAME: wide})
    assert (entry.transaction.ddl, entry.transaction.ddl_schema) == ("ALTER TABLE orders ADD n INT", "shop")
    source.update(NAME, [1], n=7)
    tables = [batch.table for batch in source.decode(source.start, source.received)]
    assert tables == [TABLE, wide]
    assert source.rows(NAME) == [{"id": 1, "v": "a", "n": 7}]
    source.ddl("DROP TABLE orders", {NAME: None})
    assert source.structures == {}


@pytest.mark.parametrize(
    "change",
    [
        (Op.DELETE, row(9), None),
        (Op.UPDATE, row(1, "wrong"), row(1, "x")),
        (Op.INSERT, None, row(1)),
        (Op.INSERT, None, {"id": 2, "colour": "red"}),
    ],
)
def test_a_history_that_cannot_have_happened_is_refused(change):
    source = ValuesSource([TABLE])
    source.insert(NAME, row(1, "a"))
    with pytest.raises(ValueError):
        source.commit((NAME, [change]))
