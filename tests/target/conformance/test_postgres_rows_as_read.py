"""PostgreSQL: rows that were compared are those that are written, though nothing is locked in between."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from pidts.apply import ApplyRules, Committer, Retry, Target, prepared
from pidts.model import ColumnType, Halted, Kind, OnDivergence, Op, Table, TableName, Transient
from pidts.target.postgres import PostgresSession

from .samples import INT, change, checkpoint, create, lsn, table, text
from .test_row_locks import Task, content, locks, logged, put

pytestmark = pytest.mark.parametrize("kind", ["postgres"])


@pytest.fixture
def session(target: Target) -> Iterator[PostgresSession]:
    made = target.connect()
    assert isinstance(made, PostgresSession)
    yield made
    made.close()


@pytest.fixture
def other(target: Target) -> Iterator[psycopg.Connection]:
    made = target.connect()
    assert isinstance(made, PostgresSession)
    yield made.driver
    made.close()


@pytest.fixture
def structure(session: PostgresSession, name: TableName) -> Table:
    made = table(name, {"id": INT, "s": text()})
    create(session, made)
    put(session, made, (1, "a"), (2, "b"), (3, "c"))
    return made


def quoted(structure: Table) -> str:
    return f'"{structure.name.schema}"."{structure.name.name}"'


def read(session: PostgresSession, structure: Table, *ids: int) -> list[dict[str, Any]]:
    found = session.read_rows(structure, keys=pa.table({"id": pa.array(ids, pa.int32())}), unchanged=True)
    return sorted(found.to_pylist(), key=lambda row: row["id"])


def write_what_was_read(session: PostgresSession, structure: Table, between: Callable[[], object]) -> None:
    """Reads 1 to 5; changes 1 and 2, removes 3, adds 4, and removes 5, which is not there."""
    session.begin()
    try:
        assert [row["id"] for row in read(session, structure, 1, 2, 3, 4, 5)] == [1, 2, 3]
        between()
        session.write(change(structure, deletes=[(3,), (5,)], upserts=[(1, "aa"), (2, "bb"), (4, "dd")]))
        session.commit()
    except BaseException:
        session.rollback()
        raise


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE {0} SET s = 'theirs' WHERE id = 1",
        "UPDATE {0} SET s = s WHERE id = 2",
        "DELETE FROM {0} WHERE id = 1",
        "UPDATE {0} SET s = 'theirs' WHERE id = 3",
        "DELETE FROM {0} WHERE id = 3",
        "INSERT INTO {0} VALUES (4, 'theirs')",
        "INSERT INTO {0} VALUES (5, 'theirs')",
        "DELETE FROM {0} WHERE id = 2; INSERT INTO {0} VALUES (2, 'b')",
    ],
)
def test_what_somebody_else_changes_between_reading_and_writing_is_not_overwritten(
    session: PostgresSession, structure: Table, other: psycopg.Connection, sql: str
) -> None:
    theirs: list[Any] = []

    def between() -> None:
        other.execute(sql.format(quoted(structure)).encode())
        theirs.extend(other.execute(f"SELECT * FROM {quoted(structure)} ORDER BY 1".encode()).fetchall())

    with pytest.raises(Transient, match="have changed between reading and writing"):
        write_what_was_read(session, structure, between)
    assert content(session, structure) == theirs


@pytest.mark.parametrize(("end", "is_refused"), [("COMMIT", True), ("ROLLBACK", False)])
@pytest.mark.parametrize("sql", ["UPDATE {0} SET s = 'theirs' WHERE id = 1", "DELETE FROM {0} WHERE id = 3"])
def test_a_change_that_is_under_way_is_waited_for(
    session: PostgresSession, structure: Table, other: psycopg.Connection, sql: str, end: str, *, is_refused: bool
) -> None:
    waits = threading.Event()

    def ends() -> None:
        with psycopg.connect(other.info.dsn, autocommit=True) as watching:
            asked = "SELECT 1 FROM pg_stat_activity WHERE pid = %s AND wait_event_type = 'Lock'"
            while not waits.wait(0.02) and not watching.execute(asked, [session.driver.info.backend_pid]).fetchall():
                pass
        other.execute(end.encode())

    def between() -> None:
        other.execute(b"BEGIN")
        other.execute(sql.format(quoted(structure)).encode())
        ending.start()

    ending = threading.Thread(target=ends)
    try:
        if is_refused:
            with pytest.raises(Transient, match="have changed between reading and writing"):
                write_what_was_read(session, structure, between)
        else:
            write_what_was_read(session, structure, between)
    finally:
        waits.set()
        ending.join(30)
    if not is_refused:
        assert content(session, structure) == [(1, "aa"), (2, "bb"), (4, "dd")]


def test_a_row_that_somebody_else_only_locks_is_as_it_was_read(
    session: PostgresSession, structure: Table, other: psycopg.Connection
) -> None:
    def between() -> None:
        other.execute(b"BEGIN")
        other.execute(f"SELECT * FROM {quoted(structure)} FOR UPDATE".encode())
        other.execute(b"COMMIT")

    write_what_was_read(session, structure, between)
    assert content(session, structure) == [(1, "aa"), (2, "bb"), (4, "dd")]


def test_after_that_rows_are_locked_as_they_are_read(
    session: PostgresSession, structure: Table, target: Target, other: psycopg.Connection
) -> None:
    changed = f"UPDATE {quoted(structure)} SET s = 'theirs' WHERE id = 1".encode()
    with pytest.raises(Transient):
        write_what_was_read(session, structure, lambda: other.execute(changed))
    other.execute(b"SET lock_timeout = '50ms'")

    def refused() -> None:
        with pytest.raises(psycopg.errors.LockNotAvailable):
            other.execute(changed)

    again = target.connect()
    assert isinstance(again, PostgresSession)
    with closing(again):
        write_what_was_read(again, structure, refused)
    assert content(session, structure) == [(1, "aa"), (2, "bb"), (4, "dd")]


def test_a_transaction_may_read_again_what_it_has_written(session: PostgresSession, structure: Table) -> None:
    session.begin()
    for number in range(3):
        assert [row["id"] for row in read(session, structure, 1, 2, 7)] == ([1, 2] if number < 1 else [1, 2, 7])
        session.write(change(structure, upserts=[(1, f"a{number}"), (7, f"g{number}")]))
        assert read(session, structure, 1)[0]["s"] == f"a{number}"
        session.write(change(structure, deletes=[(1,)], upserts=[(1, "new"), (9, "not asked for")]))
    session.commit()
    assert content(session, structure) == [(1, "new"), (2, "b"), (3, "c"), (7, "g2"), (9, "not asked for")]


def test_a_partitioned_table_and_a_key_of_several_columns(session: PostgresSession, name: TableName) -> None:
    made = table(name, {"k": text(), "id": INT, "version": INT}, key=["id", "k"])
    session.driver.execute(f"CREATE SCHEMA IF NOT EXISTS {name.schema}".encode())
    parent = quoted(made)
    session.driver.execute(
        f"CREATE TABLE {parent} (k text, id integer, version integer, PRIMARY KEY (id, k)) PARTITION BY RANGE (id); "
        f'CREATE TABLE "{name.schema}"."{name.name}_1" PARTITION OF {parent} FOR VALUES FROM (0) TO (10); '
        f'CREATE TABLE "{name.schema}"."{name.name}_2" PARTITION OF {parent} FOR VALUES FROM (10) TO (20)'.encode()
    )
    put(session, made, ("a", 1, 1), ("b", 1, 1), ("a", 11, 1))
    keys = pa.table({"id": pa.array([1, 1, 11, 12], pa.int32()), "k": ["a", "b", "a", "a"]})
    for between, fails in (("", False), (f"UPDATE {parent} SET version = 9 WHERE id = 11", True)):
        session.begin()
        assert session.read_rows(made, keys=keys, unchanged=True).num_rows >= 2
        if between:
            with closing(psycopg.connect(session.driver.info.dsn, autocommit=True)) as another:
                another.execute(between.encode())
        session.write(change(made, deletes=[(1, "b")], upserts=[("a", 1, 2), ("a", 11, 2), ("a", 12, 2)]))
        if fails:
            with pytest.raises(Transient, match="between reading and writing"):
                session.commit()
            session.rollback()
        else:
            session.commit()
    assert content(session, made) == [("a", 1, 2), ("a", 11, 9), ("a", 12, 2)]


def test_a_trigger_that_leaves_a_row_alone_does_not_keep_its_batch_from_its_end(
    session: PostgresSession, target: Target, task: str, structure: Table
) -> None:
    table_name = quoted(structure)
    session.driver.execute(
        f"CREATE FUNCTION {table_name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$; "
        f"CREATE TRIGGER leaves BEFORE UPDATE ON {table_name} FOR EACH ROW EXECUTE FUNCTION {table_name}(); "
        f"ALTER TABLE {table_name} ENABLE ALWAYS TRIGGER leaves".encode()
    )
    running = Task(target, task)
    running.apply(structure, (Op.UPDATE, (1, "a"), (1, "aa")), (Op.INSERT, None, (4, "d")))
    assert content(session, structure) == [(1, "a"), (2, "b"), (3, "c"), (4, "d")]


def test_a_unique_value_of_an_unknown_row_halts_as_ever(
    session: PostgresSession, target: Target, task: str, name: TableName
) -> None:
    structure = table(name, {"id": INT, "u": INT}, unique=["u"])
    create(session, structure)
    put(session, structure, (1, 1), (7, 5))
    with pytest.raises(Halted, match="target-refused"):
        Task(target, task).apply(structure, (Op.INSERT, None, (2, 5)), (Op.UPDATE, (1, 1), (1, 2)))
    assert content(session, structure) == [(1, 1), (7, 5)]


def test_a_batch_that_meets_a_foreign_write_is_compared_again_and_sets_the_row_aside(
    session: PostgresSession, target: Target, task: str, structure: Table, other: psycopg.Connection
) -> None:
    running = Task(target, task)
    batch = logged(structure, running.at + 1, (Op.UPDATE, (1, "a"), (1, "aa")), (Op.UPDATE, (2, "b"), (2, "bb")))
    rules = ApplyRules(task=task, source="s", on_divergence=OnDivergence.LOCK)
    attempts = []

    def changes(mine: Any) -> Any:
        written = prepared(mine, [batch], rules)
        if not attempts:
            other.execute(f"UPDATE {quoted(structure)} SET s = 'theirs' WHERE id = 1".encode())
        attempts.append(len(written))
        return written

    with Committer(target, task, "s", running.epoch, rules=rules, retry=Retry(attempts=3), sleep=lambda _: None) as one:
        one.commit(0, lsn(running.at), checkpoint(running.at + 100), changes)
    assert len(attempts) == 2
    assert content(session, structure) == [(1, "theirs"), (2, "bb"), (3, "c")]
    assert [lock.shown for lock in locks(session, task, structure)] == ["id=1"]


def test_a_row_whose_key_comes_in_other_words_is_removed(
    session: PostgresSession, target: Target, task: str, name: TableName, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No row has the bytes that were asked for, and the server has one of this key all the same."""
    monkeypatch.setattr("pidts.target.postgres.reader._address", lambda text: text)
    structure = table(name, {"k": ColumnType(Kind.INET6), "v": INT}, key=["k"])
    create(session, structure)
    alone = "f9ee:1:ffff:1:ffff:18f4::1"
    put(session, structure, (alone, 1), ("fe80::1", 1))
    Task(target, task).apply(structure, (Op.DELETE, (alone, 1), None), (Op.DELETE, ("fe80::1", 1), None))
    assert content(session, structure) == []
    assert locks(session, task, structure) == []


