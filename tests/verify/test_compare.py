"""Two quiet sides: what is named, what is counted, and what counts as equal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from pidts.model import Column, ColumnType, Halted, Key, Kind, Table, TableName, Transient, calendar
from pidts.verify import EXACT, POSTGRES, Difference, Finding, Normals, Report, Side, compare, pages

INT = ColumnType(Kind.INT)
TEXT = ColumnType(Kind.VARCHAR, length=20)
Rows = list[tuple[Any, ...]]


def table(*types: ColumnType, key: int = 1) -> Table:
    names = "abcdefgh"[: len(types)]
    columns = tuple(Column(name, kind) for name, kind in zip(names, types, strict=True))
    keys = (Key("PRIMARY", tuple(names[:key]), unique=True, primary=True),) if key else ()
    return Table(TableName("d", "t"), columns, keys)


def arrow(table: Table, rows: Rows) -> pa.Table:
    columns = zip(*rows, strict=True) if rows else [()] * len(table.columns)
    return pa.Table.from_arrays(
        [pa.array(values, field.type) for values, field in zip(columns, table.arrow, strict=True)], schema=table.arrow
    )


def side(rows: Rows, key: int = 1, *, chunk: int = 2, count: int | None = None) -> Side:
    """Rows in their own order, read two at a time."""

    def chunks(table: Table) -> Iterator[pa.Table]:
        return (arrow(table, rows[i : i + chunk]) for i in range(0, len(rows), chunk))

    def find(table: Table, keys: pa.Table) -> pa.Table:
        assert keys.column_names == list(table.identity)
        wanted = {tuple(row.values()) for row in keys.to_pylist()}
        return arrow(table, [row for row in reversed(rows) if row[:key] in wanted])

    return Side(rows=chunks, find=find, count=lambda _: len(rows) if count is None else count)


def report(table: Table, source: Rows, target: Rows, *, normals: Normals = EXACT, **options: Any) -> Report:
    key = len(table.identity)
    return compare([table], side(source, key), side(target, key), normals=normals, **options)


def test_equal_sides_in_different_orders_have_no_differences() -> None:
    rows: Rows = [(n, f"row {n}", None) for n in range(7)]
    found = report(table(INT, TEXT, INT), rows, rows[::-1])
    assert (found.rows, found.differences, found.examples, found.equal) == (7, 0, (), True)


def test_two_empty_sides_are_equal() -> None:
    assert report(table(INT, INT), [], []).equal


def test_missing_extra_and_different_rows_are_named_with_key_and_columns() -> None:
    two = table(INT, TEXT, INT, TEXT, key=2)
    source: Rows = [(1, "a", 1, "x"), (1, "b", 1, "x"), (2, "a", None, "x"), (3, "a", 1, "x")]
    target: Rows = [(3, "a", 1, "x"), (1, "b", 2, None), (2, "a", 1, "x"), (4, "a", 1, "x"), (5, "a", 1, "x")]
    found = report(two, source, target)
    (numbers,) = found.tables
    assert (numbers.rows, numbers.missing, numbers.extra, numbers.different) == (4, 1, 2, 2)
    assert set(map(str, found.examples)) == {
        "d.t (a=1, b='a'): missing",
        "d.t (a=1, b='b'): different in c, d",
        "d.t (a=2, b='a'): different in c",
        "d.t (a=4, b='a'): extra",
        "d.t (a=5, b='a'): extra",
    }


def test_as_many_extra_as_missing_rows_are_seen() -> None:
    found = report(table(INT, INT), [(1, 1), (2, 2)], [(2, 2), (3, 3)])
    assert [(one.kind, one.key) for one in found.examples] == [(Finding.MISSING, {"a": 1}), (Finding.EXTRA, {"a": 3})]


def test_a_row_that_a_target_without_constraint_holds_twice_is_extra() -> None:
    found = report(table(INT, INT), [(1, 1), (2, 2)], [(1, 1), (2, 2), (2, 2)])
    assert found.examples == (Difference(TableName("d", "t"), Finding.EXTRA, {"a": 2}),)


def test_examples_are_capped_and_numbers_are_not() -> None:
    found = report(table(INT, INT), [(n, 0) for n in range(50)], [(n, 1) for n in range(25, 60)], examples=7)
    (numbers,) = found.tables
    assert (numbers.missing, numbers.different, numbers.extra, len(found.examples)) == (25, 25, 10, 7)


def test_the_target_is_not_walked_when_the_counts_agree() -> None:
    def never(_: Table) -> Iterator[pa.Table]:
        raise AssertionError("walked")

    target = side([(1, 1)])
    assert compare([table(INT, INT)], side([(1, 1)]), Side(rows=never, find=target.find, count=target.count)).equal


def test_sides_that_move_while_they_are_compared_are_not_called_equal() -> None:
    with pytest.raises(Transient, match="rows-moved"):
        compare([table(INT, INT)], side([(1, 1)]), side([(1, 1)], count=2))


def test_a_table_without_a_key_halts() -> None:
    with pytest.raises(Halted, match="no-key"):
        report(table(INT, key=0), [], [])


@pytest.mark.parametrize(
    ("kind", "one", "two"),
    [
        (ColumnType(Kind.DOUBLE), 0.1, 0.1 + 2**-55),
        (ColumnType(Kind.DECIMAL, precision=65, scale=30), Decimal("1e-30"), Decimal("2e-30")),
        (ColumnType(Kind.BIT, length=64), 2**64 - 1, 2**64 - 2),
        (ColumnType(Kind.VARBINARY, length=3), b"a", b"a\x00"),
        (TEXT, "a", "a "),
        (TEXT, "", None),
        (ColumnType(Kind.JSON), '{"a":1}', '{"a":2}'),
        (ColumnType(Kind.JSON), "1", "true"),
        (ColumnType(Kind.JSON), '"1"', "1"),
        (ColumnType(Kind.JSON), "[1,2]", "[2,1]"),
        (
            ColumnType(Kind.JSON),
            "12345678901234567890123456789012345678901",
            "12345678901234567890123456789012345678902",
        ),
        (ColumnType(Kind.CHAR, length=3), "a", " a"),
        (ColumnType(Kind.DATE), date(1, 1, 1), None),
    ],
)
def test_values_that_differ_are_different_under_every_policy(kind: ColumnType, one: Any, two: Any) -> None:
    for normals in (EXACT, POSTGRES):
        for left, right in ((one, two), (two, one)):
            found = report(table(INT, kind, INT), [(1, left, 0)], [(1, right, 0)], normals=normals)
            assert [example.columns for example in found.examples] == [("b",)]
            assert report(table(INT, kind), [(1, left)], [(1, left)], normals=normals).equal


ZERO_DATE = calendar.days(0, 0, 0)


@pytest.mark.parametrize(
    ("kind", "one", "two"),
    [
        (ColumnType(Kind.CHAR, length=5), "a", "a    "),
        (ColumnType(Kind.DATE), ZERO_DATE, None),
        (ColumnType(Kind.DATE), calendar.days(2023, 2, 31), None),
        (ColumnType(Kind.DATETIME), calendar.microseconds(ZERO_DATE, 5), None),
        (ColumnType(Kind.TIMESTAMP), calendar.microseconds(ZERO_DATE, 0), None),
        (ColumnType(Kind.JSON), '{"b": [1, 2.50], "a": "\\u00e9"}', '{"a":"é","b":[1.0,2.5]}'),
        (ColumnType(Kind.JSON), "1e20", "100000000000000000000"),
        (ColumnType(Kind.JSON), "-0.0", "0"),
    ],
)
def test_what_postgresql_changes_by_agreement_is_equal_there_and_only_there(
    kind: ColumnType, one: Any, two: Any
) -> None:
    three = table(INT, kind, INT)
    source: Rows = [(1, one, 0), (2, None, 0), (3, one, 0)]
    target: Rows = [(1, two, 0), (2, None, 0), (3, two, 1)]
    found = report(three, source, target, normals=POSTGRES)
    assert [(example.key, example.columns) for example in found.examples] == [({"a": 3}, ("c",))]
    assert report(three, source, target).tables[0].different == 2


def test_padded_keys_find_their_rows() -> None:
    char = table(ColumnType(Kind.CHAR, length=5), INT)
    target = side([("a    ", 1)])
    trimmed = Side(rows=target.rows, find=lambda t, _: arrow(t, [("a    ", 1)]), count=target.count)
    assert compare([char], side([("a", 1)]), trimmed, normals=POSTGRES).equal


def test_zero_has_no_sign_in_a_key() -> None:
    assert report(table(ColumnType(Kind.DOUBLE), INT), [(-0.0, 1)], [(0.0, 1)]).equal


def test_keys_that_are_no_dates_can_be_named() -> None:
    keyed = table(ColumnType(Kind.DATE), ColumnType(Kind.DATETIME), INT, key=2)
    moment = calendar.microseconds(ZERO_DATE, 3_723_000_004)
    source = Side(
        rows=lambda t: iter([arrow(t, [(ZERO_DATE, moment, 1)])]), find=lambda t, _: arrow(t, []), count=lambda _: 1
    )
    found = compare([keyed], source, Side(rows=lambda _: iter(()), find=lambda t, _: arrow(t, []), count=lambda _: 0))
    assert found.examples[0].key == {"a": "0000-00-00", "b": "0000-00-00 01:02:03.000004"}


@pytest.mark.parametrize("size", [0, 1, 3, 4, 7])
def test_pages_walk_a_table_once(size: int) -> None:
    one = table(INT)

    def read(table: Table, after: Sequence[Any] | None, limit: int) -> pa.Table:
        start = 0 if after is None else after[0] + 1
        return arrow(table, [(n,) for n in range(start, min(start + limit, size))])

    walked = list(pages(read, lambda chunk, _: [chunk.column("a")[-1].as_py()], limit=3)(one))
    assert [n for chunk in walked for n in chunk.column("a").to_pylist()] == list(range(size))
    assert all(0 < len(chunk) <= 3 for chunk in walked)
