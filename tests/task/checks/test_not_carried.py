"""`check` and `plan` report, for each table, what happens to its triggers, keys and other objects."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.task.applied_task import begin
from tests.task.checks.test_lost_defaults import task_file

from pidts.model import TableName
from pidts.sandbox import Server
from pidts.task.checks.all_sources import check_all_sources
from pidts.task.checks.not_replicated import sequence_notes
from pidts.task.checks.preview import preview_task
from pidts.task.config.task_file import TaskConfig, load_parts
from pidts.task.cutover.inventory import read_inventory
from pidts.task.cutover.switch import CutoverOptions, CutoverRun
from pidts.task.cutover.target_side import drop, lacks, statements

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
        "CREATE TABLE a_parent (id INT PRIMARY KEY, doc JSON, place POINT, padded INT(4) ZEROFILL)",
        "CREATE TABLE a_child (id INT PRIMARY KEY, p INT, e INT, CONSTRAINT of_parent FOREIGN KEY (p) "
        "REFERENCES a_parent (id), CONSTRAINT of_other FOREIGN KEY (e) REFERENCES elsewhere (id), "
        "CONSTRAINT positive CHECK (id > 0))",
        "CREATE TABLE a_moved (id INT PRIMARY KEY, p INT, day DATETIME ON UPDATE CURRENT_TIMESTAMP, CONSTRAINT follows "
        "FOREIGN KEY (p) REFERENCES a_parent (id) ON UPDATE CASCADE)",
        "CREATE TRIGGER before_child BEFORE INSERT ON a_child FOR EACH ROW SET NEW.p = 1",
        "CREATE TABLE a_parts (id INT PRIMARY KEY) PARTITION BY HASH (id) PARTITIONS 3",
        "CREATE TABLE a_words (id INT PRIMARY KEY, place POINT NOT NULL, words TEXT, SPATIAL KEY by_place (place), "
        "FULLTEXT KEY by_words (words))",
        "CREATE VIEW seen AS SELECT 1 AS one",
        "CREATE PROCEDURE done() SELECT 1",
        "CREATE FUNCTION one() RETURNS INT DETERMINISTIC RETURN 1",
        "CREATE EVENT nightly ON SCHEDULE EVERY 1 DAY DISABLE DO SELECT 1",
    )
    in_one_session(
        mysql97,
        database,
        "CREATE TABLE b_big (id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY)",
        "CREATE TABLE b_lower (id INT PRIMARY KEY, n VARCHAR(9), up VARCHAR(9) AS (UPPER(n)), "
        "more INT AS (id + 1), seen TIMESTAMP(3) NULL ON UPDATE CURRENT_TIMESTAMP(3), KEY low ((LOWER(n))), "
        "KEY year_and_name ((id + 1), n), UNIQUE KEY text_once ((CONCAT(n, 'x'))))",
    )


IF_IT_CAN = "made by `pidts cutover`, if the target can have it; `pidts cutover` prints its text"
LEFT_OUT = "left out; `pidts cutover` prints its text"


def test_each_table_has_its_notes(parts: tuple[TaskConfig, ...], tables: None, database: str) -> None:
    found = preview_task(parts)
    notes = {
        table.source.name: [note for note in table.notes if "cutover" in note or "left out" in note]
        for of_source in found.values()
        for table in of_source
    }
    assert notes["a_child"] == [
        f"foreign key of_other (e) on {database}.elsewhere: left out, {database}.elsewhere is not part of the task",
        f"foreign key of_parent (p) on {database}.a_parent: made by `pidts cutover`",
        "trigger before_child: left out; `pidts cutover` prints its text",
        f"check positive (CONSTRAINT `positive` CHECK (`id` > 0)): {IF_IT_CAN}",
    ]
    assert notes["a_parent"] == [
        f"declared type place (`place` point): {LEFT_OUT}",
        f"declared type padded (`padded` int(4) unsigned zerofill): {LEFT_OUT}",
    ], "PostgreSQL has neither; the server has made the check of the JSON column"
    of_parent = next(table for table in found["a"] if table.source.name == "a_parent")
    assert (
        "column doc: JSON, which MariaDB stores as text; in a table that PiDTS creates, it is text" in of_parent.notes
    )
    (parted,) = notes["a_parts"]
    assert parted.startswith("partitions (PARTITION BY HASH (")
    assert parted.endswith("3 parts): left out; `pidts cutover` prints its text"), "PostgreSQL has others"
    assert [note for note in notes["a_words"] if not note.startswith("key ")] == [
        f"declared type place (`place` point): {LEFT_OUT}",
        "fulltext key by_words (FULLTEXT KEY `by_words` (`words`)): left out; `pidts cutover` prints its text",
        "spatial key by_place (SPATIAL KEY `by_place` (`place`)): left out; `pidts cutover` prints its text",
    ]
    functional = next(note for note in notes["b_lower"] if note.startswith("functional key low"))
    assert functional == f"functional key low (KEY `low` ((lower(`n`)))): {IF_IT_CAN}"
    assert f"automatic timestamp day (`day` datetime ON UPDATE CURRENT_TIMESTAMP): {IF_IT_CAN}" in notes["a_moved"]
    automatic = f"automatic timestamp seen (`seen` timestamp(3) ON UPDATE CURRENT_TIMESTAMP(3)): {IF_IT_CAN}"
    assert automatic in notes["b_lower"]
    (programs,) = sequence_notes(parts)
    assert f"view seen in {database}" in programs
    assert f"procedure done in {database}" in programs
    assert f"function one in {database}" in programs
    assert f"event nightly in {database}" in programs
    generated = [
        note for table in found["b"] for note in table.notes if note.startswith("column ") and "generated on" in note
    ]
    plain = "generated on the source, a plain column with equal values on the target"
    assert generated == [f"column up: {plain}", f"column more: {plain}"], "of several sources each may compute another"
    assert (
        "generated column more (`more` AS ((`id` + 1)) VIRTUAL): a plain column on the target, unless PostgreSQL "
        "computes the same values; `pidts cutover` prints its text"
    ) in next(table for table in found["b"] if table.source.name == "b_lower").notes


def test_check_says_the_same_and_never_fails_by_it(parts: tuple[TaskConfig, ...], tables: None, database: str) -> None:
    """The output has a line for each table, with each kind of object, and a line for the programs of the schemas."""
    found = [one for one in check_all_sources(parts) if one.item == "not_carried"]
    assert all(one.ok for one in found)
    wanted = {
        "a_child": ("foreign key of_other (e)", "foreign key of_parent (p)", "trigger before_child", "check positive"),
        "a_parts": ("partitions (PARTITION BY HASH (",),
        "a_words": ("fulltext key by_words", "spatial key by_place"),
        "b_lower": (
            "generated column up",
            "functional key low",
            "functional key year_and_name",
            "functional key text_once",
            "automatic timestamp seen",
        ),
    }
    for name, words in wanted.items():
        start = f"{name[0]}: {TableName(database, name)}: "
        (message,) = [one.message for one in found if one.message.startswith(start)]
        assert [word for word in words if word not in message] == [], message
    (programs,) = [one.message for one in found if f"view seen in {database}" in one.message]
    assert [word for word in ("procedure done", "function one", "event nightly") if word not in programs] == []


def test_keys_and_columns_that_only_a_target_of_the_same_product_gets_are_named_as_such(
    mariadb: Server, mysql97: Server, database: str, run_sql: RunSql, tmp_path: Path
) -> None:
    columns = "id INT PRIMARY KEY, n INT, twice INT AS (n * 2) STORED, txt TEXT, FULLTEXT KEY f (txt), CONSTRAINT p CHECK (n > 0)"
    run_sql(mariadb, f"CREATE TABLE t ({columns})", database=database)
    parts = task_file(tmp_path, database, mariadb, mysql97)
    if_alike = (
        "made by `pidts cutover`, if the target is MariaDB, too, and can have it; `pidts cutover` prints its text"
    )
    ((planned,),) = preview_task(parts).values()
    (checked,) = [one.message for one in check_all_sources(parts) if one.item == "not_carried"]
    for said in ("; ".join(planned.notes), checked):
        assert f"generated column twice (`twice` AS (`n` * 2) STORED): {if_alike}" in said
        assert f"fulltext key f (FULLTEXT KEY `f` (`txt`)): {if_alike}" in said
        assert f"check p (CONSTRAINT `p` CHECK (`n` > 0)): {IF_IT_CAN}" in said


def test_a_cutover_makes_keys_over_expressions_and_removes_them_again(
    parts: tuple[TaskConfig, ...], tables: None, postgres: Server, database: str, run_sql: RunSql
) -> None:
    def keys() -> list[str]:
        sql = "SELECT indexname FROM pg_indexes WHERE tablename = 'b_lower' AND indexname NOT LIKE '%pkey' ORDER BY 1"
        return [name for (name,) in run_sql(postgres, sql, database=database)]

    def sequences() -> list[tuple[Any, ...]]:
        sql = f"SELECT relname::text FROM pg_class WHERE relkind = 'S' AND relnamespace = '{database}'::regnamespace"
        return run_sql(postgres, sql, database=database)

    with closing(parts[0].target.server.connect()) as target:
        begin(parts[1], target)
        options = CutoverOptions(read_only=False)
        switch = CutoverRun(parts[1:], target, options, run_once=lambda: pytest.fail("all is applied"), verify=None)
        (wanted,) = [step for step in switch.look().steps if step.name == "keys"]
        assert [line.partition(" of ")[0] for line in wanted.details] == ["b_lower_low", "b_lower_year_and_name"]
        assert sequences() == []
        done = switch.carry_out()
        assert sequences() == [("b_big_id_seq",)]
        assert [step.about for step in done.steps if step.name == "keys"] == ["2 made"]
        assert [step.about for step in done.steps if step.name == "on-update"] == ["1 made"]
        assert [step.name.value for step in done.steps][-3:] == ["stop", "on-update", "switch"], "no run writes by then"
        run_sql(postgres, f"INSERT INTO {database}.b_lower (id, n) VALUES (1, 'x')", database=database)
        run_sql(postgres, f"UPDATE {database}.b_lower SET n = 'y'", database=database)
        seen = f"SELECT seen BETWEEN now() - interval '1 minute' AND now() FROM {database}.b_lower"
        assert run_sql(postgres, seen, database=database) == [(True,)]
        assert keys() == ["b_lower_low", "b_lower_year_and_name"]
        switch.undo()
        assert keys() == []
        assert sequences() == [], "the one that this cutover has made"
        functions = f"SELECT 1 FROM pg_proc p JOIN pg_namespace n ON n.oid = pronamespace WHERE nspname = '{database}'"
        assert run_sql(postgres, functions, database=database) == [], "none is left that would change what a run writes"


def test_the_cutover_makes_it_or_shows_its_text(parts: tuple[TaskConfig, ...], tables: None, database: str) -> None:
    with closing(parts[0].target.server.connect()) as target:
        for part in parts:
            begin(part, target)
        found = read_inventory(parts, target)
        assert [key.name for key in found.foreign_keys] == ["of_parent", "follows"]
        assert [key.key.name for key in found.unfit] == ["of_other"]
        assert [check.name for check in found.checks] == ["positive"]
        assert [(key.name, key.parts) for key in found.expression_keys] == [
            ("b_lower_low", ('lower("n"::text)',)),
            ("b_lower_year_and_name", ('(("id"::numeric + 1::numeric))', '"n"')),
        ]
        for key in found.expression_keys:
            assert lacks(target, key)
            for sql in statements(target, key):
                target.execute(sql)
            assert statements(target, key) == []
            drop(target, key.kind, key.table, key.name)
            assert lacks(target, key)
    left = {(one.kind, one.name): one.text for one in found.left}
    assert left.keys() == {
        ("view", "seen"),
        ("trigger", "before_child"),
        ("procedure", "done"),
        ("function", "one"),
        ("event", "nightly"),
        ("partitions", "a_parts"),
        ("generated column", "up"),
        ("automatic timestamp", "day"),
        ("functional key", "text_once"),
        ("check", "doc"),
        ("declared type", "place"),
        ("declared type", "padded"),
        ("fulltext key", "by_words"),
        ("spatial key", "by_place"),
    }
    assert all(left.values()), "each with its text"
    assert left["partitions", "a_parts"] == "PARTITION BY HASH (`id`)\nPARTITIONS 3"
    assert [one.name for one in found.automatic] == ["seen"]
    # A foreign key of PostgreSQL executes the triggers of the table that it changes.
    assert "On PostgreSQL, if it fits:\nCREATE FUNCTION" in left["automatic timestamp", "day"]
    assert left["automatic timestamp", "day"].count("CREATE TRIGGER") == 2


def test_a_warehouse_has_no_notes_on_objects_that_a_cutover_would_make(
    parts: tuple[TaskConfig, ...], tables: None, tmp_path: Path
) -> None:
    path = tmp_path / "task.yaml"
    begin_at, end_at = path.read_text().index("target-database"), path.read_text().index("mysql-instances")
    text = path.read_text()
    path.write_text(f"{text[:begin_at]}target-database: {{type: iceberg, warehouse: {tmp_path}/lake}}\n{text[end_at:]}")
    parts = load_parts(path)
    said = [one.message for one in check_all_sources(parts)] + sequence_notes(parts)
    with closing(parts[0].target.server.connect()):  # creates the warehouse, which the plan reads
        previews = preview_task(parts)
    said += [note for of_source in previews.values() for table in of_source for note in table.notes]
    assert not [one for one in said if "cutover" in one]
