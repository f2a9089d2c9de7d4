"""Statements on tables that a task does not replicate, in the logs of real servers: some have changed its tables, too.

Each session uses binlog_format STATEMENT, so the log has no row events.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.running import connect as plain_connection

from pidts.batch.relay_events import ddl_event, statement_events
from pidts.batch.side_effects import SideEffects
from pidts.batch.transaction_classifier import TransactionClassifier
from pidts.binlog import Query
from pidts.model import Extent, LogEntry, TableName, Transient
from pidts.plan import RelevanceKind
from pidts.relay import RelayReader
from pidts.replicate import ReplicatorConfig
from pidts.rules import AllowList
from pidts.sandbox import Server
from pidts.source import Session, SourceConfig, connect, source_dialect

from .test_live import RunSql, end_of, following, source_of

FUNCTION = (
    "CREATE FUNCTION {other}.f(a INT) RETURNS INT DETERMINISTIC MODIFIES SQL DATA "
    "BEGIN INSERT INTO {database}.t VALUES (a); RETURN a; END"
)
InOneSession = Callable[..., None]


@pytest.fixture
def other(mysql_like: Server, run_sql: RunSql, database: str) -> Iterator[str]:
    """A schema without tables of the task: a plain table, a table with a trigger, a view and a stored function."""
    other = f"{database[:50]}_o"
    for sql in (
        f"CREATE DATABASE {other}",
        f"CREATE TABLE {database}.t (i INT)",
        f"CREATE TABLE {other}.plain (i INT)",
        f"CREATE TABLE {other}.watched (i INT)",
        f"CREATE TRIGGER {other}.tr AFTER INSERT ON {other}.watched FOR EACH ROW INSERT INTO {database}.t VALUES (1)",
        f"CREATE VIEW {other}.v AS SELECT * FROM {database}.t",
        FUNCTION.format(other=other, database=database),
    ):
        run_sql(mysql_like, sql)
    yield other
    run_sql(mysql_like, f"DROP DATABASE {other}")


class Found:
    """The statements in the log of a server, with the relevance that each has for the task."""

    def __init__(self, server: Server, database: str, folder: Path, account: str = "") -> None:
        self.reader = RelayReader(folder, "s")
        source = source_of(server)
        if account:
            source = SourceConfig(source.host, source.port, account, "x", source_id="s", tls=source.tls)
        with closing(connect(source_of(server))) as session:
            dialect = source_dialect(session)
        self.asked = 0

        def opened() -> closing[object]:
            self.asked += 1
            return closing(connect(source))

        allow = AllowList(do_dbs=(database,))
        self.opened: Any = opened
        self.effects = SideEffects(allow, dialect, self.opened, self.reader)
        self.classifier = TransactionClassifier(allow, dialect, side_effects=self.effects)
        self.entries: list[LogEntry] = [one for one in self.reader.entries() if one.transaction.ddl]

    def kinds(self) -> list[str]:
        """Returns `ddl` for each statement that a task must not pass, and `nothing` for each that it passes."""
        return [self.classifier(entry).kind.value for entry in self.entries]


@pytest.fixture
def logged(
    mysql_like: Server, in_one_session: InOneSession, database: str, other: str, tmp_path: Path
) -> Iterator[Callable[..., Found]]:
    found: list[Found] = []

    def run(*statements: str, schema: str = "", account: str = "") -> Found:
        start = end_of(mysql_like)
        in_one_session(mysql_like, schema or other, "SET SESSION binlog_format = STATEMENT", *statements)
        folder = tmp_path / str(len(found))
        folder.mkdir()
        with following(ReplicatorConfig(source_of(mysql_like), folder, start)) as replicator:
            replicator.until_received(mysql_like)
        found.append(Found(mysql_like, database, folder, account))
        return found[-1]

    yield run
    for one in found:
        one.reader.close()


def test_only_statements_that_may_have_changed_the_tables_of_the_task_are_not_passed(
    logged: Callable[..., Found], database: str, other: str
) -> None:
    statements = {
        "INSERT INTO plain (i) VALUES (1)": "nothing",
        "UPDATE plain SET i = COALESCE(i, 1) + ABS(-1) WHERE i IN (SELECT COUNT(*) FROM watched)": "nothing",
        f"INSERT INTO plain SELECT i FROM {database}.t": "nothing",
        "INSERT INTO watched VALUES (2)": "ddl",
        "INSERT INTO v VALUES (3)": "ddl",
        "INSERT INTO plain VALUES (f(4))": "ddl",
        f"INSERT INTO plain VALUES ({other}.f(5))": "ddl",
        "DELETE FROM plain WHERE i = `f` (6)": "ddl",
        f"INSERT INTO {database}.t VALUES (7)": "ddl",
        "DELETE FROM plain": "nothing",
    }
    found = logged(*statements)
    assert dict(zip([entry.transaction.ddl for entry in found.entries], found.kinds(), strict=True)) == statements


def test_a_stored_function_is_found_in_every_kind_of_statement(
    logged: Callable[..., Found], mysql_like: Server, database: str, other: str, run_sql: RunSql
) -> None:
    names = ("st_add_order",) if mysql_like.kind == "mariadb" else ("nextval", "to_char", "st_add_order")
    for name in names:
        run_sql(mysql_like, FUNCTION.format(other=other, database=database).replace(".f(", f".{name}("))
    statements = [
        *(f"INSERT INTO plain VALUES ({name}(1))" for name in names),
    ]
    if mysql_like.kind == "mariadb":
        statements += [
            "CREATE TEMPORARY TABLE own (i INT, KEY k (i)) SELECT f(2) AS i",
            "CREATE TABLE x1 (SELECT f(3) a)",
            "CREATE TABLE x2 WITH SYSTEM VERSIONING AS SELECT f(4) a",
            f"SET STATEMENT sql_mode='' FOR INSERT INTO {database}.t VALUES (5) ON DUPLICATE KEY UPDATE i=2",
            "SET STATEMENT time_zone='+00:00' FOR INSERT INTO watched VALUES (6) ON DUPLICATE KEY UPDATE i=2",
        ]
    found = logged(*statements)
    kinds = dict(zip([entry.transaction.ddl for entry in found.entries], found.kinds(), strict=True))
    assert {text: kinds[text] for text in statements} == dict.fromkeys(statements, "ddl")


def test_words_before_a_parenthesis_are_no_calls(
    logged: Callable[..., Found], mysql_like: Server, database: str, other: str, run_sql: RunSql
) -> None:
    """Each statement reads a table of the task, so that the databases in the log of MySQL do not decide."""
    run_sql(mysql_like, f"CREATE TABLE {other}.texts (b TEXT, FULLTEXT (b))")
    statements = [
        f"INSERT INTO plain SELECT 1 FROM texts, {database}.t WHERE MATCH (b) AGAINST ('c') OR b LIKE 'c' ESCAPE ('|')",
        f"INSERT INTO plain SELECT 1 FROM {database}.t WHERE MULTIPOINT(POINT(1, 2), POINT(3, 4)) IS NULL",
        f"INSERT INTO plain SELECT 1 FROM {database}.t WHERE TRIM(LEADING ('x') FROM 'xa') = 'b'",
    ]
    if mysql_like.kind != "mysql56":
        statements += [
            f"INSERT INTO plain WITH c (n) AS (SELECT i FROM {database}.t), d (m) AS (SELECT 1) SELECT n FROM c, d",
            f"INSERT INTO plain SELECT a FROM {database}.t, JSON_TABLE('[1]', '$' COLUMNS (a INT PATH '$')) AS q",
        ]
    if mysql_like.kind == "mariadb":
        statements.append("SET STATEMENT sql_mode='' FOR CREATE TABLE keyed (i INT, KEY k (i))")
    found = logged(*statements)
    kinds = dict(zip([entry.transaction.ddl for entry in found.entries], found.kinds(), strict=True))
    assert {text: kinds[text] for text in statements} == dict.fromkeys(statements, "nothing")


def test_the_sql_mode_of_the_session_decides_what_a_text_is(logged: Callable[..., Found]) -> None:
    found = logged(
        "SET SESSION sql_mode = 'NO_BACKSLASH_ESCAPES'",
        "INSERT INTO plain VALUES (CHAR_LENGTH(CONCAT('a\\', f(1), '# b')))",
        "SET SESSION sql_mode = 'ANSI_QUOTES'",
        'INSERT INTO plain SELECT i FROM watched ORDER BY "f"(2)',
    )
    assert found.kinds() == ["ddl", "ddl"]


def test_a_statement_that_was_judged_is_not_read_again(logged: Callable[..., Found], database: str) -> None:
    def unread() -> list[Query]:
        raise AssertionError("the statement is read again")

    found = logged(f"INSERT INTO plain SELECT i FROM {database}.t", "INSERT INTO watched VALUES (1)")
    assert found.kinds() == ["nothing", "ddl"]
    again = [found.classifier.of_schema_change(entry.transaction, unread).kind.value for entry in found.entries]
    assert again == ["nothing", "ddl"]


class ReaderOfOneThread(RelayReader):
    """Notes whether two threads use it at the same time, which a reader does not allow."""

    is_used = is_shared = False

    def format(self, segment: int) -> bytes:
        self.is_shared = self.is_shared or self.is_used
        self.is_used = True
        time.sleep(0.05)
        self.is_used = False
        return super().format(segment)


def test_the_sql_mode_of_the_session_decides_which_tables_are_named(
    logged: Callable[..., Found], database: str
) -> None:
    joined = f"UPDATE plain p JOIN plain q ON p.i <> '\\' JOIN {database}.t"
    found = logged(
        "SET SESSION sql_mode = 'NO_BACKSLASH_ESCAPES'",
        f"{joined} SET p.i = LENGTH(' SET ')",
        f"{joined} /* it's */ SET p.i = 1",
        "UPDATE plain p JOIN plain q ON p.i <> '\\' SET p.i = LENGTH(' SET ')",
    )
    assert found.kinds() == ["ddl", "ddl", "nothing"]


def test_one_thread_at_a_time_reads_the_relay(logged: Callable[..., Found], database: str) -> None:
    found = logged(*[f"INSERT INTO plain SELECT i FROM {database}.t WHERE i = {number}" for number in range(4)])
    with closing(ReaderOfOneThread(found.reader.folder.path.parent, "s")) as reader:
        effects = SideEffects(found.classifier.allow, found.classifier.dialect, found.opened, reader)
        classifier = replace(found.classifier, side_effects=effects)
        with ThreadPoolExecutor(4) as threads:
            kinds = [relevance.kind.value for relevance in threads.map(classifier, found.entries)]
        assert kinds == ["nothing"] * 4
        assert not reader.is_shared


def test_the_definition_of_another_table_calls_no_function(logged: Callable[..., Found]) -> None:
    found = logged(
        "CREATE TABLE z (i INT, KEY k (i)) PARTITION BY RANGE (i) (PARTITION p VALUES LESS THAN (9))",
        "ALTER TABLE z ADD KEY l (i)",
        "DROP TABLE z",
        "CREATE TEMPORARY TABLE own (i INT, KEY k (i))",
    )
    assert set(found.kinds()) == {"nothing"}


def test_a_file_that_was_loaded_into_a_table_is_such_a_statement(
    logged: Callable[..., Found], database: str, tmp_path: Path
) -> None:
    tmp_path.chmod(0o755)
    (file := tmp_path / "rows").write_text("8\n")
    found = logged(
        *(f"LOAD DATA INFILE '{file}' INTO TABLE {name} (i)" for name in ("plain", "watched", f"{database}.t"))
    )
    assert found.kinds() == ["nothing", "ddl", "ddl"]
    assert ddl_event(found.reader, found.entries[2]).sql == found.entries[2].transaction.ddl


class ReaderOfParts(RelayReader):
    """Reads at most 100 bytes at a time."""

    largest = 0

    def read(self, extent: Extent) -> bytes:
        self.largest = max(self.largest, extent.size)
        return super().read(extent)

    def chunks(self, extent: Extent, size: int = 100) -> Iterator[bytes]:
        return super().chunks(extent, size)


def test_a_large_entry_is_not_read_at_once(logged: Callable[..., Found]) -> None:
    """The rows of a LOAD DATA may be larger than the memory."""
    found = logged("BEGIN", "INSERT INTO plain VALUES (1)", "INSERT INTO watched VALUES (2)", "COMMIT")
    with closing(ReaderOfParts(found.reader.folder.path.parent, "s")) as reader:
        (entry,) = found.entries
        assert list(statement_events(reader, entry)) == list(statement_events(found.reader, entry))
        assert 0 < reader.largest <= 100 < entry.extent.size


def test_statements_of_one_transaction_are_judged_together(
    logged: Callable[..., Found], mysql_like: Server, database: str
) -> None:
    # With GTIDs, MySQL allows CREATE TEMPORARY TABLE only outside of transactions.
    first = "CREATE TEMPORARY TABLE own (i INT)" if mysql_like.kind == "mariadb" else "INSERT INTO plain VALUES (1)"
    found = logged(
        "BEGIN",
        "INSERT INTO plain VALUES (1)",
        "INSERT INTO watched VALUES (2)",
        "COMMIT",
        "BEGIN",
        first,
        f"UPDATE {database}.t SET i = 3",
        "COMMIT",
    )
    (updating,) = [one for one in found.entries if "UPDATE" in (one.transaction.ddl or "")]
    assert found.classifier(found.entries[0]).kind is found.classifier(updating).kind is RelevanceKind.DDL
    # A run reads the whole transaction, too, and not only its first statement, which concerns no table of the task.
    assert f"UPDATE {database}.t" in ddl_event(found.reader, updating).sql


def test_mysql_logs_which_databases_a_statement_has_used(
    logged: Callable[..., Found], database: str, other: str, mysql_like: Server
) -> None:
    found = logged("INSERT INTO plain VALUES (1)", "INSERT INTO watched VALUES (2)")
    used = [next(statement_events(found.reader, entry)).databases for entry in found.entries]
    assert found.kinds() == ["nothing", "ddl"]
    if mysql_like.kind == "mariadb":
        assert used == [None, None]
    else:
        assert used == [{other}, {other, database}]


def test_a_table_that_is_gone_or_temporary(logged: Callable[..., Found], mysql_like: Server) -> None:
    found = logged(
        "CREATE TABLE gone (i INT)",
        "INSERT INTO gone VALUES (1)",
        "DROP TABLE gone",
        "CREATE TEMPORARY TABLE own (i INT)",
        "INSERT INTO own VALUES (1)",
    )
    of_gone = "ddl" if mysql_like.kind == "mariadb" else "nothing"
    kinds = dict(zip([entry.transaction.ddl for entry in found.entries], found.kinds(), strict=True))
    assert kinds["INSERT INTO gone VALUES (1)"] == of_gone
    assert kinds["INSERT INTO own VALUES (1)"] == "nothing"


def test_an_account_that_sees_no_triggers_passes_nothing_that_the_log_does_not_explain(
    logged: Callable[..., Found], mysql_like: Server, database: str, other: str, run_sql: RunSql
) -> None:
    user, host = f"st_{mysql_like.kind}", "localhost" if mysql_like.kind == "mysql56" else "%"
    account = f"{user}@'{host}'"
    run_sql(mysql_like, f"CREATE USER {account} IDENTIFIED BY 'x'")
    try:
        found = logged("INSERT INTO plain VALUES (1)", f"INSERT INTO plain SELECT i FROM {database}.t", account=user)
        assert found.kinds() == ["ddl" if mysql_like.kind == "mariadb" else "nothing", "ddl"]
        why = found.effects.reason(found.entries[1], (TableName(other, "plain"),))
        assert f"the account does not see whether {other}.plain has triggers; run GRANT TRIGGER ON `{other}`" in why
        run_sql(mysql_like, f"GRANT TRIGGER ON {other}.plain TO {account}")
        assert not found.effects.reason(found.entries[1], (TableName(other, "plain"),))
        # The batches before have ended at the statement, so the planner still stops there.
        assert found.kinds()[1] == "ddl"
    finally:
        run_sql(mysql_like, f"DROP USER {account}")


def test_the_source_is_asked_once_about_all_statements_that_were_received_before(
    logged: Callable[..., Found], mysql_like: Server, database: str, other: str, run_sql: RunSql
) -> None:
    found = logged(*[f"INSERT INTO plain SELECT i FROM {database}.t WHERE i = {number}" for number in range(5)])
    assert found.kinds() == ["nothing"] * 5
    assert found.asked == 1
    with suppress(Transient):
        found.effects.reason(found.entries[0], (TableName(other, "plain"),))
    assert found.asked == 2


def test_a_trigger_that_came_after_an_answer_is_seen(
    mysql_like: Server, database: str, other: str, tmp_path: Path, in_one_session: InOneSession
) -> None:
    start = end_of(mysql_like)
    as_statement = "SET SESSION binlog_format = STATEMENT"
    insert = f"INSERT INTO plain SELECT 1 FROM {database}.t"
    with following(ReplicatorConfig(source_of(mysql_like), tmp_path, start)) as replicator:
        in_one_session(mysql_like, other, as_statement, insert)
        replicator.until_received(mysql_like)
        found = Found(mysql_like, database, tmp_path)
        with closing(found.reader):
            assert found.kinds() == ["nothing"]
            trigger = f"CREATE TRIGGER late AFTER INSERT ON plain FOR EACH ROW DELETE FROM {database}.t"
            in_one_session(mysql_like, other, trigger, as_statement, insert)
            replicator.until_received(mysql_like)
            last = [one for one in found.reader.entries() if one.transaction.ddl][-1]
            assert found.classifier(last).kind is RelevanceKind.DDL
    with closing(plain_connection(mysql_like)) as connection, connection.cursor() as cursor:
        cursor.execute(f"DROP TRIGGER {other}.late")


def test_a_source_that_does_not_answer_fails_only_what_needs_its_answer(
    logged: Callable[..., Found], database: str, other: str
) -> None:
    """The planner stops before the statement, so that an operator can skip it."""
    found = logged(f"INSERT INTO plain SELECT i FROM {database}.t")
    asked: list[str] = []

    def lost() -> AbstractContextManager[Session]:
        asked.append("source")
        raise Transient("connection-lost", "the source does not answer")

    allow = found.classifier.allow
    effects = SideEffects(allow, found.classifier.dialect, lost, found.reader)
    (entry,) = found.entries
    for _ in range(2):
        assert effects.may_reach(entry.transaction, (TableName(other, "plain"),), effects.logged(entry))
    assert len(asked) == 1
    with pytest.raises(Transient):
        effects.reason(entry, (TableName(other, "plain"),))
    with pytest.raises(Transient):
        SideEffects(allow, found.classifier.dialect, lost).may_reach(
            entry.transaction, (TableName(other, "plain"),), effects.logged(entry)
        )


def test_only_the_oldest_temporary_table_is_forgotten(logged: Callable[..., Found], database: str, other: str) -> None:
    found = logged(f"INSERT INTO plain SELECT i FROM {database}.t")
    (entry,) = found.entries
    for number in range(4097):
        sql = f"CREATE TEMPORARY TABLE own{number} (i INT)"
        found.effects.may_reach(replace(entry.transaction, ddl=sql, ddl_schema=other), (), tuple)
    assert not found.effects.reason(entry, [TableName(other, "own1")])
    assert "has no table" in found.effects.reason(entry, [TableName(other, "own0")])
