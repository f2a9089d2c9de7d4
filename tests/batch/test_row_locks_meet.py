"""Locked rows and other operations: a schema change of their table waits for them, and a full copy removes the locks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from tests.apply.table_history import PLAIN, batch_of
from tests.target.conformance.samples import create
from tests.values_target import ValuesTarget

from pidts.apply import ApplyRules, Committer
from pidts.apply.locks.resolve import ResolveWith, resolve
from pidts.batch.applying import apply
from pidts.batch.blobs import Blob
from pidts.batch.context import JobContext
from pidts.batch.workers import Commit
from pidts.model import Checkpoint, CommandKind, Fenced, Halted, Lsn, OnDivergence, Op, RowLock, Table
from pidts.model.zone import mark_comment
from pidts.plan import CopyMode, CopyState, PlanState
from pidts.rules import AllowList, Rules
from pidts.schema import Dialect
from pidts.schema.online.names import SHADOW, TRASH
from pidts.source import SourceConfig

from .test_online_run import SHADOWED, SWAP, Driver, T


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    target = ValuesTarget("row locks meet", transactional_ddl=False)
    context = JobContext(
        task="t",
        source=SourceConfig("localhost", 1, "u", "p", source_id="s"),
        relay=tmp_path,
        staging=tmp_path,
        target=target,
        workers=1,
        epoch=1,
        change_no=0,
        structures={},
        dialect=Dialect(),
        charsets={},
        rules=Rules(allow=AllowList(do_dbs=("shop",))),
        writing=ApplyRules(on_divergence=OnDivergence.LOCK),
    )
    made = Driver(context, target, monkeypatch)
    made.restart()
    yield made
    target.forget()


def locked(target: ValuesTarget, table: Table) -> None:
    with closing(target.connect()) as session:
        lock = RowLock(
            table=table,
            id="a" * 64,
            key="",
            shown="id=1",
            origin=table.name,
            lsn=Lsn(0, 1, 50),
            why="it differs",
            since=1.0,
        )
        session.meta.row_locks.add("t", "s", [lock])


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("ALTER TABLE t CHANGE COLUMN a b INT", "column a gets another name"),
        ("ALTER TABLE t RENAME COLUMN a TO b", "column a gets another name"),
        ("ALTER TABLE t MODIFY COLUMN a INT NOT NULL", "column a becomes NOT NULL"),
        ("ALTER TABLE t MODIFY COLUMN a SMALLINT", "column a gets a type that may change values"),
        ("ALTER TABLE t MODIFY COLUMN a INT UNSIGNED", "column a gets a type that may change values"),
        ("ALTER TABLE t MODIFY COLUMN a VARCHAR(20)", "column a gets a type that may change values"),
        (
            "ALTER TABLE t MODIFY COLUMN id BIGINT",
            "column id of the key gets another type or another spelling of its name",
        ),
        ("ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (a)", "the table gets another key"),
        ("ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (id, a)", "the table gets another key"),
        ("ALTER TABLE t DROP COLUMN a, ADD COLUMN a INT", "column a is dropped and added again"),
        ("ALTER TABLE t CONVERT TO CHARACTER SET latin1", "the statement changes rows"),
        ("ALTER TABLE t RENAME TO u", "the table gets another name"),
        ("TRUNCATE TABLE t", "the table is emptied"),
        ("DROP TABLE t", "the table is dropped"),
        ("RENAME TABLE t TO u", "the table gets another name"),
    ],
)
def test_a_schema_change_waits_until_the_rows_of_its_table_are_resolved(driver: Driver, sql: str, why: str) -> None:
    driver.ddl("CREATE TABLE t (id INT PRIMARY KEY, a INT)")
    stored = driver.target.store.tables[T].table
    locked(driver.target, stored)
    with pytest.raises(Halted, match=f"rows-locked.*{why}") as halted:
        driver.ddl(sql)
    assert halted.value.where.table == str(T)
    assert "pidts locks" in halted.value.todo
    assert driver.target.store.tables[T].table == stored
    with closing(driver.target.connect()) as session:
        session.meta.row_locks.remove("t", "s", T, {"a" * 64})
    driver.ddl(sql)


@pytest.mark.parametrize(
    ("columns", "sql", "why"),
    [
        ("a INT, g INT AS (a + 1)", "MODIFY COLUMN g INT AS (a + 2)", "column g is computed in another way"),
        ("a INT, g INT AS (a + 1)", "CHANGE COLUMN g g INT AS (a + 2)", "column g is computed in another way"),
        ("a INT, g INT AS (a + 1) STORED", "MODIFY COLUMN g INT", "column g is computed in another way"),
        ("a INT", "TRUNCATE PARTITION p0", "the statement changes rows"),
        ("a INT", "DROP PARTITION p0", "the statement changes rows"),
    ],
)
def test_a_change_of_what_rows_are_made_of_waits_until_they_are_resolved(
    driver: Driver, columns: str, sql: str, why: str
) -> None:
    driver.ddl(f"CREATE TABLE t (id INT PRIMARY KEY, {columns})")
    stored = driver.target.store.tables[T].table
    locked(driver.target, stored)
    with pytest.raises(Halted, match=f"rows-locked.*{why}"):
        driver.ddl(f"ALTER TABLE t {sql}")
    assert driver.target.store.tables[T].table == stored


def test_a_column_that_is_computed_as_before_makes_nothing_wait(driver: Driver) -> None:
    driver.ddl("CREATE TABLE t (id INT PRIMARY KEY, a INT, g INT AS (a + 1) VIRTUAL)")
    locked(driver.target, driver.target.store.tables[T].table)
    driver.ddl("ALTER TABLE t MODIFY COLUMN g INT AS (a + 1) VIRTUAL AFTER id, ADD COLUMN b INT")
    assert driver.target.store.tables[T].table.arrow.names == ["id", "g", "a", "b"]


def test_statements_that_run_instead_wait_until_the_rows_are_resolved(driver: Driver) -> None:
    driver.ddl("CREATE TABLE t (id INT PRIMARY KEY, a INT)")
    stored = driver.target.store.tables[T].table
    locked(driver.target, stored)
    with pytest.raises(Halted, match=r"rows-locked.*an operator's statements run instead"):
        driver.ddl("ALTER TABLE t ADD COLUMN b INT", CommandKind.REPLACE, "ALTER TABLE t ADD COLUMN b BIGINT")
    assert driver.target.store.tables[T].table == stored


def test_a_created_table_is_not_compared_with_locked_rows(driver: Driver) -> None:
    driver.ddl("CREATE TABLE t (id INT PRIMARY KEY, a INT)")
    locked(driver.target, driver.target.store.tables[T].table)
    driver.ddl("CREATE TABLE v (id INT PRIMARY KEY)")


def test_held_changes_follow_a_schema_change(driver: Driver) -> None:
    driver.ddl("CREATE TABLE t (id INT PRIMARY KEY, a INT)")
    locked(driver.target, driver.target.store.tables[T].table)
    driver.ddl("ALTER TABLE t ADD COLUMN x INT DEFAULT 5")
    driver.ddl("ALTER TABLE t ALTER COLUMN x SET DEFAULT 6, MODIFY COLUMN a BIGINT, ADD COLUMN y INT, ADD KEY (a)")
    driver.ddl("ALTER TABLE t DROP COLUMN y")
    with closing(driver.target.connect()) as session:
        (lock,) = session.meta.row_locks.read("t", "s", T)
        assert lock.structure.arrow == driver.target.store.tables[T].table.arrow
        assert lock.structure.column("x").default == "5", "rows have got the default with which the column came"
    with pytest.raises(Halted, match="was a different column when the changes were stored"):
        driver.ddl("ALTER TABLE t ADD COLUMN y INT")


@pytest.mark.parametrize(
    ("altered", "why"),
    [("ADD b INT DEFAULT 5", ""), ("CHANGE a b INT", "column a gets another name"), ("ADD b INT, ENGINE=MEMORY", "")],
)
def test_the_swap_of_an_online_change_counts_as_its_effect_on_the_table(driver: Driver, altered: str, why: str) -> None:
    rules = Rules(allow=AllowList(do_dbs=("shop",), shadow=SHADOW, trash=TRASH))
    driver.context = replace(driver.context, rules=rules)
    driver.ddl(SHADOWED[0])
    stored = driver.target.store.tables[T].table
    locked(driver.target, stored)
    driver.ddl(SHADOWED[1])
    driver.ddl(f"ALTER TABLE _t_new {altered}")
    if why:
        with pytest.raises(Halted, match=f"rows-locked.*{why}"):
            driver.ddl(SWAP)
        assert driver.target.store.tables[T].table == stored
        with closing(driver.target.connect()) as session:
            session.meta.row_locks.remove("t", "s", T, {"a" * 64})
        driver.ddl(SWAP)
    else:
        driver.ddl(SWAP)
        with closing(driver.target.connect()) as session:
            (lock,) = session.meta.row_locks.read("t", "s", T)
        assert lock.structure.arrow.names == ["id", "a", "b"]
    assert "b" in driver.target.store.tables[T].table.arrow.names


def test_without_rules_for_it_a_swap_waits(driver: Driver) -> None:
    for sql in SHADOWED:
        driver.ddl(sql)
    locked(driver.target, driver.target.store.tables[T].table)
    with pytest.raises(Halted, match="rows-locked"):
        driver.ddl(SWAP)


def test_held_changes_follow_what_another_zone_has_changed_on_the_target(driver: Driver) -> None:
    """The target has the change already, so no statement runs.

    Rows that come later in the log have the changed columns.
    """
    driver.ddl("CREATE TABLE t (id INT PRIMARY KEY, a INT)")
    locked(driver.target, driver.target.store.tables[T].table)
    with pytest.raises(Halted, match="the table is emptied"):
        driver.ddl(f"TRUNCATE TABLE t {mark_comment('b')}", marks_in="pidts_meta")
    driver.ddl(f"ALTER TABLE t ADD COLUMN b INT DEFAULT 5 {mark_comment('b')}", marks_in="pidts_meta")
    with closing(driver.target.connect()) as session:
        (lock,) = session.meta.row_locks.read("t", "s", T)
        assert lock.structure.arrow.names == ["id", "a", "b"]
    with pytest.raises(Halted, match="column a gets another name"):
        driver.ddl(f"ALTER TABLE t CHANGE COLUMN a c INT {mark_comment('b')}", marks_in="pidts_meta")
    with pytest.raises(Halted, match="rows-locked"):
        driver.ddl("ALTER TABLE t GIBBERISH", CommandKind.REPLACE, "ALTER TABLE t ADD COLUMN d INT")


def test_a_run_whose_task_another_one_has_taken_over_leaves_locks_alone(driver: Driver) -> None:
    driver.ddl("CREATE TABLE t (id INT PRIMARY KEY, a INT)")
    stored = driver.target.store.tables[T].table
    locked(driver.target, stored)
    old = driver.context
    driver.restart()
    driver.context = old
    with pytest.raises(Fenced):
        driver.ddl("ALTER TABLE t ADD COLUMN b INT DEFAULT 5")
    with closing(driver.target.connect()) as session:
        (lock,) = session.meta.row_locks.read("t", "s", T)
    assert lock.structure == stored


@pytest.mark.parametrize("ends", [True, False])
def test_the_locks_of_a_table_end_with_its_copy(*, ends: bool) -> None:
    target = ValuesTarget(f"locks end {ends}")
    with closing(target.connect()) as session:
        create(session, PLAIN)
        copying = PlanState(Lsn(0, 1, 50), {PLAIN.name: CopyState(mode=CopyMode.REPAIR)})
        start = Checkpoint(task="t", source="s", worker=0, lsn=copying.lsn, copy=copying.copy_json())
        (claimed,) = session.meta.checkpoints.claim("t", "s", 1, start)
        locked(target, PLAIN)
        with pytest.raises(Halted, match="table-is-copied"):
            resolve(session, "t", "s", PLAIN.name, {"a" * 64}, ResolveWith.SOURCE)
    copy = "" if ends else claimed.copy
    after = replace(claimed, lsn=Lsn(0, 1, 400), batch=1, copy=copy)
    rules = ApplyRules(task="t", source="s", has_locks=True)
    row = {"id": 1, "a": 1, "b": "x", "u": 1}
    with Committer(target, "t", "s", claimed.epoch, rules=rules) as committer:
        changes = batch_of(PLAIN, [(Op.INSERT, None, row)])
        apply(committer, Commit((claimed,), (after,)), 0, [Blob(0, Blob.first_order(0), changes)])
    assert len(target.store.row_locks) == (0 if ends else 1)
    assert list(target.store.content(PLAIN.name).values()) == [row]
    target.forget()
