"""If a run is to end while a copy is read, the copy is stopped at once, however long the reading would last."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark.sql import SparkSession
from tests.values_target import ValuesTarget

from pidts.batch.context import JobContext
from pidts.batch.copy.load_task import RequestedChunk
from pidts.copy import Range
from pidts.model import Column, ColumnType, Key, Kind, Table, TableName
from pidts.plan import ChunkRequest, CopyMode, CopyState
from pidts.schema import Dialect
from pidts.source import SourceConfig
from pidts.spark.copy_job import CopyRunner
from pidts.spark.session import build_session, forget_session

NAME = TableName("shop", "cart")
CART = Table(
    NAME, (Column("id", ColumnType(Kind.INT), nullable=False),), (Key("PRIMARY", ("id",), unique=True, primary=True),)
)


@pytest.fixture
def spark(tmp_path) -> Iterator[SparkSession]:
    session = build_session("copy", "local[2]", tmp_path, tmp_path / "spark.log", {})
    yield session
    java = session.sparkContext._gateway.proc
    session.stop()
    java.stdin.close()
    java.wait(30)
    forget_session()


@dataclass
class Here:
    """A session of Spark that already exists, or that never comes to exist."""

    session: SparkSession | None
    has_begun: bool = False

    @property
    def is_prepared(self) -> bool:
        return self.session is not None

    def begin(self, **_) -> None:
        self.has_begun = True

    def wait(self, is_over) -> SparkSession | None:
        return self.session


def silent_source(silent: socket.socket, folder: Path) -> JobContext:
    return JobContext(
        task="t",
        source=SourceConfig("127.0.0.1", silent.getsockname()[1], source_id="s", connect_timeout=60),
        relay=folder,
        staging=folder / "staging",
        target=ValuesTarget("never asked"),
        workers=1,
        epoch=1,
        change_no=0,
        structures={NAME: CART},
        dialect=Dialect(),
        charsets={},
    )


def only_request(copying: CopyRunner) -> ChunkRequest:
    request = ChunkRequest(NAME, 0, (1,), (5,), 100)
    pieces = [RequestedChunk(request, 1, 100, Range((1,), (5,), is_last=True))]
    copying._cutter.cut = lambda *_: [type("Cut", (), {"pieces": pieces})]
    copying._cutter.look_ahead = lambda *_: None
    return request


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(120)
def test_a_job_ends_when_the_run_is_to_end(spark, tmp_path):
    """The source accepts connections and sends nothing."""
    ends = threading.Event()
    copying = CopyRunner(ends.is_set)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        context = silent_source(silent, tmp_path)
        request = only_request(copying)
        reading = threading.Thread(target=lambda: copying._read(Here(spark), context, None, [request], 1))
        reading.start()
        silent.settimeout(60)
        connection, _ = silent.accept()
        began = time.monotonic()
        ends.set()
        copying.cancel()
        reading.join(10)
        assert not reading.is_alive()
        assert time.monotonic() - began < 2
        connection.settimeout(10)
        assert connection.recv(1) == b"", "the task's process has let go of the source"
        connection.close()
    assert not (tmp_path / "staging").exists(), "what was asked for is asked for again"


@pytest.mark.slow
def test_a_small_copy_without_spark_ends_when_the_run_is_to_end(tmp_path):
    ends = threading.Event()
    copying = CopyRunner(ends.is_set)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        request = only_request(copying)
        plan = SimpleNamespace(end=SimpleNamespace(copy={}))
        arguments = Here(None), silent_source(silent, tmp_path), plan, [request], 1
        reading = threading.Thread(target=copying._read, args=arguments)
        reading.start()
        silent.settimeout(60)
        connection, _ = silent.accept()
        ends.set()
        reading.join(10)
        assert not reading.is_alive()
        connection.close()
    assert not (tmp_path / "staging").exists(), "what was asked for is asked for again"


@pytest.mark.parametrize(
    ("is_cluster", "threads", "rows", "starts"),
    [
        (False, 4, 10**9, False),
        (True, 4, 80_000, False),
        (True, 4, 80_001, True),
        (False, 16, 80_001, True),
    ],
)
def test_spark_starts_for_a_large_copy_if_it_has_more_cores_than_the_driver(
    is_cluster, threads, rows, starts, tmp_path
):
    copying, spark = CopyRunner(lambda: False, 1000, is_cluster=is_cluster), Here(None)
    sizes = cut_nothing(copying)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        context = replace(silent_source(silent, tmp_path), copy_threads=threads)
    plan = SimpleNamespace(end=SimpleNamespace(copy={NAME: CopyState(estimate=rows)}))
    copying._read(spark, context, plan, [ChunkRequest(NAME, 0, (1,), (5,), 100, 8)], 1)
    assert spark.has_begun is starts
    assert sizes == [200_000 if starts else None], "a job would wait for what the driver has begun"


def test_rows_that_wait_are_few_enough_to_be_applied_without_spark(tmp_path):
    copying = CopyRunner(lambda: False, 1000)
    sizes = cut_nothing(copying)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        context = silent_source(silent, tmp_path)
    plan = SimpleNamespace(end=SimpleNamespace(copy={}))
    for about in ({"mode": CopyMode.REPAIR}, {"waits": True}, {}):
        copying._read(Here(None), context, plan, [ChunkRequest(NAME, 0, (1,), (5,), 100, 8, **about)], 1)
    guarded = replace(
        context,
        structures={NAME: replace(CART, columns=(*CART.columns, Column("version", ColumnType(Kind.BIGINT))))},
        writing=replace(context.writing, version_column="version"),
    )
    copying._read(Here(None), guarded, plan, [ChunkRequest(NAME, 0, (1,), (5,), 100, 8)], 1)
    assert sizes == [500, 500, None, 500]


def cut_nothing(copying: CopyRunner) -> list[int | None]:
    """Replaces the cutting of requests: nothing is cut, and the returned list gets the number of rows that each call
    wanted.
    """
    sizes = []
    copying._cutter.cut = lambda *arguments: sizes.append(arguments[-1]) or []
    copying._cutter.look_ahead = lambda *_: None
    return sizes
