"""A schema change that fails, or a row that the target refuses, halts its own table.

An operator decides, and other tables continue.

The target's tables are changed by hand, so that changes of the source do not fit.
"""

from __future__ import annotations

import json
import re
import threading

import pytest
import yaml
from tests.running import NOT_THERE, Progress

from pidts.model import Halt
from pidts.task.operate.ddl_commands import AS_BEFORE

SETUP = """
CREATE TABLE {0}.a (id INT PRIMARY KEY, v VARCHAR(20) NOT NULL);
CREATE TABLE {0}.b (id INT PRIMARY KEY, v VARCHAR(20) NOT NULL);
CREATE TABLE {0}.c (id INT PRIMARY KEY, v VARCHAR(20) NOT NULL);
INSERT INTO {0}.a VALUES (1, 'one'), (2, 'two');
INSERT INTO {0}.b VALUES (1, 'one'), (2, 'two');
INSERT INTO {0}.c VALUES (1, 'one')
"""


class Servers:
    """Source and target, and the task between them."""

    def __init__(self, task, source, target, schema, eventually):
        self.task, self.schema, self.eventually = task, schema, eventually
        self._source, self._target = source.cursor(), target.cursor()
        if hasattr(target, "prepare_threshold"):
            target.prepare_threshold = None

    def source(self, *statements: str) -> None:
        for statement in statements:
            self._source.execute(statement.format(self.schema))

    def target(self, *statements: str) -> None:
        for statement in statements:
            self._target.execute(statement.format(self.schema))

    def rows(self, table: str) -> list[tuple]:
        self._target.execute(f"SELECT * FROM {self.schema}.{table} ORDER BY id")
        return [tuple(row) for row in self._target.fetchall()]

    def arrives(self, table: str, *rows: tuple) -> None:
        def are_there() -> bool:
            try:
                return set(rows) <= set(self.rows(table))
            except NOT_THERE:
                return False  # The table is not renamed yet.

        self.eventually(are_there, 60, f"{rows} in {table}")

    def pidts(self, *words: str) -> dict:
        done = self.task.command(*words, "--json")
        assert done.returncode == 0, done.stderr.decode()
        return json.loads(done.stdout.splitlines()[-1])

    def halted(self) -> list[dict]:
        self._target.execute("SELECT about FROM pidts_meta.halt")
        return [Halt.loads(about).to_json() for (about,) in self._target.fetchall()]

    def halts(self, table: str, code: str) -> dict:
        """Waits until this run has halted the table. A record of an earlier run does not show this."""
        name = f"{self.schema}.{table}"

        def found() -> list[dict]:
            mine = [halt for halt in self.halted() if halt["tables"] == [name]]
            return [halt for halt in mine if not halt["what"].endswith(AS_BEFORE)]

        self.eventually(found, 60, f"{table} is halted")
        (halt,) = found()
        assert halt["code"] == code
        assert halt["todo"]
        return halt

    def follow(self, **rules: object) -> None:
        """Writes the task's block-allow-list: the schema, and further rules."""
        about = yaml.safe_load(self.task.path.read_text())
        about["block-allow-list"] = {"ours": {"do-dbs": [self.schema], **rules}}
        self.task.path.write_text(yaml.safe_dump(about))

    def synced(self) -> tuple[int, dict]:
        run = self.task.start("--until-synced", "--json")
        code = run.process.wait(150)
        return code, json.loads(run.log.read_text().splitlines()[-1])


