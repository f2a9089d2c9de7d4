"""A schema change gives existing rows values that only the source knows: the table is copied again, without an
operator.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pidts.sandbox import Server

from .commands import Task

pytestmark = [pytest.mark.spark, pytest.mark.repeats("mysql97")]

RunSql = Callable[..., list[tuple[Any, ...]]]
TABLES = ("plain", "keyed", "computed", "other")


@pytest.mark.timeout(600)
def test_numbers_and_computed_values_are_those_of_the_source(
    mysql_like: Server,
    database: str,
    target_server: Callable[[str], Server],
    make_task: Callable[..., Task],
    run_sql: RunSql,
) -> None:
    source = mysql_like
    target = target_server("mariadb" if source.kind == "mariadb" else "mysql97")
    ((version,),) = run_sql(source, "SELECT VERSION()")
    computes = not str(version).startswith("5.6")

    def on_source(*statements: str) -> None:
        for sql in statements:
            run_sql(source, sql.replace("@", f"{database}."))

    on_source(
        "CREATE TABLE @plain (a INT)",
        "CREATE TABLE @keyed (k VARCHAR(10) PRIMARY KEY, a INT)",
        "CREATE TABLE @computed (id INT PRIMARY KEY, moment TIMESTAMP NULL)",
        "CREATE TABLE @other (id INT PRIMARY KEY)",
        "INSERT INTO @plain VALUES (30), (10), (20), (10), (7)",
        "DELETE FROM @plain WHERE a = 20",
        "INSERT INTO @keyed VALUES ('m', 1), ('a', 2), ('z', 3), ('d', 4)",
        "INSERT INTO @computed VALUES (1, '2024-02-03 04:05:06'), (2, NULL)",
        "INSERT INTO @other VALUES (1)",
    )
    task = make_task(source, target, [database])
    task.sync(timeout=240)
    run = task.start("--json")

    def rows(server: Server, table: str) -> list[tuple[Any, ...]]:
        found = run_sql(server, f"SELECT * FROM {database}.{table}")
        return sorted(found, key=repr)

    def equal() -> bool:
        try:
            return all(rows(source, table) == rows(target, table) for table in TABLES)
        except Exception:  # noqa: BLE001 - a table is being altered
            return False

    on_source(
        "ALTER TABLE @plain ADD id INT AUTO_INCREMENT PRIMARY KEY FIRST, AUTO_INCREMENT = 100",
        "INSERT INTO @plain (a) VALUES (99)",
        "UPDATE @plain SET a = 11 WHERE a = 10",
        "ALTER TABLE @keyed ADD n INT NOT NULL AUTO_INCREMENT UNIQUE",
        "INSERT INTO @keyed (k, a) VALUES ('b', 5)",
        "UPDATE @keyed SET n = n + 1000 WHERE k = 'z'",
        *(["ALTER TABLE @computed ADD g VARCHAR(20) AS (DATE_FORMAT(moment, '%Y')) VIRTUAL"] if computes else []),
        "INSERT INTO @computed (id, moment) VALUES (3, '2025-01-01 00:00:00')",
        "INSERT INTO @other VALUES (2)",
    )
    run.wait_until(equal, "the tables are equal")
    assert run.summary()["stage"] == "stopped"
    assert run.log.read_text().count("its tables are copied again") == 2 + computes
    assert run_sql(target, "SELECT COUNT(*) FROM pidts_meta.halt") == [(0,)]


DIES = """
import os
from pidts.task.run.attempt.next_attempt import NextAttempt
NextAttempt.replace_statement = lambda following, *_: os._exit(9) if following._replaces else None
"""


@pytest.mark.long
@pytest.mark.timeout(400)
def test_a_run_that_dies_between_the_copy_and_the_statements_begins_both_again(
    mariadb: Server,
    database: str,
    target_server: Callable[[str], Server],
    make_task: Callable[..., Task],
    run_sql: RunSql,
) -> None:
    target = target_server("mariadb")
    run_sql(mariadb, f"CREATE TABLE {database}.plain (a INT)")
    run_sql(mariadb, f"INSERT INTO {database}.plain VALUES (30), (10), (20)")
    task = make_task(mariadb, target, [database])
    task.sync(timeout=240)
    run_sql(mariadb, f"ALTER TABLE {database}.plain ADD id INT AUTO_INCREMENT PRIMARY KEY, AUTO_INCREMENT = 7")
    dying = task.start(before=DIES)
    assert dying.process.wait(120) == 9, task.logs()
    assert run_sql(target, f"SELECT COUNT(*) FROM information_schema.columns WHERE table_schema = '{database}'") == [
        (1,)
    ]
    task.sync(timeout=240)
    assert run_sql(target, f"SELECT id, a FROM {database}.plain ORDER BY id") == run_sql(
        mariadb, f"SELECT id, a FROM {database}.plain ORDER BY id"
    )
