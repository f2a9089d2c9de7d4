"""A few rows are reduced one by one, with the same result that Arrow gives."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import product
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.examples import examples

from pidts.model import ChangeBatch, Column, ColumnType, Halted, Key, Kind, Lsn, Op, Table, TableName, change_schema
from pidts.reduce import ExpectedRows, NetChange, net_changes

Row = dict[str, Any]
Change = tuple[int, Row | None, Row | None]
KEYS: dict[str, tuple[tuple[ColumnType, ...], list[list[Any]]]] = {
    "integer": ((ColumnType(Kind.BIGINT, unsigned=True),), [[0], [1], [2**64 - 1]]),
    "text": (
        (ColumnType(Kind.VARCHAR, length=9, charset="utf8mb4"),),
        [["a"], ["A"], ["a "], ["\U0001f600"], ["\uffff"]],
    ),
    "bytes": ((ColumnType(Kind.VARBINARY, length=9),), [[b""], [b"\0"], [b"\xff"], [b"a"]]),
    "two columns": (
        (ColumnType(Kind.INT), ColumnType(Kind.VARCHAR, length=9, charset="utf8mb4")),
        [[-1, "a"], [1, ""], [1, "b"], [-1, "b"]],
    ),
    "float": ((ColumnType(Kind.DOUBLE),), [[0.0], [-0.0], [1.5]]),
    "time": ((ColumnType(Kind.DATETIME),), [[0], [1], [2**52]]),
}


def table_of(kind: str, *, is_watched: bool = True) -> Table:
    """Returns a table in which two rows may swap a unique value (`is_watched`) or may not."""
    types, _ = KEYS[kind]
    names = [f"k{number}" for number in range(len(types))]
    columns = [Column(name, type_, nullable=False) for name, type_ in zip(names, types, strict=True)]
    columns += [Column("u", ColumnType(Kind.INT)), Column("v", ColumnType(Kind.INT))]
    keys = [Key("PRIMARY", tuple(names), unique=True, primary=True)]
    keys += [Key("by_u", ("u",), unique=True)] if is_watched else []
    return Table(TableName("shop", "cart"), tuple(columns), tuple(keys))


def batch_of(table: Table, changes: Sequence[Change]) -> ChangeBatch:
    lsns = [Lsn(0, 1, 100 + place).to_bytes() for place in range(len(changes))]
    columns = zip((lsns, *zip(*changes, strict=True)), list(change_schema(table))[:4], strict=True)
    return ChangeBatch.of(table, *(pa.array(values, field.type) for values, field in columns))


@st.composite
def batches(draw: st.DrawFn) -> ChangeBatch:
    kind = draw(st.sampled_from(sorted(KEYS)))
    table = table_of(kind, is_watched=draw(st.booleans()))
    schema = change_schema(table)
    row = st.tuples(st.sampled_from(KEYS[kind][1]), st.integers(0, 2), st.none() | st.integers(0, 2)).map(
        lambda made: dict(zip(schema.field("after").type.names, [*made[0], *made[1:]], strict=True))
    )
    changes = []
    for op in draw(st.lists(st.sampled_from(list(Op)), min_size=1, max_size=12)):
        old = draw(row) if op in {Op.UPDATE, Op.DELETE, Op.ABSENT} else None
        new = draw(row) if op in {Op.INSERT, Op.UPDATE, Op.COPY} else None
        changes.append((int(op), old, new))
    return batch_of(table, changes)


def reduced(batch: ChangeBatch, few: int, patch: pytest.MonkeyPatch, *, ahead: bool) -> NetChange:
    with patch.context() as within:
        for module in ("identity", "net_changes"):  # `pidts.reduce.net_changes` is also the name of a function.
            within.setattr(sys.modules[f"pidts.reduce.{module}"], "FEW", few)
        name = batch.table.name
        (change,) = net_changes([batch], ahead={name} if ahead else (), expecting={name}, inserting={name})
        return change


def demand_the_same(batch: ChangeBatch, patch: pytest.MonkeyPatch, *, ahead: bool) -> None:
    one_by_one, together = (reduced(batch, few, ahead=ahead, patch=patch) for few in (64, 0))
    assert one_by_one.deletes.combine_chunks().equals(together.deletes.combine_chunks())
    assert one_by_one.upserts.combine_chunks().equals(together.upserts.combine_chunks())
    assert one_by_one.counts == together.counts
    assert _plain(one_by_one.expected) == _plain(together.expected)
    assert one_by_one.is_new is not None
    assert one_by_one.is_new.equals(together.is_new)


def _plain(expected: ExpectedRows | None) -> list[Any]:
    assert expected is not None
    tables = (expected.removed, expected.changed, expected.absent)
    return [expected.is_changed.to_pylist(), *((repr(one.to_pydict()), one.schema.types) for one in tables)]


@settings(max_examples=examples(200), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batch=batches(), ahead=st.booleans())
def test_few_rows_have_the_result_of_arrow(monkeypatch: pytest.MonkeyPatch, batch: ChangeBatch, *, ahead: bool) -> None:
    demand_the_same(batch, monkeypatch, ahead=ahead)


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("is_watched", [False, True])
def test_every_pair_of_changes(monkeypatch: pytest.MonkeyPatch, *, is_watched: bool, ahead: bool) -> None:
    """A pair consists of changes of two rows that may swap values. Each pair has its own keys, and many are in one
    batch.
    """

    def row(key: int, value: int) -> Row:
        return {"k0": key, "u": value, "v": 0}

    def changes(first_key: int) -> list[Change]:
        rows = [row(first_key + key, value) for key in (0, 1) for value in (0, 1)]
        found: list[Change] = [(int(op), None, new) for op in (Op.INSERT, Op.COPY) for new in rows]
        found += [(int(op), old, None) for op in (Op.DELETE, Op.ABSENT) for old in rows]
        return found + [(int(Op.UPDATE), old, new) for old in rows for new in rows]

    pairs = []
    for number, (first, second) in enumerate(product(range(len(changes(0))), repeat=2)):
        mine = changes(2 * number)
        pairs += [mine[first], mine[second]]
    table = table_of("integer", is_watched=is_watched)
    for begin in range(0, len(pairs), 64):
        demand_the_same(batch_of(table, pairs[begin : begin + 64]), monkeypatch, ahead=ahead)


def test_a_row_that_is_inserted_and_deleted_did_not_exist_before() -> None:
    """The target must have no row with this key, and no other written row shows whether it has one."""
    row: Row = {"k0": 1, "u": 1, "v": 1}
    other: Row = {"k0": 2, "u": 2, "v": 2}
    table = table_of("integer", is_watched=False)
    log: list[Change] = [(int(Op.INSERT), None, row), (int(Op.DELETE), row, None), (int(Op.INSERT), None, other)]
    (change,) = net_changes([batch_of(table, log)], expecting={table.name})
    assert change.expected is not None
    assert change.expected.absent["k0"].to_pylist() == [1]


def test_a_text_that_is_not_valid_utf8_is_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    table = table_of("text")
    schema = change_schema(table)
    count = 3
    texts = pa.array([b"\xff", b"a", b"\xff"], pa.binary()).view(pa.string())
    numbers = pa.array([1, 2, 3], pa.int32())
    rows = pa.StructArray.from_arrays([texts, numbers, numbers], fields=list(schema.field("after").type))
    lsns = pa.array([Lsn(0, 1, 100 + place).to_bytes() for place in range(count)], schema.field("lsn").type)
    none = pa.nulls(count, schema.field("before").type)
    batch = ChangeBatch.of(table, lsns, pa.array([int(Op.INSERT)] * count, pa.int8()), none, rows)
    demand_the_same(batch, monkeypatch, ahead=False)
    assert reduced(batch, 64, monkeypatch, ahead=False).upserts["u"].to_pylist() == [2, 3]


def test_a_key_without_a_value_halts() -> None:
    table = table_of("integer")
    schema = change_schema(table)
    arrays = ([Lsn(0, 1, 100).to_bytes()], [int(Op.INSERT)], [None], [{"k0": None, "u": 1, "v": 1}])
    batch = ChangeBatch.of(table, *(pa.array(one, field.type) for one, field in zip(arrays, schema, strict=False)))
    with pytest.raises(Halted, match="has no value for its key"):
        net_changes([batch])
