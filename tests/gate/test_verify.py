"""`pidts verify` of a channel: the replayed records are equal to the source's rows."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from tests.binlog.logs import all_types
from tests.conftest import InOneSession, RunSql
from tests.running import connect
from tests.spark.commands import Task

from pidts.sandbox import Server


@pytest.fixture(
    params=["mariadb", pytest.param("mysql97", marks=pytest.mark.long), pytest.param("mysql56", marks=pytest.mark.long)]
)
def mysql_like(request: pytest.FixtureRequest) -> Server:
    """Returns one server. One is enough, because the comparison uses the same code for all sources. `test_values` tests
    the types of each server.
    """
    return request.getfixturevalue(request.param)  # type: ignore[no-any-return]


@pytest.fixture
def datacenter(database: str, mysql97: Server, run_sql: RunSql) -> Iterator[str]:
    name = f"{database[-40:].strip('_')}_dc"
    yield name
    run_sql(mysql97, f"DROP DATABASE IF EXISTS `{name}`")


def _verified(channel: Task, *options: str, code: int) -> dict[str, Any]:
    done = channel.command("verify", str(channel.path), "--json", *options)
    assert done.returncode == code, done.stdout.decode() + done.stderr.decode() + channel.logs()
    report: dict[str, Any] = json.loads(done.stdout)
    assert report["equal"] is (code == 0)
    return report


def _of(report: dict[str, Any], table: str) -> dict[str, Any]:
    return next(one for one in report["tables"] if one["name"].endswith(f".{table}"))


@pytest.mark.timeout(300)
@pytest.mark.long
def test_values_of_all_types_are_equal_and_what_no_record_shows_is_found(
    mysql_like: Server,
    mysql97: Server,
    database: str,
    datacenter: str,
    make_channel: Callable[..., Task],
    run_sql: RunSql,
    in_one_session: InOneSession,
) -> None:
    run_sql(mysql_like, "CREATE TABLE old (id int PRIMARY KEY, a varchar(9))", database=database)
    run_sql(mysql_like, "INSERT INTO old VALUES (1, 'a'), (2, 'b'), (3, 'c'), (4, 'd')", database=database)
    run_sql(mysql_like, "CREATE TABLE bare (a int)", database=database)
    run_sql(mysql_like, "INSERT INTO bare VALUES (1)", database=database)
    channel = make_channel(mysql_like, mysql97, database, datacenter, timezone="+05:30")
    channel.sync()
    assert _verified(channel, code=0)["rows"] == 0
    zoo = [sql.replace("zoo.", f"{database}.") for sql in all_types.statements(mysql_like.kind)]
    in_one_session(mysql_like, database, *(sql for sql in zoo if "DATABASE" not in sql))
    in_one_session(
        mysql_like,
        database,
        "UPDATE animals SET id = id + 1000 WHERE id % 3 = 1",
        "DELETE FROM animals WHERE id % 3 = 2",
        "UPDATE old SET a = 'B' WHERE id = 2",
        "UPDATE old SET id = 5 WHERE id = 3",
        "DELETE FROM old WHERE id = 4",
    )
    channel.sync()
    report = _verified(channel, code=0)
    ((count,),) = run_sql(mysql_like, "SELECT COUNT(*) FROM animals", database=database)
    assert _of(report, "animals")["rows"] == count, "keys of deleted rows are compared, and are no rows"
    assert _of(report, "animals")["note"].startswith("compared whole")
    assert (_of(report, "old")["rows"], _of(report, "old")["not_compared"]) == (2, 1)
    assert _of(report, "bare")["not_compared"] == 1

    in_one_session(
        mysql_like,
        database,
        "SET sql_log_bin = 0",
        "UPDATE old SET a = 'x' WHERE id = 2",
        "UPDATE old SET a = 'unknown' WHERE id = 1",
        "INSERT INTO old VALUES (4, 'back')",
        "DELETE FROM old WHERE id = 5",
        "INSERT INTO animals (id) VALUES (77)",
    )
    report = _verified(channel, code=4)
    old = _of(report, "old")
    assert (old["missing"], old["extra"], old["different"]) == (1, 1, 1)
    assert _of(report, "animals")["missing"] == 1
    said = {(one["table"].split(".")[1], one["kind"], *one["key"].values()) for one in report["differences"]}
    assert said == {
        ("old", "different", "2"),
        ("old", "missing", "4"),
        ("old", "extra", "5"),
        ("animals", "missing", "77"),
    }
    assert [one["columns"] for one in report["differences"] if one["kind"] == "different"] == [["a"]]
    assert _of(_verified(channel, "--tables", f"{database}.animals", code=4), "animals")["missing"] == 1

    # Row 2 was changed without a record, so its next change shows former values that no record has.
    run_sql(mysql_like, "UPDATE old SET a = 'y' WHERE id = 2", database=database)
    channel.sync()
    old = _of(_verified(channel, code=4), "old")
    assert old["different"] == 0
    assert old["problem"].startswith("a change has no record: of (id='2') after record ")


@pytest.mark.timeout(300)
def test_a_missing_record_is_found(
    mariadb: Server,
    mysql97: Server,
    database: str,
    datacenter: str,
    make_channel: Callable[..., Task],
    run_sql: RunSql,
) -> None:
    run_sql(mariadb, "CREATE TABLE t (id int PRIMARY KEY, n int)", database=database)
    run_sql(mariadb, "CREATE TABLE other (id int PRIMARY KEY)", database=database)
    channel = make_channel(mariadb, mysql97, database, datacenter)
    channel.sync()
    for number in range(1, 7):
        run_sql(mariadb, f"INSERT INTO t VALUES ({number}, 0)", database=database)
    run_sql(mariadb, "UPDATE t SET n = n + 1 WHERE id <= 3", database=database)
    channel.sync()
    _verified(channel, code=0)
    # Removes records as the retention does.
    run_sql(mysql97, "DELETE FROM transfer_data WHERE id < 4", database=datacenter)
    report = _verified(channel, code=0)
    assert _of(report, "t")["rows"] == 6
    run_sql(mysql97, "DELETE FROM transfer_data WHERE id < 8", database=datacenter)
    assert (_of(_verified(channel, code=0), "t")["rows"], _of(report, "transfer_data")["missing"]) == (2, 0)
    run_sql(mysql97, "DELETE FROM transfer_data WHERE id = 9", database=datacenter)
    report = _verified(channel, code=4)
    numbers = _of(report, "transfer_data")
    assert numbers["missing"] == 1
    assert numbers["problem"] == "records are missing or were altered: record 9"
    run_sql(mysql97, "UPDATE transfer_data SET data = '{}, {}' WHERE id = 8", database=datacenter)
    refused = channel.command("verify", str(channel.path))
    assert refused.returncode == 5
    assert b"record 8 has no JSON" in refused.stderr
    others = channel.command("verify", str(channel.path), "--tables", f"{database}.other")
    assert b"has no JSON" not in others.stderr


@pytest.mark.timeout(300)
def test_a_stopped_channel_is_waited_for_three_seconds(
    mariadb: Server,
    mysql97: Server,
    database: str,
    datacenter: str,
    make_channel: Callable[..., Task],
    run_sql: RunSql,
) -> None:
    run_sql(mariadb, "CREATE TABLE t (id int PRIMARY KEY, n int)", database=database)
    channel = make_channel(mariadb, mysql97, database, datacenter)
    channel.sync()
    run_sql(mariadb, "INSERT INTO t VALUES (1, 0)", database=database)
    channel.sync()
    run_sql(mariadb, "UPDATE t SET n = 1", database=database)
    began = time.monotonic()
    report = json.loads(channel.command("verify", str(channel.path), "--json").stdout)
    assert _of(report, "t")["waiting"] == 1
    assert time.monotonic() - began < 15, "a wait for a run that may be elsewhere takes 20 seconds"


@pytest.mark.long
@pytest.mark.timeout(300)
def test_records_are_read_backwards_over_schema_changes(
    mysql_like: Server,
    mysql97: Server,
    database: str,
    datacenter: str,
    make_channel: Callable[..., Task],
    run_sql: RunSql,
    in_one_session: InOneSession,
) -> None:
    in_one_session(
        mysql_like,
        database,
        "CREATE TABLE t (id int PRIMARY KEY, a int, b varchar(20))",
        "CREATE TABLE gone (id int PRIMARY KEY)",
        "CREATE TABLE p (id int PRIMARY KEY, n int) PARTITION BY RANGE (id) "
        "(PARTITION low VALUES LESS THAN (10), PARTITION high VALUES LESS THAN MAXVALUE)",
    )
    channel = make_channel(mysql_like, mysql97, database, datacenter)
    channel.sync()
    in_one_session(
        mysql_like,
        database,
        "INSERT INTO t VALUES (1, 1, 'one'), (2, 2, 'two'), (3, 3, 'three')",
        "INSERT INTO gone VALUES (1)",
        "INSERT INTO p VALUES (1, 1), (11, 1)",
        "ALTER TABLE t ADD COLUMN c int DEFAULT 7 AFTER id",
        "UPDATE t SET c = 8 WHERE id = 2",
        "ALTER TABLE t MODIFY b varbinary(20), DROP COLUMN a",
        "RENAME TABLE t TO spare, gone TO t",
        "INSERT INTO t VALUES (2)",
        "DROP TABLE t",
        "RENAME TABLE spare TO t",
        "DELETE FROM t WHERE id = 3",
        "ALTER TABLE p TRUNCATE PARTITION low",
        "INSERT INTO p VALUES (12, 2)",
        "CREATE TABLE gone (id int PRIMARY KEY)",
        "INSERT INTO gone VALUES (5)",
        "TRUNCATE TABLE gone",
        "INSERT INTO gone VALUES (6)",
    )
    channel.sync()
    report = _verified(channel, code=0)
    assert _of(report, "t")["rows"] == 2
    assert _of(report, "gone")["note"].startswith("compared whole")
    # Row 1 was deleted without a record.
    assert (_of(report, "p")["rows"], _of(report, "p")["not_compared"]) == (2, 1)
    in_one_session(
        mysql_like,
        database,
        "SET sql_log_bin = 0",
        "UPDATE t SET b = 'x' WHERE id = 1",  # The row's values before the change of b are not known now.
        "UPDATE t SET c = 9 WHERE id = 2",  # known, because c existed before
        "DELETE FROM gone",
        "INSERT INTO gone VALUES (7)",
    )
    report = _verified(channel, code=4)
    assert _of(report, "t")["different"] == 1
    assert (_of(report, "gone")["missing"], _of(report, "gone")["extra"]) == (1, 1)


@pytest.mark.timeout(600)
@pytest.mark.long
def test_verify_works_while_programs_write(
    mariadb: Server,
    mysql97: Server,
    database: str,
    datacenter: str,
    make_channel: Callable[..., Task],
    run_sql: RunSql,
) -> None:
    run_sql(mariadb, "CREATE TABLE t (id int PRIMARY KEY, n int, at timestamp(6) NULL)", database=database)
    channel = make_channel(mariadb, mysql97, database, datacenter, workers=2)
    run_sql(mariadb, "CREATE TABLE seed AS SELECT seq FROM seq_1_to_20000", database=database)
    channel.sync()
    run_sql(mariadb, "INSERT INTO t SELECT seq, 0, NOW(6) FROM seed", database=database)
    run = channel.start()
    done = threading.Event()

    def write() -> None:
        with closing(connect(mariadb)) as connection, connection.cursor() as cursor:
            number = 0
            while not done.wait(0.005):  # The pause lets verify catch up with the writer, even on a busy machine.
                number += 1
                cursor.execute(
                    f"UPDATE `{database}`.t SET n = n + 1, at = NOW(6) WHERE id IN (1, {number % 20000 + 1})"
                )
                cursor.execute(f"DELETE FROM `{database}`.t WHERE id = {number * 7 % 20000}")
                cursor.execute(f"REPLACE INTO `{database}`.t VALUES ({20000 + number % 50}, {number}, NOW(6))")
                cursor.execute(f"UPDATE `{database}`.t SET id = {30000 + number} WHERE id = {number * 11 % 20000}")

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    reached = "SELECT id FROM transfer_checkpoint"
    try:
        run.wait_until(lambda: run_sql(mysql97, reached, database=datacenter)[0][0] > 20_000, "the rows are recorded")
        for _ in range(2):
            ran = channel.command("verify", str(channel.path), "--json")
            report = json.loads(ran.stdout)
            assert _of(report, "t")["rows"] >= 5_000
            # Rows that the writer changes in each round, or in every fiftieth, may have changed whenever they are read.
            assert {one["kind"] for one in report["differences"]} <= {"unsettled"}, ran.stdout
            assert {int(one["key"]["id"]) for one in report["differences"]} <= {1, *range(20_000, 20_050)}
            assert ran.returncode == (0 if report["equal"] else 4)
    finally:
        done.set()
        writer.join()
    assert run.stop() == 0
