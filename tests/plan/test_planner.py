"""The planner follows its rules on a log made of letters."""

from dataclasses import replace

import pytest

from pidts.batch.pointers import Pointer
from pidts.model import (
    CommittedEventGroups,
    Extent,
    Halted,
    LogEntry,
    Lsn,
    PreparedExtent,
    TableName,
    Transaction,
    Xa,
    XaStep,
)
from pidts.plan import (
    ChunkRequest,
    CopyMode,
    CopyState,
    HeldTables,
    Limits,
    Phase,
    PlanState,
    Relevance,
    RelevanceKind,
    StagedChunk,
    next_state,
    plan_between,
)

ORDERS = TableName("shop", "orders")
OTHER = TableName("other", "noise")
START = Lsn(0, 1, 4)
LIMITS = Limits(transactions=3, row_events=100, bytes=10_000, chunk_rows=10, chunks=2, idle_entries=5)


def log(kinds: str, start: Lsn = START) -> list[LogEntry]:
    """Returns one entry for each letter: `r`ows of the task, `d`dl of the task, `n`oise of other tables, a `m`ark."""
    entries, previous = [], start
    for number, kind in enumerate(kinds):
        lsn = Lsn(start.change_no, start.log_index, previous.offset + 100)
        transaction = Transaction(
            lsn=lsn,
            prev_lsn=previous,
            begin=previous,
            gtid=f"0-1-{number + 1}",
            timestamp=1000 + number,
            row_events=1 if kind in "rn" else 0,
            tables=({"r": ORDERS, "n": OTHER}[kind],) if kind in "rn" else (),
            ddl="ALTER TABLE shop.orders ADD COLUMN x INT" if kind == "d" else None,
        )
        entries.append(LogEntry(transaction, Extent(1, previous.offset, 100)))
        previous = lsn
    return entries


def relevance_of(entry: LogEntry) -> Relevance:
    if entry.transaction.ddl:
        return Relevance(RelevanceKind.DDL)
    return Relevance(RelevanceKind.ROWS if ORDERS in entry.transaction.tables else RelevanceKind.NOTHING)


def behind(entries: list[LogEntry], at: Lsn, to: Lsn | None = None) -> list[LogEntry]:
    return [entry for entry in entries if at < entry.transaction.lsn and (to is None or entry.transaction.lsn <= to)]


def plan(state, entries, staged=None, limits=LIMITS, goal=None, done=()):
    return next_state(state, lambda at, to: behind(entries, at, to), staged or {}, limits, relevance_of, goal, done)


def offset(lsn: Lsn) -> int:
    return (lsn.offset - START.offset) // 100


def test_an_empty_log_is_no_batch():
    assert plan(PlanState(START), []) is None


def test_a_batch_takes_all_received_entries():
    assert offset(plan(PlanState(START), log("rr")).lsn) == 2


def test_a_batch_is_no_larger_than_its_limit():
    assert offset(plan(PlanState(START), log("rrrrrr")).lsn) == 3


def test_a_batch_ends_before_a_ddl_and_the_next_goes_over_it_once_it_is_done():
    entries = log("rdr")
    before = plan(PlanState(START), entries)
    assert (offset(before.lsn), before.due) == (1, entries[1].transaction.lsn)
    assert plan(before, entries) is None
    behind_it = plan(before, entries, done=before.dues)
    assert (offset(behind_it.lsn), behind_it.due, behind_it.held) == (3, None, ())


def test_of_two_ddls_in_a_row_the_second_begins_when_the_first_is_done():
    entries = log("dd")
    first = plan(PlanState(START), entries)
    second = plan(first, entries, done=first.dues)
    assert [(offset(state.lsn), offset(state.due)) for state in (first, second)] == [(0, 1), (1, 2)]


def test_other_tables_alone_are_no_batch_until_there_are_many():
    assert plan(PlanState(START), log("nn")) is None
    many = replace(LIMITS, transactions=100)
    assert offset(plan(PlanState(START), log("nnnnnn"), limits=many).lsn) == 6


