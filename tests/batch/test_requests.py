"""The planner gets the result of all chunks of a request at once, and the request's files are removed when it is settled."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

from pidts.batch.copy.load_task import FetchedPiece, RequestedChunk
from pidts.batch.copy.pieces import CutRequest, RowRateLimit, _looked_up
from pidts.batch.copy.staging import forget, keep, stage, staged_chunk, staged_rows
from pidts.copy import Range
from pidts.model import Lsn, TableName
from pidts.plan import ChunkRequest, Phase, StagedChunk

REQUEST = ChunkRequest(TableName("shop", "cart"), 1, (5, "x"), (99, "z"), 100, parts=2)
ROWS = pa.table({"id": [1, 2, 3], "v": ["a", None, "c"]})
STAGED = StagedChunk(REQUEST, Lsn(0, 1, 9), 7, (6, "b"), (99, "z"), is_last=False, low=Lsn(0, 1, 4), waiting=3)


def lsn(offset: int) -> Lsn:
    return Lsn(0, 1, offset)


def stored_result(tmp_path: Path, cut: CutRequest, *fetched: FetchedPiece) -> StagedChunk:
    cut.store_result(SimpleNamespace(staging=tmp_path), fetched)
    found = staged_chunk(tmp_path, cut.request)
    assert found is not None
    return found


def test_staged_results_are_found_until_they_are_forgotten(tmp_path):
    assert staged_chunk(tmp_path, REQUEST) is None
    files = [keep(tmp_path, REQUEST, ROWS), keep(tmp_path, REQUEST, ROWS.slice(1))]
    keep(tmp_path, REQUEST, ROWS)  # These are the files of an attempt that failed.
    stage(tmp_path, STAGED, files)
    assert staged_chunk(tmp_path, REQUEST) == STAGED
    assert [rows.num_rows for rows in staged_rows(tmp_path, REQUEST)] == [3, 2]
    assert next(staged_rows(tmp_path, REQUEST)) == ROWS
    forget(tmp_path, [REQUEST])
    assert staged_chunk(tmp_path, REQUEST) is None
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize(
    "other",
    [
        replace(REQUEST, number=10),
        replace(REQUEST, number=11),
        replace(REQUEST, table=TableName("shop", "cart.1")),
        replace(REQUEST, table=TableName("sho", "pcart")),
        replace(REQUEST, table=TableName("shop", "漢" * 64)),
    ],
)
def test_files_of_other_requests_stay(tmp_path, other):
    for request in (REQUEST, other):
        stage(tmp_path, replace(STAGED, request=request), [keep(tmp_path, request, ROWS)])
    forget(tmp_path, [REQUEST])
    assert staged_chunk(tmp_path, other) == replace(STAGED, request=other)
    assert [rows.num_rows for rows in staged_rows(tmp_path, other)] == [3]


def test_a_request_of_another_table_of_the_same_name_is_not_taken(tmp_path):
    stage(tmp_path, STAGED)
    assert staged_chunk(tmp_path, replace(REQUEST, after=None)) is None


def test_the_window_of_a_request_holds_those_of_its_chunks(tmp_path):
    ranges = [Range((5, "x"), (6, "a"), is_last=False), Range((6, "a"), (6, "b"), is_last=False)]
    cut = CutRequest(REQUEST, tuple(RequestedChunk(REQUEST, 1, 100, one) for one in ranges), (99, "z"))
    file = keep(tmp_path, REQUEST, ROWS)
    first = FetchedPiece(lsn(5), lsn(9), 100, bytes=4000, seconds=0.5)
    second = FetchedPiece(lsn(4), lsn(8), 3, file, 3, bytes=90, seconds=2.0)
    found = stored_result(tmp_path, cut, *(FetchedPiece.from_json(one.to_json()) for one in (first, second)))
    assert (found.low, found.high, found.rows, found.waiting) == (lsn(4), lsn(9), 103, 3)
    assert (found.last_key, found.upto, found.is_last) == ((6, "b"), (99, "z"), False)
    assert (found.largest, found.bytes, found.seconds) == (100, 4000, 0.5)
    assert [rows.num_rows for rows in staged_rows(tmp_path, REQUEST)] == [3]
    assert stored_result(tmp_path, cut, first, replace(second, altered=True)).altered


def test_the_last_chunk_ends_the_request(tmp_path):
    last = Range((6, "b"), (99, "z"), is_last=True)
    found = stored_result(
        tmp_path, CutRequest(REQUEST, (RequestedChunk(REQUEST, 1, 100, last),), (99, "z")), FetchedPiece(lsn(4), lsn(4))
    )
    assert (found.last_key, found.is_last, found.rows) == ((99, "z"), True, 0)


def test_going_through_the_target_ends_after_its_last_key(tmp_path):
    request = replace(REQUEST, phase=Phase.EXTRAS)
    cut = CutRequest(request, (RequestedChunk(request, 1, 200),), None)
    found = stored_result(tmp_path, cut, FetchedPiece(lsn(4), lsn(5), 200, last_key="text"))
    assert (found.last_key, found.is_last) == (("text",), False)
    found = stored_result(tmp_path, cut, FetchedPiece(lsn(4), lsn(5), 3))
    assert (found.last_key, found.is_last) == (None, True)


def test_rows_are_read_at_the_rate_that_is_allowed():
    now = 100.0
    rate_limit = RowRateLimit(lambda: now)
    assert (rate_limit.most(0), rate_limit.most(5), rate_limit.most(1000)) == (None, 100, 2000)
    rate_limit.took(5000, 0, rate_limit.now())
    assert rate_limit.wait() == 0.0
    read, began = 0, now
    while now < began + 100:
        now += rate_limit.wait()
        begins = rate_limit.now()
        now += 0.3
        rate_limit.took(2000, 1000, begins)
        read += 2000
    assert read / (now - began) == pytest.approx(1000, rel=0.03)
    now += 60
    assert rate_limit.wait() == 0.0
    rate_limit.took(2000, 1000, now)
    assert rate_limit.wait() == pytest.approx(2.0), "what was not read while nothing was to read is not made up for"


def found(*ranges: Range) -> Future:
    future: Future = Future()
    future.set_result((100, list(ranges)))
    return future


def test_boundaries_found_in_advance_are_taken_if_they_are_what_is_asked_for():
    one, two, last = Range((1,), (2,), is_last=False), Range((2,), (3,), is_last=False), Range((3,), (9,), is_last=True)
    assert _looked_up(found(one, two), 120, 2) == [one, two]
    assert _looked_up(found(one, two), 120, 1) == [one]
    assert _looked_up(found(one, two), 120, 3) == [], "a small request must not make all that follow small"
    assert _looked_up(found(two, last), 120, 3) == [two, last]
    assert _looked_up(found(one, two), 400, 2) == []
    assert _looked_up(None, 120, 2) == []
