"""If a stream has to end while Spark's thread is about to call it, neither of the two waits for the other."""

from __future__ import annotations

import threading
import time
from functools import partial

import pytest
from tests.values_target import ValuesTarget

from pidts.batch.context import JobContext
from pidts.batch.long_batch import LongBatch
from pidts.batch.transaction_classifier import TransactionClassifier
from pidts.model import Checkpoint, Lsn
from pidts.plan import Limits
from pidts.reduce import Counts
from pidts.rules import AllowList
from pidts.schema import Dialect
from pidts.source import SourceConfig
from pidts.spark import stream as module
from pidts.spark.stream import SparkUse, TaskStream, side_by_side

FAR_TOO_LONG = 30.0
"""Seconds after which a stream certainly waits for something, however busy the machine is."""


class Query:
    """A query like Spark's: stopping it means waiting for its thread, whatever the thread is about to do."""

    def __init__(self, calls):
        self._calls = calls
        self.ended = False

    def stop(self):
        thread = threading.Thread(target=self._calls, daemon=True)
        thread.start()
        thread.join(10)
        self.ended = not thread.is_alive()


@pytest.fixture
def leaves():
    """Returns an event that shows whether the process is going to end."""
    return threading.Event()


@pytest.fixture
def stream(tmp_path, leaves):
    context = JobContext(
        task="t",
        source=SourceConfig("127.0.0.1", 1, source_id="s"),
        relay=tmp_path,
        staging=tmp_path / "staging",
        target=ValuesTarget("never asked"),
        workers=1,
        epoch=1,
        change_no=0,
        structures={},
        dialect=Dialect(),
        charsets={},
    )
    return TaskStream(
        context=context,
        checkpoints=(Checkpoint(task="t", source="s", worker=0, lsn=Lsn(0, 1, 4)),),
        classifier=TransactionClassifier(AllowList(), Dialect()),
        limits=Limits(),
        goal=None,
        spark=SparkUse(session=None, direct_rows=0, scratch=tmp_path),
        on_batch=lambda _: pytest.fail("a batch that begins while the run ends is left for the next run"),
        leaves=leaves.is_set,
    )


def test_a_batch_that_comes_while_the_query_is_ended_is_left(stream):
    query = stream._spark._query = Query(lambda: stream._do_job(None, None))
    stream.close()
    assert query.ended
    assert stream._failure is None


def test_a_batch_that_the_target_keeps_waiting_does_not_keep_the_process(stream, leaves):
    stream.leave_seconds = 0.5
    stream._spark._query = Query(lambda: pytest.fail("to stop the query is to wait for its batch"))
    stream._busy.acquire()
    leaves.set()
    began = time.monotonic()
    stream.close()
    assert 0.4 < time.monotonic() - began < FAR_TOO_LONG


def test_a_long_batch_is_left_before_its_next_part(stream, leaves):
    stream.leave_seconds = 0.1
    stream._busy.acquire()
    batch = stream._long_batch = LongBatch()

    def parts() -> None:
        while not batch.is_left:
            time.sleep(0.01)
        stream._busy.release()

    thread = threading.Thread(target=parts, daemon=True)
    thread.start()
    query = stream._spark._query = Query(lambda: None)
    leaves.set()
    stream.close()
    assert query.ended, "the stream ends as after any other batch"
    assert not stream._busy.locked()


@pytest.mark.parametrize("waits_for", ["a batch", "the start of Spark"])
def test_a_process_that_is_asked_to_end_while_an_attempt_ends_does_not_wait(stream, leaves, waits_for):
    stream.leave_seconds = 0.5
    begun, starts = threading.Event(), threading.Event()
    if waits_for == "a batch":
        stream._busy.acquire()
    else:
        stream._spark._get = lambda: (begun.set(), starts.wait())
        stream._spark.begin()
        assert begun.wait(FAR_TOO_LONG), "a thread that has not begun yet starts nothing, and is not waited for"
    began = time.monotonic()
    threading.Timer(0.5, leaves.set).start()
    stream.close()
    assert 0.9 < time.monotonic() - began < FAR_TOO_LONG
    starts.set()


def test_workers_of_a_batch_all_end_and_keep_no_process():
    begun = threading.Barrier(3)

    def work(fails=False):
        assert threading.current_thread().daemon
        begun.wait(10)
        if fails:
            raise ValueError("one")
        return Counts(inserted=1)

    assert side_by_side([work] * 3).inserted == 3
    with pytest.raises(ValueError, match="one"):
        side_by_side([work, partial(work, fails=True), work])


def test_a_batch_is_waited_for_where_the_process_continues(stream):
    stream.leave_seconds = 0.1
    stream._busy.acquire()
    began = time.monotonic()
    threading.Timer(0.7, stream._busy.release).start()
    stream.close()
    assert time.monotonic() - began > 0.6


def test_batch_and_schema_change_share_the_time_in_which_a_run_ends(stream, monkeypatch):
    stream.leave_seconds = FAR_TOO_LONG
    given, looks = [], []

    def look() -> None:
        looks.append(1)
        if len(looks) == 5:
            stream._busy.release()

    monkeypatch.setattr(stream._ddl, "close", given.append)
    monkeypatch.setattr(stream._copying, "cancel", look)
    stream._busy.acquire()
    stream.close()
    assert 0 < given[0] <= FAR_TOO_LONG - 5 * module._LOOK_SECONDS
