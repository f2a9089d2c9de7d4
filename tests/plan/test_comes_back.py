"""Changes that a task does not forward are in no slice, whatever their neighbours are and however batches are cut.

Each change that the task carries is in exactly one slice, and never together with changes of another zone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from pidts.batch.pointers import Pointer
from pidts.batch.transaction_classifier import TransactionClassifier
from pidts.model import Extent, LogEntry, Lsn, TableName, Transaction
from pidts.model.zone import LEFT_OUT, mark_table
from pidts.plan import Limits, LogSlice, PlanState, next_state, plan_between
from pidts.plan.state import HeldTables
from pidts.rules import AllowList
from pidts.schema import Dialect

START = Lsn(0, 1, 4)
ORDERS, PARTS = TableName("shop", "orders"), TableName("shop", "parts")
MARKS = {zone: TableName("pidts_meta", mark_table(zone)) for zone in "bc"}
MARK_B, MARK_C = MARKS.values()
CHECKPOINT = TableName("pidts_meta", "checkpoint")
NOTES = TableName("pidts_meta", LEFT_OUT)
KINDS = {
    "o": (ORDERS,),
    "p": (PARTS,),
    "b": (ORDERS, PARTS),
    "x": (TableName("other", "x"),),
    "O": (CHECKPOINT, MARK_B, ORDERS),
    "P": (MARK_B, PARTS),
    "t": (CHECKPOINT, ORDERS),  # the commit of a task whose source is not a zone
    "z": (CHECKPOINT, MARK_C, ORDERS),
}
KINDS_WITH_NOTES = {**KINDS, "n": (CHECKPOINT, NOTES), "N": (CHECKPOINT, MARK_B, ORDERS, NOTES)}
CLASSIFIER = TransactionClassifier(AllowList(do_dbs=("shop",)), Dialect(), marks_in="pidts_meta")


def log(kinds: Iterable[str]) -> list[LogEntry]:
    entries, previous = [], START
    for number, kind in enumerate(kinds):
        lsn = Lsn(0, 1, previous.offset + 100)
        transaction = Transaction(
            lsn=lsn,
            prev_lsn=previous,
            begin=previous,
            gtid=f"0-1-{number + 1}",
            timestamp=1000 + number,
            row_events=len(KINDS_WITH_NOTES[kind]),
            tables=KINDS_WITH_NOTES[kind],
        )
        entries.append(LogEntry(transaction, Extent(1, previous.offset, 100)))
        previous = lsn
    return entries


def inside(slices: Iterable[LogSlice], entry: LogEntry, table: TableName) -> bool:
    """Returns whether the slices include an entry's rows of a table."""
    at = entry.extent
    return table in entry.transaction.tables and any(
        part.offset <= at.offset and at.end <= part.end and piece.carries(table)
        for piece in slices
        for part in piece.parts
    )


@settings(max_examples=examples(300), deadline=None)
@given(
    kinds=st.lists(st.sampled_from(sorted(KINDS)), max_size=30),
    size=st.integers(1, 8),
    held=st.booleans(),
    catches_up=st.integers(0, 30),
    forwards=st.frozensets(st.sampled_from("bc")),
)
def test_each_change_of_others_is_in_one_slice_and_what_comes_back_in_none(
    kinds: list[str], size: int, held: bool, catches_up: int, forwards: frozenset[str]
) -> None:
    entries = log(kinds)
    classifier = TransactionClassifier(AllowList(do_dbs=("shop",)), Dialect(), marks_in="pidts_meta", forwards=forwards)
    left_out = {MARKS[zone] for zone in "bc" if zone not in forwards}

    def behind(at: Lsn, to: Lsn | None = None) -> list[LogEntry]:
        return [
            entry for entry in entries if at < entry.transaction.lsn and (to is None or entry.transaction.lsn <= to)
        ]

    state = PlanState(START)
    if held and entries:
        there = entries[min(catches_up, len(entries) - 1)].transaction.lsn
        state = PlanState(there, held=(HeldTables(frozenset({ORDERS}), START),))
        seen = [(entry, table) for entry in entries for table in (PARTS,) if entry.transaction.lsn <= there]
    else:
        seen = []
    counts = {(entry.transaction.lsn, table): 0 for entry in entries for table in (ORDERS, PARTS)}
    for entry, table in seen:
        if table in entry.transaction.tables and not left_out.intersection(entry.transaction.tables):
            counts[entry.transaction.lsn, table] += 1
    limits = Limits(transactions=size, idle_entries=1, one_origin=bool(forwards))
    while (end := next_state(state, behind, {}, limits, classifier)) is not None:
        assert end != state
        plan = plan_between(state, end, behind, classifier)
        for entry in entries:
            if any(inside(plan.log, entry, table) for table in (ORDERS, PARTS)):
                mark = MARKS.get(plan.origin)
                assert {MARK_B, MARK_C}.intersection(entry.transaction.tables) == ({mark} if mark else set())
            for table in (ORDERS, PARTS):
                counts[entry.transaction.lsn, table] += inside(plan.log, entry, table)
        state = end
    for entry in entries:
        tables = entry.transaction.tables
        for table in (ORDERS, PARTS):
            wanted = table in tables and not left_out.intersection(tables)
            assert counts[entry.transaction.lsn, table] == wanted, (kinds, entry.transaction, table)
    assert not entries or (state.lsn == entries[-1].transaction.lsn and not state.held)