def test_much_log_of_other_tables_moves_the_position_so_that_the_relay_need_not_keep_it():
    limits = replace(LIMITS, idle_entries=1000, idle_bytes=300)
    assert plan(PlanState(START), log("nn"), limits=limits) is None
    assert offset(plan(PlanState(START), log("nnn"), limits=limits).lsn) == 3


def test_a_ddl_after_other_tables_is_reached():
    entries = log("nmdr")
    before = plan(PlanState(START), entries)
    assert (offset(before.lsn), offset(before.due)) == (2, 3)
    assert offset(plan(before, entries, done=before.dues).lsn) == 4


def test_a_goal_after_other_tables_is_reached():
    entries = log("nm")
    state = plan(PlanState(START), entries, goal=entries[-1].transaction.lsn)
    assert offset(state.lsn) == 2


def copying(after=None) -> PlanState:
    return PlanState(START, {ORDERS: CopyState(after=after)})


def staged(state: PlanState, high: int, *, is_last=False, altered=False, **about) -> dict[TableName, StagedChunk]:
    """Returns the ten rows that were read for the only request."""
    (request,) = state.reading
    found = {"waiting": 10, "largest": 10, "bytes": 1 << 20, "seconds": 0.5, **about}
    return {ORDERS: StagedChunk(request, at(high), 10, (10,), (99,), is_last, altered, **found)}


def at(number: int) -> Lsn:
    return Lsn(0, 1, START.offset + number * 100)


def test_a_copy_begins_by_reading_without_any_log():
    state = plan(copying(), [])
    assert state.lsn == START
    assert state.reading == (ChunkRequest(ORDERS, 0, None, None, 10),)


def test_a_chunk_waits_until_the_log_has_passed_its_window():
    reading = plan(copying(), [])
    chunk = staged(reading, high=2)
    assert plan(reading, log("r"), chunk) is None
    after = plan(reading, log("rr"), chunk)
    assert offset(after.lsn) == 2
    assert after.written == after.settled == reading.reading
    assert after.copy[ORDERS].after == (10,)
    assert after.reading == (ChunkRequest(ORDERS, 1, (10,), (99,), 80, parts=2),)


def test_a_window_longer_than_the_limits_is_not_cut():
    reading = plan(copying(), [])
    assert offset(plan(reading, log("rrrrrrr"), staged(reading, high=5)).lsn) == 5


def test_a_batch_that_became_long_writes_no_chunk_and_does_not_wait_for_its_window():
    reading = plan(copying(), [])
    limits = replace(LIMITS, copy_bytes=250)
    after = plan(reading, log("rrrrrrr"), staged(reading, high=5), limits=limits)
    assert (offset(after.lsn), after.settled, after.copy[ORDERS].after) == (3, (), None)


def test_where_a_window_was_too_long_for_rows_that_wait_less_is_read():
    limits = replace(LIMITS, chunk_rows=2000, copy_bytes=250)
    state, asked = plan(PlanState(START, {ORDERS: CopyState(limit=4000)}), [], limits=limits), []
    while len(asked) < 5:
        (request,) = state.reading
        asked.append((request.limit, request.parts))
        state = replace(plan(state, log("rrr"), staged(state, high=3), limits=limits), lsn=START)
    assert asked[0] == (4000, 32)
    assert asked[1:] == [(2000, 1), (1000, 1), (500, 1), (500, 1)]


def test_where_a_batch_was_full_before_the_window_of_rows_that_wait_has_ended_less_is_read():
    limits = replace(LIMITS, chunk_rows=2000, copy_bytes=250)
    reading = plan(PlanState(START, {ORDERS: CopyState(limit=4000)}), [], limits=limits)
    after = plan(reading, log("rrrrrrr"), staged(reading, high=5), limits=limits)
    assert (offset(after.lsn), after.settled, after.reading, after.copy[ORDERS].limit) == (3, (), (), 2000)
    (request,) = plan(replace(after, lsn=at(7)), [], limits=limits).reading
    assert (request.limit, request.parts) == (2000, 1)


