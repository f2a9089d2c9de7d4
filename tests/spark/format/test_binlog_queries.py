"""`format("binlog")` works in real queries: the documented job, checkpoints, lag, secrets, and killed processes."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from tests.spark.few_rows import FOR_A_FEW_ROWS

from pidts.sandbox import Server
from pidts.spark import register
from pidts.spark.session import build_session, forget_session

RunSql = Callable[..., list[tuple[Any, ...]]]
PAGE = Path(__file__).parents[3] / "docs" / "reference" / "spark-source.md"
PASSWORD = "never-to-be-seen"
PYTHON = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    scratch = tmp_path_factory.mktemp("spark")
    session = build_session("binlog", "local[2]", scratch, scratch / "spark.log", FOR_A_FEW_ROWS)
    register(session)
    yield session
    java = session.sparkContext._gateway.proc
    session.stop()
    java.stdin.close()
    java.wait(30)
    forget_session()


@pytest.fixture
def orders(mariadb: Server, database: str, run_sql: RunSql, tmp_path: Path) -> dict[str, str]:
    run_sql(mariadb, f"CREATE TABLE {database}.orders (id INT PRIMARY KEY, amount DECIMAL(10,2))")
    run_sql(mariadb, f"INSERT INTO {database}.orders VALUES (1, 1.5), (2, 2.5)")
    run_sql(mariadb, f"CREATE OR REPLACE USER binlog_reader IDENTIFIED BY '{PASSWORD}'")
    run_sql(mariadb, "GRANT ALL ON *.* TO binlog_reader")
    password = tmp_path / "password"
    password.write_text(PASSWORD)
    url = f"mysql://binlog_reader@{mariadb.host}:{mariadb.port}/"
    return {"url": url, "password-file": str(password), "tables": f"{database}.orders", "startingPosition": "earliest"}


class Sink:
    """Stores the batches of a query; a repeated batch replaces the batch of the same number."""

    def __init__(self, fail_at: int = -1) -> None:
        self.batches: dict[int, list[Any]] = {}
        self.fail_at = fail_at

    def __call__(self, frame: DataFrame, number: int) -> None:
        self.batches[number] = frame.collect()
        if number == self.fail_at:
            raise RuntimeError("the sink fails")

    @property
    def rows(self) -> list[Any]:
        return [row for number in sorted(self.batches) for row in self.batches[number]]


def start(spark: SparkSession, options: dict[str, str], sink: Sink, checkpoint: Path, *, once: bool = False) -> Any:
    writer = spark.readStream.format("binlog").options(**options).load().writeStream.foreachBatch(sink)
    writer = writer.option("checkpointLocation", str(checkpoint))
    return (writer.trigger(availableNow=True) if once else writer).start()


def test_the_documented_job(
    spark: SparkSession, mariadb: Server, run_sql: RunSql, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_sql(mariadb, "DROP DATABASE IF EXISTS shop")
    run_sql(mariadb, "CREATE DATABASE shop")
    run_sql(mariadb, "CREATE TABLE shop.orders (id INT PRIMARY KEY, amount DECIMAL(10,2))")
    run_sql(mariadb, "INSERT INTO shop.orders VALUES (1, 10), (2, 20)")
    run_sql(mariadb, "UPDATE shop.orders SET amount = 15 WHERE id = 1")
    run_sql(mariadb, "FLUSH BINARY LOGS")
    (tmp_path / "mysql.password").write_text(mariadb.password)
    base = run_sql(mariadb, "SELECT @@log_bin_basename")[0][0]
    job = "".join(PYTHON.findall(PAGE.read_text("utf-8")))
    for shown, here in (
        ("repl@127.0.0.1:3306", f"{mariadb.user}@{mariadb.host}:{mariadb.port}"),
        ("mysql.password", f"{tmp_path}/mysql.password"),
        ('"orders-', f'"{tmp_path}/orders-'),
        ("/var/lib/mysql/binlog.0", f"{base}.0"),
    ):
        assert shown in job
        job = job.replace(shown, here)
    names: dict[str, Any] = {}
    exec(job, names)
    shown = [[cell.strip() for cell in line.split("|")[1:-1]] for line in capsys.readouterr().out.splitlines()]
    assert ["orders", "insert", "2"] in shown
    assert ["orders", "update", "1"] in shown
    written = spark.read.parquet(f"{tmp_path}/orders-changes").orderBy("lsn").collect()
    assert [(row["op"], row["id"], float(row["change"])) for row in written] == [
        ("insert", 1, 10.0),
        ("insert", 2, 20.0),
        ("update", 1, 5.0),
    ]
    # This server logs no column names, but the file has the CREATE TABLE with them.
    assert names["files"].where("op = 'insert'").count() == 2


@pytest.mark.long
def test_a_query_continues_from_its_checkpoint(
    spark: SparkSession, orders: dict[str, str], mariadb: Server, database: str, run_sql: RunSql, tmp_path: Path
) -> None:
    options = {**orders, "maxRowsPerTrigger": "2"}
    failing = Sink(fail_at=1)
    for number in range(3, 7):
        run_sql(mariadb, f"INSERT INTO {database}.orders VALUES ({number}, 0), ({-number}, 0)")
    with pytest.raises(PySparkException, match="the sink fails"):
        start(spark, options, failing, tmp_path / "cp", once=True).awaitTermination(150)
    again = Sink()
    start(spark, options, again, tmp_path / "cp", once=True).awaitTermination(150)
    assert again.batches[1] == failing.batches[1]
    run_sql(mariadb, f"DELETE FROM {database}.orders WHERE id < 0")
    rest = Sink()
    start(spark, options, rest, tmp_path / "cp", once=True).awaitTermination(150)
    everything = spark.read.format("binlog").options(**orders).load().collect()
    assert failing.batches[0] + again.rows + rest.rows == everything
    assert [row.op for row in everything] == ["ddl", *["insert"] * 10, *["delete"] * 4]


@pytest.mark.long
def test_lag_shows_in_the_progress_and_secrets_nowhere(
    spark: SparkSession, orders: dict[str, str], mariadb: Server, tmp_path: Path, eventually: Any
) -> None:
    sink = Sink()
    query = start(spark, orders, sink, tmp_path / "cp")
    try:
        eventually(lambda: len(sink.rows) == 3, 150, "the rows come")
        eventually(lambda: bool(query.recentProgress), 30, "progress")
        latest = json.loads(query.recentProgress[-1]["sources"][0]["latestOffset"].replace("'", '"'))
        assert latest["behindBytes"] == 0
        assert latest["sourceEnd"].partition(":")[0].rpartition(".")[2] == latest["received"].split(".")[1][-6:]
        assert PASSWORD not in str(query.recentProgress)
    finally:
        query.stop()
    frame = spark.read.format("binlog").options(**orders).load()
    assert PASSWORD not in frame._jdf.queryExecution().toString()
    assert not any(PASSWORD.encode() in path.read_bytes() for path in (tmp_path / "cp").rglob("*") if path.is_file())


@pytest.mark.long
def test_a_killed_worker_costs_a_retry_and_a_killed_planner_a_restart(
    spark: SparkSession,
    orders: dict[str, str],
    mariadb: Server,
    database: str,
    run_sql: RunSql,
    tmp_path: Path,
    eventually: Any,
) -> None:
    sink = Sink()
    query = start(spark, orders, sink, tmp_path / "cp")
    eventually(lambda: len(sink.rows) == 3, 150, "the rows come")
    daemons = spark_pythons("pyspark.daemon")
    for worker in [pid for pid in daemons if parent(pid) in daemons]:
        os.kill(worker, signal.SIGKILL)
    run_sql(mariadb, f"INSERT INTO {database}.orders VALUES (10, 0)")
    eventually(lambda: len(sink.rows) == 4, 150, "the row behind the killed worker")
    for pid in spark_pythons("python_streaming_source_runner"):
        os.kill(pid, signal.SIGKILL)
    run_sql(mariadb, f"INSERT INTO {database}.orders VALUES (11, 0)")
    with pytest.raises(PySparkException):
        query.awaitTermination(150)
    again = start(spark, orders, sink, tmp_path / "cp")
    try:
        eventually(lambda: len(sink.rows) == 5, 150, "the row behind the killed planner")
    finally:
        again.stop()
    assert [json.loads(row.new)["id"] for row in sink.rows if row.op == "insert"] == [1, 2, 10, 11]


def spark_pythons(word: str) -> list[int]:
    """Returns the Python processes of this session's JVM; the planner has a process of its own."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            command = (entry / "cmdline").read_bytes().decode(errors="replace")
            if word in command and str(Path(sys.executable).parent) in command and _is_ours(int(entry.name)):
                found.append(int(entry.name))
    return found


