"""The planner requests rows of the right tables, and the right number of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pidts.model import Lsn, TableName
from pidts.plan import ChunkRequest, CopyState, Limits, Phase, StagedChunk
from pidts.plan.copy.requests import ask, next_limit

START = Lsn(0, 1, 4)
LIMITS = Limits()
ORDERS = TableName("shop", "orders")


def asked(tables: dict[str, CopyState], limits: Limits = LIMITS) -> dict[str, tuple[int, int]]:
    """For each table that is read, returns the number of rows in a chunk and the number of chunks."""
    copy = {TableName("shop", name): state for name, state in tables.items()}
    requests = [state.reading for state in ask(copy, limits, (), START).values()]
    return {request.table.name: (request.limit, request.parts) for request in requests if request is not None}


def test_one_large_table_has_the_whole_job():
    begun = CopyState(limit=1000, estimate=10**6)
    assert asked({"a": begun}) == {"a": (1000, 32)}
    assert asked({"a": begun}, Limits(threads=2)) == {"a": (1000, 16)}
    assert asked({"a": begun}, Limits(threads=2, follows=False)) == {"a": (1000, 48)}, "nobody waits for the log"


def test_large_tables_share_a_job_by_what_is_left_of_them_and_only_a_few_are_open():
    large = {name: CopyState(limit=1000, estimate=10**6) for name in "abcdef"}
    large["b"] = replace(large["b"], rows=900_000)
    shares = asked(large)
    assert list(shares) == list("abcd")
    assert shares["b"][1] < shares["a"][1]
    assert sum(parts for _, parts in shares.values()) <= 32


def test_many_small_tables_share_a_job():
    small = {f"t{number}": CopyState(estimate=5) for number in range(5000)}
    assert len(asked(small)) == 256


def test_tables_are_finished_while_as_many_others_are_read():
    """One batch finishes the tables of the batch before, and reads the next ones."""
    ending = {f"e{number}": CopyState(phase=Phase.FINISH) for number in range(256)}
    small = {f"t{number}": CopyState(estimate=5) for number in range(5000)}
    found = asked(small | ending)
    assert ending.keys() < found.keys()
    assert len(found) == 512


def test_a_first_chunk_is_no_larger_than_its_rows_allow():
    assert asked({"a": CopyState()}) == {"a": (2000, 1)}
    assert asked({"a": CopyState(row_bytes=100)}) == {"a": (20_000, 1)}
    assert asked({"a": CopyState(row_bytes=1 << 20)}) == {"a": (16, 1)}


def test_large_tables_without_a_key_come_last_and_one_by_one():
    keyless = CopyState(estimate=10**7, keyless=True)
    assert asked({"bag": keyless}) == {"bag": (2000, 1)}
    assert list(asked({"bag": keyless, "a": CopyState(limit=1000, estimate=10**6)})) == ["a"]


@pytest.mark.parametrize(
    ("seconds", "mebibytes", "limit"),
    [(0.5, 1, 20_000), (0.25, 1, 40_000), (0.01, 1, 160_000), (9.0, 1, 10_000), (0.1, 64, 5000), (9.0, 20_000, 16)],
)
def test_the_next_chunk_is_as_large_as_the_last_one_has_shown_to_be_right(seconds, mebibytes, limit):
    request = ChunkRequest(ORDERS, 0, None, None, 20_000)
    found = {"largest": 20_000, "seconds": seconds, "bytes": mebibytes << 20}
    assert next_limit(StagedChunk(request, START, 20_000, (1,), (9,), is_last=False, **found), Limits()) == limit


def test_the_last_chunk_of_a_table_does_not_change_the_size_of_chunks():
    request = ChunkRequest(ORDERS, 0, None, None, 20_000)
    rest = StagedChunk(request, START, 9, (1,), (9,), is_last=True, largest=9, seconds=2.0)
    assert next_limit(rest, Limits()) == 20_000
