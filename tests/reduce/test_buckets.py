"""The key of a row decides which worker gets the row, in every process alike. Rows that may collide have one worker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pidts.model import ChangeBatch, Column, ColumnType, Key, Kind, Lsn, Op, Table, TableName, change_schema
from pidts.reduce import buckets, spread_by
from pidts.reduce.buckets import _of_bytes

INT = ColumnType(Kind.INT)
BIN = ColumnType(Kind.VARCHAR, length=36, charset="utf8mb4", collation="utf8mb4_bin")
CASED = ColumnType(Kind.VARCHAR, length=36, charset="utf8mb4", collation="utf8mb4_0900_as_cs")
"""A collation that distinguishes 'a' and 'A', but in which different bytes may be equal."""
FOLDING = ColumnType(Kind.VARCHAR, length=36, charset="utf8mb4", collation="utf8mb4_0900_ai_ci")


def table(*key: ColumnType, secondary: bool = False) -> Table:
    names = [f"k{number}" for number in range(len(key))]
    columns = (*(Column(name, kind, nullable=False) for name, kind in zip(names, key, strict=True)), Column("v", INT))
    keys = [Key("PRIMARY", tuple(names), unique=True, primary=True)] if key else []
    return Table(TableName("d", "t"), columns, (*keys, *([Key("u", ("v",), unique=True)] if secondary else [])))


def batch(table: Table, changes: Sequence[tuple[Op, Any, Any]]) -> ChangeBatch:
    def images(side: int) -> list[Any]:
        return [None if c[side] is None else dict(zip(table.arrow.names, (*c[side], 0), strict=True)) for c in changes]

    lsn = [Lsn(0, 1, 100, row).to_bytes() for row in range(len(changes))]
    schema = change_schema(table)
    columns = [lsn, [int(change[0]) for change in changes], images(1), images(2)]
    arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=False)]
    return ChangeBatch.of(table, *arrays)


def place(table: Table, key: tuple[Any, ...], count: int = 1000) -> int:
    parts = buckets(batch(table, [(Op.INSERT, None, key)]), count)
    (number,) = [number for number, part in enumerate(parts) if part is not None]
    return number


@pytest.mark.parametrize(
    ("kinds", "key", "number"),
    [
        ((INT,), (7,), 73),
        ((INT,), (-7,), 910),
        ((ColumnType(Kind.BIGINT, unsigned=True),), (2**64 - 1,), 349),
        ((BIN,), ("naïve",), 693),
        ((ColumnType(Kind.VARBINARY, length=9),), (b"\x00\xff",), 564),
        ((ColumnType(Kind.DECIMAL, precision=65, scale=2),), (Decimal("-1.10"),), 996),
        ((ColumnType(Kind.DATETIME, fsp=6),), (datetime(2024, 1, 1, 0, 0, 0, 1),), 904),
        ((ColumnType(Kind.DATE),), (date(2024, 1, 1),), 265),
        ((ColumnType(Kind.DOUBLE),), (1.5,), 375),
        ((INT, BIN), (7, "a"), 656),
        ((FOLDING,), ("a",), 383),
    ],
)
def test_a_key_has_the_same_bucket_for_ever(kinds: tuple[ColumnType, ...], key: tuple[Any, ...], number: int) -> None:
    assert place(table(*kinds), key) == number


def test_the_hash_of_bytes_is_the_documented_polynomial() -> None:
    words = ["abc", "", "é" * 50, "x"]
    plain = [sum((byte + 1) * 0x100000001B3**n for n, byte in enumerate(word.encode())) % 2**64 for word in words]
    assert _of_bytes(pa.array(["before", *words]).slice(1)).to_pylist() == plain


def test_keys_spread_evenly() -> None:
    for kind, keys in ((INT, [(n,) for n in range(8000)]), (BIN, [(f"user-{n}",) for n in range(8000)])):
        sizes = [len(part) for part in buckets(batch(table(kind), [(Op.INSERT, None, key) for key in keys]), 4) if part]
        assert len(sizes) == 4
        assert all(1800 < size < 2200 for size in sizes)


def test_a_value_has_its_bucket_whatever_surrounds_it() -> None:
    keys = ["", "a", "b" * 300, "é", "aa", "\x00"]
    whole = batch(table(BIN), [(Op.INSERT, None, (key,)) for key in keys])
    for part in (whole, ChangeBatch(whole.table, whole.rows.slice(2))):
        for number, mine in enumerate(buckets(part, 1000)):
            for row in [] if mine is None else mine.rows.column("after").to_pylist():
                assert place(table(BIN), (row["k0"],)) == number
    assert len({place(table(BIN), (key,)) for key in keys}) == len(keys)


@pytest.mark.parametrize(
    ("kind", "one", "two"),
    [
        (FOLDING, "a", "A"),
        (FOLDING, "ss", "ß"),
        (FOLDING, "e", "é"),
        (CASED, "\u00e9", "e\u0301"),
        (ColumnType(Kind.VARCHAR, length=9, charset="latin1", collation="latin1_general_cs"), "a", "A"),
        (ColumnType(Kind.VARCHAR, length=9, charset="cp1250", collation="cp1250_czech_cs"), "a", "A"),
        (BIN, "a", "a  "),
        (ColumnType(Kind.DOUBLE), 0.0, -0.0),
        (ColumnType(Kind.CHAR, length=3), "a", "A"),
    ],
)
def test_keys_that_some_server_holds_equal_stay_together(kind: ColumnType, one: Any, two: Any) -> None:
    assert place(table(kind), (one,)) == place(table(kind), (two,))


@given(st.decimals(allow_nan=False, allow_infinity=False, places=6, min_value=-(10**9), max_value=10**9))
@example(Decimal(0))
@example(Decimal("0.000001"))
@example(Decimal(100))
@example(Decimal("0.0000001"))
@example(Decimal("-0.00000012"))
def test_shards_with_other_scales_of_a_decimal_key_have_one_worker_for_a_row(number: Decimal) -> None:
    """A row that moves from one shard to the other is deleted and inserted by one worker."""
    least = max(0, -int(number.normalize().as_tuple().exponent))
    kinds = [ColumnType(Kind.DECIMAL, precision=38, scale=scale) for scale in (least, least + 1, 20, 28)]
    assert len({place(table(kind), (number,)) for kind in kinds}) == 1


@pytest.mark.parametrize(
    ("kind", "other", "values", "alike"),
    [
        (INT, ColumnType(Kind.BIGINT, unsigned=True), (1, 2), True),
        (ColumnType(Kind.DECIMAL, precision=9, scale=2), ColumnType(Kind.DECIMAL, precision=12, scale=4), (1, 2), True),
        (ColumnType(Kind.FLOAT), ColumnType(Kind.DOUBLE), (1.5, 2.5), True),
        (
            ColumnType(Kind.DATETIME),
            ColumnType(Kind.DATETIME, fsp=6),
            (datetime(2024, 1, 1), datetime(2024, 1, 2)),
            True,
        ),
        (INT, ColumnType(Kind.DECIMAL, precision=9, scale=0), (1, 2), False),
        (INT, ColumnType(Kind.DOUBLE), (1, 2), False),
        (BIN, FOLDING, ("a", "b"), False),
    ],
)
def test_structures_that_assign_equal_keys_alike(
    kind: ColumnType, other: ColumnType, values: tuple[Any, ...], *, alike: bool
) -> None:
    assert (spread_by(table(kind)) == spread_by(table(other))) == alike
    assert all(place(table(kind), (value,)) == place(table(other), (value,)) for value in values) == alike


def test_a_unique_key_leaves_no_column_by_which_a_table_is_spread() -> None:
    assert (spread_by(table(INT)), spread_by(table(INT, secondary=True))) == ((("k0", "integer"),), ())


def test_different_decimal_keys_are_spread() -> None:
    kind = ColumnType(Kind.DECIMAL, precision=10, scale=2)
    numbers = [Decimal(number) / 100 for number in range(-500, 500)]
    parts = buckets(batch(table(kind), [(Op.INSERT, None, (number,)) for number in numbers]), 1000)
    assert sum(part is not None for part in parts) > 550


def test_columns_besides_folding_text_spread_a_key() -> None:
    assert place(table(INT, FOLDING), (1, "a")) == place(table(INT, FOLDING), (1, "b"))
    assert place(table(INT, FOLDING), (1, "a")) != place(table(INT, FOLDING), (2, "a"))


def test_a_table_with_secondary_unique_keys_stays_whole() -> None:
    changes = batch(table(INT, secondary=True), [(Op.INSERT, None, (n,)) for n in range(100)])
    assert [part for part in buckets(changes, 8) if part is not None] == [changes]


def test_an_update_across_buckets_becomes_a_delete_and_an_insert_in_log_order() -> None:
    two = table(INT)
    here, there = next(
        (a, b) for a in range(9) for b in range(9) if place(two, (a,), 2) == 0 and place(two, (b,), 2) == 1
    )
    changes = [
        (Op.UPDATE, (here,), (here,)),
        (Op.UPDATE, (here,), (there,)),
        (Op.INSERT, None, (here,)),
        (Op.UPDATE, (there,), (there,)),
    ]
    left, right = buckets(batch(two, changes), 2)
    assert left is not None
    assert right is not None
    said = [
        [
            (Op(row["op"]).name, row["before"] and row["before"]["k0"], row["after"] and row["after"]["k0"])
            for row in part.rows.to_pylist()
        ]
        for part in (left, right)
    ]
    assert said == [
        [("UPDATE", here, here), ("DELETE", here, None), ("INSERT", None, here)],
        [("INSERT", None, there), ("UPDATE", there, there)],
    ]
    assert left.rows.schema == change_schema(two)
    assert left.rows.column("lsn")[1] == right.rows.column("lsn")[0]


def test_an_update_within_one_bucket_stays_an_update() -> None:
    changes = batch(table(INT), [(Op.UPDATE, (1,), (2,))])
    assert buckets(changes, 1) == [changes]


def test_an_empty_batch_has_no_parts_and_a_table_without_a_key_stays_whole() -> None:
    assert buckets(batch(table(INT), []), 3) == [None, None, None]
    changes = batch(table(), [(Op.INSERT, None, ())] * 9)
    assert [part for part in buckets(changes, 3) if part is not None] == [changes]


def test_a_table_whose_target_has_more_unique_keys_stays_whole() -> None:
    changes = batch(table(INT), [(Op.INSERT, None, (n,)) for n in range(100)])
    assert [part for part in buckets(changes, 8, watched=["v"]) if part is not None] == [changes]


def test_a_unique_key_that_contains_the_identity_keeps_nothing_together() -> None:
    plain = table(INT)
    wider = replace(plain, keys=(*plain.keys, Key("wider", ("v", "k0"), unique=True)))
    changes = batch(wider, [(Op.INSERT, None, (n,)) for n in range(100)])
    assert sum(part is not None for part in buckets(changes, 8)) == 8


def in_part(table: Table, *updates: tuple[tuple[Any, ...], tuple[Any, ...], int]) -> ChangeBatch:
    """Returns updates in MINIMAL row images: the before image has the key, the after image the columns of a bitmap."""
    changes = batch(table, [(Op.UPDATE, old, new) for old, new, _ in updates])
    keys = len(table.identity)
    found = [bytes([(1 << keys) - 1, after]) for _, _, after in updates]
    rows = changes.rows.set_column(4, changes.rows.schema.field(4), pa.array(found, pa.binary()))
    return ChangeBatch(table, rows)


def test_an_update_logged_in_part_has_the_keys_that_it_does_not_repeat() -> None:
    one = table(INT, INT)
    key, other = next(((a, 1), (a, 2)) for a in range(99) if place(one, (a, 1), 2) != place(one, (a, 2), 2))
    for kept, bits in (((None, None), 0b100), ((key[0], None), 0b101), (key, 0b111)):
        parts = buckets(in_part(one, (key, kept, bits)), 2)
        assert [part is not None for part in parts] == [place(one, key, 2) == number for number in range(2)]
    same = next((a, 3) for a in range(99) if place(one, (a, 3), 2) == place(one, (a, 4), 2))
    (part,) = [part for part in buckets(in_part(one, (same, (None, 4), 0b010)), 2) if part is not None]
    assert part.rows.column("op").to_pylist() == [Op.UPDATE]
    parts = buckets(in_part(one, (key, key, 0b111), (key, (None, other[1]), 0b010)), 2)
    halved = [
        part.rows["partial"].to_pylist()
        for part in parts
        if part is not None and Op.INSERT in part.rows["op"].to_pylist()
    ]
    assert halved == [[b"\x03\x02"]], "with both bitmaps, it is known for a half"


def test_the_halves_of_an_update_logged_in_part_have_each_their_own_bitmap() -> None:
    one = table(INT)
    here, there = next((a, b) for a in range(9) for b in range(9) if place(one, (a,), 2) < place(one, (b,), 2))
    left, right = buckets(in_part(one, ((here,), (there,), 0b11), ((here,), (None,), 0b10)), 2)
    assert left is not None
    assert right is not None
    assert (left.rows.column("op").to_pylist(), right.rows.column("op").to_pylist()) == (
        [Op.DELETE, Op.UPDATE],
        [Op.INSERT],
    )
    assert (left.rows.column("partial").to_pylist(), right.rows.column("partial").to_pylist()) == (
        [b"\x01", b"\x01\x02"],
        [None],
    )


def test_a_generated_column_may_be_missing_where_a_row_gets_another_worker() -> None:
    one = table(INT)
    made = replace(one, columns=(one.columns[0], replace(one.columns[1], generated=True)))
    here, there = next((a, b) for a in range(9) for b in range(9) if place(one, (a,), 2) < place(one, (b,), 2))
    _, right = buckets(in_part(made, ((here,), (there,), 0b01)), 2)
    assert right is not None
    assert right.rows.column("partial").to_pylist() == [b"\x01\x01"]


def test_a_table_of_the_source_goes_with_its_part() -> None:
    changes = batch(table(INT), [(Op.INSERT, None, (n,)) for n in range(100)])
    merged = replace(changes, upstream=TableName("shard", "one"))
    assert {part.upstream for part in buckets(merged, 4) if part is not None} == {TableName("shard", "one")}
