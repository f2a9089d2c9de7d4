"""The net effect of a batch is right, case by case."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from pidts.model import ChangeBatch, Column, ColumnType, Halted, Key, Kind, Lsn, Op, Table, TableName, change_schema
from pidts.reduce import ANYTHING, Counts, NetChange, UniqueKey, net_changes, watched_columns

pytestmark = pytest.mark.usefixtures("each_way")

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


def test_copied_rows_come_before_the_log_wherever_they_are() -> None:
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
    # Row 1 moves to 2 and keeps b=1; row 3 moves to 1. If rows were changed in place, row 1 would still have b=1 when
    # row 2 is written.
    found = net(table(INT, INT, unique=["b"]), (U, (1, 1), (2, 1)), (U, (3, 3), (1, 3)))
    assert (rows(found.deletes), rows(found.upserts)) == ([(1,), (3,)], [(1, 3), (2, 1)])


def test_a_copied_row_whose_unique_value_the_log_changes_is_removed_too() -> None:
    # The target may already have both rows, from the log of earlier batches.
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


def test_a_table_without_a_key_keeps_its_multiplicity() -> None:
    found = net(
        table(INT, INT, key=0),
        *[(N, None, (1, None))] * 3,
        (D, (1, None), None),
        (U, (2, 2), (3, 3)),
        (U, (2, 2), (2, 2)),
        *[(D, (4, 4), None)] * 2,
        (C, None, (5, 5)),
    )
    assert (rows(found.deletes), found.times) == ([(4, 4), (2, 2)], pa.array([2, 1], pa.int64()))
    assert rows(found.upserts) == [(1, None), (1, None), (3, 3), (5, 5)]
    assert found.counts == Counts(inserted=3, updated=2, deleted=3, copied=1)
    assert net(TWO, (D, (1, 1), None)).times is None


EVERY = tuple(
    ColumnType(kind, precision=65 if kind is Kind.DECIMAL else None, scale=2 if kind is Kind.DECIMAL else None)
    for kind in Kind
)


def test_rows_without_a_key_are_distinguished_in_every_type() -> None:
    for kind in (*EVERY, ColumnType(Kind.DECIMAL, precision=9, scale=2), ColumnType(Kind.BIGINT, unsigned=True)):
        arrow = kind.arrow
        if pa.types.is_string(arrow) or pa.types.is_binary(arrow):
            values = pa.array([b"a", b"a ", b"A"], pa.binary()).cast(arrow)
        elif pa.types.is_decimal(arrow) or pa.types.is_floating(arrow):
            values = pa.array([1, 2, 3], pa.int8()).cast(arrow)
        else:
            values = pa.array([1, 2, 3], pa.int64() if arrow.bit_width == 64 else pa.int32())
            values = values.cast(arrow) if pa.types.is_integer(arrow) else values.view(arrow)
        values = pa.concat_arrays([values, pa.nulls(1, arrow)])
        image = pa.StructArray.from_arrays(
            [pa.repeat(7, 4).cast(pa.int32()), values], fields=list(table(INT, kind).arrow)
        )
        before, after = image.take(pa.array([0, 1, 3, None, None])), image.take(pa.array([None, None, None, 0, 2]))
        lsns = pa.array([Lsn(0, 1, 100, row).to_bytes() for row in range(5)], pa.binary(Lsn.SIZE))
        ops = pa.array([D, D, D, N, N], pa.int8())
        (found,) = net_changes([ChangeBatch.of(table(INT, kind, key=0), lsns, ops, before, after)])
        assert found.deletes["b"].combine_chunks().equals(values.take(pa.array([1, 3]))), kind
        assert found.upserts["b"].combine_chunks().equals(values.take(pa.array([2]))), kind
        assert found.times == pa.array([1, 1], pa.int64())
        assert found.deletes.schema == found.upserts.schema == found.table.arrow


def test_without_a_key_zero_has_its_sign_where_it_is_written_and_none_where_it_is_removed() -> None:
    signed = table(ColumnType(Kind.DOUBLE), key=0)
    found = net(signed, (N, None, (-0.0,)), (D, (0.0,), None))
    assert ([str(*row) for row in rows(found.deletes)], [str(*row) for row in rows(found.upserts)]) == (
        ["0.0"],
        ["-0.0"],
    )
    both = net(signed, (D, (-0.0,), None), (D, (0.0,), None), (D, (1.0,), None))
    assert (len(both.deletes), both.times.to_pylist()) == (2, [2, 1])


SHARDS = [TableName("d", "t_1"), TableName("d", "t_2")]


def merged(table: Table, *changes: tuple[int, Any], wider: Collection[TableName] = ()) -> NetChange:
    """Returns the changes of two tables in log order, as they arrive: first all of one table, then all of the other."""
    whole = batch(table, *(change for _, change in changes))
    parts = []
    for shard, name in enumerate(SHARDS):
        mine = [place for place, (its, _) in enumerate(changes) if its == shard]
        parts.append(ChangeBatch(table, whole.rows.take(pa.array(mine, pa.int64())), name))
    (one,) = net_changes(parts, merged=[table.name], wider=wider)
    return one


@pytest.mark.parametrize(
    ("changes", "deletes", "upserts"),
    [
        pytest.param([(1, (N, None, (1, 1))), (0, (D, (1, 1), None))], [], [(1, 1)], id="copied over, then deleted"),
        pytest.param([(0, (D, (1, 1), None)), (1, (N, None, (1, 1)))], [], [(1, 1)], id="deleted, then written"),
        pytest.param([(1, (D, (1, 1), None)), (0, (N, None, (1, 2)))], [], [(1, 2)], id="into the first"),
        pytest.param([(1, (U, (1, 1), (1, 2))), (0, (U, (1, 2), (1, 3)))], [], [(1, 3)], id="later wins"),
        pytest.param([(1, (N, None, (1, 2))), (0, (U, (1, 1), (2, 1)))], [], [(1, 2), (2, 1)], id="another key there"),
        pytest.param([(1, (D, (1, 1), None)), (0, (D, (2, 2), None))], [(1,), (2,)], [], id="both deleted"),
        pytest.param(
            [(1, (N, None, (1, 1))), (1, (D, (1, 1), None)), (0, (U, (2, 2), (2, 3)))], [], [(2, 3)], id="came and went"
        ),
        pytest.param(
            [(0, (U, (1, 1), (1, 2))), (1, (N, None, (1, 2))), (0, (D, (1, 2), None)), (1, (U, (1, 2), (1, 7)))],
            [],
            [(1, 7)],
            id="there and on",
        ),
        pytest.param(
            [(0, (U, (1, 1), (2, 1))), (0, (D, (2, 1), None))], [(1,)], [], id="the other's row has the new key"
        ),
        pytest.param([(0, (U, (1, 1), (2, 1))), (0, (U, (2, 1), (3, 1)))], [(1,)], [(3, 1)], id="past the other's row"),
    ],
)
def test_rows_move_between_two_tables_of_one_target(changes: list[Any], deletes: list[Any], upserts: list[Any]) -> None:
    found = merged(TWO, *changes)
    assert (rows(found.deletes), rows(found.upserts)) == (deletes, upserts)


@pytest.mark.parametrize(
    ("changes", "deletes", "upserts"),
    [
        pytest.param([(1, (N, None, (1, 1)))], [(1,)], [(1, 1)], id="over a row that waits"),
        pytest.param(
            [(1, (N, None, (1, 1))), (0, (D, (1, 1), None))], [(1,)], [(1, 1)], id="copied over, then deleted"
        ),
        pytest.param([(1, (N, None, (1, 1))), (1, (U, (1, 1), (1, 2)))], [(1,)], [(1, 2)], id="and changed"),
        pytest.param(
            [(1, (D, (1, 1), None)), (0, (D, (1, 1), None)), (1, (N, None, (1, 2)))], [(1,)], [(1, 2)], id="came back"
        ),
        pytest.param([(1, (Op.COPY, None, (1, 1)))], [(1,)], [(1, 1)], id="copied"),
        pytest.param([(1, (U, (1, 1), (2, 1)))], [(1,), (2,)], [(2, 1)], id="from another key"),
        pytest.param([(1, (U, (1, 1), (1, 2)))], [], [(1, 2)], id="its own"),
        pytest.param([(1, (N, None, (1, 1))), (0, (U, (1, 1), (1, 2)))], [], [(1, 2)], id="its own, and the last"),
        pytest.param(
            [(0, (N, None, (1, 1))), (0, (D, (1, 1), None)), (1, (U, (1, 1), (1, 2)))], [], [(1, 2)], id="not it"
        ),
    ],
)
def test_a_row_that_comes_to_a_table_with_fewer_columns_is_removed_first(
    changes: list[Any], deletes: list[Any], upserts: list[Any]
) -> None:
    found = merged(TWO, *changes, wider=[TWO.name])
    assert (rows(found.deletes), rows(found.upserts)) == (deletes, upserts)


def test_a_row_that_moves_to_another_table_and_gives_up_a_unique_value_is_removed_first() -> None:
    found = merged(
        table(INT, INT, unique=["b"]), (1, (N, None, (1, 5))), (0, (D, (1, 1), None)), (1, (N, None, (2, 1)))
    )
    assert (rows(found.deletes), rows(found.upserts)) == ([(1,)], [(1, 5), (2, 1)])


def test_a_table_with_one_source_is_not_merged_whatever_its_target_is_called() -> None:
    whole = batch(TWO, (N, None, (1, 1)), (D, (1, 1), None), (Op.ABSENT, (2, None), None))
    (routed,) = net_changes([replace(whole, upstream=SHARDS[0])])
    assert rows(routed.deletes) == [(1,), (2,)], (
        "a chunk of the copy may have brought the one, a repair found the other"
    )
    (part_of_many,) = net_changes([replace(whole, upstream=SHARDS[0])], merged=[TWO.name])
    assert (1,) not in rows(part_of_many.deletes), "it may be another's row"


def test_collisions_are_found_by_the_unique_keys_of_each_merged_table() -> None:
    one, two = table(INT, INT), table(INT, INT, unique=["b"])
    (found,) = net_changes(
        [
            ChangeBatch(one, batch(one, (U, (1, 1), (1, 5))).rows, SHARDS[0]),
            ChangeBatch(two, batch(two, (N, None, (2, 1))).rows, SHARDS[1]),
        ],
        merged=[one.name],
    )
    assert rows(found.deletes) == [(1,)]


def test_collisions_are_found_by_keys_that_only_the_target_has() -> None:
    changes = batch(TWO, (U, (1, 1), (1, 5)), (N, None, (2, 1)))
    (found,) = net_changes([changes], {TWO.name: ["b"]})
    assert (rows(found.deletes), rows(found.upserts)) == ([(1,)], [(1, 5), (2, 1)])


def test_the_keys_decide_in_which_columns_collisions_are_looked_for() -> None:
    three = table(INT, INT, INT, unique=["b"])
    assert watched_columns(three) == ("b",)
    assert watched_columns(table(INT, INT, unique=["ab"])) == ()
    assert watched_columns(three, [UniqueKey(("c",)), UniqueKey(("a", "b"))]) == ("c",)
    assert watched_columns(three, [UniqueKey(("c", "only_there"))]) == ("a", "b", "c")
    assert watched_columns(three, [UniqueKey(("c", ANYTHING))]) == ("a", "b", "c")
    assert watched_columns(three, [UniqueKey(("a",), whole=False)]) == ("a",)
    generated = replace(
        three, columns=(*three.columns[:1], replace(three.columns[1], generated=True), three.columns[2])
    )
    assert watched_columns(generated) == ("a", "b", "c")
    assert watched_columns(table(INT, INT, key=0, unique=["b"])) == ()


def test_rows_logged_in_part_halt_unless_they_were_completed() -> None:
    found = batch(TWO, (U, (1, 1), (1, 2)))
    rows = found.rows.set_column(4, found.rows.schema.field(4), pa.array([b"\x01\x02"], pa.binary()))
    with pytest.raises(Halted, match="partial-row-image"):
        net_changes([ChangeBatch(TWO, rows)])


@pytest.mark.parametrize(
    "change", [(N, None, (None, 1)), (D, (None, 1), None), (U, (None, 1), (1, 1)), (U, None, (1, 1))]
)
def test_a_key_without_a_value_halts(change: Any) -> None:
    with pytest.raises(Halted, match="null-in-key"):
        net(TWO, change)


def test_one_table_under_two_structures_halts() -> None:
    with pytest.raises(Halted, match="structures-differ"):
        net_changes([batch(TWO, (N, None, (1, 1))), batch(table(INT, ColumnType(Kind.BIGINT)), (N, None, (1, 1)))])
