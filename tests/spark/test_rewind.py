"""A task sends a past part of the log again: damaged and lost rows of the target are as on the source afterwards, and
no reader of the target sees an older value.
"""

from __future__ import annotations

import itertools
import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pidts.model import Lsn
from pidts.relay import RelayReader
from pidts.relay.refetch import read_refetches
from pidts.sandbox import Server
from pidts.source.position import log_end

from .commands import Task
from .merged_task import Shards

pytestmark = pytest.mark.spark

RunSql = Callable[..., list[tuple[Any, ...]]]


@dataclass
class Pair:
    """A task, its servers and their rows."""

    task: Task
    source: Server
    target: Server
    schema: str
    run_sql: RunSql
    open_session: Callable[..., Any]
    _sessions: dict[int, Any] = field(default_factory=dict)

    def on_source(self, *statements: str) -> None:
        for sql in statements:
            self.run_sql(self.source, sql.replace("@", f"{self.schema}."), database=self.schema)

    def on_target(self, *statements: str) -> None:
        for sql in statements:
            self.run_sql(self.target, sql.replace("@", f"{self.schema}."))

    def rows(self, server: Server, table: str) -> list[tuple[Any, ...]]:
        return sorted(self.run_sql(server, f"SELECT * FROM {self.schema}.{table}"), key=repr)

    def differing(self, *tables: str) -> list[str]:
        return [table for table in tables if self.rows(self.source, table) != self.rows(self.target, table)]

    def differing_but_for(self, most: int) -> bool:
        """Whether more than this number of rows differ, while a program writes."""
        there = dict(self.rows(self.target, "grows"))
        return sum(there.get(one) != n for one, n in self.rows(self.source, "grows")) > most

    def end(self) -> Lsn:
        """Returns the present end of the source's log."""
        return Lsn.at(log_end(self.open_session(self.source)))

    def rewind(self, point: object, *options: str, code: int = 0, before: str = "") -> str:
        """Runs `pidts run --rewind-to` until the task is synced. Returns what it prints."""
        run = self.task.start("--rewind-to", str(point), "--until-synced", "--json", *options, before=before)
        assert run.process.wait(240) == code, self.task.logs()
        return run.log.read_text()


@pytest.fixture
def pair(
    make_task: Callable[..., Task],
    mariadb: Server,
    database: str,
    target_server: Callable[[str], Server],
    run_sql: RunSql,
    open_session: Callable[..., Any],
) -> Callable[..., Pair]:
    def make(kind: str, *, source: Server = mariadb, **more: Any) -> Pair:
        target = target_server(kind)
        return Pair(make_task(source, target, [database], **more), source, target, database, run_sql, open_session)

    return make


@pytest.mark.parametrize("kind", ["postgres", "mariadb"])
def test_rows_that_were_damaged_or_lost_are_as_on_the_source_again(pair: Callable[..., Pair], kind: str) -> None:
    both = pair(kind)
    both.on_source(
        "CREATE TABLE @plain (id INT PRIMARY KEY, a VARCHAR(20), u INT UNIQUE)",
        "CREATE TABLE @texts (k VARCHAR(10), n DECIMAL(9,2), b BLOB, PRIMARY KEY (k, n))",
        "CREATE TABLE @keyless (a INT, b TEXT)",
        "CREATE TABLE @altered (id INT PRIMARY KEY, a INT)",
        "CREATE TABLE @quiet (id INT PRIMARY KEY, a INT)",
        "INSERT INTO @plain SELECT seq, CONCAT('row ', seq), seq * 10 FROM seq_1_to_2000",
        "INSERT INTO @texts VALUES ('a', 1, 'x'), ('b', 2.5, 'y'), ('c', 3, NULL)",
        "INSERT INTO @keyless VALUES (1, 'x'), (1, 'x'), (2, NULL)",
        "INSERT INTO @altered VALUES (1, 1), (2, 2)",
        "INSERT INTO @quiet VALUES (1, 1), (2, 2)",
    )
    both.task.sync()
    start = both.end()
    both.on_source(
        "UPDATE @plain SET a = CONCAT(a, '!') WHERE id <= 1500",
        "DELETE FROM @plain WHERE id IN (7, 8)",
        "UPDATE @plain SET id = 5000 WHERE id = 9",
        "INSERT INTO @plain VALUES (7, 'again', 70), (3000, 'new', 30000)",
        "UPDATE @texts SET k = 'z' WHERE k = 'a'",
        "DELETE FROM @texts WHERE k = 'c'",
        "INSERT INTO @texts VALUES ('Ä', -4, 'ü')",
        "UPDATE @keyless SET b = 'changed' WHERE a = 1",
        "ALTER TABLE @altered ADD b INT DEFAULT 5",
        "UPDATE @altered SET a = 3 WHERE id = 1",
    )
    both.task.sync()
    tables = ("plain", "texts", "keyless", "altered", "quiet")
    assert both.differing(*tables) == []
    both.on_target(
        "DELETE FROM @plain WHERE id IN (1, 2, 7, 3000, 5000)",
        "UPDATE @plain SET a = 'bad' WHERE id BETWEEN 100 AND 1400",
        "INSERT INTO @plain VALUES (8, 'came back', 80), (9, 'came back', 91)",
        "DELETE FROM @texts WHERE k <> 'b'",
        "INSERT INTO @texts VALUES ('a', 1, 'old'), ('c', 3, 'old')",
        "DELETE FROM @keyless WHERE a = 1",
        "UPDATE @altered SET b = 0",
        "UPDATE @quiet SET a = 9 WHERE id = 1",
    )
    assert both.differing(*tables) == list(tables)
    said = both.rewind(start)
    assert both.differing(*tables) == ["quiet"], "only changes after the given place are sent again"
    assert "keyless is copied again as a whole: it has no key" in said
    assert "altered is copied again as a whole: the range contains a schema change of the table" in said
    assert re.search(r"a past range of the log is sent again.*is_retry=True.*rows=1506.*tables=2.*whole_tables=2", said)
    # 1,502 of the keys have a row, and two tables were copied whole.
    assert json.loads(said.splitlines()[-1])["rows"]["copied"] == 1502 + 3 + 2
    again = read_refetches(RelayReader(both.task.path.parent / "relay", "one").folder).done
    assert [one.after for one in again] == [start], "readers of the relay see these events with is_retry"
    assert both.run_sql(both.target, "SELECT COUNT(*) FROM pidts_meta.reread") == [(0,)]
    both.on_source("UPDATE @plain SET a = 'later' WHERE id = 100")
    both.task.sync()
    assert both.differing(*tables) == ["quiet"]
    assert "sent again" not in both.task.runs[-1].log.read_text()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["postgres", pytest.param("mariadb", marks=pytest.mark.long)])