def test_loaded_rows_are_settled_however_long_their_window_is():
    reading = plan(copying(), [])
    limits = replace(LIMITS, copy_bytes=250)
    after = plan(reading, log("rrrrrrr"), staged(reading, high=5, waiting=0), limits=limits)
    assert (offset(after.lsn), after.settled, after.written) == (5, reading.reading, ())


def test_a_chunk_whose_window_holds_a_ddl_is_read_again():
    entries = log("rdr")
    reading = plan(copying(), [])
    chunk = staged(reading, high=3)
    first = plan(reading, entries, chunk)
    assert (offset(first.lsn), first.written, first.reading) == (1, (), ())
    again = plan(first, entries, done=first.dues)
    assert again.reading == (ChunkRequest(ORDERS, 1, None, None, 10),)


def test_a_chunk_that_the_source_refused_is_read_again_after_the_ddl():
    entries = log("rd")
    reading = plan(copying(), [])
    first = plan(reading, entries, staged(reading, high=2, altered=True))
    assert (first.written, offset(first.due)) == ((), 2)
    assert plan(first, entries, done=first.dues).reading == (ChunkRequest(ORDERS, 1, None, None, 10),)


def test_a_refusal_that_no_ddl_explains_halts():
    reading = plan(copying(), [])
    with pytest.raises(Halted, match="changed-outside-log"):
        plan(reading, log("r"), staged(reading, high=1, altered=True))


def test_a_chunk_whose_file_is_missing_is_read_again():
    reading = plan(copying(), [])
    assert plan(reading, []).reading == (ChunkRequest(ORDERS, 1, None, None, 10),)


def over(state: PlanState, relevance: Relevance) -> PlanState:
    """Returns the state after one DDL that is done."""
    entries = log("d")
    return next_state(
        state,
        lambda at, to: behind(entries, at, to),
        {},
        LIMITS,
        lambda _: relevance,
        None,
        [entries[0].transaction.lsn],
    )


def test_a_table_with_another_key_is_copied_from_its_beginning():
    relevance = Relevance(RelevanceKind.DDL, recopied=(ORDERS,))
    begun = PlanState(START, {ORDERS: CopyState((5,), (9,), reads=3, rows=5, mode=CopyMode.REPAIR, phase=Phase.EXTRAS)})
    assert over(begun, relevance).copy[ORDERS] == replace(
        CopyState(reads=4, mode=CopyMode.REPAIR, reading=ChunkRequest(ORDERS, 3, None, None, 10, mode=CopyMode.REPAIR))
    )
    ending = PlanState(START, {ORDERS: CopyState(phase=Phase.FINISH)})
    assert over(ending, relevance).copy[ORDERS].phase is Phase.ROWS


def test_a_copy_ends_with_the_finish_phase_and_is_then_reported_once():
    reading = plan(copying(), [])
    ending = plan(reading, [], staged(reading, high=0, is_last=True))
    assert ending.reading == (ChunkRequest(ORDERS, 1, None, None, 0, phase=Phase.FINISH),)
    assert ending.copying
    done = plan(ending, [], staged(ending, high=9, is_last=True))
    assert (done.copy[ORDERS].done, done.copying, done.settled) == (True, False, ending.reading)
    assert done.copy_json() == ""
    assert plan(done, []) is None
    assert plan(done, log("r")).copy == {}


def test_a_dropped_table_is_copied_no_further():
    assert over(copying(), Relevance(RelevanceKind.DDL, gone=(ORDERS,))).copy == {}


