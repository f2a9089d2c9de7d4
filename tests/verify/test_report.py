"""The differences that a report names are divided among its tables."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pidts.model import TableName
from pidts.verify import DifferenceKind, RowDifference, divided


def rows(table: str, count: int, begin: int = 0) -> list[RowDifference]:
    name = TableName("shop", table)
    return [RowDifference(name, DifferenceKind.MISSING, {"id": number}) for number in range(begin, begin + count)]


@pytest.mark.parametrize(
    ("counts", "most", "kept"),
    [
        ({"a": 100}, 20, {"a": 20}),
        ({"a": 100, "b": 1}, 20, {"a": 19, "b": 1}),
        ({"a": 100, "b": 100, "c": 3}, 20, {"a": 9, "b": 8, "c": 3}),
        ({"a": 5, "b": 5}, 20, {"a": 5, "b": 5}),
        ({"a": 2, "b": 2, "c": 2}, 2, {"a": 1, "b": 1}),
        ({"a": 2}, 0, {}),
    ],
)
def test_each_table_gets_its_part(counts: dict[str, int], most: int, kept: dict[str, int]) -> None:
    found = divided([one for table, count in counts.items() for one in rows(table, count)], most)
    assert Counter(one.table.name for one in found) == kept


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(1, 9)), max_size=9), st.integers(0, 12))
def test_what_is_left_out_early_is_not_missing_at_the_end(pages: list[tuple[str, int]], most: int) -> None:
    """The comparison drops examples after each page, since it does not know how many tables will have differences."""
    pages = sorted(pages, key=lambda page: page[0])
    kept: list[RowDifference] = []
    everything: list[RowDifference] = []
    for number, (table, count) in enumerate(pages):
        new = rows(table, count, number * 10)
        kept = divided([*kept, *new[:most]], most)
        everything += new
    assert len(kept) == min(len(everything), most)
    sizes = Counter(one.table for one in kept)
    whole = Counter(one.table for one in everything)
    if len(whole) <= most:
        assert sizes.keys() == whole.keys()
    cut = [sizes[table] for table in whole if sizes[table] < whole[table]]
    assert all(size <= min(cut, default=size) + 1 for size in sizes.values()), "no table has more than a shortened one"