def _is_ours(pid: int) -> bool:
    while pid > 1:
        pid = parent(pid)
        if pid == os.getpid():
            return True
    return False


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_an_error_says_what_to_do(spark: SparkSession, orders: dict[str, str]) -> None:
    with pytest.raises(PySparkException, match="Did you mean 'tables'"):
        spark.read.format("binlog").options(url=orders["url"], tabels="a.b").load()
    with pytest.raises(PySparkException, match="access-denied"):
        spark.read.format("binlog").options(**{**orders, "password-file": __file__}).load().collect()


def test_workers_of_our_own_session_begin_with_our_modules_and_without_pandas(spark: SparkSession) -> None:
    def loaded(batches: Any) -> Any:
        names = sorted({"pidts.batch.applying", "pandas"} & sys.modules.keys())  # No batch has come to this worker yet.
        for _ in batches:
            yield pa.RecordBatch.from_pylist([{"parent": os.getppid(), "loaded": ",".join(names)}])

    rows = spark.range(0, 2, 1, 2).mapInArrow(loaded, "parent bigint, loaded string").collect()
    assert {row.loaded for row in rows} == {"pidts.batch.applying"}
    assert {row.parent for row in rows} <= set(spark_pythons("pyspark.daemon"))


def test_only_the_process_from_which_workers_are_copied_loads_the_decoder(
    spark: SparkSession, orders: dict[str, str]
) -> None:
    spark.read.format("binlog").options(**orders).load().count()  # First the batch is planned, then it is read.
    daemons = {pid: Path(f"/proc/{pid}/cmdline").read_text().split("\0") for pid in spark_pythons("pyspark.daemon")}
    has_decoder = {pid: "llvmlite" in Path(f"/proc/{pid}/maps").read_text() for pid in daemons}
    workers = {pid for pid, words in daemons.items() if "pyspark.worker" in words}
    planners = {pid for pid, words in daemons.items() if "pyspark.sql.worker.lookup_data_sources" in words}
    assert workers
    assert planners
    assert all(map(has_decoder.get, workers))
    assert not any(map(has_decoder.get, planners))
