"""If a filter has left a row out, an update of this row changes nothing. All other updates are written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.apply.table_history import PLAIN, Change, batch_of, rows_of
from tests.target.conformance.samples import create
from tests.values_target import ValuesTarget
from tests.values_target.session import ValuesSession

from pidts.apply import ApplyRules, prepared
from pidts.apply.rows.filtered_updates import without_kept_away
from pidts.model import Lsn, Op, Table
from pidts.rules import EventFilter, ExpressionFilter, ExpressionRule, FilterRule, Rules

INSERTS = Rules(events=EventFilter((FilterRule("shop", "", ("insert",), (), "Ignore"),)))
DELETES = Rules(events=EventFilter((FilterRule("shop", "", ("delete",), (), "Ignore"),)))


def row(number: int, a: int = 1) -> dict[str, Any]:
    return {"id": number, "a": a, "b": "x", "u": None}


def insert(number: int) -> Change:
    return Op.INSERT, None, row(number)


def update(old: dict[str, Any], new: dict[str, Any]) -> Change:
    return Op.UPDATE, old, new


def delete(number: int) -> Change:
    return Op.DELETE, row(number), None


@pytest.fixture
def session(request: pytest.FixtureRequest) -> Iterator[ValuesSession]:
    """Connects to a target that has only row 1."""
    target = ValuesTarget(f"kept away {request.node.name}")
    found = target.connect()
    create(found, PLAIN)
    found.begin()
    assert found.load(PLAIN, rows_of(PLAIN, [row(1)]))
    yield found
    found.close()
    target.forget()


@pytest.mark.parametrize(
    ("changes", "left"),
    [
        ([update(row(1), row(1, 2)), update(row(1, 2), row(1, 3))], [0, 1]),
        ([update(row(2), row(2, 2)), update(row(2, 2), row(2, 3))], []),
        ([update(row(2), row(2, 2)), insert(2), update(row(2), row(2, 3))], [1, 2]),
        ([insert(2), update(row(2), row(2, 2)), delete(2), update(row(2), row(2, 3))], [0, 1, 2]),
        ([update(row(1), row(2)), update(row(2), row(2, 2)), update(row(1), row(1, 2))], [0, 1]),
        ([update(row(2), row(3)), update(row(3), row(3, 2))], []),
        ([update(row(2), row(1)), update(row(1), row(1, 2))], [1]),
        ([delete(1), update(row(1), row(1, 2))], [0]),
        ([update(row(2), row(2, 2)), (Op.COPY, None, row(2))], [0, 1]),
        ([delete(2)], [0]),
    ],
)
def test_an_update_finds_its_row_or_changes_nothing(session: Any, changes: list[Change], left: list[int]) -> None:
    batch = batch_of(PLAIN, changes)
    lsns = batch.rows.column("lsn").to_pylist()
    found = without_kept_away(session, batch).rows.column("lsn").to_pylist()
    assert [lsns.index(lsn) for lsn in found] == left


def test_while_a_table_is_copied_a_row_may_come_to_where_the_copy_has_been(session: Any) -> None:
    batch = batch_of(PLAIN, [update(row(2), row(3)), update(row(3), row(3, 2)), update(row(4), row(4, 2))])
    assert len(without_kept_away(session, batch, copying=True)) == 2


def test_changes_that_the_target_may_already_have_are_replaces(session: Any) -> None:
    batch = batch_of(PLAIN, [update(row(2), row(2, 2)), update(row(3), row(3, 2))])
    assert len(without_kept_away(session, batch, seen_until=Lsn(0, 1, 100))) == 1


@pytest.mark.parametrize(
    ("rules", "written"),
    [
        (ApplyRules(filters=INSERTS), 0),
        (ApplyRules(filters=INSERTS, safe=True), 1),
        (ApplyRules(filters=DELETES), 1),
        (ApplyRules(), 1),
    ],
)
def test_only_where_a_filter_keeps_rows_away(session: Any, rules: ApplyRules, written: int) -> None:
    batch = batch_of(PLAIN, [update(row(2), row(2, 2))])
    found = prepared(session, [batch], rules)
    assert [change.upserts.num_rows for change in found] == [1] * written


def test_the_parts_of_a_table_are_looked_at_together(session: Any) -> None:
    parts = [batch_of(PLAIN, [insert(2)]), batch_of(PLAIN, [update(row(2), row(2, 2))], 9)]
    (change,) = prepared(session, parts, ApplyRules(filters=INSERTS))
    assert change.upserts.to_pylist() == [row(2, 2)]


@pytest.mark.parametrize(
    ("texts", "away"),
    [
        ({"insert": "a = 1"}, True),
        ({"update_new": "a = 1"}, True),
        ({"delete": "a = 1"}, False),
    ],
)
def test_which_expressions_keep_rows_away(texts: dict[str, str], away: bool) -> None:
    rule = ExpressionRule(schema="shop", table="cart", **texts)
    rules = Rules(expressions=ExpressionFilter((rule,)))
    other = Table(PLAIN.name.__class__("shop", "other"), PLAIN.columns, PLAIN.keys)
    assert (rules.keeps_away(PLAIN.name), rules.keeps_away(other.name)) == (away, False)
