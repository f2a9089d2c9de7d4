"""Records about rows that moved between shards decide which later changes of these rows are left out."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from tests.apply.table_history import PLAIN, Change, Row, batch_of, minimal
from tests.target.conformance.samples import create
from tests.values_target import ValuesTarget

from pidts.apply import ApplyRules, LaggingTables, TargetSession, prepared
from pidts.model import ChangeBatch, Halted, Op, TableName
from pidts.reduce import with_whole_keys

LANDED, M, N, THIRD = PLAIN.name, TableName("shop", "t_m"), TableName("shop", "t_n"), TableName("shop", "t_o")
RULES = ApplyRules(task="t", source="s", merged=frozenset({LANDED}))
_numbers = itertools.count()


def row(key: int, a: int = 1) -> Row:
    return {"id": key, "a": a, "b": "x", "u": None}


def insert(key: int, a: int = 1) -> Change:
    return Op.INSERT, None, row(key, a)


def delete(key: int, a: int = 1) -> Change:
    return Op.DELETE, row(key, a), None


def update(key: int, a: int, to: int | None = None, was: int = 1) -> Change:
    return Op.UPDATE, row(key, was), row(key if to is None else to, a)


def of(member: TableName, start: int, *changes: Change, presence: Sequence[Any] = ()) -> ChangeBatch:
    """Returns the changes of a member; the first is at the place `start` of the log."""
    return replace(with_whole_keys(batch_of(PLAIN, changes, start, presence)), upstream=member)


class Destination:
    """One table of the target, to which parts of a transaction are written."""

    def __init__(self, *rows: Row, rules: ApplyRules = RULES) -> None:
        self.rules = rules
        self.session: TargetSession = ValuesTarget(f"moved {next(_numbers)}").connect()
        create(self.session, PLAIN)
        self.session.begin()
        if rows:
            self.write(batch_of(PLAIN, [(Op.INSERT, None, one) for one in rows]), noted=False)

    def write(self, *batches: ChangeBatch, noted: bool = True, looked: bool = True) -> list[Row]:
        names = frozenset({LANDED})
        lagging = LaggingTables("t", "s", names if noted else frozenset(), names if noted and looked else frozenset())
        for change in prepared(self.session, list(batches), self.rules, {}, lagging):
            self.session.write(change)
        return self.rows

    @property
    def rows(self) -> list[Row]:
        found: list[Row] = self.session.read_rows(PLAIN).to_pylist()
        return found

    @property
    def record(self) -> dict[tuple[str, str], int]:
        keys = [f"{number}|" for number in range(20)]
        found = self.session.meta.moves.find("t", "s", LANDED, keys)
        return {(one.member.name, one.key): one.lsn.offset - 100 for one in found}


def test_the_table_that_has_got_a_key_is_recorded_and_a_table_that_lost_it_is_not():
    destination = Destination(row(1), row(2), row(3))
    destination.write(of(M, 10, insert(5), update(1, 7), update(2, 8, to=6), insert(7), delete(7)))
    assert destination.record == {("t_m", "5|"): 10, ("t_m", "6|"): 12}
    destination.write(of(M, 20, update(5, 9), update(6, 9, to=2), insert(8), delete(8), insert(8)))
    assert destination.record == {("t_m", "5|"): 10, ("t_m", "2|"): 21, ("t_m", "8|"): 24}
    destination.write(of(M, 30, delete(5), delete(2), delete(8)), looked=False)
    assert destination.record == {}


def test_copied_rows_and_rows_of_tables_at_one_lsn_are_not_recorded():
    destination = Destination()
    destination.write(of(M, 0, (Op.COPY, None, row(1)), (Op.COPY, None, row(2)), update(2, 5)))
    destination.write(of(M, 10, insert(3)), noted=False)
    assert destination.record == {}
    assert [one["a"] for one in destination.rows] == [1, 5, 1]


def test_a_copied_row_is_set_aside_with_the_changes_of_its_key():
    """Otherwise the copied row would replace the row that the later changes have made."""
    destination = Destination()
    destination.write(of(M, 50, insert(1, a=9)))
    assert destination.write(of(N, 0, (Op.COPY, None, row(1)), delete(1))) == [row(1, 9)]


@pytest.mark.parametrize(
    ("late", "left"),
    [
        ([delete(5)], 50),
        ([update(5, 2), delete(5)], 50),
        ([update(5, 2)], 50),
        ([delete(5), insert(5, a=3)], 50),
        ([update(5, 2, to=9)], 50),
    ],
)
def test_a_late_change_takes_no_row_from_a_member_that_has_it_later(late, left):
    destination = Destination(row(5))
    destination.write(of(M, 40, insert(5, a=left)))
    assert row(5, left) in destination.write(of(N, 10, *late))


def test_a_later_change_is_written():
    """The row of the second table stays until that table deletes it.

    The first table's DELETE is written after this row, although the DELETE is earlier in the log.
    """
    destination = Destination()
    destination.write(of(M, 10, insert(5)))
    assert destination.write(of(N, 30, insert(5, a=30))) == [row(5, 30)]
    assert destination.write(of(M, 20, delete(5))) == [row(5, 30)]
    assert destination.record == {("t_n", "5|"): 30}


def test_no_member_has_the_key_at_the_end_in_any_order_of_commits():
    histories = {M: [(10, insert(5)), (20, delete(5))], N: [(0, delete(5))], THIRD: [(30, insert(5)), (40, delete(5))]}
    events = [(member, place, change) for member, mine in histories.items() for place, change in mine]
    for order in itertools.permutations(events):
        if any(
            [place for one, place, _ in order if one == member] != [p for p, _ in histories[member]]
            for member in histories
        ):
            continue
        destination = Destination(row(5))
        for member, place, change in order:
            destination.write(of(member, place, change))
        assert (destination.rows, destination.record) == ([], {}), order


def test_an_entry_does_not_count_if_its_member_loses_the_key_in_the_same_part():
    """Within one part, the reduction itself finds which table has the key in the end."""
    for given, left in ((True, [row(5, 10)]), (False, [row(5, 20)])):
        destination = Destination(row(5))
        destination.write(of(M, 20, insert(5, a=20)))
        more = [of(M, 30, delete(5, a=20))] if given else []
        assert destination.write(of(N, 10, update(5, 10)), *more) == left


def test_an_entry_of_a_third_member_counts():
    destination = Destination(row(5))
    destination.write(of(M, 20, insert(5, a=20)))
    destination.write(of(THIRD, 40, insert(5, a=40)))
    assert destination.write(of(N, 10, delete(5)), of(M, 30, delete(5, a=20))) == [row(5, 40)]


def test_an_update_to_another_key_may_be_applied_at_one_of_its_keys_only():
    destination = Destination(row(1), row(3), row(5))
    destination.write(of(M, 50, insert(1, a=50), insert(4, a=51), insert(5, a=52), insert(6, a=53)))
    there = {
        one["id"]: one["a"]
        for one in destination.write(of(N, 10, update(1, 2, to=2), update(3, 2, to=4), update(5, 2, to=6)))
    }
    assert there == {1: 50, 2: 2, 4: 51, 5: 52, 6: 53}
    assert destination.record.keys() >= {("t_n", "2|")}


def test_one_half_of_an_update_with_a_partial_image():
    """The half for the old key needs only the key.

    The half for the new key needs the old row, too. If a row of another shard has replaced that row, the change halts.
    """
    destination = Destination(row(3))
    destination.write(of(M, 50, insert(4, a=51)))
    change = update(3, 1, to=4)
    assert destination.write(of(N, 10, change, presence=[minimal(PLAIN, change)])) == [row(4, 51)]
    destination.write(of(M, 60, insert(7)))
    lost = update(7, 1, to=8)
    with pytest.raises(Halted, match="row with the old key belongs to another shard") as caught:
        destination.write(of(N, 20, lost, presence=[minimal(PLAIN, lost)]))
    assert caught.value.code == "partial-row-image"
    whole = of(N, 20, lost, presence=[(["id"], ["id", "a", "b", "u"])])
    assert destination.write(whole) == [row(4, 51), row(7), row(8)]


def test_a_delete_removes_a_row_that_its_member_got_after_the_entry_of_another_member():
    """At 20, N gives its row another key, but N lags. The row of M at 40 has replaced the row of N."""
    for whole in (False, True):
        destination = Destination()
        destination.write(of(N, 10, insert(5, a=10)))
        destination.write(of(M, 40, insert(5, a=40)))
        assert destination.write(of(M, 50, delete(5, a=40))) == []
        late = update(5, 2, to=6)
        if whole:
            assert destination.write(of(N, 20, late)) == [row(6, 2)]
        else:
            with pytest.raises(Halted, match="does not have this row"):
                destination.write(of(N, 20, late, presence=[minimal(PLAIN, late)]))


def test_a_part_of_a_row_is_not_completed_from_a_row_that_another_member_loses_in_the_same_part():
    """M got the key at 20, after N gave its row another key at 10. But N lags, so M has replaced the row of N."""
    change = update(5, 2, to=6)
    destination = Destination(row(5))
    destination.write(of(M, 20, insert(5, a=20)))
    with pytest.raises(Halted, match="row with the old key belongs to another shard"):
        destination.write(of(N, 10, change, presence=[minimal(PLAIN, change)]), of(M, 30, delete(5, a=20)))
    assert destination.write(of(N, 10, change), of(M, 30, delete(5, a=20))) == [row(6, 2)]


def test_an_update_logged_in_part_asks_for_no_row_where_it_is_set_aside():
    destination = Destination(row(5))
    destination.write(of(M, 20, insert(5, a=20)))
    change = update(5, 3)
    assert destination.write(of(N, 10, change, presence=[minimal(PLAIN, change)])) == [row(5, 20)]


def test_a_table_of_which_one_member_is_left_counts_what_others_have_on_record():
    destination = Destination(row(5), row(6))
    destination.write(of(M, 20, insert(5, a=20)))
    destination.rules = replace(RULES, merged=frozenset())
    assert destination.write(of(N, 10, delete(5), delete(6))) == [row(5, 20)]


def test_a_table_that_does_not_lag_records_no_moves():
    destination = Destination(rules=replace(RULES, merged=frozenset()))
    destination.write(of(M, 20, insert(5, a=20)))
    assert destination.record == {}
