"""Merged tables: every row of each shard exists on the target, and no other rows. Some rows may have to wait."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pidts.model import ColumnType, Kind
from pidts.verify import (
    ANYBODY,
    NOBODY,
    Callbacks,
    ComparisonInterrupted,
    ComparisonState,
    DifferenceKind,
    MemoryFile,
    Order,
    Report,
    RowMembers,
    compare,
)

from .compared_table import ComparedTable, Rows, Target, Traffic, merged
from .test_compare import INT, Broken, names, table

TEXT = ColumnType(Kind.VARCHAR, length=20, charset="utf8mb4", collation="utf8mb4_bin")
SIDES = [(INT, order, sums) for order in (Order.SAME, Order.LIKELY) for sums in (True, False)]
KINDS = [*SIDES, (INT, Order.OTHER, True), (TEXT, Order.OTHER, True)]
"""The type of the key, how the target orders it, and whether the target computes sums of rows."""


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, rows in {"_SPAN_ROWS": 100, "_LEAF_ROWS": 12, "KEY_ROWS": 50}.items():
        monkeypatch.setattr(f"pidts.verify.spans.{name}", rows)
    monkeypatch.setattr("pidts.verify.key_walk.KEY_ROWS", 50)
    for name in ("_LONGEST_PAUSE", "_FIRST_PAUSE"):
        monkeypatch.setattr(f"pidts.verify.settle.{name}", 0.0)


def compared_tables(sources: Sequence[Rows], target: Rows, kind: ColumnType = INT, **more: Any) -> list[ComparedTable]:
    """Returns a table for each source, all with one target. The settings of the first table are those of the target."""
    return [ComparedTable(table(kind, INT), dict(rows), target, **more) for rows in sources]


def run(members: Sequence[ComparedTable], **options: Any) -> Report:
    source, catch_up = merged(*members)
    return compare(source, Target(members[0]), catch_up, **options)


def key(kind: ColumnType, number: int) -> int | str:
    return number if kind is INT else f"k{number:05}"


def spread(kind: ColumnType, count: int, *, interleaved: bool) -> list[Rows]:
    """Returns the rows of four members: the third has few rows, and the fourth has none."""
    owners = (lambda n: n % 3) if interleaved else (lambda n: 3 * n // count)
    rows: list[Rows] = [{}, {}, {}, {}]
    for n in range(count):
        owner = owners(n)
        rows[0 if owner == 2 and n % 10 else owner][key(kind, n)] = (key(kind, n), n)
    return rows


@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize(("kind", "order", "sums"), KINDS)
def test_every_kind_of_difference_is_named_with_the_table_it_is_of(
    kind: ColumnType, order: Order, *, sums: bool, interleaved: bool
) -> None:
    sources = spread(kind, 600, interleaved=interleaved)
    target = {at: row for rows in sources for at, row in rows.items()}
    assert run(compared_tables(sources, dict(target), kind, order=order, sums=sums)).equal
    del target[key(kind, 77)]
    target[key(kind, 410)] = (key(kind, 410), -1)
    target |= {key(kind, n): (key(kind, n), n) for n in (900, 901)}
    found = run(compared_tables(sources, target, kind, order=order, sums=sums))
    (numbers,) = found.tables
    assert (numbers.rows, numbers.missing, numbers.extra, numbers.different) == (600, 1, 2, 1)
    owner = {at: f"s{number}" for number, rows in enumerate(sources) for at in rows}
    lost, other = key(kind, 77), key(kind, 410)
    assert names(found) == {
        f"d.t (a={lost!r}): missing; it is in {owner[lost]}",
        f"d.t (a={other!r}): different in b; it is in {owner[other]}",
        f"d.t (a={key(kind, 900)!r}): extra",
        f"d.t (a={key(kind, 901)!r}): extra",
    }


def test_equal_sums_are_enough_and_few_rows_are_read_at_a_time() -> None:
    sources = spread(INT, 900, interleaved=True)
    target = {at: row for rows in sources for at, row in rows.items()}
    quiet = compared_tables(sources, target)
    assert run(quiet).equal
    assert all(one.largest == 0 for one in quiet)
    del target[500]
    wrong = compared_tables(sources, target)
    assert run(wrong).tables[0].missing == 1
    # The keys of all members' rows are looked up on the target.
    assert sum(one.largest for one in wrong[1:]) <= 4 * 12
    assert wrong[0].largest <= 4 * 12
    assert sum(one.questions.count("source.rows") for one in wrong) <= 4 * 12


def test_a_key_that_two_tables_have_is_no_row_of_either() -> None:
    sources: list[Rows] = [{1: (1, 1), 2: (2, 2)}, {2: (2, 5), 3: (3, 3)}]
    found = run(compared_tables(sources, {1: (1, 1), 2: (2, 5), 3: (3, 3)}))
    assert names(found) == {"d.t (a=2): different in b; it is in s0 and in s1"}


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(("kind", "order"), [(INT, Order.SAME), (INT, Order.LIKELY), (TEXT, Order.OTHER)])
def test_no_false_difference_and_no_loss_overlooked_while_all_are_written_to(
    seed: int, kind: ColumnType, order: Order
) -> None:
    rows = [{key(kind, n): (key(kind, n), 0) for n in range(start, 300, 3)} for start in range(3)]
    target = {at: row for each in rows for at, row in each.items()}
    traffics = [Traffic(3 * seed + n, list(each)[::4]) for n, each in enumerate(rows)]  # type: ignore[arg-type]
    members = compared_tables(rows, target, kind, order=order)

    def tick(_: ComparedTable) -> None:
        for traffic, member in zip(traffics, members, strict=True):
            traffic(member)

    for member in members:
        member.tick = tick
    planted = {key(kind, 3): None, key(kind, 100): (key(kind, 100), 7), key(kind, 0): (key(kind, 0), 9)}
    for at, row in planted.items():
        number = next(n for n, each in enumerate(rows) if at in each)
        traffics[number].plant(members[number], at, row)  # type: ignore[arg-type]
    target[key(kind, 800)] = (key(kind, 800), 1)
    found = run(members)
    reported = {example.key["a"] for example in found.examples if example.kind is not DifferenceKind.UNSETTLED}
    assert reported <= {*planted, key(kind, 800)}
    wrong = set().union(*(traffic.wrong for traffic in traffics))
    assert wrong <= {example.key["a"] for example in found.examples}
    assert {key(kind, 3), key(kind, 100), key(kind, 800)} <= reported


@pytest.mark.parametrize(("kind", "order"), [(INT, Order.SAME), (TEXT, Order.OTHER)])
def test_waiting_rows_are_distinguished_from_lost_rows(kind: ColumnType, order: Order) -> None:
    rows = [{key(kind, n): (key(kind, n), 0) for n in range(start, 60, 3)} for start in range(3)]
    target = {at: row for each in rows for at, row in each.items()}
    members = compared_tables(rows, target, kind, order=order)
    held, other = members[1], members[0]
    held.waits = "t_1 waits"
    held.write(key(kind, 1), (key(kind, 1), 5))
    held.write(key(kind, 4), None)
    held.write(key(kind, 301), (key(kind, 301), 1))
    other.write(key(kind, 0), (key(kind, 0), 6))
    report = run(members)
    assert report.waits
    (numbers,) = report.tables
    assert (numbers.waiting, numbers.differences, numbers.waits) == (3, 0, ("t_1 waits",))
    del target[key(kind, 2)]
    target[key(kind, 3)] = (key(kind, 3), 8)
    found = run(members)
    assert not found.waits
    assert {(one.key["a"], one.kind.value) for one in found.examples} == {
        (key(kind, 1), "waiting"),
        (key(kind, 4), "waiting"),
        (key(kind, 301), "waiting"),
        (key(kind, 2), "missing"),
        (key(kind, 3), "different"),
    }
    held.waits = ""
    assert run(members).tables[0].waiting == 0


def test_rows_for_which_nothing_is_pending_are_different_whatever_waits() -> None:
    rows: list[Rows] = [{1: (1, 1)}, {2: (2, 2)}]
    members = compared_tables(rows, {1: (1, 1)})
    members[1].waits = "t_1 waits"
    assert names(run(members)) == {"d.t (a=2): missing; it is in s1"}


@pytest.mark.parametrize(("kind", "order", "sums"), KINDS)
def test_a_comparison_that_is_interrupted_continues_and_finds_the_same(
    kind: ColumnType, order: Order, monkeypatch: pytest.MonkeyPatch, *, sums: bool
) -> None:
    monkeypatch.setattr(sys.modules["pidts.verify.compare"], "_SAVE_SECONDS", -1.0)
    sources = spread(kind, 500, interleaved=True)
    target = {at: row for rows in sources for at, row in rows.items()}
    for n in (3, 77, 333):
        del target[key(kind, n)]
    target[key(kind, 999)] = (key(kind, 999), 0)
    members = compared_tables(sources, target, kind, order=order, sums=sums)
    broken, found = Broken(), None
    while found is None:
        broken.stop.clear()
        try:
            found = run(members, memory=broken.memory, callbacks=Callbacks(save=broken.save, stop=broken.stop))
        except ComparisonInterrupted:
            continue
    whole = run(members)
    assert broken.saves > 3
    assert (found.tables, names(found)) == (whole.tables, names(whole))
    assert (whole.tables[0].rows, whole.tables[0].missing, whole.tables[0].extra) == (500, 3, 1)


def test_a_table_that_comes_to_the_others_meanwhile_is_compared_with_them() -> None:
    rows: list[Rows] = [{1: (1, 1)}, {2: (2, 2)}, {3: (3, 3)}]
    members = compared_tables(rows, {1: (1, 1), 2: (2, 2), 3: (3, 3)})
    begun, _ = merged(*members[:2])
    later, _ = merged(*members)
    readings = iter([begun._read(), later._read()])
    source, catch_up = merged(*members)
    source._read = lambda: next(readings)
    found = compare(source, Target(members[0]), catch_up, memory=ComparisonState())
    assert (found.equal, found.tables[0].rows) == (True, 3)


def parted(target: dict[str, str], *, key: int) -> list[ComparedTable]:
    """Returns members that extract 0 and 1, with a row each.

    The target has these rows, and others with other extracted values.
    """
    kinds = table(TEXT, TEXT, key=key)
    rows: list[Rows] = [{f"own{part}": (f"own{part}", part)} for part in "01"]
    there = {at: (at, part) for at, part in {"own0": "0", "own1": "1", **target}.items()}
    return [
        ComparedTable(kinds, own, there, order=Order.OTHER, extracted={"b": part})
        for own, part in zip(rows, "01", strict=True)
    ]


@pytest.mark.parametrize("key", [1, 2])
def test_a_row_too_many_is_reported_with_the_table_that_ought_to_have_deleted_it(key: int, tmp_path: Path) -> None:
    report = run(parted({"lost": "1", "left": "9", "theirs": ""}, key=key))
    (numbers,) = report.tables
    assert (numbers.extra, numbers.of_no_shard, report.equal) == (3, 2, False)
    assert {(one.key["a"], one.shard) for one in report.examples} == {("lost", "s1"), ("left", None), ("theirs", None)}
    assert {text.partition(": ")[2] for text in names(report)} == {
        "extra of s1",
        "extra, of no existing shard (of a dropped table, or written by another program)",
    }
    found = report.to_json("task")
    assert found["tables"][0]["of_no_shard"] == 2
    assert sorted(str(one["shard"]) for one in found["differences"]) == ["None", "None", "s1"]
    file = MemoryFile(tmp_path / "memory.json")
    file.save(ComparisonState("x").finished(numbers, report.examples))
    assert (file.load("x").done, file.load("x").examples) == (report.tables, report.examples)


def test_without_enough_extracted_columns_the_shard_of_a_row_is_unknown() -> None:
    rows = pa.table({"b": ["0", "1", None]})
    assert RowMembers.of([{}, {}]).find(rows) == [ANYBODY] * 3
    assert RowMembers.of([{"b": "0"}, {}]).find(rows) == [ANYBODY] * 3
    assert RowMembers.of([{"c": "0"}, {"c": "1"}]).find(rows) == [ANYBODY] * 3
    assert RowMembers.of([{"b": "1"}, {"b": "1"}]).find(rows) == [NOBODY, ANYBODY, NOBODY]
    assert RowMembers.of([{"b": "1"}]).find(rows) == [NOBODY, 0, NOBODY]


def test_a_delete_that_was_lost_is_no_difference_that_waits_where_the_key_says_whose_the_row_is() -> None:
    for key, kinds in ((1, ["waiting", "waiting", "waiting"]), (2, ["extra", "waiting", "waiting"])):
        members = parted({"a-lost": "1", "b-held": "0", "c-left": "9"}, key=key)
        members[0].waits = "t_0 waits"
        members[0].write("more", ("more", "0"))
        del members[0].source["more"]
        found = sorted(run(members).examples, key=lambda one: str(one.key["a"]))
        assert [one.kind.value for one in found] == kinds
