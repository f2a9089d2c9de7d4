"""Two tasks in opposite directions between two zones: nothing comes back, and nothing is lost."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pyarrow as pa
import pytest
from tests.running import NOT_THERE

from pidts.model import Column, ColumnType, Key, Kind, Table, TableName
from pidts.sandbox import Server
from pidts.target.mysql import MySqlTarget

from .commands import Run, Task

pytestmark = [pytest.mark.spark, pytest.mark.long]

RunSql = Callable[..., list[tuple[Any, ...]]]


class Pair:
    """Zones `a` and `b`, a task each way, and what was written in each of them."""

    def __init__(self, a: Server, b: Server, make_task: Callable[..., Task], database: str, run_sql: RunSql) -> None:
        self.servers = {"a": a, "b": b}
        self.database, self._run_sql = database, run_sql
        self.numbers = {"a": itertools.count(1), "b": itertools.count(1_000_001)}
        self.there = self._task(make_task, "a", "b", "all")
        self.back = self._task(make_task, "b", "a", "incremental")

    def _task(self, make_task: Callable[..., Task], source: str, target: str, mode: str) -> Task:
        return make_task(
            self.servers[source],
            self.servers[target],
            [self.database],
            name=f"{source}{target}_{self.database}",
            pidts={"zone": source, "relay": f"relay_{source}{target}"},
            **{"task-mode": mode},
        )

    def sql(self, zone: str, statement: str) -> list[tuple[Any, ...]]:
        return self._run_sql(self.servers[zone], statement, database=self.database)

    def rows(self, zone: str, table: str) -> list[tuple[Any, ...]] | None:
        columns = self.sql(
            zone,
            "SELECT column_name FROM information_schema.columns "
            f"WHERE table_schema = '{self.database}' AND table_name = '{table}' ORDER BY 1",
        )
        if not columns:
            return None
        return self.sql(zone, f"SELECT {', '.join(name for (name,) in columns)} FROM {table} ORDER BY id")

    def is_equal(self, *tables: str) -> bool:
        return all(self.rows("a", table) == self.rows("b", table) for table in tables)

    def write(self, zone: str) -> None:
        """A new row, a change of a row of this zone, and a removal of another, in one transaction or in several."""
        number = next(self.numbers[zone])
        self.sql(zone, f"INSERT INTO t (id, n, text) VALUES ({number}, 0, '{zone}')")
        self.sql(zone, f"UPDATE t SET n = n + 1 WHERE id BETWEEN {number - 9} AND {number}")
        self.sql(zone, f"DELETE FROM t WHERE id = {number - 20}")

    def place(self, zone: str) -> tuple[Any, ...]:
        try:
            return self._run_sql(self.servers[zone], "SHOW BINARY LOG STATUS")[0][:2]
        except NOT_THERE:
            return self._run_sql(self.servers[zone], "SHOW MASTER STATUS")[0][:2]

    def end(self) -> tuple[Any, ...]:
        return self.place("a"), self.place("b")

    def stands_still(self, seconds: float = 4) -> bool:
        """Whether the logs of both zones do not grow, apart from what moves checkpoints once."""
        before = self.end()
        time.sleep(seconds)
        return self.end() == before


def begun(pair: Pair, zone: str) -> bool:
    """Whether the task that writes to a zone has begun."""
    try:
        return bool(pair.sql(zone, f"SELECT 1 FROM pidts_meta.checkpoint WHERE task LIKE '%{pair.database}'"))
    except NOT_THERE:
        return False


def locks(pair: Pair, zone: str) -> list[tuple[Any, ...]]:
    return pair.sql(zone, f"SELECT * FROM pidts_meta.row_lock WHERE task LIKE '%{pair.database}'")


@pytest.fixture
def pair(make_task: Callable[..., Task], mariadb: Server, mysql97: Server, database: str, run_sql: RunSql) -> Pair:
    pair = Pair(mariadb, mysql97, make_task, database, run_sql)
    pair.sql("a", "CREATE TABLE t (id INT PRIMARY KEY, n INT NOT NULL, text VARCHAR(20))")
    pair.sql("a", "INSERT INTO t SELECT -1000 - CAST(seq AS SIGNED), seq, 'copied' FROM seq_1_to_500")
    pair.sql("a", "CREATE TABLE leaving (id INT PRIMARY KEY)")
    return pair


def third(pair: Pair, zone: str, number: int) -> None:
    """What a task of no zone writes into this one."""
    server = pair.servers[zone]
    int_ = ColumnType(Kind.INT)
    table = Table(
        TableName(pair.database, "t"),
        (Column("id", int_, nullable=False), Column("n", int_, nullable=False)),
        (Key("PRIMARY", ("id",), unique=True, primary=True),),
    )
    rows = pa.Table.from_pylist([{"id": number, "n": 3}], schema=table.arrow)
    target = MySqlTarget(server.host, server.port, server.user, server.password)
    with closing(target.connect()) as session:
        session.begin()
        assert session.load(table, rows)
        session.commit()


def both(pair: Pair, tables: tuple[str, ...], runs: list[Run], what: str) -> None:
    for run in runs:
        run.wait_until(lambda: pair.is_equal(*tables), what)


@pytest.mark.timeout(900)
def test_a_pair_carries_what_is_written_in_each_zone_to_the_other_once(
    pair: Pair, background: Callable[..., Any]
) -> None:
    there = pair.there.start("--json")
    there.wait_until(lambda: begun(pair, "b") and pair.is_equal("t"), "the copy")
    back = pair.back.start("--json")
    back.wait_until(lambda: begun(pair, "a"), "the start of the other direction")
    with background(lambda: pair.write("a"), 0.02), background(lambda: pair.write("b"), 0.02):
        time.sleep(3)
        pair.sql("a", "ALTER TABLE t ADD COLUMN from_a INT DEFAULT 7")
        time.sleep(2)
        pair.sql("b", "ALTER TABLE t ADD COLUMN from_b INT DEFAULT 8")
        pair.sql("b", "CREATE TABLE made_in_b (id INT PRIMARY KEY, v INT)")
        pair.sql("b", "INSERT INTO made_in_b VALUES (1, 1)")
        time.sleep(2)
        for run in (there, back):
            run.kill()
        pair.sql("b", "INSERT INTO made_in_b VALUES (2, 2)")
        there, back = pair.there.start("--json"), pair.back.start("--json")
        time.sleep(5)
        there.kill()
        there = pair.there.start("--json")
        pair.sql("b", "DROP TABLE leaving")
        third(pair, "a", 5_000_000)
        third(pair, "b", 6_000_000)
        time.sleep(3)
    tables = ("t", "made_in_b", "leaving")
    runs = [there, back]
    both(pair, tables, runs, "both zones are equal")
    assert pair.rows("a", "leaving") is None
    found = {row[2]: row for row in pair.rows("b", "t") or []}
    assert {5_000_000, 6_000_000} <= found.keys()
    assert len([number for number in found if number < -1000]) == 500
    there.wait_until(pair.stands_still, "the logs of idle zones do not grow", 60)
    assert locks(pair, "a") == locks(pair, "b") == []
    pair.sql("a", "INSERT INTO made_in_b VALUES (3, 3)")
    both(pair, tables, runs, "the table that came from the other zone")
    for run in runs:
        assert run.stop() == 0
