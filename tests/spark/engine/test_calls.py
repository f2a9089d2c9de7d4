"""The driver itself applies small batches.

A batch that has to be a job is noted, and runs in the next call of Spark's query.
"""

from __future__ import annotations

import json
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.values_target import ValuesTarget

from pidts.batch.context import JobContext
from pidts.batch.transaction_classifier import TransactionClassifier
from pidts.model import Checkpoint, Lsn, Transient
from pidts.plan import Limits, PlanState
from pidts.rules import AllowList
from pidts.schema import Dialect
from pidts.source import SourceConfig
from pidts.spark.job_note import JobNote, SliceOptions
from pidts.spark.on_demand import SparkOnDemand
from pidts.spark.slices import SliceStreamReader
from pidts.spark.stream import SparkUse, TaskStream

CLASSIFIER = TransactionClassifier(AllowList(), Dialect())


def state(offset: int) -> PlanState:
    return PlanState(Lsn(0, 1, offset))


class PlannedStream(TaskStream):
    """Batches that record only their states. A batch that ends at a place in `large` needs a job."""

    def __init__(
        self,
        folder: Path,
        planned: Sequence[int],
        large: set[int] = frozenset(),  # type: ignore[assignment]
    ) -> None:
        context = JobContext(
            task="t",
            source=SourceConfig("127.0.0.1", 1, source_id="s"),
            relay=folder,
            staging=folder / "staging",
            target=ValuesTarget("never asked"),
            workers=1,
            epoch=1,
            change_no=0,
            structures={},
            dialect=Dialect(),
            charsets={},
        )
        super().__init__(
            context=context,
            checkpoints=(Checkpoint(task="t", source="s", worker=0, lsn=Lsn(0, 1, 4)),),
            classifier=CLASSIFIER,
            limits=Limits(),
            goal=None,
            spark=SparkUse(session=lambda: pytest.fail("nobody needs it"), direct_rows=0, scratch=folder),
            on_batch=lambda _: None,
        )
        self.done: list[tuple[int, str]] = []
        self._planner: Any = self
        self.planned, self.large = planned, large

    def next(self, at: PlanState) -> PlanState | None:
        """Returns the next place, as the planner does: the first place after the one that is done."""
        place = bisect_right(self.planned, at.lsn.offset)
        if place == len(self.planned):
            return None
        return state(self.planned[place])

    def _run(self, slices: Any, end: PlanState, planned: float) -> bool:
        assert planned > 0
        if slices is None and end.lsn.offset in self.large:
            return False
        self.done.append((end.lsn.offset, "driver" if slices is None else "job"))
        self._state = end
        return True

    def call(self, number: int) -> dict[str, Any]:
        """Calls as Spark does, which first writes the offset to its log."""
        offset = self.offset(number)
        self._called("slices", self._scratch, number)  # type: ignore[arg-type]
        return offset

    def offset(self, number: int) -> dict[str, Any]:
        reader = object.__new__(SliceStreamReader)
        reader._options = SliceOptions(self._context.relay, "s", CLASSIFIER, self._note)
        offset = reader.latestOffset({"number": number - 1}, None)  # type: ignore[arg-type]
        log = self._scratch / "offsets"
        log.mkdir(parents=True, exist_ok=True)
        (log / str(number)).write_text(f"v1\n{{}}\n{json.dumps(offset)}")
        return offset


class Query:
    """A query like Spark's: its thread asks for an offset and calls, again and again, until it is stopped."""

    def __init__(self, stream: PlannedStream) -> None:
        self.isActive = True
        self.calls = 0
        self._stream, self._error = stream, None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def exception(self) -> Exception | None:
        return self._error

    def start(self) -> Query:
        self._thread.start()
        return self

    def _run(self) -> None:
        while self.isActive:
            self.calls += 1
            offset = self._stream.offset(self.calls)
            assert offset["number"] == self.calls
            try:
                self._stream._spark._call("slices", self._stream._scratch, self.calls)  # type: ignore[arg-type]
            except Exception as error:  # noqa: BLE001 - as Spark does
                self._error = error  # type: ignore[assignment]
                self.isActive = False

    def stop(self) -> None:
        self.isActive = False
        self._thread.join(10)
        assert not self._thread.is_alive(), "the call returns"


