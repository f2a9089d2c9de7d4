"""`check` and `plan` say of each table what becomes of all that it has besides rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pidts.model import TableName
from pidts.sandbox import Server
from pidts.task.checks.all_sources import check_all_sources
from pidts.task.checks.left_out import sequence_notes
from pidts.task.checks.preview import preview_task
from pidts.task.config.task_file import TaskConfig, load_parts

RunSql = Callable[..., list[tuple[Any, ...]]]


@pytest.fixture
def parts(
    mariadb: Server, mysql97: Server, postgres: Server, database: str, run_sql: RunSql, tmp_path: Path
) -> tuple[TaskConfig, ...]:
    path = tmp_path / "task.yaml"
    instances = "".join(
        f"""\
  - source-id: {name}
    from: {{host: {one.host}, port: {one.port}, user: {one.user}, password: "{one.password}"}}
    block-allow-list: {name}
"""
        for name, one in (("a", mariadb), ("b", mysql97))
    )
    path.write_text(f"""\
name: {database}
task-mode: all
target-database: {{type: postgresql, host: {postgres.host}, port: {postgres.port}, user: {postgres.user},
  password: "{postgres.password}", database: {database}}}
mysql-instances:
{instances}
block-allow-list:
  a: {{do-tables: [{{db-name: {database}, tbl-name: "a_*"}}]}}
  b: {{do-tables: [{{db-name: {database}, tbl-name: "b_*"}}]}}
""")
    return load_parts(path)


@pytest.fixture
def tables(mariadb: Server, mysql97: Server, database: str, run_sql: RunSql, in_one_session: Any) -> None:
    in_one_session(
        mariadb,
        database,
        "CREATE TABLE elsewhere (id INT PRIMARY KEY)",
        "CREATE TABLE a_parent (id INT PRIMARY KEY, doc JSON)",
        "CREATE TABLE a_child (id INT PRIMARY KEY, p INT, e INT, CONSTRAINT of_parent FOREIGN KEY (p) "
        "REFERENCES a_parent (id), CONSTRAINT of_other FOREIGN KEY (e) REFERENCES elsewhere (id), "
        "CONSTRAINT positive CHECK (id > 0))",
        "CREATE TRIGGER before_child BEFORE INSERT ON a_child FOR EACH ROW SET NEW.p = 1",
        "CREATE TABLE a_parts (id INT PRIMARY KEY) PARTITION BY HASH (id) PARTITIONS 3",
        "CREATE VIEW seen AS SELECT 1 AS one",
        "CREATE PROCEDURE done() SELECT 1",
    )
    in_one_session(mysql97, database, "CREATE TABLE b_lower (id INT PRIMARY KEY, n VARCHAR(9), KEY low ((LOWER(n))))")


IF_IT_CAN = "made by pidts cutover, if the target can have it; its text: pidts cutover"


def test_each_table_has_its_notes(parts: tuple[TaskConfig, ...], tables: None, database: str) -> None:
    found = preview_task(parts)
    notes = {
        table.source.name: [note for note in table.notes if "cutover" in note or "left out" in note]
        for of_source in found.values()
        for table in of_source
    }
    assert notes["a_parent"] == [], "JSON is a type, although MariaDB shows it as a check"
    assert notes["a_child"] == [
        f"foreign key of_other (e) on {database}.elsewhere: left out, {database}.elsewhere is not part of the task",
        f"foreign key of_parent (p) on {database}.a_parent: made by pidts cutover",
        "trigger before_child: left out; its text: pidts cutover",
        f"check positive (CONSTRAINT `positive` CHECK (`id` > 0)): {IF_IT_CAN}",
    ]
    (parted,) = notes["a_parts"]
    assert parted.startswith("partitions (PARTITION BY HASH (")
    assert "3 parts" in parted
    (functional,) = notes["b_lower"]
    assert functional.startswith("functional key low (KEY `low` ((lower(`n`)))): left out")
    (programs,) = sequence_notes(parts)
    assert f"view seen in {database}" in programs
    assert f"procedure done in {database}" in programs


def test_check_says_the_same_and_never_fails_by_it(parts: tuple[TaskConfig, ...], tables: None, database: str) -> None:
    told = [one for one in check_all_sources(parts) if one.item == "not_carried"]
    assert all(one.ok for one in told)
    assert any(one.message.startswith(f"a: {TableName(database, 'a_child')}: foreign key of_other") for one in told)
    assert any(one.message.startswith(f"b: {TableName(database, 'b_lower')}: functional key low") for one in told)