def test_a_statement_exactly_where_a_table_joins_changes_nothing_of_its_copy():
    """The statement drops an earlier table with the same name."""
    joined = PlanState(START, {ORDERS: CopyState(since=at(1))})
    assert ORDERS in over(joined, Relevance(RelevanceKind.DDL, gone=(ORDERS,))).copy
    before = PlanState(START, {ORDERS: CopyState(since=START)})
    assert over(before, Relevance(RelevanceKind.DDL, gone=(ORDERS,))).copy == {}


def test_rows_read_for_another_phase_are_not_settled():
    """The chunk ends the phase that finds extra rows. It does not end the copy that a schema change has begun anew."""
    begun = PlanState(START, {ORDERS: CopyState((5,), (9,), mode=CopyMode.REPAIR, phase=Phase.EXTRAS)})
    reading = plan(begun, [])
    entries = log("d")
    relevance = Relevance(RelevanceKind.DDL, recopied=(ORDERS,))
    follow = lambda place, to=None: behind(entries, place, to)  # noqa: E731
    after = next_state(
        reading, follow, staged(reading, high=1, is_last=True), LIMITS, lambda _: relevance, None, [at(1)]
    )
    assert (after.settled, after.copy[ORDERS].phase, after.copy[ORDERS].after) == ((), Phase.ROWS, None)


def test_a_renamed_table_keeps_its_progress():
    other = TableName("shop", "sales")
    (copy,) = over(copying((5,)), Relevance(RelevanceKind.DDL, renamed=((ORDERS, other),))).copy.items()
    assert (copy[0], copy[1].after) == (other, (5,))


def test_a_state_survives_spark_s_offset_log():
    reading = plan(copying(("ä", 1)), log("r"))
    assert PlanState.from_json(reading.to_json()) == reading


def test_a_restart_forgets_what_was_read_and_keeps_what_was_written():
    reading = plan(copying(), [])
    written = plan(reading, log("r"), staged(reading, high=1))
    restarted = PlanState.from_checkpoint(written.lsn, written.copy_json())
    assert restarted.reading == ()
    assert restarted.copy[ORDERS].after == (10,)


def test_slices_join_neighbours_and_leave_out_others():
    entries = log("rrnr")
    end = PlanState(entries[-1].transaction.lsn)
    batch = plan_between(PlanState(START), end, lambda at, to: behind(entries, at, to), relevance_of)
    assert [(piece.extent.offset, piece.extent.size) for piece in batch.log] == [(START.offset, 400)]
    assert batch.row_events == 3
    assert batch.gtids == ("0-1-1", "0-1-2", "0-1-3", "0-1-4")


def committed(entry: LogEntry, prepared: PreparedExtent | None) -> LogEntry:
    """Returns the entry as the commit of an XA transaction."""
    begin = entry.transaction.begin
    xa = Xa(step=XaStep.COMMIT, xid="X'31',X'',1", at=replace(begin, offset=begin.offset + 7))
    return replace(entry, transaction=replace(entry.transaction, xa=xa, timestamp=1700), prepared=prepared)


def test_the_rows_of_a_prepared_transaction_are_a_slice_of_their_own_where_it_commits():
    entries = log("rmrrr")
    place = PreparedExtent(1, entries[1].extent.offset, 100, entries[1].transaction.begin)
    entries[3] = committed(entries[3], place)
    batch = plan_between(
        PlanState(START), PlanState(entries[-1].transaction.lsn), lambda at, to: behind(entries, at, to), relevance_of
    )
    at = entries[3].transaction.xa.at
    group = CommittedEventGroups.of(place, at, 1700)
    assert [(piece.extent.offset, piece.begin, piece.groups) for piece in batch.log] == [
        (entries[0].extent.offset, START, None),
        (place.offset, place.begin, group),
        (entries[4].extent.offset, entries[4].transaction.begin, None),
    ]
    assert batch.log[0].extent.size == 300
    assert [piece.number for piece in batch.log] == [0, 1, 2]
    passed_on = [Pointer.from_json(Pointer(log=piece).to_json()).log for piece in batch.log]
    assert [piece.groups for piece in passed_on] == [None, group, None]
    assert (group.commit, group.commit_time) == (at, 1700)
    assert batch.row_events == 4


