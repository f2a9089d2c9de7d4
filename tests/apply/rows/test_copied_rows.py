"""A full copy or a repair writes rows that are later than the applied log."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest
from tests.apply.rows.test_version_guard import RULES, TABLE, Live, copy, delete, insert, row, update
from tests.apply.table_history import PLAIN, UNIQUE, batch_of, minimal
from tests.apply.test_prepare import UnreadSession

from pidts.apply import ApplyRules, prepared
from pidts.model import ChangeBatch, Halted, Lsn, MergedTablesKey, Op, SourceTablesKey, Table
from pidts.model.zone import COUNTED_UP_TO, RETURN_RECORD
from pidts.plan import CopyMode, CopyState
from pidts.reduce import Counts, with_whole_keys

REPAIR = CopyState(mode=CopyMode.REPAIR)
ONE = {"id": 1, "a": 7, "b": "x", "u": 1}


def written(live: Live, *batches: ChangeBatch, state: CopyState = REPAIR) -> Counts:
    """Applies the batches in one transaction while the table is copied."""
    session = live.target.connect()
    session.begin()
    counts = Counts()
    for change in prepared(session, batches, live.rules, {live.table.name: state}):
        session.write(change)
        counts += change.counts
    session.commit()
    session.close()
    return counts


def absent(table: Table, *keys: int) -> ChangeBatch:
    nothing = dict.fromkeys(table.arrow.names)
    return batch_of(table, [(Op.ABSENT, {**nothing, "id": key}, None) for key in keys])


@pytest.mark.parametrize(
    ("state", "safe", "removed"),
    [
        (CopyState(), False, 1),
        (CopyState(ahead=True), True, 1),
        (REPAIR, True, 1),
        (None, False, 0),
    ],
)
def test_rows_are_removed_first_only_while_the_target_may_differ_from_the_log(state, safe, removed):
    session: Any = UnreadSession()
    change = (Op.UPDATE, ONE, {**ONE, "a": 8})
    copies = {} if state is None else {UNIQUE.name: state}
    (found,) = prepared(session, [batch_of(UNIQUE, [change])], ApplyRules(), copies)
    assert (found.safe, found.deletes.num_rows, found.upserts.num_rows) == (safe, removed, 1)


def test_a_repair_is_above_the_versions_that_the_target_has():
    live = Live()
    for number in range(1, 5):
        live.change(insert(row(9, 1, key=number)), at=number)
    counts = written(
        live,
        batch_of(TABLE, [copy(row(9, 2, key=1)), copy(row(3, 3, key=2))]),
        absent(TABLE, 3, 4),
        batch_of(TABLE, [insert(row(2, 7, key=4)), update(row(3, 3, key=2), row(4, 4, key=2))], 50),
    )
    assert live.rows == [row(9, 2, key=1), row(4, 4, key=2), row(2, 7, key=4)]
    assert counts == Counts(inserted=1, updated=1, copied=2, removed=2)


def test_changes_logged_before_a_row_was_copied_do_not_undo_the_copy():
    live = Live()
    old, new = row(3, 3), row(5, 5)
    counts = written(
        live, batch_of(TABLE, [copy(new)]), batch_of(TABLE, [update(old, row(4, 4)), update(row(4, 4), new)], 50)
    )
    assert live.rows == [new]
    assert counts.total + counts.stale == 3


def test_a_copied_row_of_a_table_that_is_not_repaired_stays_below_newer_ones():
    live = Live()
    live.change(insert(row(9, 1)))
    written(live, batch_of(TABLE, [copy(row(5, 2))]), state=CopyState())
    assert live.rows == [row(9, 1)]


def test_a_key_that_the_source_lacks_is_removed_without_a_read():
    live = Live(rules=ApplyRules(source="s"))
    live.change(insert(row(1, key=1)))
    live.change(insert(row(1, key=2)), at=1)
    assert written(live, absent(TABLE, 1, 7)) == Counts(removed=2)
    assert live.rows == [row(1, key=2)]
    written(live, absent(TABLE, 2), batch_of(TABLE, [update(row(1, key=2), row(2, key=2)), delete(row(2, key=2))], 50))
    assert live.rows == []


@pytest.mark.parametrize(
    ("task", "key", "stays"),
    [
        ("t", SourceTablesKey("s"), False),
        ("t", SourceTablesKey("north"), True),
        ("other", SourceTablesKey("s"), True),
        ("t", MergedTablesKey(), True),
    ],
)
def test_rows_that_another_source_has_brought_since_the_repair_began_stay(task, key, stays):
    live = Live(rules=ApplyRules(task="t", source="s"))
    live.change(insert(row(1, key=1)))
    live.change(insert(row(1, key=2)), at=1)
    session = live.target.connect()
    for one in [("t", SourceTablesKey("s")), (task, key)]:
        session.begin()
        session.meta.structures.save(*one, Lsn(0, 1, 0), {TABLE.name: TABLE})
        session.commit()
    session.close()
    written(live, absent(TABLE, 1))
    assert live.rows == ([row(1, key=1)] if stays else []) + [row(1, key=2)]


@pytest.mark.parametrize("other", ["t", "other"], ids=["no other task", "another task"])
@pytest.mark.parametrize("zone", ["b", ""])
@pytest.mark.parametrize("returning", ["", "b", "c"])
def test_in_a_zone_extra_rows_go_only_while_it_returns(zone: str, returning: str, other: str) -> None:
    """A row that the source lacks may be a row of the zone's own programs that has not reached the source yet."""
    live = Live(rules=ApplyRules(task="t", source="s", into_zone=zone))
    live.change(insert(row(1, key=1)))
    with closing(live.target.connect()) as session:
        session.begin()
        for task in ("t", other):
            session.meta.structures.save(task, SourceTablesKey("s"), Lsn(0, 1, 0), {TABLE.name: TABLE})
        if returning:
            session.meta.notes.write(RETURN_RECORD, SourceTablesKey(returning), COUNTED_UP_TO, "log.000001:4")
        session.commit()
    written(live, absent(TABLE, 1))
    assert live.rows == ([] if zone and zone == returning else [row(1, key=1)])
    with closing(live.target.connect()) as session:
        session.begin()
        session.meta.notes.write(RETURN_RECORD, SourceTablesKey("b"), COUNTED_UP_TO, "")
        session.commit()
    live.change(insert(row(1, key=2)), at=1)
    written(live, absent(TABLE, 2))
    assert row(1, key=2) in live.rows, "the zone has returned"