def test_a_key_that_the_target_computes(session: PostgresSession, target: Target, task: str, name: TableName) -> None:
    whole = table(name, {"a": INT, "g": INT, "v": INT}, key=["g"])
    session.driver.execute(f"CREATE SCHEMA IF NOT EXISTS {name.schema}".encode())
    session.driver.execute(
        f"CREATE TABLE {quoted(whole)} "
        "(a integer, g integer GENERATED ALWAYS AS (a + 2) STORED PRIMARY KEY, v integer)".encode()
    )
    a, g, v = whole.columns
    structure = replace(whole, columns=(a, replace(g, generated=True, computed="(`a` + 2) STORED"), v))
    put(session, structure, (1, 3, 0), (2, 4, 0), (3, 5, 0))
    running = Task(target, task)
    running.apply(
        structure,
        (Op.DELETE, (1, 3, 0), None),
        (Op.UPDATE, (2, 4, 0), (2, 4, 1)),
        (Op.INSERT, None, (4, 6, 0)),
        (Op.UPDATE, (3, 5, 0), (5, 7, 1)),
    )
    assert content(session, structure) == [(2, 4, 1), (4, 6, 0), (5, 7, 1)]
    put(session, structure, (6, 8, 0))
    running.apply(structure, (Op.INSERT, None, (6, 8, 1)), (Op.UPDATE, (2, 4, 0), (2, 4, 9)))
    assert content(session, structure) == [(2, 4, 1), (4, 6, 0), (5, 7, 1), (6, 8, 0)]
    assert [lock.shown for lock in locks(session, task, structure)] == ["g=8", "g=4"], "in the order of the log"