@pytest.fixture
def begun(mariadb, database, make_task, open_session, eventually, target_server):
    def start(kind: str, workers: int):
        target = target_server(kind)
        task = make_task(mariadb, target, [database], workers=workers)
        servers = Servers(task, open_session(mariadb), open_session(target), database, eventually)
        servers.reader = open_session(target).cursor()
        servers.source(*SETUP.strip().split(";\n"))
        run = task.start()
        run.wait_until(Progress(open_session(target)).is_copied, "all is copied")
        return servers, run

    return start


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_a_schema_change_that_fails_waits_for_an_operator_and_so_does_a_row(begun):
    servers, run = begun("mariadb", 2)
    try:
        servers.target("ALTER TABLE {0}.a ADD COLUMN late INT", "ALTER TABLE {0}.b MODIFY COLUMN v VARCHAR(3) NOT NULL")
        servers.source(
            "UPDATE {0}.a SET v = 'uno' WHERE id = 1",
            "ALTER TABLE {0}.a ADD COLUMN late INT",
            "INSERT INTO {0}.a VALUES (3, 'three', 3)",
            "INSERT INTO {0}.c VALUES (2, 'two')",
        )
        servers.arrives("c", (2, "two"))
        servers.arrives("a", (1, "uno", None))
        halt = servers.halts("a", "target-refused")
        assert halt["statement"].startswith("ALTER TABLE")
        assert [row[0] for row in servers.rows("a")] == [1, 2]

        # A row that does not fit, in one transaction with rows of other tables.
        servers.source(
            "BEGIN",
            "INSERT INTO {0}.b VALUES (3, 'three')",
            "INSERT INTO {0}.c VALUES (3, 'three')",
            "COMMIT",
            "INSERT INTO {0}.c VALUES (4, 'four')",
        )
        servers.arrives("c", (3, "three"), (4, "four"))
        servers.halts("b", "target-refused")
        servers.halts("a", "target-refused")
        assert len(servers.rows("b")) == 2

        at = str(servers.task.path)
        assert servers.pidts("ddl", "skip", at, "--yes")["given"]
        servers.arrives("a", (3, "three", 3))
        servers.eventually(lambda: len(servers.halted()) == 1, 20, "only the row is left")

        # An operator who has removed the cause need not restart the task.
        listed = servers.pidts("ddl", "list", at)
        assert [(one["tables"], one["backlog"]["transactions"]) for one in listed["halted"]] == [
            ([f"{servers.schema}.b"], 1)
        ]
        assert listed["held"][0]["log_bytes"] > 0
        servers.target("ALTER TABLE {0}.b MODIFY COLUMN v VARCHAR(5) NOT NULL")
        assert servers.pidts("ddl", "retry", at, "--table", f"{servers.schema}.b", "--yes")["given"]
        servers.arrives("b", (3, "three"))
        servers.source("INSERT INTO {0}.b VALUES (4, 'longer')")
        servers.halts("b", "target-refused")

        # A run that waits for everything else reports the halt, and so does the next run, which tries again.
        assert run.stop(60) == 0
        servers.source("UPDATE {0}.c SET v = 'last' WHERE id = 4")
        code, said = servers.synced()
        assert (code, said["stage"]) == (5, "halted"), said
        assert [one["tables"] for one in said["halted"]] == [[f"{servers.schema}.b"]]
        servers.arrives("c", (4, "last"))
        servers.target("ALTER TABLE {0}.b MODIFY COLUMN v VARCHAR(20) NOT NULL")
        code, said = servers.synced()
        assert (code, said["stage"], said["halted"]) == (0, "synced", []), said
        servers.arrives("b", (4, "longer"))
        assert servers.halted() == []
    except AssertionError as error:
        error.add_note(servers.task.logs())
        raise


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_a_halt_stays_listed_while_another_table_is_tried_again_and_over_a_restart(begun):
    servers, run = begun("mariadb", 1)
    at = str(servers.task.path)
    seen: list[dict[str, float]] = []

    def looks() -> None:
        while not over.wait(0.005):
            servers.reader.execute("SELECT about FROM pidts_meta.halt")
            halts = [Halt.loads(about) for (about,) in servers.reader.fetchall()]
            seen.append({str(halt.tables[0].name): halt.since for halt in halts})

    try:
        servers.target(
            "ALTER TABLE {0}.a ADD COLUMN late INT",
            "ALTER TABLE {0}.b MODIFY COLUMN v VARCHAR(3) NOT NULL",
            "ALTER TABLE {0}.c MODIFY COLUMN v VARCHAR(3) NOT NULL",
        )
        servers.source("ALTER TABLE {0}.a ADD COLUMN late INT", "INSERT INTO {0}.b VALUES (3, 'three')")
        servers.halts("a", "target-refused")
        servers.halts("b", "target-refused")
        servers.source("INSERT INTO {0}.c VALUES (3, 'three')")
        servers.halts("c", "target-refused")
        before = {halt["tables"][0].rpartition(".")[2]: halt["since"] for halt in servers.halted()}
        over = threading.Event()
        looking = threading.Thread(target=looks)
        looking.start()
        try:
            servers.pidts("ddl", "retry", at, "--table", f"{servers.schema}.b", "--yes")
            servers.eventually(lambda: seen and seen[-1].get("b", 0) > before["b"], 30, "b is refused again")
            before["b"] = seen[-1]["b"]
            assert run.stop(60) == 0
            assert servers.synced()[0] == 5
        finally:
            over.set()
            looking.join()
        lost = [one for one in seen if (one.get("a"), one.get("c")) != (before["a"], before["c"])]
        assert lost == [], f"{len(lost)} of {len(seen)}"
        assert seen[-1] == before
    except AssertionError as error:
        error.add_note(servers.task.logs())
        raise


