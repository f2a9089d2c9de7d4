"""What a batch comes down to, case by case."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from pidts.model import ChangeBatch, Column, ColumnType, Halted, Key, Kind, Lsn, Op, Table, TableName, change_schema
from pidts.reduce import Counts, NetChange, net_changes

INT = ColumnType(Kind.INT)
C, N, U, D = Op.COPY, Op.INSERT, Op.UPDATE, Op.DELETE


def table(*types: ColumnType, key: int = 1, unique: Sequence[str] = (), name: str = "t") -> Table:
    names = "abcdefgh"[: len(types)]
    columns = tuple(
        Column(letter, kind, nullable=n >= key) for n, (letter, kind) in enumerate(zip(names, types, strict=True))
    )
    keys = [Key("PRIMARY", tuple(names[:key]), unique=True, primary=True)] if key else []
    keys += [Key(f"by_{columns}", tuple(columns), unique=True) for columns in unique]
    return Table(TableName("d", name), columns, tuple(keys))


def batch(table: Table, *changes: tuple[Op, tuple[Any, ...] | None, tuple[Any, ...] | None]) -> ChangeBatch:
    def images(side: int) -> list[dict[str, Any] | None]:
        return [None if c[side] is None else dict(zip(table.arrow.names, c[side], strict=True)) for c in changes]  # type: ignore[arg-type]

    lsn = [Lsn(0, 1, 100, row).to_bytes() for row in range(len(changes))]
    columns = [lsn, [int(change[0]) for change in changes], images(1), images(2)]
    schema = change_schema(table)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=False)]
    return ChangeBatch.of(table, *arrays)


def net(table: Table, *changes: tuple[Op, tuple[Any, ...] | None, tuple[Any, ...] | None]) -> NetChange:
    (one,) = net_changes([batch(table, *changes)])
    return one


def rows(some: pa.Table) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in some.to_pylist()]


TWO = table(INT, INT)


@pytest.mark.parametrize(
    ("changes", "deletes", "upserts"),
    [
        pytest.param([(N, None, (1, 1)), (U, (1, 1), (1, 2))], [], [(1, 2)], id="insert, update"),
        pytest.param([(N, None, (1, 1)), (D, (1, 1), None)], [(1,)], [], id="insert, delete"),
        pytest.param([(U, (1, 1), (1, 2)), (U, (1, 2), (1, 3))], [], [(1, 3)], id="update, update"),
        pytest.param([(U, (1, 1), (1, 2)), (D, (1, 2), None)], [(1,)], [], id="update, delete"),
        pytest.param([(D, (1, 1), None), (N, None, (1, 9))], [], [(1, 9)], id="delete, insert"),
        pytest.param([(U, (1, 1), (2, 1))], [(1,)], [(2, 1)], id="another key"),
        pytest.param([(U, (1, 1), (2, 1)), (U, (2, 1), (1, 1))], [(2,)], [(1, 1)], id="another key and back"),
        pytest.param([(U, (1, 1), (1, None))], [], [(1, None)], id="to NULL"),
        pytest.param(
            [(N, None, (3, 0)), (N, None, (1, 0)), (N, None, (2, 0))], [], [(1, 0), (2, 0), (3, 0)], id="sorted"
        ),
    ],
)
def test_changes_of_one_row_become_one(changes: list[Any], deletes: list[Any], upserts: list[Any]) -> None:
    found = net(TWO, *changes)
    assert (rows(found.deletes), rows(found.upserts)) == (deletes, upserts)
    assert found.upserts.schema == TWO.arrow


def test_keys_swapped_through_a_third_end_swapped() -> None:
    found = net(TWO, (U, (1, 10), (9, 10)), (U, (2, 20), (1, 20)), (U, (9, 10), (2, 10)))
    assert (rows(found.deletes), rows(found.upserts)) == ([(9,)], [(1, 20), (2, 10)])


def test_copied_rows_come_before_the_log_wherever_they_stand() -> None:
    log = batch(TWO, (U, (1, 1), (1, 2)), (D, (2, 1), None))
    copy = batch(TWO, (C, None, (1, 1)), (C, None, (2, 1)), (C, None, (3, 1)))
    for order in ([log, copy], [copy, log]):
        (found,) = net_changes(order)
        assert (rows(found.deletes), rows(found.upserts)) == ([(2,)], [(1, 2), (3, 1)])
        assert found.counts == Counts(updated=1, deleted=1, copied=3)


def test_each_table_has_its_own_net_change_and_empty_batches_have_none() -> None:
    other = table(INT, INT, name="other")
    found = net_changes(
        [batch(TWO, (N, None, (1, 1))), batch(other, (D, (1, 1), None)), batch(TWO, (D, (1, 1), None)), batch(TWO)]
    )
    assert [(str(one.table.name), rows(one.deletes), rows(one.upserts)) for one in found] == [
        ("d.t", [(1,)], []),
        ("d.other", [(1,)], []),
    ]
    assert net_changes([]) == net_changes([batch(TWO)]) == []


def test_a_row_that_gives_up_a_unique_value_is_removed_before_another_takes_it() -> None:
    found = net(table(INT, INT, unique=["b"]), (U, (1, 1), (1, 5)), (N, None, (2, 1)))
    assert (rows(found.deletes), rows(found.upserts)) == ([(1,)], [(1, 5), (2, 1)])


def test_only_a_change_of_unique_values_over_the_whole_batch_removes_a_row() -> None:
    three = table(INT, INT, INT, unique=["b"])
    back = net(
        three,
        (U, (1, 1, 0), (1, 2, 0)),
        (U, (1, 2, 0), (1, 1, 7)),
        (U, (2, None, 0), (2, None, 7)),
        (N, None, (3, 3, 3)),
    )
    assert (rows(back.deletes), rows(back.upserts)) == ([], [(1, 1, 7), (2, None, 7), (3, 3, 3)])
    null = net(three, (U, (1, 1, 0), (1, None, 0)), (U, (2, None, 0), (2, 1, 0)))
    assert rows(null.deletes) == [(1,), (2,)]


def test_a_key_left_by_one_row_and_taken_by_another_is_removed_first() -> None:
    # Row 1 moves to 2 and keeps b=1; row 3 moves to 1. Written in place, row 1 would still hold b=1 when row 2 comes.
    found = net(table(INT, INT, unique=["b"]), (U, (1, 1), (2, 1)), (U, (3, 3), (1, 3)))
    assert (rows(found.deletes), rows(found.upserts)) == ([(1,), (3,)], [(1, 3), (2, 1)])


def test_a_copied_row_whose_unique_value_the_log_changes_is_removed_too() -> None:
    # The target may hold both rows already, from the log of earlier batches.
    copied = ((C, None, (1, 1)), (C, None, (2, None)), (C, None, (3, 3)))
    found = net(table(INT, INT, unique=["b"]), *copied, (U, (1, 1), (1, 2)), (U, (2, None), (2, 1)))
    assert (rows(found.deletes), rows(found.upserts)) == ([(1,), (2,)], [(1, 2), (2, 1), (3, 3)])


def test_letters_that_change_case_and_come_back_leave_the_row_with_its_first_spelling() -> None:
    text = ColumnType(Kind.VARCHAR, length=9, charset="utf8mb4", collation="utf8mb4_general_ci")
    found = net(table(text, INT), (U, ("A", 1), ("a", 1)), (U, ("a", 1), ("A", 1)))
    assert (rows(found.deletes), rows(found.upserts)) == ([("a",)], [("A", 1)])


def test_zero_has_no_sign_in_a_key() -> None:
    found = net(table(ColumnType(Kind.DOUBLE), INT), (N, None, (-0.0, 1)), (U, (-0.0, 1), (0.0, 2)))
    assert (rows(found.deletes), rows(found.upserts)) == ([], [(0.0, 2)])


@pytest.mark.parametrize(
    ("kind", "one", "two"),
    [
        (ColumnType(Kind.VARBINARY, length=9), b"\x00\xff", b"\x00"),
        (ColumnType(Kind.DECIMAL, precision=65, scale=2), Decimal("1.10"), Decimal("-1.10")),
        (ColumnType(Kind.DECIMAL, precision=10, scale=2), Decimal("1.10"), Decimal("1.11")),
        (ColumnType(Kind.DATETIME, fsp=6), datetime(2024, 1, 1, 0, 0, 0, 1), datetime(2024, 1, 1)),
        (ColumnType(Kind.DATE), date(2024, 1, 1), date(1, 1, 1)),
        (ColumnType(Kind.BIGINT, unsigned=True), 2**64 - 1, 2**63),
        (ColumnType(Kind.VARCHAR, length=9), "é", "e"),
    ],
)
def test_keys_of_every_type_name_their_rows(kind: ColumnType, one: Any, two: Any) -> None:
    changes = (
        (U, (one, 1, 1), (one, 2, 1)),
        (U, (two, 1, 1), (two, 1, 1)),
        (D, (one, 2, 1), None),
        (U, (two, 1, 1), (two, 3, 1)),
    )
    found = net(table(kind, INT, INT, key=2), *changes)
    assert sorted(rows(found.deletes)) == sorted([(one, 1), (one, 2), (two, 1)])
    assert rows(found.upserts) == [(two, 3, 1)]


def test_a_table_without_a_key_halts() -> None:
    with pytest.raises(Halted, match="no-key"):
        net(table(INT, INT, key=0), (N, None, (1, 1)))


@pytest.mark.parametrize(
    "change", [(N, None, (None, 1)), (D, (None, 1), None), (U, (None, 1), (1, 1)), (U, None, (1, 1))]
)
def test_a_key_without_a_value_halts(change: Any) -> None:
    with pytest.raises(Halted, match="null-in-key"):
        net(TWO, change)


def test_one_table_under_two_structures_halts() -> None:
    with pytest.raises(Halted, match="structures-differ"):
        net_changes([batch(TWO, (N, None, (1, 1))), batch(table(INT, ColumnType(Kind.BIGINT)), (N, None, (1, 1)))])
