"""The target in memory refuses the same rows as a server; otherwise tests with it would prove little."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from tests.values_target.rows import OpenTable, StoredTable

from pidts.model import Column, ColumnType, Halted, Key, Kind, Table, TableName
from pidts.reduce import Counts, NetChange

TEXT = ColumnType(Kind.VARCHAR, length=9, charset="utf8mb4", collation="utf8mb4_general_ci")
COLUMNS = (Column("id", TEXT, nullable=False), Column("u", TEXT))
KEYED = Table(
    TableName("d", "t"), COLUMNS, (Key("PRIMARY", ("id",), unique=True, primary=True), Key("u", ("u",), unique=True))
)
KEYLESS = Table(TableName("d", "t"), COLUMNS, KEYED.keys[1:])


def change(
    table: Table,
    gone: Sequence[Any] = (),
    new: Sequence[Any] = (),
    times: Sequence[int] | None = None,
    *,
    safe: bool = False,
) -> NetChange:
    def rows(values: Sequence[Any], names: Sequence[str]) -> pa.Table:
        return pa.table({name: pa.array([row[at] for row in values], pa.string()) for at, name in enumerate(names)})

    names = ["id", "u"]
    counts = None if times is None else pa.array(times, pa.int64())
    return NetChange(table, rows(gone, list(table.identity) or names), rows(new, names), Counts(), counts, safe=safe)


def opened(table: Table, *rows: Any, folds: bool = False) -> OpenTable:
    made = OpenTable(StoredTable(table, folds=folds))
    made.write(change(table, new=rows, times=None if table.identity else ()))
    return made


def content(table: OpenTable) -> list[Any]:
    return sorted(table.rows().values(), key=str)


def test_a_unique_value_that_a_later_row_gives_up_is_still_taken() -> None:
    table = opened(KEYED, ("1", "x"), ("2", "y"))
    with pytest.raises(Halted, match="duplicate"):
        table.write(change(KEYED, new=[("1", "y"), ("2", "x")]))


def test_removed_first_it_is_free() -> None:
    table = opened(KEYED, ("1", "x"), ("2", "y"), ("3", None), ("4", None))
    table.write(change(KEYED, gone=["1"], new=[("2", "x"), ("1", "y")]))
    assert content(table) == [("1", "y"), ("2", "x"), ("3", None), ("4", None)]


def test_in_safe_mode_the_row_with_the_value_is_removed() -> None:
    table = opened(KEYED, ("1", "x"), ("2", "y"))
    table.write(change(KEYED, new=[("1", "y")], safe=True))
    assert content(table) == [("1", "y")]


def test_a_folding_target_finds_rows_by_other_letters_but_writes_over_none() -> None:
    table = opened(KEYED, ("a", "x"), ("b ", "y"), folds=True)
    with pytest.raises(Halted, match="overwrite"):
        table.write(change(KEYED, new=[("A", "z")]))
    with pytest.raises(Halted, match="duplicate"):
        table.write(change(KEYED, new=[("c", "X ")]))
    table.write(change(KEYED, gone=["A", "b"]))
    assert content(table) == []
    plain = opened(KEYED, ("a", "x"))
    plain.write(change(KEYED, gone=["A"], new=[("A", "X")]))
    assert content(plain) == [("A", "X"), ("a", "x")]


def test_without_a_key_copies_are_counted() -> None:
    table = opened(KEYLESS, ("1", None), ("1", None), ("1", None))
    table.write(change(KEYLESS, gone=[("1", None)], times=[2], new=[("2", "x")]))
    assert content(table) == [("1", None), ("2", "x")]
    with pytest.raises(Halted, match="row-missing"):
        table.write(change(KEYLESS, gone=[("1", None)], times=[2]))
    with pytest.raises(Halted, match="duplicate"):
        table.write(change(KEYLESS, new=[("3", "x")], times=[]))
