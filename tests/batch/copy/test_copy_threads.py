"""The pieces of a copy are carried out in threads of this process, and end with the run or with the first failure."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pidts.batch.context import JobContext
from pidts.batch.copy import copy_threads
from pidts.batch.copy.bundles import bundles
from pidts.batch.copy.copy_threads import CopyThreads
from pidts.batch.copy.load_task import FetchedPiece, RequestedChunk
from pidts.model import Halted, Lsn, TableName
from pidts.plan import ChunkRequest

THREADS = 3
HERE = Lsn(0, 1, 4)


@pytest.mark.parametrize("takes_next", [True, False])
@pytest.mark.parametrize("slots", [1, 2, 7])
@pytest.mark.parametrize("each", [1, 5, 12, 60])
def test_few_bundles_have_all_pieces_in_their_order(each: int, slots: int, takes_next: bool) -> None:
    for pieces in range(1, 60):
        counts = [min(each, pieces - done) for done in range(0, pieces, each)]
        found = bundles(counts, min(slots, pieces), takes_next=takes_next)
        assert [number for bundle in found for number in bundle] == list(range(pieces))
        sizes = [len(bundle) for bundle in found]
        assert min(slots, pieces) <= len(found)
        if not takes_next:
            assert len(found) == min(slots, pieces), "more would run side by side"
        elif slots > 1:
            assert sum(sizes[:slots]) <= 0.75 * pieces + slots, "the last bundle is short"
            assert sizes[-1] <= max(sizes[:slots])


def test_a_bundle_ends_where_a_table_does() -> None:
    found = bundles([12, 12, 12, 11], 2, takes_next=True)
    assert found[:3] == [range(12), range(12, 24), range(24, 36)]
    assert [len(bundle) for bundle in found[3:]] == [5, 3, 2, 1], "the last one is for both"


@dataclass
class Work:
    """Carries out each piece by calling `one`; records the begun pieces, and counts those that run at once."""

    one: Callable[[int], None]
    begun: list[int] = field(default_factory=list)
    at_once: int = 0
    most: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(
        self, _: JobContext, pieces: Iterable[RequestedChunk], streamed: Callable[[ChunkRequest, int], object]
    ) -> Iterator[FetchedPiece]:
        for piece in pieces:
            with self.lock:
                self.begun.append(piece.limit)
                self.at_once += 1
                self.most = max(self.most, self.at_once)
            try:
                self.one(piece.limit)
            finally:
                with self.lock:
                    self.at_once -= 1
            yield FetchedPiece(HERE, HERE, rows=piece.limit)


def begin(
    monkeypatch: pytest.MonkeyPatch, count: int, one: Callable[[int], None], is_over: Callable[[], bool] = lambda: False
) -> tuple[CopyThreads, Work]:
    work = Work(one)
    monkeypatch.setattr(copy_threads, "carry_out", work)
    pieces = [
        RequestedChunk(ChunkRequest(TableName("shop", f"t{number // 10}"), 0, None, None, 1), 1, number)
        for number in range(count)
    ]
    context: Any = SimpleNamespace(copy_threads=THREADS, staging=Path())
    return CopyThreads(cast("JobContext", context), pieces, is_over), work


def test_threads_share_the_pieces_and_results_keep_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    together = threading.Barrier(THREADS, timeout=30)

    def one(number: int) -> None:
        if number in {bundle.start for bundle in bundles([10] * 4, THREADS, takes_next=True)[:THREADS]}:
            together.wait()
        time.sleep(0.001 * (number % 3))

    threads, work = begin(monkeypatch, 40, one)
    assert threads.wait(60)
    assert [one.rows for one in threads.fetched] == list(range(40))
    assert work.most == THREADS
    assert not threads.failures


def test_the_rows_of_each_request_are_known_while_others_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    may_end = threading.Event()

    def one(number: int) -> None:
        if number == 15:
            may_end.wait(30)

    threads, _ = begin(monkeypatch, 20, one)
    deadline = time.monotonic() + 30
    while sum(threads.loaded.values()) < sum(range(10)) and time.monotonic() < deadline:
        time.sleep(0.01)
    rows = {request.table.name: count for request, count in threads.loaded.items()}
    assert rows["t0"] == sum(range(10))
    assert rows.get("t1", 0) < sum(range(10, 20))
    may_end.set()
    assert threads.wait(30)
    assert {request.table.name: count for request, count in threads.loaded.items()} == {
        "t0": sum(range(10)),
        "t1": sum(range(10, 20)),
    }


def test_a_failure_ends_all_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = Halted("target-refused", "no")

    def one(number: int) -> None:
        if number == 2:
            raise refused
        time.sleep(0.01)

    threads, work = begin(monkeypatch, 1000, one)
    assert threads.wait(60)
    assert threads.failures == [refused]
    assert len(work.begun) < 100


def test_the_end_of_the_run_ends_all_threads_after_their_present_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    is_over, in_piece = threading.Event(), threading.Event()

    def one(_: int) -> None:
        in_piece.set()
        is_over.wait(30)

    threads, work = begin(monkeypatch, 1000, one, is_over.is_set)
    assert in_piece.wait(30)
    assert not threads.wait(0.1)
    is_over.set()
    assert threads.wait(60)
    assert len(work.begun) <= THREADS
    assert not threads.failures


def test_there_may_be_nothing_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    threads, _ = begin(monkeypatch, 0, lambda _: None)
    assert threads.wait(1)
    assert threads.fetched == []