def test_no_reader_sees_an_older_value_while_programs_write(
    pair: Callable[..., Pair], kind: str, background: Callable[..., Any]
) -> None:
    """Each row has a number that only grows, also if the row is deleted and inserted again."""
    both = pair(kind, workers=2)
    both.on_source(
        "CREATE TABLE @grows (id INT PRIMARY KEY, n INT)", "INSERT INTO @grows SELECT seq, 1 FROM seq_1_to_60"
    )
    both.task.sync()
    time.sleep(2)  # the range begins a second earlier, and must not contain the CREATE TABLE
    start = datetime.now(UTC)
    writer, reader = both.open_session(both.source).cursor(), both.open_session(both.target).cursor()
    numbers = itertools.count(2)

    def write() -> None:
        n = next(numbers)
        for one in {n % 60 + 1, n * 7 % 60 + 1}:
            gone = n % 11 == 0
            writer.execute(f"{'DELETE FROM' if gone else 'REPLACE INTO'} {both.schema}.grows " + (
                f"WHERE id = {one}" if gone else f"VALUES ({one}, {n})"
            ))  # fmt: skip

    seen: dict[int, int] = {}
    polls = itertools.count()
    older: list[tuple[int, int, int]] = []

    def read() -> None:
        next(polls)
        reader.execute(f"SELECT id, n FROM {both.schema}.grows")
        for one, n in reader.fetchall():
            if n < seen.get(one, 0):
                older.append((one, seen[one], n))
            seen[one] = n

    for _ in range(300):
        write()
    both.task.sync()
    both.on_target("UPDATE @grows SET n = 0 WHERE id <= 30", "DELETE FROM @grows WHERE id BETWEEN 20 AND 40")
    # The task is late: the source has newer rows than those that the log would write next.
    for _ in range(500):
        write()
    with background(write, 0.001), background(read, 0.002):
        run = both.task.start("--rewind-to", (start - timedelta(seconds=1)).isoformat(), "--json")
        run.wait_until(lambda: "sent again" in run.log.read_text(), "the range is recorded")
        run.wait_until(lambda: not both.differing_but_for(5), "damaged rows are written")
        run.stop()
    both.task.sync()
    assert both.differing("grows") == []
    assert older == []
    assert next(polls) > 100
    assert "rows of" in run.log.read_text() or "row of" in run.log.read_text()


