"""Reads and loads the pieces of a copy in threads of this process, without Spark.

Most of the work is done by compiled code, by Arrow and by the system. None of these holds the interpreter's lock (GIL),
so several threads use several cores. Each thread has its own connections to the source and to the target.

A piece is carried out as in a Spark task, with the same crash points, see `pidts.batch.copy.load_task`.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import copy_context

from pidts.batch.context import JobContext
from pidts.batch.copy.bundles import bundles
from pidts.batch.copy.load_task import FetchedPiece, RequestedChunk, carry_out, close_kept
from pidts.plan import ChunkRequest


class CopyThreads:
    """Carries out pieces in up to `copy_threads` threads, which begin at once.

    If a piece fails, or if `is_over` becomes true, each thread ends after its current piece. No caller has to wait for
    the threads: if a piece is loaded too late, the target refuses it, as it refuses a piece of a Spark task that was
    wrongly assumed dead.
    """

    def __init__(self, context: JobContext, pieces: Sequence[RequestedChunk], is_over: Callable[[], bool]) -> None:
        self._context, self._pieces, self._is_over = context, pieces, is_over
        self.failures: list[BaseException] = []
        self._fetched: dict[int, FetchedPiece] = {}
        self._streamed: dict[ChunkRequest, int] = {}
        """For each request that is one piece, however large: how many of its rows are loaded so far."""
        # The counts are in the order of the pieces, since each table has one request.
        counts = Counter(piece.request.table for piece in pieces)
        slots = min(len(pieces), context.copy_threads)
        self._waiting = deque(bundles(list(counts.values()), slots, takes_next=True)) if pieces else deque()
        self._threads = [
            threading.Thread(target=copy_context().run, args=(self._work,), name="copy", daemon=True)
            for _ in range(slots)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def fetched(self) -> list[FetchedPiece]:
        """Returns the results of all pieces, in the order of the pieces."""
        return [self._fetched[number] for number in range(len(self._pieces))]

    @property
    def loaded(self) -> Mapping[ChunkRequest, int]:
        """Returns how many rows of each request are read so far."""
        rows: Counter[ChunkRequest] = Counter()
        for number, fetched in self._fetched.copy().items():
            rows[self._pieces[number].request] += fetched.rows
        return rows | Counter(self._streamed.copy())

    def wait(self, seconds: float) -> bool:
        """Waits for the threads, but not longer than this. Returns whether all of them have ended."""
        for thread in self._threads:
            thread.join(seconds / len(self._threads))
        return not any(thread.is_alive() for thread in self._threads)

    def _work(self) -> None:
        taken: list[int] = []
        try:
            for place, fetched in enumerate(carry_out(self._context, self._take(taken), self._streamed.__setitem__)):
                self._fetched[taken[place]] = fetched
                if self._ends():
                    return
        except BaseException as error:  # noqa: BLE001 - raised by the thread that waits
            self.failures.append(error)
        finally:
            close_kept()

    def _take(self, taken: list[int]) -> Iterator[RequestedChunk]:
        """Yields the pieces of one bundle after the other, and adds each piece's number to `taken`."""
        while not self._ends():
            try:
                bundle = self._waiting.popleft()
            except IndexError:
                return
            for number in bundle:
                taken.append(number)
                yield self._pieces[number]

    def _ends(self) -> bool:
        return self._is_over() or bool(self.failures)