def test_prepared_transactions_that_commit_one_after_the_other_are_one_slice():
    """An ordinary transaction between two commits, or a group in another segment or log file, begins another slice."""
    entries = log("mmmmrrrrrr")
    places = [PreparedExtent(1, each.extent.offset, 100, each.transaction.begin) for each in entries[:4]]
    elsewhere = PreparedExtent(2, 4, 100, replace(START, log_index=2))
    for number, place in zip([4, 5, 7, 8, 9], [places[1], places[0], places[2], places[3], elsewhere], strict=True):
        entries[number] = committed(entries[number], place)
    batch = plan_between(
        PlanState(START), PlanState(entries[-1].transaction.lsn), lambda at, to: behind(entries, at, to), relevance_of
    )

    def expected(*pairs: tuple[int, PreparedExtent]) -> CommittedEventGroups:
        first, *more = (
            CommittedEventGroups.of(place, entries[number].transaction.xa.at, 1700) for number, place in pairs
        )
        return first.followed_by(more)

    assert [piece.groups for piece in batch.log] == [
        expected((4, places[1]), (5, places[0])),
        None,
        expected((7, places[2]), (8, places[3])),
        expected((9, elsewhere)),
    ]
    assert [piece.number for piece in batch.log] == [0, 1, 2, 3]
    assert [piece.size for piece in batch.log] == [200, 100, 200, 100]
    assert (batch.log_bytes, batch.largest) == (600, 200)
    assert batch.row_events == 6
    for piece in batch.log:
        assert Pointer.from_json(Pointer(log=piece).to_json()).log == piece


def test_a_slice_has_only_so_many_prepared_transactions_as_fit_into_memory():
    entries = log("mmmrrr")
    places = [
        PreparedExtent(1, each.extent.offset, size << 20, each.transaction.begin)
        for each, size in zip(entries[:3], [4, 3, 2], strict=True)
    ]
    for number, place in enumerate(places, 3):
        entries[number] = committed(entries[number], place)
    batch = plan_between(
        PlanState(START), PlanState(entries[-1].transaction.lsn), lambda at, to: behind(entries, at, to), relevance_of
    )
    assert [len(piece.groups) for piece in batch.log] == [2, 1]


def test_a_prepared_transaction_counts_with_its_own_size():
    entries = log("rrr")
    entries[0] = committed(entries[0], PreparedExtent(1, 4, LIMITS.bytes, START))
    assert offset(plan(PlanState(START), entries).lsn) == 1


def test_a_commit_of_rows_that_were_not_received_halts_after_all_known_changes():
    entries = log("rrmr")
    entries[2] = committed(entries[2], None)
    before = plan(PlanState(START), entries)
    assert offset(before.lsn) == 2
    with pytest.raises(Halted, match="XA RECOVER") as caught:
        plan(before, entries)
    assert caught.value.code == "xa-not-received"
    assert offset(plan(PlanState(entries[2].transaction.lsn), entries).lsn) == 4


def test_a_source_that_writes_more_than_a_batch_can_hold_does_not_starve_the_copy():
    limits = replace(LIMITS, copy_bytes=4 * 300)
    assert plan(copying(), log("rrrrrr"), limits=limits).reading
    assert not plan(copying(), log("rrrrrrr"), limits=limits).reading


def test_where_the_rows_of_a_transaction_after_a_full_batch_are_unknown_nothing_is_read():
    """If rows were read now, their window could not be settled."""
    entries = log("rrrrm")
    assert plan(copying(), entries).reading
    entries[4] = committed(entries[4], None)
    full = plan(copying(), entries)
    assert (offset(full.lsn), full.reading) == (3, ())