def test_a_name_that_is_only_like_a_mark_is_none() -> None:
    (entry,) = log("o")
    for name in (MARK_B.name.upper(), "from_zone_b", f"x{MARK_B.name}"):
        tables = (TableName("pidts_meta", name), ORDERS)
        assert not CLASSIFIER(changing(entry, *tables)).comes_back


def changing(entry: LogEntry, *tables: TableName) -> LogEntry:
    return replace(entry, transaction=replace(entry.transaction, tables=tables))


def test_a_table_of_the_task_is_no_mark() -> None:
    """An application may have a table with a mark's name."""
    (entry,) = log("o")
    own = TableName("shop", MARK_B.name)
    assert not CLASSIFIER(changing(entry, own)).comes_back
    assert CLASSIFIER(changing(entry, own, MARK_B)).comes_back


@settings(max_examples=examples(300), deadline=None)
@given(
    kinds=st.lists(st.sampled_from(sorted(KINDS)), max_size=30),
    size=st.integers(1, 8),
    catches_up=st.integers(0, 30),
    forwards=st.sampled_from([frozenset(), frozenset("c")]),
)
def test_returning_changes_are_in_a_slice_of_their_own(
    kinds: list[str], size: int, catches_up: int, forwards: frozenset[str]
) -> None:
    """Zone b is the target's zone: changes that come from it are never in a slice with other changes."""
    entries = log(kinds)
    classifier = TransactionClassifier(
        AllowList(do_dbs=("shop",)), Dialect(), marks_in="pidts_meta", forwards=forwards, returns_to="b"
    )
    times: dict[tuple[int, TableName, bool], int] = {}
    state = PlanState(START)
    if catches_up and entries:
        at = entries[min(catches_up, len(entries)) - 1].transaction.lsn
        state = PlanState(at, held=(HeldTables(frozenset({ORDERS}), START),))

    def between(at: Lsn, to: Lsn | None = None) -> list[LogEntry]:
        return [one for one in entries if one.transaction.lsn > at and (to is None or one.transaction.lsn <= to)]

    limits = Limits(transactions=size, idle_entries=1, one_origin=bool(forwards))
    while (end := next_state(state, between, {}, limits, classifier)) is not None:
        made = plan_between(state, end, between, classifier).log
        slices = [piece for one in made if (piece := Pointer.from_json(Pointer(log=one).to_json()).log) is not None]
        assert slices == list(made)
        for returned in (True, False):
            chosen = [piece for piece in slices if piece.is_returned is returned]
            for number, entry in enumerate(entries):
                for table in (ORDERS, PARTS):
                    if inside(chosen, entry, table):
                        place = number, table, returned
                        times[place] = times.get(place, 0) + 1
        state = end
    assert not entries or (state.lsn == entries[-1].transaction.lsn and not state.held)
    for number, entry in enumerate(entries):
        for table in (ORDERS, PARTS):
            tables = entry.transaction.tables
            if table not in tables or (table == PARTS and number < catches_up):
                continue
            is_of_b, is_of_c = MARK_B in tables, MARK_C in tables
            wanted = (1, 0) if is_of_b else (0, int(not is_of_c or bool(forwards)))
            found = times.get((number, table, True), 0), times.get((number, table, False), 0)
            assert found == wanted, (number, table)


