"""A halt for a row that differs has the row's values on source and target, but no log line has them.

Each lock has a reason.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace

import pyarrow as pa
import pytest
from structlog.testing import capture_logs
from tests.target.conformance.samples import create
from tests.values_target import ValuesTarget

from pidts.apply import ApplyRules, prepared
from pidts.model import Column, ColumnType, Halted, Key, Kind, OnDivergence, Op, Table, TableName
from pidts.reduce import Counts, NetChange

from .table_history import PLAIN, Change, Row, batch_of, minimal

RULES = ApplyRules(task="t", source="s", on_divergence=OnDivergence.HALT)
WIDE = Table(
    TableName("d", "wide"),
    (Column("id", ColumnType(Kind.INT)), *(Column(f"c{n}", ColumnType(Kind.VARCHAR, length=200)) for n in range(11))),
    (Key("PRIMARY", ("id",), unique=True, primary=True),),
)
WITH_BYTES = Table(
    TableName("d", "files"),
    (Column("id", ColumnType(Kind.INT)), Column("file", ColumnType(Kind.LONGBLOB))),
    (Key("PRIMARY", ("id",), unique=True, primary=True),),
)


def row(a: int = 1, b: str = "x") -> Row:
    return {"id": 1, "a": a, "b": b, "u": 1}


def halted(table: Table, there: Sequence[Row], changes: list[Change], *, is_minimal: bool = False) -> Halted:
    target = ValuesTarget(f"values of a halt {table.name}")
    try:
        with closing(target.connect()) as session:
            create(session, table)
            rows = pa.Table.from_pylist(list(there), table.arrow)
            session.begin()
            session.write(NetChange(table, rows.select(list(table.identity)).slice(0, 0), rows, Counts(), None))
            columns = [minimal(table, one) for one in changes] if is_minimal else ()
            with pytest.raises(Halted) as found:
                prepared(session, [batch_of(table, changes, 0, columns)], RULES)
        assert found.value.code == "row-diverged"
        return found.value
    finally:
        target.forget()


@pytest.mark.parametrize(
    ("there", "change", "values"),
    [
        (
            [row(a=9, b="y")],
            (Op.UPDATE, row(), row(a=2)),
            ("before the change, the source had: a=1, b='x'", "the target has: a=9, b='y'"),
        ),
        (
            [row(a=9)],
            (Op.DELETE, row(), None),
            ("before the change, the source had: a=1", "the target has: a=9"),
        ),
        (
            [],
            (Op.UPDATE, row(), row(a=2)),
            ("before the change, the source had: id=1, a=1, b='x', u=1", "the target has no such row"),
        ),
        (
            [row(a=9)],
            (Op.INSERT, None, row(b="z")),
            ("the change inserts: a=1, b='z'", "the target has: a=9, b='x'"),
        ),
    ],
)
def test_a_halt_has_the_values_in_which_the_row_differs(
    there: list[Row], change: Change, values: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with capture_logs() as logged:
        error = halted(PLAIN, there, [change])
    assert error.values == values
    for text in (str(error), str(error.to_json()), str(logged), caplog.text):
        assert "a=" not in text


def test_columns_that_the_log_does_not_have_are_left_out() -> None:
    error = halted(PLAIN, [], [(Op.UPDATE, row(), row(a=2))], is_minimal=True)
    assert error.values == ("before the change, the source had: id=1", "the target has no such row")
    error = halted(PLAIN, [row(a=9)], [(Op.INSERT, None, row(a=7, b="z"))], is_minimal=True)
    assert error.values == ("the change inserts: a=7, b='z'", "the target has: a=9, b='x'")


def test_a_few_columns_and_the_beginning_of_each_value_are_enough() -> None:
    whole: Row = {"id": 1, **{f"c{n}": "x" * 200 for n in range(11)}}
    error = halted(WIDE, [], [(Op.UPDATE, whole, {**whole, "c0": "y"})])
    assert len(error.values[0]) < 800
    assert error.values[0].endswith("x and 4 more columns")
    error = halted(WITH_BYTES, [{"id": 1, "file": b"\0" * 300}], [(Op.DELETE, {"id": 1, "file": b"\1" * 300}, None)])
    assert error.values[1] == f"the target has: file=0x{'00' * 29}"


@pytest.mark.parametrize(
    ("there", "why"),
    [
        (
            [{**row(a=9), "id": 2}],
            "id=1: the target does not have the row; id=2: the target's row has other values in a",
        ),
        ([], "the target does not have the row"),
    ],
)
def test_each_locked_row_is_logged_with_its_own_reason(there: list[Row], why: str) -> None:
    changes: list[Change] = [(Op.UPDATE, {**row(), "id": key}, {**row(a=2), "id": key}) for key in (1, 2)]
    target = ValuesTarget("reasons of locks")
    with closing(target.connect()) as session, capture_logs() as logged:
        session.meta.prepare()
        create(session, PLAIN)
        rows = pa.Table.from_pylist(there, PLAIN.arrow)
        session.begin()
        session.write(NetChange(PLAIN, rows.select(["id"]).slice(0, 0), rows, Counts(), None))
        prepared(session, [batch_of(PLAIN, changes, 0)], replace(RULES, on_divergence=OnDivergence.LOCK))
    (line,) = [one for one in logged if "are set aside" in one["event"]]
    assert (line["rows"], line["keys"], line["why"]) == (2, "id=1; id=2", why)
    target.forget()