class OnDemand(SparkOnDemand):
    """Records its sessions and queries, none of which is Spark's."""

    def __init__(self, stream: PlannedStream, get: Callable[[], Any], quiet_seconds: float) -> None:
        self.quiet_seconds = quiet_seconds
        super().__init__(get, self._given_back, "q", stream._scratch, stream._slices, stream._called, lambda _: None)
        self.queries: list[Query] = []
        self.given_back = 0
        self._stream = stream

    def _given_back(self) -> None:
        self.given_back += 1

    def _begin_query(self) -> None:
        self.queries.append(Query(self._stream))
        self._query = self.queries[-1].start()  # type: ignore[assignment]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[..., PlannedStream]]:
    """Starts a stream; `OnDemand` takes the place of Spark."""
    streams: list[PlannedStream] = []

    def run(
        planned: Sequence[int],
        large: set[int] = frozenset(),  # type: ignore[assignment]
        spark: Callable[[], Any] = object,
        quiet_seconds: float = SparkOnDemand.quiet_seconds,
    ) -> PlannedStream:
        stream = PlannedStream(tmp_path, planned, large)
        stream._spark = OnDemand(stream, spark, quiet_seconds)
        stream.start()
        streams.append(stream)
        return stream

    yield run
    for stream in streams:
        stream.close()


def wait(claim: Callable[[], Any], what: str) -> None:
    deadline = time.monotonic() + 30
    while not claim():
        assert time.monotonic() < deadline, what
        time.sleep(0.001)


def test_small_batches_need_no_spark(run: Callable[..., PlannedStream]) -> None:
    stream = run([10, 20, 30], spark=lambda: pytest.fail("nobody needs it"))
    wait(lambda: len(stream.done) == 3, "the last batch")
    assert stream.done == [(10, "driver"), (20, "driver"), (30, "driver")]
    assert stream._spark._thread is None
    assert stream.spark is None
    assert not stream.awaits_spark


def test_a_job_is_done_in_a_call_and_all_others_by_the_driver(run: Callable[..., PlannedStream]) -> None:
    stream = run([10, 20, 30, 40, 50], {20, 40})
    wait(lambda: len(stream.done) == 5, "the last batch")
    assert stream.done == [(10, "driver"), (20, "job"), (30, "driver"), (40, "job"), (50, "driver")]
    assert len(stream._spark.queries) == 1, "one query makes all calls"  # type: ignore[attr-defined]
    assert stream.failure() is None


def test_a_job_waits_for_spark_and_what_follows_it_too(run: Callable[..., PlannedStream]) -> None:
    starts, asked = threading.Event(), threading.Event()

    def spark() -> object:
        asked.set()
        assert starts.wait(10)
        return object()

    stream = run([10, 20, 30], {20}, spark)
    assert asked.wait(10)
    assert stream.done == [(10, "driver")]
    assert stream.awaits_spark
    starts.set()
    wait(lambda: len(stream.done) == 3, "the last batch")
    assert stream.done == [(10, "driver"), (20, "job"), (30, "driver")]
    assert not stream.awaits_spark


def test_spark_is_given_back_after_a_while_and_begun_again(
    run: Callable[..., PlannedStream],
) -> None:
    sessions: list[object] = []

    def spark() -> object:
        sessions.append(object())
        return sessions[-1]

    stream = run([10, 20], {20}, spark, quiet_seconds=0.2)
    wait(lambda: stream._spark.given_back, "Spark is given back")  # type: ignore[attr-defined]
    assert stream.spark is None
    assert not stream._spark.queries[0].isActive  # type: ignore[attr-defined]
    assert stream.failure() is None
    stream.planned, stream.large = [10, 20, 30, 40], {30}
    wait(lambda: len(stream.done) == 4, "the last batch")
    assert stream.done[2:] == [(30, "job"), (40, "driver")]
    assert len(sessions) == len(stream._spark.queries) == 2  # type: ignore[attr-defined]


def test_a_job_that_is_noted_while_spark_is_given_back_is_the_next_querys(
    run: Callable[..., PlannedStream],
) -> None:
    ends, ending = threading.Event(), threading.Event()
    stream = run([10], {10, 20}, quiet_seconds=0.2)
    wait(lambda: stream.done, "the first job")
    (first,) = stream._spark.queries  # type: ignore[attr-defined]

    def stop() -> None:
        ending.set()
        assert ends.wait(10)
        Query.stop(first)

    first.stop = stop
    assert ending.wait(10)
    stream.planned = [10, 20]
    wait(stream._note.exists, "the second job")
    time.sleep(0.1)
    assert len(stream.done) == 1, "a query that ends does no job"
    ends.set()
    wait(lambda: len(stream.done) == 2, "the second job")
    assert [query.isActive for query in stream._spark.queries] == [False, True]  # type: ignore[attr-defined]
    assert stream.failure() is None