@settings(max_examples=examples(300), deadline=None)
@given(
    kinds=st.lists(st.sampled_from(sorted(KINDS_WITH_NOTES)), max_size=30),
    size=st.integers(1, 8),
    catches_up=st.integers(0, 30),
)
def test_notes_are_read_once_before_all_later_rows(kinds: list[str], size: int, catches_up: int) -> None:
    entries = log(kinds)
    classifier = replace(CLASSIFIER, reads_notes=True)
    state = PlanState(START)
    if catches_up and entries:
        at = entries[min(catches_up, len(entries)) - 1].transaction.lsn
        state = PlanState(at, held=(HeldTables(frozenset({ORDERS}), START),))
    first = state.lsn

    def between(at: Lsn, to: Lsn | None = None) -> list[LogEntry]:
        return [one for one in entries if one.transaction.lsn > at and (to is None or one.transaction.lsn <= to)]

    noted: dict[Lsn, int] = {}
    rows: dict[tuple[Lsn, TableName], int] = {}
    batches = 0
    limits = Limits(transactions=size, idle_entries=1)
    while (end := next_state(state, between, {}, limits, classifier)) is not None:
        plan = plan_between(state, end, between, classifier)
        batches += 1
        assert plan.origin == ""
        assert len({piece.has_notes for piece in plan.log}) <= 1, "notes and rows are in batches of their own"
        for piece in plan.log:
            assert Pointer.from_json(Pointer(log=piece).to_json()).log == piece
            assert piece.only == {NOTES} or not piece.has_notes
        for entry in entries:
            lsn = entry.transaction.lsn
            if inside([piece for piece in plan.log if piece.has_notes], entry, NOTES):
                assert lsn not in noted
                noted[lsn] = batches
            for table in (ORDERS, PARTS):
                if inside([piece for piece in plan.log if not piece.has_notes], entry, table):
                    assert (lsn, table) not in rows
                    rows[lsn, table] = batches
        state = end
    wanted = [(one.transaction.lsn, one.transaction.tables) for one in entries]
    assert sorted(noted) == [lsn for lsn, tables in wanted if NOTES in tables and lsn > first]
    for lsn, tables in wanted:
        for table in (ORDERS, PARTS):
            is_new = lsn > first or table == ORDERS
            assert ((lsn, table) in rows) == (table in tables and is_new and not {MARK_B, MARK_C} & {*tables})
    assert all(rows[place] > batch for place in rows for lsn, batch in noted.items() if place[0] > lsn)


def test_only_the_table_of_the_meta_schema_has_notes() -> None:
    """A table of the task may have the same name as the meta table with the notes."""
    (entry,) = log("N")
    classifier = replace(CLASSIFIER, reads_notes=True)
    assert classifier(entry).origin == "*"
    assert CLASSIFIER(entry).comes_back
    assert classifier(changing(entry, TableName("shop", LEFT_OUT))).origin == ""


def test_changes_that_come_back_are_a_gap_in_their_slice() -> None:
    """Programs of both zones write in turn, and yet their changes are decoded together."""
    entries = log("oOoxOOo")
    (piece,) = slices_of(entries)
    assert [(part.offset, part.end) for part in piece.parts] == [(4, 104), (204, 304), (604, 704)]
    assert Pointer.from_json(Pointer(log=piece).to_json()).log == piece


def test_a_gap_never_holds_the_change_of_a_log_file() -> None:
    """The event between two log files names the file of the rows after it, so the decoder needs it."""
    first, returned, second = log("oOo")
    begin, lsn = Lsn(0, 2, 4), Lsn(0, 2, 104)
    moved = replace(second, transaction=replace(second.transaction, begin=begin, lsn=lsn))
    pieces = slices_of([first, returned, moved])
    assert [(piece.begin, piece.gaps) for piece in pieces] == [(START, ()), (begin, ())]


def slices_of(entries: list[LogEntry]) -> tuple[LogSlice, ...]:
    def between(at: Lsn, to: Lsn | None = None) -> list[LogEntry]:
        return [one for one in entries if one.transaction.lsn > at and (to is None or one.transaction.lsn <= to)]

    end = entries[-1].transaction.lsn
    return plan_between(PlanState(START), PlanState(end), between, CLASSIFIER).log
