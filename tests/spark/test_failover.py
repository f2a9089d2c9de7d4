"""A source is lost, and a task with tables as its target continues at the standby: the rows are equal at the end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.conftest import RunSql
from tests.replicated_pair import Writer, promote, replicated_pair, wait

from pidts.sandbox import Server

from .commands import Task

ROWS = 60_000


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.parametrize(("kind", "by"), [("mariadb", "gtid"), ("mysql97", "gtid"), ("mysql97", "position")])
def test_a_copy_continues_at_the_standby(
    kind: str,
    by: str,
    postgres: Server,
    make_task: Callable[..., Task],
    run_sql: RunSql,
    tmp_path: Path,
) -> None:
    with replicated_pair(kind, tmp_path, run_sql, by=by) as (primary, standby):
        run_sql(primary, "CREATE DATABASE shop")
        # In a table without a key, a row that is applied twice stays twice.
        run_sql(primary, "CREATE TABLE t (tx int, n int)", database="shop")
        run_sql(primary, "CREATE TABLE big (id int AUTO_INCREMENT PRIMARY KEY, v int)", database="shop")
        run_sql(primary, "INSERT INTO big (v) VALUES (1), (2), (3)", database="shop")
        while run_sql(primary, "SELECT COUNT(*) FROM big", database="shop")[0][0] < ROWS:
            run_sql(primary, "INSERT INTO big (v) SELECT v + 1 FROM big", database="shop")
        standbys = [{"host": standby.host, "port": standby.port}]
        database = f"failover_{kind}_{by}"
        run_sql(postgres, f"CREATE DATABASE {database}")
        task = make_task(
            primary,
            postgres,
            ["shop"],
            database=database,
            workers=2,
            pidts={"chunk-rows": 500, "copy-rate": 4000},
            instance={"enable-gtid": by == "gtid", "standbys": standbys},
        )

        def of(server: Server, sql: str, where: str) -> Any:
            try:
                return run_sql(server, sql, database=where)
            except psycopg.errors.Error:
                return [(0,)]

        run = task.start()
        writer = Writer(primary, "shop", 1)
        writer.start()
        copied = "SELECT COUNT(*) FROM shop.big"
        run.wait_until(lambda: of(postgres, copied, database)[0][0] > 2000, "rows are copied")
        last = writer.end()
        wait(lambda: int(run_sql(standby, "SELECT MAX(tx) FROM shop.t")[0][0] or 0) == last, "the standby is there")
        primary.kill()
        promote(standby, run_sql)
        assert of(postgres, copied, database)[0][0] < ROWS, "the copy was over too early"
        run_sql(standby, "UPDATE big SET v = -v WHERE id % 7 = 0", database="shop")
        run_sql(standby, "DELETE FROM big WHERE id % 11 = 0", database="shop")
        writer = Writer(standby, "shop", last + 1)
        writer.start()
        greatest = "SELECT COALESCE(MAX(tx), 0) FROM shop.t"
        run.wait_until(lambda: of(postgres, greatest, database)[0][0] > last, "it goes on", 120)
        writer.end()
        assert run.stop() == 0, run.log.read_text()[-4000:]
        task.sync(240)
        for sql in ("SELECT tx, n FROM shop.t ORDER BY tx, n", "SELECT id, v FROM shop.big ORDER BY id"):
            assert run_sql(postgres, sql, database=database) == run_sql(standby, sql)
        run_sql(postgres, f"DROP DATABASE {database} WITH (FORCE)")


REPEATED = {
    "t": "SELECT id, tx, n FROM shop.t ORDER BY id",
    "counted": "SELECT id, tx, v FROM shop.counted ORDER BY id",
    "moved": "SELECT id, tx FROM shop.moved ORDER BY id",
    "lent": "SELECT id, place FROM shop.lent ORDER BY id",
}
"""The tables that `Changes` writes to, and what is compared of each."""


class Changes(Writer):
    """Writes changes that have a wrong effect if they are applied twice, or to rows of a later time."""

    def statements(self, number: int) -> list[str]:
        return [
            "BEGIN",
            *super().statements(number),
            f"UPDATE counted SET v = v + {number}, tx = {number} WHERE id = {number % 5}",
            # A key that is deleted and inserted again.
            f"UPDATE moved SET id = id + IF(id < 1000, 1000, -1000), tx = {number} WHERE id % 1000 = {number % 7}",
            f"DELETE FROM counted WHERE id = {100 + number % 3}",
            f"INSERT INTO counted VALUES ({100 + number % 3}, {number}, 0)",
            # The row of a later transaction gets the unique value that an earlier row has given up.
            f"DELETE FROM lent WHERE place = {number % 4}",
            f"INSERT INTO lent VALUES ({number}, {number % 4})",
            f"INSERT INTO bare VALUES ({number})",
            "COMMIT",
        ]


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.parametrize("kind", ["postgres", "mysql97"])
def test_changes_that_come_twice_leave_the_rows_of_the_source(
    kind: str,
    make_task: Callable[..., Task],
    run_sql: RunSql,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    """Transactions of MySQL 5.6 have no GTIDs here.

    If the standby lags, all changes after the sampled place come twice.
    """
    target: Server = request.getfixturevalue(kind)
    database = "failover_repeats"
    with replicated_pair("mysql56", tmp_path, run_sql, by="position") as (primary, standby):
        run_sql(primary, "CREATE DATABASE shop")
        for sql in (
            "CREATE TABLE t (id int AUTO_INCREMENT PRIMARY KEY, tx int, n int)",
            "CREATE TABLE counted (id int PRIMARY KEY, tx int, v int)",
            "CREATE TABLE moved (id int PRIMARY KEY, tx int)",
            "CREATE TABLE lent (id int PRIMARY KEY, place int NOT NULL, UNIQUE KEY (place))",
            "CREATE TABLE bare (tx int)",
            "INSERT INTO counted VALUES (0, 0, 0), (1, 0, 0), (2, 0, 0), (3, 0, 0), (4, 0, 0)",
            "INSERT INTO moved VALUES (0, 0), (1, 0), (2, 0), (3, 0), (4, 0), (5, 0), (6, 0)",
        ):
            run_sql(primary, sql, database="shop")
        run_sql(target, f"CREATE DATABASE {database}")
        task = make_task(
            primary,
            target,
            ["shop"],
            database=database,
            workers=2,
            instance={"standbys": [{"host": standby.host, "port": standby.port}]},
        )
        task.sync(240)

        def greatest() -> int:
            return int(run_sql(target, "SELECT COALESCE(MAX(tx), 0) FROM shop.t", database=_in(target, database))[0][0])

        run = task.start("--json")
        writer = Changes(primary, "shop", 1)
        writer.start()
        run.wait_until(lambda: greatest() > 50, "changes come")
        # From here on, the standby has everything in its relay log and applies nothing of it: this is the sampled
        # place.
        run_sql(standby, "STOP SLAVE SQL_THREAD")
        late = writer.last
        run.wait_until(lambda: greatest() > late + 150, "the target is ahead of the standby")
        last = writer.end()
        ((file, offset, *_),) = run_sql(primary, "SHOW MASTER STATUS")
        wait(lambda: run_sql(standby, "SHOW SLAVE STATUS")[0][5:7] == (file, offset), "the standby has received all")
        run.wait_until(lambda: greatest() == last, "the target has all")
        primary.kill()
        run_sql(standby, "START SLAVE SQL_THREAD")
        wait(lambda: int(run_sql(standby, "SELECT MAX(tx) FROM shop.t")[0][0]) == last, "the standby has all")
        promote(standby, run_sql)
        writer = Changes(standby, "shop", last + 1)
        writer.start()
        run.wait_until(lambda: greatest() > last, "it goes on", 120)
        writer.end()
        said = run.log.read_text()
        assert "changes may come twice and are applied in safe mode" in said
        assert run.stop() == 0, said[-4000:]
        task.sync(240)
        for table, sql in REPEATED.items():
            assert run_sql(target, sql, database=_in(target, database)) == run_sql(standby, sql), table
        # Without a key, nothing shows that a row already exists: this table counts the changes that have come twice.
        count = "SELECT tx, COUNT(*) FROM shop.bare GROUP BY tx ORDER BY tx"
        times = {int(tx): int(number) for tx, number in run_sql(target, count, database=_in(target, database))}
        assert list(times) == [int(tx) for tx, _ in run_sql(standby, count)]
        twice = [tx for tx, number in times.items() if number == 2]
        assert len(twice) > 100
        assert twice == list(range(twice[0], last + 1))
        assert {*times.values()} == {1, 2}
        run_sql(target, f"DROP DATABASE {database}" + (" WITH (FORCE)" if kind == "postgres" else ""))
        if kind == "mysql97":
            run_sql(target, "DROP DATABASE shop")


def _in(target: Server, database: str) -> str | None:
    return database if target.kind == "postgres" else None