POINTS = {
    "keys are recorded": "from pidts.task.run.rewind import Rewind as where; name = '_save'",
    "all keys are recorded": "from pidts.task.run.rewind import Rewind as where; name = 'record'",
    "the copies are recorded": "from pidts.task.run.table_set import TableSet as where; name = '_commit'",
    "rows are read": "import pidts.batch.copy.load_task as where; name = '_reread'",
    "a batch is committed": "from pidts.task.run.attempts import Attempts as where; name = '_committed'",
}
MOMENTS = [*((one, 0) for one in POINTS), ("rows are read", 3), ("a batch is committed", 3)]
DIES = """
import os, sys
{}
run, left = getattr(where, name), [int({!r})]
def dies(*more, **named):
    answer = run(*more, **named)
    left[0] -= 1
    if left[0] < 0:
        os._exit(9)
    return answer
setattr(where, name, dies)
"""


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("kind", "points"),
    [
        ("postgres", [("all keys are recorded", 0), ("rows are read", 1)]),
        pytest.param("postgres", MOMENTS, marks=pytest.mark.long, id="postgres-all"),
        pytest.param("mariadb", MOMENTS, marks=pytest.mark.long, id="mariadb-all"),
    ],
)
def test_a_run_that_is_killed_loses_no_recorded_request_and_repeats_none(
    pair: Callable[..., Pair], kind: str, points: list[tuple[str, int]]
) -> None:
    both = pair(kind)
    tables = ("a", "b")
    for name in tables:
        both.on_source(
            f"CREATE TABLE @{name} (id INT PRIMARY KEY, n INT)", f"INSERT INTO @{name} SELECT seq, 1 FROM seq_1_to_3000"
        )
    both.task.sync()
    start = both.end()
    for name in tables:
        both.on_source(f"UPDATE @{name} SET n = 2 WHERE id <= 2500", f"DELETE FROM @{name} WHERE id = 5")
    both.task.sync()

    def damage() -> None:
        for name in tables:
            both.on_target(
                f"UPDATE @{name} SET n = 0 WHERE id <= 2400",
                f"DELETE FROM @{name} WHERE id BETWEEN 100 AND 200",
                f"INSERT INTO @{name} VALUES (5, 5)",
            )

    for point, skipped in points:
        damage()
        both.rewind(start, code=9, before=DIES.format(POINTS[point], skipped))
        both.task.sync()
        is_recorded = "recorded" not in point or point == "the copies are recorded"
        if not is_recorded:
            assert both.differing(*tables) == list(tables), "the request was lost with the run"
            both.rewind(start)
        assert both.differing(*tables) == [], point
        assert both.run_sql(both.target, "SELECT COUNT(*) FROM pidts_meta.reread") == [(0,)]
    both.on_target("UPDATE @a SET n = 7 WHERE id = 1")
    both.task.sync()
    assert both.differing(*tables) == ["a"], "no later run repeats the request"


def test_a_mysql_source_sends_again_by_time_also_with_partial_images(
    pair: Callable[..., Pair], mysql97: Server, database: str
) -> None:
    both = pair("mysql97", source=mysql97)
    both.on_source(
        "CREATE TABLE @t (id INT PRIMARY KEY, a VARCHAR(10), b TEXT)",
        "INSERT INTO @t VALUES (1, 'a', 'x'), (2, 'b', 'y'), (3, 'c', 'z'), (4, 'd', 'w')",
    )
    both.task.sync()
    time.sleep(1.1)
    since = datetime.now(UTC).isoformat()
    session = both.open_session(mysql97).cursor()
    for sql in (
        "SET SESSION binlog_row_image = MINIMAL",
        f"UPDATE {database}.t SET a = 'A' WHERE id = 1",
        f"UPDATE {database}.t SET id = 20 WHERE id = 2",
        f"DELETE FROM {database}.t WHERE id = 3",
    ):
        session.execute(sql)
    both.task.sync()
    both.on_target(
        "DELETE FROM @t WHERE id = 1",
        "UPDATE @t SET b = NULL WHERE id = 20",
        "INSERT INTO @t VALUES (2, 'old', 'old'), (3, 'old', 'old')",
    )
    assert "4 rows of" in both.rewind(since)
    assert both.differing("t") == []


@pytest.mark.timeout(400)
@pytest.mark.parametrize("extract", [pytest.param(False, marks=pytest.mark.long), True])
def test_a_key_that_has_moved_to_another_shard_stays_with_that_shard(
    make_shards: Callable[..., Shards], *, extract: bool
) -> None:
    shards = make_shards("mariadb", extract=extract)
    shards.on("one", "INSERT INTO {1}.orders_1 VALUES (1, 'a', 1), (2, 'b', 2), (3, 'c', 3)")
    shards.on("two", "INSERT INTO {1}.orders_1 VALUES (11, 'k', 1), (12, 'l', 2)")
    shards.task.sync()
    time.sleep(1.1)
    since = datetime.now(UTC).isoformat()
    shards.on("one", "DELETE FROM {1}.orders_1 WHERE id = 1", "UPDATE {1}.orders_1 SET n = 5 WHERE id = 2")
    shards.task.sync()
    shards.on("two", "INSERT INTO {1}.orders_1 VALUES (1, 'moved', 100)", "UPDATE {1}.orders_1 SET n = 5 WHERE id = 11")
    shards.on("one", "DELETE FROM {1}.orders_1 WHERE id = 3")
    shards.task.sync()
    before = shards.rows()
    if extract:  # the row's extracted values show whose it was
        shards.on_target("CREATE TABLE {0}.kept AS SELECT * FROM {0}.orders WHERE id = 2", "UPDATE {0}.kept SET id = 3")
        shards.on_target("INSERT INTO {0}.orders SELECT * FROM {0}.kept", "DROP TABLE {0}.kept")
    shards.on_target("UPDATE {0}.orders SET n = 0 WHERE id IN (1, 11)", "DELETE FROM {0}.orders WHERE id = 2")
    run = shards.task.start("--rewind-to", since, "--until-synced", "--json")
    assert run.process.wait(200) == 0, shards.task.logs()
    assert shards.rows() == before, run.log.read_text()
    assert "copied again as a whole" not in run.log.read_text()