@pytest.mark.spark
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["mariadb", pytest.param("postgres", marks=pytest.mark.long)])
def test_a_copy_after_refused_rows_makes_the_schema_changes_behind_them(begun, kind):
    servers, run = begun(kind, 2)
    table = f"{servers.schema}.b"
    try:
        servers.target("ALTER TABLE {0}.b ADD CONSTRAINT odd CHECK (v <> 'bad')")
        servers.source("INSERT INTO {0}.b VALUES (3, 'bad')", "INSERT INTO {0}.c VALUES (2, 'two')")
        servers.arrives("c", (2, "two"))
        servers.halts("b", "target-refused")
        servers.source(
            "ALTER TABLE {0}.b ADD COLUMN w INT DEFAULT 7",
            "INSERT INTO {0}.b VALUES (4, 'four', 4)",
            "DELETE FROM {0}.b WHERE id = 1",
            "UPDATE {0}.b SET w = 8 WHERE id = 3",
            "ALTER TABLE {0}.b ADD COLUMN x INT",
            "UPDATE {0}.b SET v = 'good', x = 9 WHERE id = 3",
            "INSERT INTO {0}.c VALUES (3, 'three')",
        )
        servers.arrives("c", (3, "three"))
        assert run.stop(60) == 0

        # The row is refused once more, between the two schema changes.
        run = servers.task.start("--resync", table)
        servers.eventually(lambda: len(servers.rows("b")[0]) == 3, 60, "the first schema change is made")
        assert "ADD COLUMN x" not in servers.halts("b", "target-refused")["statement"]
        assert run.stop(60) == 0
        run = servers.task.start("--resync", table)
        expected = [(2, "two", 7, None), (3, "good", 8, 9), (4, "four", 4, None)]
        servers.eventually(lambda: servers.rows("b") == expected, 60, "the rows are those of the source")
        servers.source("INSERT INTO {0}.b VALUES (5, 'five', 5, 5)")
        servers.arrives("b", (5, "five", 5, 5))
        servers.eventually(lambda: servers.halted() == [], 30, "nothing waits any more")
        assert run.stop(60) == 0
    except AssertionError as error:
        error.add_note(servers.task.logs())
        raise


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_a_copy_leaves_out_refused_rows_in_an_incremental_task(
    mariadb, database, make_task, open_session, eventually, target_server
):
    target = target_server("mariadb")
    source, there = open_session(mariadb), open_session(target)
    source.cursor().execute(f"CREATE TABLE {database}.b (id INT PRIMARY KEY, v VARCHAR(20) NOT NULL)")
    source.cursor().execute(f"INSERT INTO {database}.b VALUES (1, 'one'), (2, 'two')")
    for sql in (
        f"CREATE DATABASE IF NOT EXISTS {database}",
        f"CREATE TABLE {database}.b (id INT PRIMARY KEY, v VARCHAR(20) NOT NULL, CONSTRAINT odd CHECK (v <> 'bad'))",
        f"INSERT INTO {database}.b VALUES (1, 'one'), (2, 'two'), (9, 'only here')",
    ):
        there.cursor().execute(sql)
    cursor = source.cursor()
    cursor.execute("SHOW MASTER STATUS")
    file, position, *_ = cursor.fetchone()
    meta = {"binlog-name": file, "binlog-pos": position}
    task = make_task(mariadb, target, [database], meta=meta, **{"task-mode": "incremental"})
    servers = Servers(task, source, there, database, eventually)
    run = task.start()
    try:
        servers.source("INSERT INTO {0}.b VALUES (3, 'three')")
        servers.arrives("b", (3, "three"))
        servers.source("INSERT INTO {0}.b VALUES (4, 'bad'), (5, 'five')", "DELETE FROM {0}.b WHERE id = 1")
        servers.halts("b", "target-refused")
        servers.source("UPDATE {0}.b SET v = 'good' WHERE id = 4", "INSERT INTO {0}.b VALUES (6, 'six')")
        assert run.stop(60) == 0
        run = task.start("--resync", f"{database}.b")
        expected = [(2, "two"), (3, "three"), (4, "good"), (5, "five"), (6, "six")]
        servers.eventually(lambda: servers.rows("b") == expected, 90, "the rows are those of the source")
        servers.source("INSERT INTO {0}.b VALUES (7, 'seven')", "DELETE FROM {0}.b WHERE id = 2")
        servers.eventually(lambda: servers.rows("b") == [*expected[1:], (7, "seven")], 60, "later changes arrive")
        assert servers.halted() == []
        assert run.stop(60) == 0
    except AssertionError as error:
        error.add_note(task.logs())
        raise