def test_before_a_table_has_joined_nothing_of_it_is_carried_or_run_and_it_is_not_read():
    entries = log("rdrr")
    state = PlanState(START, {ORDERS: CopyState(since=at(3))})

    def named(entry: LogEntry) -> Relevance:
        return Relevance(RelevanceKind.DDL, frozenset({ORDERS})) if entry.transaction.ddl else relevance_of(entry)

    follow = lambda place, to=None: behind(entries, place, to)  # noqa: E731
    end = next_state(state, follow, {}, LIMITS, named)
    assert (offset(end.lsn), end.due, bool(end.reading)) == (3, None, True)
    assert [end.concerns(ORDERS, at(number)) for number in (3, 4)] == [False, True]
    assert plan_between(state, end, follow, named).log == ()
    last = next_state(end, follow, {}, LIMITS, named)
    batch = plan_between(end, last, follow, named)
    assert [piece.begin for piece in batch.log] == [at(3)]


def test_a_schema_change_exactly_where_a_table_joins_is_in_its_structure_already():
    """The statement must not run again: the table was created on the target with the structure after this place."""
    entries = log("rrdr")

    def named(entry: LogEntry) -> Relevance:
        return Relevance(RelevanceKind.DDL, frozenset({ORDERS})) if entry.transaction.ddl else relevance_of(entry)

    follow = lambda place, to=None: behind(entries, place, to)  # noqa: E731
    end = next_state(PlanState(START, {ORDERS: CopyState(since=at(3))}), follow, {}, LIMITS, named)
    assert (offset(end.lsn), end.due) == (3, None)
    before = next_state(PlanState(START, {ORDERS: CopyState(since=at(2))}), follow, {}, LIMITS, named)
    assert (offset(before.lsn), before.due) == (2, at(3))


def test_a_table_without_a_key_continues_from_where_it_was_read():
    entries = log("rrrr")
    reading = plan(PlanState(at(1), {ORDERS: CopyState(keyless=True)}), entries[:1])
    (request,) = reading.reading
    unquiet = {ORDERS: StagedChunk(request, at(3), 5, None, None, is_last=True, low=at(2))}
    again = plan(reading, entries, unquiet)
    assert (again.settled, again.reading[0].number) == ((), 1)
    quiet = {ORDERS: StagedChunk(request, at(3), 5, None, None, is_last=True, low=at(3))}
    settled = plan(reading, entries, quiet)
    assert (settled.settled, settled.held) == ((request,), (HeldTables(frozenset({ORDERS}), at(3)),))
    follow = lambda place, to=None: behind(entries, place, to)  # noqa: E731
    assert plan_between(reading, settled, follow, relevance_of).log == ()
    after = plan(settled, entries)
    assert [piece.begin for piece in plan_between(settled, after, follow, relevance_of).log] == [at(3)]
    assert after.reading[0].phase is Phase.FINISH


def test_a_table_that_was_settled_further_back_reaches_the_schema_change_before_it_is_run():
    entries = log("nnrd")
    reading = plan(PlanState(at(1), {ORDERS: CopyState(keyless=True)}), entries[:1])
    (request,) = reading.reading
    chunk = {ORDERS: StagedChunk(request, at(2), 5, None, None, is_last=True, low=at(2))}
    settled = plan(reading, entries, chunk)
    assert (offset(settled.lsn), settled.held, settled.due) == (3, (HeldTables(frozenset({ORDERS}), at(2)),), None)
    there = plan(settled, entries)
    assert (there.held, there.due, plan(there, entries).due) == ((), None, at(4))


def test_thousands_of_tables_cost_a_checkpoint_next_to_nothing():
    names = [TableName("shop", f"table_{number}") for number in range(1000)]
    waiting = PlanState(START, dict.fromkeys(names, CopyState()))
    assert len(waiting.copy_json()) < 40_000
    done = PlanState(START, dict.fromkeys(names, CopyState(done=True, rows=10**6)))
    assert done.copy_json() == ""
