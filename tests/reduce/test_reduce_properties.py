"""Any history, in any parts, reduced and written by statements that check each row, ends like the source."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from pidts.model import ChangeBatch, Column, ColumnType, Key, Kind, Lsn, Op, Table, TableName, change_schema
from pidts.reduce import NetChange, buckets, net_changes

pytestmark = pytest.mark.usefixtures("each_way")

INT, TEXT = ColumnType(Kind.INT), ColumnType(Kind.VARCHAR, length=9, charset="utf8mb4", collation="utf8mb4_general_ci")
PRIMARY = Key("PRIMARY", ("id",), unique=True, primary=True)
Row = dict[str, Any]
Change = tuple[Op, Row | None, Row | None]


def table_of(id_type: ColumnType, *secondary: Key) -> Table:
    columns = (Column("id", id_type, nullable=False), *(Column(name, INT) for name in ("u", "v", "w")))
    return Table(TableName("shop", "cart"), columns, (PRIMARY, *secondary))


PLAIN = table_of(INT)
UNIQUE = table_of(INT, Key("by_u", ("u",), unique=True), Key("by_vw", ("v", "w"), unique=True))
FOLDED = table_of(TEXT, Key("by_u", ("u",), unique=True))
FOLDED_PLAIN = table_of(TEXT)


def batch_of(table: Table, changes: Sequence[Change], start: int = 0) -> ChangeBatch:
    schema = change_schema(table)
    lsn = [Lsn(0, 1, 100 + start + i).to_bytes() for i in range(len(changes))]
    ops, before, after = zip(*changes, strict=True) if changes else ((), (), ())
    arrays = [pa.array(values, field.type) for values, field in zip((lsn, ops, before, after), schema, strict=False)]
    return ChangeBatch.of(table, *arrays)


class DuplicateKeyError(Exception):
    """A write found a row with one of its unique values."""


class Rows:
    """A table as a server has it: keys are compared by the column's collation, constraints are checked at each row."""

    def __init__(self, table: Table) -> None:
        self.table, self.rows = table, {}

    def key(self, row: Row) -> Any:
        return row["id"].lower() if isinstance(row["id"], str) else row["id"]

    def put(self, row: Row, replacing: Any = None) -> None:
        for key, other in self.rows.items():
            if key == replacing:
                continue
            if key == self.key(row):
                raise DuplicateKeyError(row, other)
            for unique in self.table.secondary_unique:
                mine, theirs = ([r[name] for name in unique.columns] for r in (row, other))
                if mine == theirs and None not in mine:
                    raise DuplicateKeyError(row, other)
        self.rows.pop(replacing, None)
        self.rows[self.key(row)] = row

    def write(self, net: NetChange, order: random.Random) -> None:
        deletes, upserts = net.deletes.to_pylist(), net.upserts.to_pylist()
        order.shuffle(deletes)
        order.shuffle(upserts)
        for row in deletes:
            self.rows.pop(self.key(row), None)
        for row in upserts:
            old = self.rows.get(self.key(row))
            # An upsert that finds its row leaves the columns of the key unchanged.
            self.put(row if old is None else {**row, "id": old["id"]}, replacing=self.key(row))

    def content(self) -> list[Row]:
        return sorted(self.rows.values(), key=lambda row: str(row["id"]))


def history(table: Table, wishes: Sequence[Wish], ids: Sequence[Any]) -> tuple[list[Change], list[list[Row]]]:
    """Returns those wishes that the source allows, as changes, and the source's rows before the first and after each of
    them.
    """
    source = Rows(table)
    for number, name in enumerate(ids[:3]):  # One key is free, so that a row can move to it.
        row = {"id": name, "u": number, "v": number, "w": 1}
        if source.key(row) not in source.rows:
            source.put(row)
    changes: list[Change] = []
    states = [source.content()]

    def change(op: Op, old: Row | None, new: Row | None) -> None:
        try:
            if new is not None:
                source.put(new, replacing=None if old is None else source.key(old))
            elif old is not None:
                del source.rows[source.key(old)]
        except DuplicateKeyError:
            return
        changes.append((op, old, new))
        states.append(source.content())

    for what, at, to, column, value in wishes:
        old, other = (source.rows.get(source.key({"id": ids[number]})) for number in (at, to))
        if what == "insert" and old is None:
            change(Op.INSERT, None, {"id": ids[at], "u": value, "v": value, "w": to, column: value})
        elif what == "delete" and old is not None:
            change(Op.DELETE, old, None)
        elif what == "set" and old is not None:
            change(Op.UPDATE, old, {**old, column: value})
        elif what == "move" and old is not None:
            change(Op.UPDATE, old, {**old, "id": ids[to], column: value})
        elif what == "swap" and old is not None and other is not None and old is not other:
            # An application has to swap values in this way, too: one of the two rows gets a third value first.
            aside = {**old, column: None}
            change(Op.UPDATE, old, aside)
            if source.rows.get(source.key(aside)) == aside:
                change(Op.UPDATE, other, {**other, column: old[column]})
                change(Op.UPDATE, aside, {**aside, column: other[column]})
    return changes, states