@pytest.mark.spark
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["mariadb", pytest.param("postgres", marks=pytest.mark.long)])
def test_a_table_that_was_altered_outside_the_log_is_taken_in_again(begun, kind):
    """The error advises these steps; docs/reference/errors.md#add-the-table-to-the-task-again has them, too."""
    servers, run = begun(kind, 2)
    table = f"{servers.schema}.b"
    try:
        servers.source(
            "SET SESSION sql_log_bin = 0",
            "ALTER TABLE {0}.b ADD COLUMN w INT DEFAULT 7",
            "SET SESSION sql_log_bin = 1",
            "INSERT INTO {0}.c VALUES (2, 'two')",
            "INSERT INTO {0}.b VALUES (3, 'three', 3)",
        )
        assert run.process.wait(60) == 5
        said = " ".join(run.log.read_text().split())
        assert "t: ended by an error after " in said, "the last line says up to where the log is applied"
        assert "[structure-mismatch]" in said
        advice = said.rpartition(" do ")[2]
        assert "leave the table out (ignore-tables in block-allow-list) and start the task" in advice
        assert "give the target's table the columns of the source's table" in advice
        (again,) = re.findall(r"pidts run \S+ (--resync \S+)", advice)
        assert again == f"--resync {table}"

        # A copy alone reads the same log again.
        assert servers.task.start(*again.split()).process.wait(60) == 5

        servers.follow(**{"ignore-tables": [{"db-name": servers.schema, "tbl-name": "b"}]})
        run = servers.task.start()
        servers.arrives("c", (2, "two"))
        servers.eventually(lambda: f"{table} leaves the task" in run.log.read_text(), 30, "the log says it")
        assert run.stop(60) == 0

        servers.target("ALTER TABLE {0}.b ADD COLUMN w INT")
        servers.source("DELETE FROM {0}.b WHERE id = 1")
        servers.follow()
        run = servers.task.start(*again.split())
        expected = [(2, "two", 7), (3, "three", 3)]
        servers.eventually(lambda: servers.rows("b") == expected, 60, "the rows are those of the source")
        servers.source("INSERT INTO {0}.b VALUES (4, 'four', 4)", "INSERT INTO {0}.c VALUES (3, 'three')")
        servers.arrives("b", (4, "four", 4))
        servers.arrives("c", (3, "three"))
        assert run.stop(60) == 0
    except AssertionError as error:
        error.add_note(servers.task.logs())
        raise


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_a_change_that_a_view_prevents_succeeds_without_the_view(begun):
    servers, run = begun("postgres", 1)
    view = f"{servers.schema}.seen"
    make = f"CREATE VIEW {view} AS SELECT id FROM {servers.schema}.a WHERE {{}}"
    at = str(servers.task.path)
    try:
        servers.target(make.format("v <> 'gone'"))
        servers.source(
            "ALTER TABLE {0}.a MODIFY v VARCHAR(40) NOT NULL",
            "INSERT INTO {0}.a VALUES (3, 'three')",
            "INSERT INTO {0}.c VALUES (2, 'two')",
        )
        servers.arrives("c", (2, "two"))
        halt = servers.halts("a", "objects-depend")
        assert f"view {view} depends on" in halt["what"]
        assert f"DROP VIEW {view}" in halt["todo"]
        listed = servers.task.command("ddl", "list", at).stdout.decode()
        assert f"pidts ddl retry {at} --at {halt['lsn']} --yes" in listed
        assert f"pidts ddl replace {at} 'DROP ...; ALTER TABLE" in listed
        servers.target(f"DROP VIEW {view}")
        assert servers.pidts("ddl", "retry", at, "--at", halt["lsn"], "--yes")["given"]
        servers.arrives("a", (3, "three"))

        servers.target(make.format("v <> 'gone'"))
        servers.source("ALTER TABLE {0}.a DROP COLUMN v", "INSERT INTO {0}.a VALUES (4)")
        halt = servers.halts("a", "objects-depend")
        whole = "; ".join([f"DROP VIEW {view}", *halt["instead"], make.format("id > 1")])
        assert servers.pidts("ddl", "replace", at, whole, "--at", halt["lsn"], "--yes")["given"]
        servers.arrives("a", (1,), (4,))
        assert servers.rows("seen") == [(2,), (3,), (4,)]
        servers.eventually(lambda: servers.halted() == [], 30, "nothing waits any more")
        assert run.stop(60) == 0
    except AssertionError as error:
        error.add_note(servers.task.logs())
        raise


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_ddl_commands_take_effect_while_the_task_runs(begun):
    servers, run = begun("postgres", 1)
    try:
        servers.target("UPDATE {0}.a SET v = 'one'")
        servers.source(
            "ALTER TABLE {0}.a ADD UNIQUE KEY u (v)",
            "INSERT INTO {0}.a VALUES (3, 'three')",
            "RENAME TABLE {0}.a TO {0}.away, {0}.c TO {0}.d",
            "INSERT INTO {0}.away VALUES (4, 'four')",
            "INSERT INTO {0}.d VALUES (2, 'two')",
            "INSERT INTO {0}.b VALUES (3, 'three')",
        )
        servers.arrives("b", (3, "three"))
        halt = servers.halts("a", "target-refused")
        assert len(servers.rows("c")) == 1, "its next statement is one of the halted table, too"
        at = str(servers.task.path)
        shown = servers.pidts("ddl", "replace", at, "nonsense")
        assert (shown["given"], shown["lsn"]) == (False, halt["lsn"])
        servers.pidts("ddl", "replace", at, "--yes", "nonsense")
        servers.eventually(lambda: any("syntax" in one["what"] for one in servers.halted()), 30, "that fails, too")
        mended = f"UPDATE {servers.schema}.a SET v = 'two' WHERE id = 2"
        servers.pidts("binlog", "inject", at, "--yes", f"{mended};")
        servers.eventually(lambda: servers.halted() == [], 30, "nothing waits any more")
        servers.arrives("away", (1, "one"), (2, "two"), (3, "three"), (4, "four"))
        servers.arrives("d", (1, "one"), (2, "two"))
        (order,) = servers.pidts("ddl", "list", at)["orders"]
        assert (order["order"], order["done"], order["statements"]) == ("inject", True, [mended])
        assert run.stop(60) == 0
    except AssertionError as error:
        error.add_note(servers.task.logs())
        raise


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_a_statement_on_another_table_halts_the_task_if_a_trigger_changes_its_tables(begun, database):
    """The session logs statements, and the log has no row events of the trigger's changes."""
    servers, run = begun("mariadb", 1)
    other = f"{database[:50]}_o"
    servers.source(
        f"CREATE DATABASE {other}",
        f"CREATE TABLE {other}.plain (id INT PRIMARY KEY)",
        f"CREATE TABLE {other}.watched (id INT PRIMARY KEY)",
        f"CREATE TRIGGER {other}.tr AFTER INSERT ON {other}.watched FOR EACH ROW INSERT INTO {{0}}.a VALUES (8, '8')",
    )
    try:
        servers.source(
            "SET SESSION binlog_format = 'STATEMENT'",
            f"INSERT INTO {other}.plain SELECT id FROM {{0}}.a",
            "SET SESSION binlog_format = 'ROW'",
            "INSERT INTO {0}.a VALUES (3, 'three')",
        )
        servers.arrives("a", (3, "three"))
        servers.source(
            "SET SESSION binlog_format = 'STATEMENT'",
            f"INSERT INTO {other}.watched VALUES (1)",
            "SET SESSION binlog_format = 'ROW'",
            "INSERT INTO {0}.b VALUES (4, 'four')",
        )
        assert run.process.wait(150) == 5
        said = run.log.read_text()
        assert "statement-format" in said
        assert "watched has the trigger tr" in said
        assert (4, "four") not in servers.rows("b")
        assert servers.pidts("ddl", "skip", str(servers.task.path), "--yes")["given"]
        again = servers.task.start("--resync", f"{database}.a", "--until-synced")
        assert again.process.wait(240) == 0, again.log.read_text()
        assert (4, "four") in servers.rows("b")
        assert (8, "8") in servers.rows("a")
    finally:
        servers.source(f"DROP DATABASE {other}")


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_a_skipped_statement_passes_although_the_source_writes_nothing_more(begun, database):
    servers, run = begun("mariadb", 1)
    other = f"{database[:50]}_o"
    servers.source(
        f"CREATE DATABASE {other}",
        f"CREATE TABLE {other}.watched (id INT PRIMARY KEY)",
        f"CREATE TRIGGER {other}.tr AFTER INSERT ON {other}.watched FOR EACH ROW INSERT INTO {{0}}.a VALUES (8, '8')",
    )
    try:
        servers.source(
            "SET SESSION binlog_format = 'STATEMENT'",
            f"INSERT INTO {other}.watched VALUES (1)",
            "SET SESSION binlog_format = 'ROW'",
        )
        assert run.process.wait(150) == 5
        assert servers.pidts("ddl", "skip", str(servers.task.path), "--yes")["given"]
        again = servers.task.start("--until-synced")
        assert again.process.wait(150) == 0, again.log.read_text()
        assert servers.halted() == []
        (order,) = servers.pidts("ddl", "list", str(servers.task.path))["orders"]
        assert (order["order"], order["done"]) == ("skip", True)
        live = servers.task.start()
        servers.source("INSERT INTO {0}.b VALUES (4, 'four')")
        servers.arrives("b", (4, "four"))
        assert live.stop(60) == 0
    finally:
        servers.source(f"DROP DATABASE {other}")
