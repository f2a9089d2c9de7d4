"""`pidts plan` shows what a run would do to each table, and changes nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pidts.cli.app import run_command
from pidts.sandbox import Server

RunSql = Callable[..., list[tuple[Any, ...]]]
Output = pytest.CaptureFixture[str]


@pytest.fixture
def task(tmp_path: Path, mariadb: Server, postgres: Server, database: str, run_sql: RunSql) -> Path:
    for sql in (
        "CREATE TABLE orders (id BIGINT UNSIGNED PRIMARY KEY, state ENUM('new','paid'), note TEXT, UNIQUE (note(20)))",
        "CREATE TABLE plain (a INT, b DATETIME(3))",
        "CREATE TABLE taken (id INT PRIMARY KEY, amount DECIMAL(8,2))",
        "INSERT INTO orders VALUES (1, 'new', 'a'), (2, 'paid', 'b')",
        "ANALYZE TABLE orders",
    ):
        run_sql(mariadb, sql, database=database)
    run_sql(postgres, f'CREATE SCHEMA "{database}"', database=database)
    run_sql(postgres, f'CREATE TABLE "{database}".taken (id integer PRIMARY KEY)', database=database)
    path = tmp_path / "task.yaml"
    path.write_text(f"""\
name: {database}
task-mode: all
target-database: {{type: postgresql, host: {postgres.host}, port: {postgres.port}, user: {postgres.user},
  password: "{postgres.password}", database: {database}}}
mysql-instances:
  - source-id: s
    from: {{host: {mariadb.host}, port: {mariadb.port}, user: {mariadb.user}, password: "{mariadb.password}"}}
    block-allow-list: one
block-allow-list: {{one: {{do-dbs: [{database}]}}}}
""")
    return path


def test_a_plan_names_types_statements_sizes_and_what_is_refused(
    task: Path, database: str, postgres: Server, run_sql: RunSql, capsys: Output
) -> None:
    assert run_command(["plan", str(task), "--json"]) == 3
    found = {one["source"].partition(".")[2]: one for one in json.loads(capsys.readouterr().out)["tables"]}

    orders = found["orders"]
    assert (orders["way"], orders["key"], orders["rows"]) == ("create", ["id"], 2)
    assert [(c["name"], c["target_type"]) for c in orders["columns"]] == [
        ("id", "numeric(20)"),
        ("state", "text"),
        ("note", "text"),
    ]
    assert any("CREATE TABLE" in statement for statement in orders["statements"])
    assert any("note" in note for note in orders["notes"])

    assert found["plain"]["key"] == []
    assert (found["taken"]["way"], found["taken"]["problems"]) == ("refused", ["it lacks column amount"])
    made = "SELECT count(*) FROM information_schema.tables WHERE table_schema = %s"
    assert run_sql(postgres, made, database, database=database) == [(1,)]

    assert run_command(["plan", str(task)]) == 3
    shown = capsys.readouterr().out
    assert f"create  {database}.orders  about 2 rows, key (id)" in shown
    assert "refused: it lacks column amount" in shown


def test_a_plan_names_rules_where_tables_land_and_what_is_added(
    task: Path, database: str, mariadb: Server, run_sql: RunSql, capsys: Output
) -> None:
    run_sql(mariadb, "CREATE TABLE part_7 (id INT PRIMARY KEY)", database=database)
    run_sql(mariadb, "CREATE TABLE part_8 (id INT PRIMARY KEY)", database=database)
    rules = f"""\
    route-rules: [plain, parts, orders, taken, mistyped]
    filter-rules: [no-drops]
    expression-filters: [tests]
routes:
  plain:
    schema-pattern: "{database}"
    table-pattern: plain
    target-schema: other
    target-table: copy
    extract-table: {{table-regexp: "(pl)", target-column: origin}}
  parts: {{schema-pattern: "{database}", table-pattern: "part_*", target-schema: other, target-table: part,
    extract-table: {{table-regexp: "part_(.*)", target-column: part}}}}
  orders: {{schema-pattern: "*", table-pattern: orders, target-table: o, extract-source: {{source-regexp: "(.*)", target-column: NOTE}}}}
  taken: {{schema-pattern: "{database}", target-schema: "{database}"}}
  mistyped: {{schema-pattern: "{database}", table-pattern: ordres, target-schema: x, target-table: x}}
filters: {{no-drops: {{schema-pattern: "*", events: [drop table], action: Ignore}}}}
expression-filter: {{tests: {{schema: "{database}", table: plain, delete-value-expr: "a > 1"}}}}
"""
    task.write_text(task.read_text().replace("block-allow-list: {one", f"{rules}block-allow-list: {{one"))
    assert run_command(["plan", str(task), "--json"]) == 3
    found = {one["source"].partition(".")[2]: one for one in json.loads(capsys.readouterr().out)["tables"]}

    plain = found["plain"]
    assert (plain["way"], plain["target"]) == ("create", "other.copy")
    assert [(rule["map"], rule["name"]) for rule in plain["rules"]] == [
        ("routes", "plain"),
        ("filters", "no-drops"),
        ("expression-filter", "tests"),
    ]
    assert plain["columns"][-1] == {
        "name": "origin",
        "source_type": "",
        "target_type": "varchar(255)",
        "value": "pl",
    }
    assert any('"other"."copy"' in statement for statement in plain["statements"])

    assert (found["orders"]["way"], found["orders"]["target"]) == ("refused", f"{database}.o")
    assert "but the table itself has a column of this name" in found["orders"]["problems"][0]
    assert [found[name]["way"] for name in ("part_7", "part_8")] == ["create", "create"]
    assert any('PRIMARY KEY ("id", "part")' in statement for statement in found["part_7"]["statements"])
    assert [rule["name"] for rule in found["taken"]["rules"]] == ["taken", "no-drops"]

    assert run_command(["plan", str(task), "--sql"]) == 3
    shown = capsys.readouterr().out
    assert f"create  {database}.plain -> other.copy" in shown
    assert "extracted 'pl'" in shown
    assert "create  2 tables -> other.part" in shown
    assert f"note: route mistyped ({database}.ordres -> x.x) matches no table of any source. Did you mean" in shown
    assert f"of {database}.part_7, {database}.part_8\n" in shown
    assert shown.count('CREATE TABLE "other"."part"') == 1
    assert "filters no-drops: Ignore drop table" in shown
