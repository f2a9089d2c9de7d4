"""Removed copies are paired with new rows that have the same values in the indexed columns."""

from __future__ import annotations

import random
from collections import Counter

import pyarrow as pa
import pytest

from pidts.target.mysql.row_events.copies import paired


def made(rows: list[tuple[int | None, str | None, int]]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [()] * 3
    return pa.table({"a": pa.array(columns[0], pa.int64()), "b": pa.array(columns[1], pa.string()), "c": columns[2]})


@pytest.mark.parametrize("by", [("a",), ("b",), ("b", "a")])
def test_as_many_pairs_as_possible_are_made(by: tuple[str, ...]) -> None:
    chance = random.Random(7)
    for _ in range(50):
        old, new = (
            made(
                [
                    (chance.choice([None, 1, 2, 3]), chance.choice([None, "", "x"]), number)
                    for number in range(chance.randrange(40))
                ]
            )
            for _ in range(2)
        )
        times = [chance.randrange(1, 4) for _ in range(old.num_rows)]
        before, after = paired(by, old, pa.array(times, pa.int64()), new)
        values = [tuple(row[name] for name in by) for row in old.to_pylist()]
        theirs = [tuple(row[name] for name in by) for row in new.to_pylist()]
        assert [values[place] for place in before] == [theirs[place] for place in after]
        assert all(count <= times[place] for place, count in Counter(before.tolist()).items())
        assert len(set(after.tolist())) == len(after)
        there: Counter[tuple[object, ...]] = Counter()
        for value, count in zip(values, times, strict=True):
            there[value] += count
        assert len(before) == (there & Counter(theirs)).total()


def test_pairs_follow_the_order_of_the_index() -> None:
    old = made([(number, "", number) for number in (5, 3, 9, 1)])
    new = made([(number, "", number) for number in (1, 9, 5, 2)])
    before, after = paired(("a",), old, pa.array([1] * 4, pa.int64()), new)
    assert old["a"].take(pa.array(before)).to_pylist() == [1, 5, 9]
    assert new["a"].take(pa.array(after)).to_pylist() == [1, 5, 9]


def test_nothing_is_paired_without_indexed_columns() -> None:
    old = made([(1, "", 1)])
    before, after = paired((), old, pa.array([1], pa.int64()), old)
    assert len(before) == len(after) == 0