def test_a_table_of_numbers_that_the_target_counts(
    session: PostgresSession, target: Target, task: str, name: TableName
) -> None:
    """Nothing in it can be set by UPDATE."""
    structure = table(name, {"id": INT})
    session.driver.execute(f"CREATE SCHEMA IF NOT EXISTS {name.schema}".encode())
    session.driver.execute(
        f"CREATE TABLE {quoted(structure)} (id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY)".encode()
    )
    put(session, structure, (1,), (2,))
    running = Task(target, task)
    running.apply(structure, (Op.UPDATE, (1,), (1,)), (Op.DELETE, (2,), None), (Op.INSERT, None, (3,)))
    running.apply(structure, (Op.UPDATE, (3,), (4,)), (Op.INSERT, None, (1,)))
    assert content(session, structure) == [(1,), (4,)]
    assert locks(session, task, structure) == []


def test_no_empty_statement_is_sent(session: PostgresSession) -> None:
    with pytest.raises(AssertionError, match="no such statement"):
        session.exchange.later("", numbered=True)


def test_another_process_begins_without_caution(session: PostgresSession, target: Target) -> None:
    session.caution.begin()
    assert target.caution.holds  # type: ignore[attr-defined]
    copy = pickle.loads(pickle.dumps(target))
    assert copy == target
    assert not copy.caution.holds
    with closing(copy.connect()) as there:
        there.caution.begin()
    assert copy.caution.holds, "all sessions of one target"
