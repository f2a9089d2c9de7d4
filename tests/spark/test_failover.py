"""A source is lost in the middle of the copy, and the task goes on at the standby: each row is there once."""

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
def test_a_copy_goes_on_at_the_standby(
    kind: str,
    by: str,
    postgres: Server,
    make_task: Callable[..., Task],
    run_sql: RunSql,
    tmp_path: Path,
) -> None:
    with replicated_pair(kind, tmp_path, run_sql, by=by) as (primary, standby):
        run_sql(primary, "CREATE DATABASE shop")
        # Without a key, a row that is applied twice stays there twice.
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