Wish = tuple[str, int, int, str, int | None]
NUMBER = st.integers(0, 3)
WISHES = st.lists(
    st.tuples(
        st.sampled_from(["swap", "set", "move", "move", "delete", "insert"]),
        NUMBER,
        NUMBER,
        st.sampled_from(["u", "u", "v", "w"]),
        st.sampled_from([0, 1, 2, 3, None]),
    ),
    max_size=25,
)
CUTS = st.lists(st.integers(1, 40), max_size=4)
NUMBERS, LETTERS = (1, 2, 3, 4), ("a", "A", "b", "B")


def started(table: Table, rows: list[Row]) -> Rows:
    target = Rows(table)
    for row in rows:
        target.put(row)
    return target


def cut(changes: list[Change], cuts: Sequence[int]) -> list[tuple[int, list[Change]]]:
    marks = [0, *sorted({c for c in cuts if c < len(changes)}), len(changes)]
    return [(low, changes[low:high]) for low, high in pairwise(marks)]


@pytest.mark.parametrize(
    ("table", "ids"), [(PLAIN, NUMBERS), (UNIQUE, NUMBERS), (FOLDED, LETTERS), (FOLDED_PLAIN, LETTERS)]
)
@settings(max_examples=examples(80), deadline=None)
@given(wishes=WISHES, cuts=CUTS, parts=st.integers(1, 5), seed=st.integers(0, 9))
def test_each_batch_takes_the_target_from_one_state_of_the_source_to_another(
    table: Table, ids: Sequence[Any], wishes: list[Wish], cuts: list[int], parts: int, seed: int
) -> None:
    changes, states = history(table, wishes, ids)
    target = started(table, states[0])
    for low, some in cut(changes, cuts):
        sliced = [batch_of(table, some[i : i + parts], low + i) for i in range(0, len(some), parts)]
        for net in net_changes(sliced):
            if ids == NUMBERS and net.likely_new is not None:
                there = target.rows.keys() - set(net.deletes["id"].to_pylist())
                assert net.likely_new.to_pylist() == [key not in there for key in net.upserts["id"].to_pylist()]
            target.write(net, random.Random(seed))
        assert target.content() == states[low + len(some)]


@pytest.mark.parametrize(("table", "ids"), [(PLAIN, NUMBERS), (UNIQUE, NUMBERS), (FOLDED_PLAIN, LETTERS)])
@settings(max_examples=examples(60), deadline=None)
@given(wishes=WISHES, cuts=CUTS, workers=st.integers(1, 4), seed=st.integers(0, 9))
def test_workers_reach_the_same_end_in_whatever_order_they_write(
    table: Table, ids: Sequence[Any], wishes: list[Wish], cuts: list[int], workers: int, seed: int
) -> None:
    changes, states = history(table, wishes, ids)
    target, order = started(table, states[0]), random.Random(seed)
    for low, some in cut(changes, cuts):
        # Two slices of the batch are divided independently, as two processes do it.
        slices = [
            buckets(batch_of(table, half, low), workers) for half in (some[: len(some) // 2], some[len(some) // 2 :])
        ]
        by_worker = [[part for part in mine if part is not None] for mine in zip(*slices, strict=True)]
        order.shuffle(by_worker)
        for mine in by_worker:
            for net in net_changes(mine):
                target.write(net, order)
        assert target.content() == states[low + len(some)]


@pytest.mark.parametrize(("table", "ids"), [(PLAIN, NUMBERS), (UNIQUE, NUMBERS), (FOLDED, LETTERS)])
@settings(max_examples=examples(80), deadline=None)
@given(
    wishes=WISHES,
    cuts=CUTS,
    reads=st.lists(st.tuples(st.integers(0, 4), st.floats(0, 1)), min_size=2, max_size=2),
    seed=st.integers(0, 9),
)
def test_rows_copied_while_the_log_continues_end_like_the_source(
    table: Table,
    ids: Sequence[Any],
    wishes: list[Wish],
    cuts: list[int],
    reads: list[tuple[int, float]],
    seed: int,
) -> None:
    changes, states = history(table, wishes, ids)
    low_keys = {str(number).lower() for number in ids[:2]}
    chunks: list[Callable[[Row], bool]] = [
        lambda row: str(row["id"]).lower() in low_keys,
        lambda row: str(row["id"]).lower() not in low_keys,
    ]
    batches = cut(changes, cuts)
    target = Rows(table)
    for nth, (low, some) in enumerate(batches):
        high = low + len(some)
        copied: list[Change] = []
        for (number, moment), is_mine in zip(reads, chunks, strict=True):
            if min(number, len(batches) - 1) == nth:
                read = states[low + round(moment * (high - low))]
                copied += [(Op.COPY, None, row) for row in read if is_mine(row)]
        parts = [batch_of(table, some, low), batch_of(table, copied)]
        random.Random(seed).shuffle(parts)
        for net in net_changes(parts):
            target.write(net, random.Random(seed))
        assert all(row in states[high] for row in target.content())
    assert target.content() == states[-1]
