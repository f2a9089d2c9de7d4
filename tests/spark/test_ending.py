"""A stream that is to end while Spark's thread is about to call it: neither waits for the other."""

from __future__ import annotations

import threading

import pytest

from pidts.batch.context import JobContext
from pidts.batch.meaning import Meaning
from pidts.model import Checkpoint, Lsn
from pidts.plan import Limits
from pidts.rules import AllowList
from pidts.schema import Dialect
from pidts.source import SourceConfig
from pidts.spark.stream import TaskStream
from pidts.target.values import ValuesTarget


class Query:
    """As Spark's: to stop it is to wait for its thread, whatever that is about to do."""

    def __init__(self, calls):
        self._calls = calls
        self.ended = False

    def stop(self):
        thread = threading.Thread(target=self._calls, daemon=True)
        thread.start()
        thread.join(10)
        self.ended = not thread.is_alive()


@pytest.fixture
def stream(tmp_path):
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
        clock_is_utc=True,
        charsets={},
    )
    return TaskStream(
        spark=None,
        context=context,
        checkpoints=(Checkpoint(task="t", source="s", worker=0, lsn=Lsn(0, 1, 4)),),
        meaning=Meaning(AllowList(), Dialect()),
        limits=Limits(),
        direct_rows=0,
        goal=None,
        scratch=tmp_path,
        on_batch=lambda _: pytest.fail("a batch that begins while the run ends is left for the next run"),
    )


def test_a_batch_that_comes_while_the_query_is_ended_is_left(stream):
    query = stream._query = Query(lambda: stream._batch(None, 0))
    stream.close()
    assert query.ended
    assert stream._failure is None