def test_an_absent_key_beside_changes_that_are_logged_in_part():
    live = Live(table=PLAIN, rules=ApplyRules(source="s"))
    live.change((Op.INSERT, None, ONE))
    live.change((Op.INSERT, None, {**ONE, "id": 2}), at=1)
    change = (Op.UPDATE, ONE, {**ONE, "a": 9})
    found = with_whole_keys(batch_of(PLAIN, [change], 50, held=[minimal(PLAIN, change)]))
    written(live, absent(PLAIN, 2), found)
    assert live.rows == [{**ONE, "a": 9}]


def test_a_row_that_may_be_wrong_does_not_move_with_what_the_log_does_not_show():
    live = Live(table=PLAIN, rules=ApplyRules(source="s"))
    live.change((Op.INSERT, None, ONE))
    change = (Op.UPDATE, ONE, {**ONE, "id": 5})
    found = batch_of(PLAIN, [change], 50, held=[minimal(PLAIN, change)])
    with pytest.raises(Halted) as caught:
        written(live, found)
    assert caught.value.code == "partial-row-image"
    written(live, found, state=CopyState())
    assert live.rows == [{**ONE, "id": 5}]


def test_versions_are_looked_at_again_once_the_repair_is_done():
    live = Live(rules=RULES)
    live.change(insert(row(9, 1)))
    live.change(update(row(3), row(4, 4)), at=1)
    assert live.rows == [row(9, 1)]
