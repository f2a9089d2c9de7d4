"""`pidts cutover` switches a running task from one server to another, and a second task leads back.

`tests/task/test_cutover.py` shows, without Spark, what is true if the command is killed at any step.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pymysql
import pytest

from pidts.sandbox import Server
from pidts.task.cutover.remaining_steps import NOTHING_TO_MAKE

from .commands import Task

pytestmark = pytest.mark.spark

RunSql = Callable[..., list[tuple[Any, ...]]]


ORDERS = (
    "CREATE TABLE shop.orders (id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, customer INT UNSIGNED NOT NULL, "
    "CONSTRAINT known CHECK (customer > 0 OR 'it''s \\\\ odd' = 'none'), CONSTRAINT bought FOREIGN KEY (customer) REFERENCES shop.customers (id) ON DELETE RESTRICT)"
)


def create_shop(source: Server, run_sql: RunSql) -> None:
    for sql in (
        "CREATE TABLE shop.customers (id INT UNSIGNED AUTO_INCREMENT PRIMARY KEY, name VARCHAR(40))",
        ORDERS,
        "CREATE TRIGGER shop.trim_name BEFORE INSERT ON shop.customers FOR EACH ROW SET NEW.name = TRIM(NEW.name)",
        "CREATE VIEW shop.named AS SELECT id, name FROM shop.customers",
        "INSERT INTO shop.customers (name) VALUES ('Ada'), ('Bob'), ('Cid'), ('Dan'), ('gone')",
        "DELETE FROM shop.customers WHERE name = 'gone'",
        "INSERT INTO shop.orders (customer) VALUES (1), (2), (3), (4)",
    ):
        run_sql(source, sql)


def test_the_application_continues_at_postgresql(
    target_server: Callable[[str], Server],
    postgres: Server,
    database: str,
    make_task: Callable[..., Task],
    run_sql: RunSql,
) -> None:
    source = target_server("mariadb")
    run_sql(source, "CREATE DATABASE shop")
    # All rows come by the log, so the test need not wait for Spark, which starts slowly on a slow machine.
    task = make_task(
        source, postgres, ["shop"], database=database, name=database[:30], **{"ignore-checking-items": ["table_list"]}
    )
    run = task.start()

    def on_target(sql: str) -> list[tuple[Any, ...]]:
        return run_sql(postgres, sql, database=database)

    def has(table: str, rows: int) -> Callable[[], bool]:
        exists = f"SELECT 1 FROM information_schema.tables WHERE table_schema || '.' || table_name = '{table}'"
        return lambda: bool(on_target(exists)) and on_target(f"SELECT count(*) FROM {table}") == [(rows,)]

    run.wait_until(has("pidts_meta.checkpoint", 1), "the task has begun")
    create_shop(source, run_sql)
    run.wait_until(has("shop.orders", 4), "the rows of the log are there")

    shown = task.command("cutover", str(task.path), "--json")
    assert shown.returncode == 0, shown.stderr
    about = json.loads(shown.stdout)
    assert not about["done"]
    assert {step["step"]: step["state"] for step in about["steps"]}["counters"] == "todo"
    # The CHECK is among the objects that PiDTS leaves to the operator, because it compares texts.
    assert {one["kind"] for one in about["left"]} == {"check", "trigger", "view"}
    assert all(one["text"] for one in about["left"])
    assert run_sql(source, "SELECT @@GLOBAL.read_only") == [(0,)]

    done = task.command("cutover", str(task.path), "--yes", "--json")
    assert done.returncode == 0, done.stderr.decode()
    assert json.loads(done.stdout)["done"]
    assert run.process.wait(60) == 0, run.log.read_text()
    assert run_sql(source, "SELECT @@GLOBAL.read_only") == [(1,)]

    # The application's first INSERTs get the numbers that the source would have given.
    on_target("INSERT INTO shop.customers (name) VALUES ('Eve')")
    on_target("INSERT INTO shop.orders (customer) VALUES (6)")
    assert on_target("SELECT id FROM shop.customers WHERE name = 'Eve'") == [(6,)]
    assert on_target("SELECT max(id) FROM shop.orders") == [(5,)]
    keys = "SELECT conname::text, convalidated, confdeltype::text FROM pg_constraint WHERE contype = 'f'"
    assert on_target(keys) == [("bought", True, "r")]

    # The task has ended, until an operator says that nothing was written to the target.
    refused = task.command("run", str(task.path), "--until-synced", "--json")
    assert refused.returncode == 5
    assert b'"code": "cut-over"' in refused.stdout + refused.stderr
    assert task.command("cutover", str(task.path), "--undo").returncode == 2
    assert task.command("cutover", str(task.path), "--undo", "--yes").returncode == 0
    assert run_sql(source, "SELECT @@GLOBAL.read_only") == [(0,)]
    assert on_target(keys) == []


def test_the_way_back_carries_what_was_written_after_the_switch(
    target_server: Callable[[str], Server], make_task: Callable[..., Task], run_sql: RunSql
) -> None:
    old, new = target_server("mariadb"), target_server("mysql97")
    run_sql(old, "CREATE DATABASE shop")
    task = make_task(old, new, ["shop"], **{"ignore-checking-items": ["table_list"]})
    run = task.start()
    run.wait_until(lambda: begun(new, run_sql), "the task has begun")
    create_shop(old, run_sql)
    # The command itself waits for the rows.
    assert task.command("cutover", str(task.path), "--reverse").returncode == 3
    done = task.command("cutover", str(task.path), "--yes", "--json", timeout=240)
    assert done.returncode == 0, done.stderr.decode()
    assert run.process.wait(60) == 0, run.log.read_text()
    sql = "SELECT constraint_name FROM information_schema.referential_constraints WHERE constraint_schema = 'shop'"
    assert run_sql(new, sql) == [("bought",)]
    sql = "SELECT constraint_name FROM information_schema.check_constraints WHERE constraint_schema = 'shop'"
    assert run_sql(new, sql) == [("known",)]
    with pytest.raises(pymysql.err.MySQLError, match="known"):
        run_sql(new, "INSERT INTO shop.orders (customer) VALUES (0)")

    run_sql(new, "INSERT INTO shop.customers (name) VALUES ('Eve')")
    run_sql(new, "UPDATE shop.customers SET name = 'Bea' WHERE id = 2")
    run_sql(new, "DELETE FROM shop.orders WHERE id = 1")
    assert task.command("cutover", str(task.path), "--reverse").returncode == 0
    back = Task(task.path.with_name("t-back.yaml"), task.programs)
    assert oct(back.path.stat().st_mode & 0o777) == "0o600"
    run_sql(old, "DROP TRIGGER shop.trim_name")
    ended = back.command("run", str(back.path), "--until-synced", "--json", timeout=240)
    assert ended.returncode == 0, ended.stderr.decode()
    found = json.loads(ended.stdout)["rows"]
    assert (found["inserted"], found["updated"], found["deleted"], found["copied"]) == (1, 1, 1, 0)
    changed = {one["name"]: one["rows"] for one in json.loads(ended.stdout)["changed"]}
    assert changed == {"shop.customers": 2, "shop.orders": 1}
    for table in ("customers", "orders"):
        rows = f"SELECT * FROM shop.{table} ORDER BY id"
        assert run_sql(old, rows) == run_sql(new, rows)
    assert run_sql(old, "SELECT id FROM shop.customers WHERE name = 'Eve'") == [(6,)]


@pytest.mark.long
def test_the_way_back_starts_after_schema_changes_of_the_new_server(
    target_server: Callable[[str], Server], make_task: Callable[..., Task], run_sql: RunSql
) -> None:
    old, new = target_server("mariadb"), target_server("mariadb")
    run_sql(old, "CREATE DATABASE shop")
    task = make_task(old, new, ["shop"], **{"ignore-checking-items": ["table_list"]})
    run = task.start()
    run.wait_until(lambda: begun(new, run_sql), "the task has begun")
    create_shop(old, run_sql)
    run_sql(old, "DROP TRIGGER shop.trim_name")
    done = task.command("cutover", str(task.path), "--yes", "--json", timeout=240)
    assert done.returncode == 0, done.stderr.decode()
    assert run.process.wait(60) == 0, run.log.read_text()

    for sql in (
        "INSERT INTO shop.customers (name) VALUES ('Eve')",
        "UPDATE shop.orders SET customer = 2 WHERE id = 1",
        "ALTER TABLE shop.customers ADD COLUMN extra INT NOT NULL DEFAULT 3 FIRST, DROP COLUMN name, ADD mail VARCHAR(9)",
        "INSERT INTO shop.customers (extra, mail) VALUES (9, 'f@x')",
        "ALTER TABLE shop.orders ADD COLUMN note VARCHAR(20) NOT NULL DEFAULT 'none' AFTER id",
        "UPDATE shop.customers SET extra = 4 WHERE id = 2",
        "DELETE FROM shop.orders WHERE id = 3",
    ):
        run_sql(new, sql)
    assert task.command("cutover", str(task.path), "--reverse").returncode == 0
    back = Task(task.path.with_name("t-back.yaml"), task.programs)
    # The tables of both servers differ by now, and the log says how.
    checked = json.loads(back.command("check", str(back.path), "--json").stdout)
    assert [one["ok"] for one in checked["findings"] if one["item"] == "target_tables"] == [True]
    ended = back.command("run", str(back.path), "--until-synced", "--json", timeout=240)
    assert ended.returncode == 0, ended.stderr.decode()
    for table in ("customers", "orders"):
        for rows in (f"SELECT * FROM shop.{table} ORDER BY id", f"SHOW COLUMNS FROM shop.{table}"):
            assert run_sql(old, rows) == run_sql(new, rows)
    assert run_sql(old, "SELECT extra, mail FROM shop.customers WHERE id = 7") == [(9, "f@x")]

    # If a first start cannot find the structures that the cutover recorded, the run halts. The error names a table
    # and the ALTER that has changed it since the cutover.
    run_sql(new, "DELETE FROM pidts_meta.switch_structure")
    run_sql(old, "DELETE FROM pidts_meta.checkpoint")
    refused = back.command("run", str(back.path), "--until-synced", "--json", timeout=240)
    assert refused.returncode == 5
    said = (refused.stdout + refused.stderr).decode()
    assert "structure-unknown" in said
    assert "changed shop.customers" in said
    assert "ADD COLUMN extra" in said


@pytest.mark.long
def test_columns_are_in_the_end_what_they_are_on_the_source(
    target_server: Callable[[str], Server], make_task: Callable[..., Task], run_sql: RunSql
) -> None:
    old, new = target_server("mariadb"), target_server("mariadb")
    run_sql(old, "CREATE DATABASE shop")
    task = make_task(old, new, ["shop"], **{"ignore-checking-items": ["table_list"]})
    run = task.start()
    run.wait_until(lambda: begun(new, run_sql), "the task has begun")
    for sql in (
        "CREATE TABLE shop.places (id INT PRIMARY KEY, name VARCHAR(20), doc JSON, place POINT, padded INT(8) ZEROFILL)",
        "ALTER TABLE shop.places ADD more VARCHAR(9)",
        "CREATE TABLE shop.others LIKE shop.places",
        "DROP TABLE shop.places",
        (
            "CREATE TABLE shop.places (id INT PRIMARY KEY, name VARCHAR(20), doc JSON, place POINT, "
            "padded INT(8) ZEROFILL, up VARCHAR(20) AS (UPPER(name)) VIRTUAL, twice INT AS (id * 2) STORED, "
            "spot POINT NOT NULL, KEY by_up (up), SPATIAL KEY by_spot (spot), FULLTEXT KEY by_name (name))"
        ),
        "INSERT INTO shop.places (id, name, doc, place, padded, spot) VALUES (1, 'Ada', '{}', POINT(1, 2), 7, POINT(3, 4))",
        "CREATE TABLE shop.parted (id INT PRIMARY KEY, n INT) PARTITION BY HASH (id) PARTITIONS 3",
        "INSERT INTO shop.parted VALUES (1, 1), (2, 2), (3, 3)",
    ):
        run_sql(old, sql)
    for number in (1, 2):
        done = task.command("cutover", str(task.path), "--yes", "--json", timeout=240)
        assert done.returncode == 0, done.stderr.decode()
        assert run.process.wait(60) == 0, run.log.read_text()
        about = {step["step"]: step for step in json.loads(done.stdout)["steps"]}
        assert about["columns"]["about"] == ("7 made" if number == 1 else NOTHING_TO_MAKE)
        assert about["special-keys"]["about"] == ("2 made" if number == 1 else NOTHING_TO_MAKE)
        assert about["partitions"]["about"] == ("1 made" if number == 1 else NOTHING_TO_MAKE)
        assert json.loads(done.stdout)["left"] == []
        columns = "SELECT column_name, column_type, generation_expression, extra FROM information_schema.columns "
        columns += "WHERE table_schema = 'shop' ORDER BY table_name, ordinal_position"
        assert run_sql(new, columns) == run_sql(old, columns)
        with pytest.raises(pymysql.err.MySQLError, match="CONSTRAINT"):
            run_sql(new, "INSERT INTO shop.places (id, doc, spot) VALUES (9, '{{{', POINT(1, 1))")
        rows = "SELECT *, HEX(place), HEX(spot) FROM shop.places ORDER BY id"
        assert run_sql(new, rows) == run_sql(old, rows)
        keys = "SELECT index_name, index_type FROM information_schema.statistics WHERE table_schema = 'shop' ORDER BY 1"
        assert run_sql(new, keys) == run_sql(old, keys)
        for parted in ("SHOW CREATE TABLE shop.parted", "SELECT * FROM shop.parted ORDER BY id"):
            assert run_sql(new, parted) == run_sql(old, parted)
        # After an undo, the target computes the columns again, and the task continues.
        if number == 1:
            assert task.command("cutover", str(task.path), "--undo", "--yes").returncode == 0
            run_sql(old, "INSERT INTO shop.places (id, name, padded, spot) VALUES (2, 'Bob', 8, POINT(5, 6))")
            run_sql(old, "UPDATE shop.places SET name = 'Eve' WHERE id = 1")
            run_sql(old, "DELETE FROM shop.parted WHERE id = 1")
            run_sql(old, "INSERT INTO shop.parted VALUES (4, 4)")
            run = task.start()


def begun(server: Server, run_sql: RunSql) -> bool:
    exists = "SELECT 1 FROM information_schema.tables WHERE table_schema = 'pidts_meta' AND table_name = 'checkpoint'"
    return bool(run_sql(server, exists)) and run_sql(server, "SELECT COUNT(*) FROM pidts_meta.checkpoint") == [(1,)]