def test_another_run_of_the_part_gives_back_what_the_one_before_used(
    run: Callable[..., PlannedStream],
) -> None:
    stream = run([10], quiet_seconds=0.05)
    wait(lambda: stream._spark.given_back, "it is no user of Spark")  # type: ignore[attr-defined]
    time.sleep(0.2)
    assert stream._spark.given_back == 1  # type: ignore[attr-defined]


def test_a_run_ends_after_a_batch(run: Callable[..., PlannedStream]) -> None:
    stream = run(range(10, 100_000_000))
    wait(lambda: stream.done, "the first batch")
    stream.close()
    done = list(stream.done)
    assert stream.state == state(done[-1][0])
    time.sleep(0.05)
    assert stream.done == done
    assert [place for place, _ in done] == list(range(10, 10 + len(done))), "each once, in order"


def test_a_call_returns_after_a_while(tmp_path: Path) -> None:
    stream = PlannedStream(tmp_path, [])
    stream.call_seconds = 0.1
    assert stream.call(1) == {"number": 1}


def test_a_job_that_fails_ends_the_run(run: Callable[..., PlannedStream]) -> None:
    class Broken(PlannedStream):
        def _run(self, slices: Any, end: PlanState, planned: float) -> bool:
            if slices is not None:
                raise ValueError("the second one")
            return super()._run(slices, end, planned)

    stream = run([10], {20})
    wait(lambda: stream.done, "the first batch")
    stream.__class__ = Broken  # before the job is planned, which may begin at once
    stream.planned = [10, 20, 30]
    wait(lambda: stream.failure() is not None, "the failure")
    assert isinstance(stream.failure(), ValueError)
    assert stream.done == [(10, "driver")]
    time.sleep(0.05)
    assert stream.done == [(10, "driver")]


def test_a_batch_that_fails_ends_the_run(run: Callable[..., PlannedStream]) -> None:
    stream = run([10])
    wait(lambda: stream.done, "the first batch")
    stream._run = lambda *_: 1 / 0  # type: ignore[method-assign,assignment]
    stream.planned = [10, 20]
    wait(lambda: stream.failure() is not None, "the failure")
    assert isinstance(stream.failure(), ZeroDivisionError)
    assert not stream._busy.locked()


def test_a_job_that_a_call_has_not_heard_of_is_the_next_calls(tmp_path: Path) -> None:
    """The job is noted after Spark has asked for the offset."""
    stream = PlannedStream(tmp_path, [10, 20, 30], {20})
    assert stream.offset(1) == {"number": 1}
    stream._go_on()
    stream._called("slices", tmp_path, 1)  # type: ignore[arg-type]
    assert stream.done == [(10, "driver")]
    threading.Timer(0.2, stream.close).start()
    assert JobNote.of(stream.call(2)).after == state(20)  # type: ignore[union-attr]
    assert stream.done == [(10, "driver"), (20, "job")]


def test_a_job_from_another_state_is_not_done(tmp_path: Path) -> None:
    stream = PlannedStream(tmp_path, [10, 20, 30], {20})
    stream.call_seconds = 0.1
    stream._go_on()
    stream._state = state(25)
    stream.call(2)
    assert stream._is_done.is_set()
    assert stream.done == [(10, "driver")]


def test_that_spark_does_not_start_ends_the_run(run: Callable[..., PlannedStream]) -> None:
    def spark() -> None:
        raise Transient("spark-died", "while it was starting")

    stream = run([10], {10}, spark)
    wait(lambda: stream.failure() is not None, "the failure")
    failure = stream.failure()
    assert isinstance(failure, Transient)
    assert failure.code == "spark-died"
    assert stream.done == []


def test_a_query_that_ends_by_itself_ends_the_run(run: Callable[..., PlannedStream]) -> None:
    stream = run([10], {10})
    wait(lambda: stream.done, "the job")
    stream._spark.queries[0].isActive = False  # type: ignore[attr-defined]
    wait(lambda: stream.failure() is not None, "the failure")
    assert stream.failure().code == "spark-failed"  # type: ignore[union-attr]


def test_a_run_that_ends_while_spark_starts_waits_for_no_job(run: Callable[..., PlannedStream]) -> None:
    starts, asked = threading.Event(), threading.Event()

    def spark() -> object:
        asked.set()
        assert starts.wait(10)
        return object()

    stream = run([10], {10}, spark)
    assert asked.wait(10)
    threading.Timer(0.2, starts.set).start()
    stream.close()
    assert stream._spark.queries == []  # type: ignore[attr-defined]
    assert stream.done == []
