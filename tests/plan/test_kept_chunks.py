"""If several zones write, the window of a chunk may be in several batches. The chunk is then kept until the last one
settles it, or is read again.
"""

from __future__ import annotations

from dataclasses import replace

from pidts.model import LogEntry, Lsn
from pidts.plan import ChunkRequest, CopyState, Limits, PlanState, Relevance, RelevanceKind, StagedChunk, next_state

from .test_planner import ORDERS, OTHER, START, at, log

LIMITS = Limits(chunk_rows=2000, idle_entries=1, one_origin=True)
WAITING = PlanState(START, {ORDERS: CopyState(limit=4000, waits=True)})


def step(state: PlanState, kinds: str, zones: str, chunk: StagedChunk | None = None) -> PlanState:
    """Returns the next batch over a log of `r`ows and `n`oise. The letter below each transaction is its zone."""
    entries = log(kinds)
    origins = {entry.transaction.lsn: zone for entry, zone in zip(entries, zones, strict=True)}

    def relevance_of(entry: LogEntry) -> Relevance:
        if entry.transaction.ddl:
            return Relevance(RelevanceKind.DDL)
        return Relevance(RelevanceKind.ROWS, frozenset({ORDERS, OTHER}), origin=origins[entry.transaction.lsn])

    def behind(after: Lsn, to: Lsn | None) -> list[LogEntry]:
        return [one for one in entries if after < one.transaction.lsn and (to is None or one.transaction.lsn <= to)]

    after = next_state(state, behind, {ORDERS: chunk} if chunk else {}, LIMITS, relevance_of)
    assert after is not None
    return after


def read(state: PlanState, low: int, high: int) -> StagedChunk:
    (request,) = state.open_requests
    return StagedChunk(request, at(high), 10, (10,), (99,), is_last=False, low=at(low), waiting=10, largest=10)


def asked(state: PlanState) -> ChunkRequest:
    (request,) = state.reading
    return request


def test_from_the_first_window_with_another_zone_on_rows_are_not_loaded_ahead() -> None:
    reading = step(PlanState(START, {ORDERS: CopyState(limit=4000)}), "", "")
    assert not asked(reading).waits
    after = step(reading, "nnn", "aba", read(reading, 1, 3))
    assert (after.lsn, after.settled) == (at(1), ())
    assert (asked(after).waits, asked(after).parts) == (True, 1)


def test_a_chunk_is_kept_until_a_batch_has_its_whole_window() -> None:
    reading = step(WAITING, "", "")
    chunk = read(reading, 1, 3)
    kept = step(reading, "rnr", "abb", chunk)
    assert (kept.lsn, kept.settled, kept.written, kept.reading) == (at(1), (), (), ())
    assert kept.copy[ORDERS].upto == (99,), "rows may have moved behind the highest key"
    settled = step(kept, "rnr", "abb", chunk)
    assert (settled.lsn, settled.written, settled.copy[ORDERS].after) == (at(3), reading.reading, (10,))
    assert settled.copy[ORDERS].kept is None


def test_a_chunk_is_settled_in_the_middle_of_its_window_if_its_table_has_not_changed_there() -> None:
    reading = step(WAITING, "", "")
    chunk = read(reading, 1, 3)
    state = reading
    for end in (1, 2):
        state = step(state, "nnnr", "abaa", chunk)
        assert (state.lsn, state.settled, state.copy[ORDERS].kept) == (at(end), (), chunk.request)
    state = step(state, "nnnr", "abaa", chunk)
    assert (state.lsn, state.written) == (at(4), (chunk.request,))


def test_a_chunk_is_read_again_where_its_table_has_changed_in_a_part_of_its_window() -> None:
    """If the last batch wrote the chunk, a row that the second batch removes would be restored."""
    reading = step(WAITING, "", "")
    chunk = read(reading, 0, 3)
    before = step(reading, "rnr", "aba", chunk)
    assert (before.lsn, before.settled, asked(before).limit, asked(before).waits) == (at(1), (), 2000, True)
    chunk = read(reading, 1, 3)
    kept = step(step(reading, "nnr", "aba", chunk), "nnr", "aba", chunk)
    assert kept.copy[ORDERS].kept == chunk.request
    behind = step(kept, "nnr", "aba", chunk)
    assert (behind.lsn, behind.settled, asked(behind).limit) == (at(3), (), 2000)


def test_a_kept_chunk_is_read_again_after_a_schema_change() -> None:
    reading = step(WAITING, "", "")
    chunk = read(reading, 2, 4)
    kept = step(reading, "nnd", "aba", chunk)
    assert kept.copy[ORDERS].kept == chunk.request
    due = step(kept, "nnd", "aba", chunk)
    assert (due.due, due.open_requests) == (at(3), ())


def test_rows_that_were_loaded_before_are_ahead_until_all_are_read() -> None:
    state = replace(WAITING, copy={ORDERS: CopyState(limit=4000, waits=True, reads=3, settled=2)})
    reading = step(state, "", "")
    settled = step(reading, "n", "a", read(reading, 0, 1))
    assert settled.settled == reading.reading
    assert settled.copy[ORDERS].ahead


def test_a_restart_forgets_what_was_kept() -> None:
    reading = step(WAITING, "", "")
    kept = step(reading, "nn", "ab", read(reading, 1, 2))
    assert kept.open_requests
    assert PlanState.from_json(kept.to_json()).open_requests == kept.open_requests
    assert PlanState.from_checkpoint(kept.lsn, kept.copy_json()).open_requests == ()
