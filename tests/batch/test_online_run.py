"""Runs the statements of online schema changes one after the other, as the driver does, on a target in memory."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from tests.values_target import ValuesTarget

from pidts.apply.unseen_tables import record_unseen, unseen_tables
from pidts.batch.context import JobContext
from pidts.batch.transaction_classifier import TransactionClassifier
from pidts.binlog import Query
from pidts.ddl import due_change
from pidts.ddl.due_change import DueChange
from pidts.ddl.outcome import ChangeDone
from pidts.ddl.runner import run_ddl
from pidts.ddl.shards.coordinator import ShardGroups
from pidts.model import (
    Checkpoint,
    CommandKind,
    DdlCommand,
    Extent,
    Halted,
    LogEntry,
    Lsn,
    Shadow,
    SourceTablesKey,
    TableName,
    Transaction,
    Transient,
)
from pidts.rules import AllowList, EventFilter, FilterRule, RouteRule, Routes, Rules
from pidts.schema import Dialect
from pidts.schema.online.names import SHADOW, TRASH
from pidts.source import SourceConfig

T = TableName("shop", "t")
SHADOWED = ("CREATE TABLE t (id INT PRIMARY KEY, a INT)", "CREATE TABLE _t_new LIKE t", "ALTER TABLE _t_new ADD b INT")
SWAP = "RENAME TABLE t TO _t_old, _t_new TO t"
_numbers = itertools.count()


class NoRelay:
    """Has no log: the test passes the statements."""

    def position(self, _: Lsn) -> str:
        return "bin.000001:4"


@dataclass
class Driver:
    context: JobContext
    target: ValuesTarget
    patch: pytest.MonkeyPatch
    place: int = 100

    def ddl(
        self,
        sql: str,
        command: CommandKind | None = None,
        *statements: str,
        again: bool = False,
        filling: frozenset[TableName] = frozenset(),
        marks_in: str = "",
    ) -> None:
        self.place += 0 if again else 10
        at = Lsn(0, 1, self.place)
        entry = LogEntry(Transaction(lsn=at, prev_lsn=at, begin=at, ddl=sql, ddl_schema="shop"), Extent(1, 4, 96))
        self.patch.setattr(due_change, "ddl_event", lambda *_: Query("shop", sql, sql_mode=0))
        ordered = None
        if command is not None:
            with closing(self.target.connect()) as session:
                session.meta.ddl_commands.give(
                    "t", "s", DdlCommand(lsn=at, kind=command, statements=statements, number=1)
                )
                ordered = session.meta.ddl_commands.find("t", "s", at)
        relay: Any = NoRelay()
        classifier = TransactionClassifier(self.context.rules.allow, self.context.dialect, marks_in=marks_in)
        due = DueChange(self.context, classifier, relay, entry, filling=filling)
        changed = run_ddl(due, ShardGroups(), lambda _: None, command=ordered)
        assert isinstance(changed, ChangeDone)
        self.context = changed.applied_to(self.context)

    def restart(self) -> None:
        """Begins another run, which reads the target's records."""
        with closing(self.target.connect()) as session:
            (row,) = session.meta.checkpoints.claim(
                "t", "s", 1, Checkpoint(task="t", source="s", worker=0, lsn=Lsn(0, 1, 4))
            )
            known = session.meta.structures.load("t", SourceTablesKey("s"))
        self.context = replace(self.context, epoch=row.epoch, structures=known)

    def shadows(self) -> dict[TableName, Shadow]:
        with closing(self.target.connect()) as session:
            return session.meta.shadows.load("t", "s")

    def columns(self, name: TableName = T) -> list[str]:
        return [column.name for column in self.target.store.tables[name].table.columns]

    def known(self) -> list[str]:
        return [column.name for column in self.context.structures[T].columns]


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Driver]]:
    made = []

    def make(**rules: object) -> Driver:
        target = ValuesTarget(f"online-{next(_numbers)}", transactional_ddl=False)
        made.append(target)
        context = JobContext(
            task="t", source=SourceConfig("localhost", 1, "u", "p", source_id="s"), relay=tmp_path, staging=tmp_path,
            target=target, workers=1, epoch=1, change_no=0, structures={}, dialect=Dialect(),
            charsets={}, rules=Rules(allow=AllowList(do_dbs=("shop",), shadow=SHADOW, trash=TRASH), **rules),
        )  # fmt: skip
        driver = Driver(context, target, monkeypatch)
        driver.restart()
        return driver

    yield make
    for target in made:
        target.forget()


@pytest.mark.parametrize(
    ("sql", "left"),
    [
        ("DROP TABLE hidden", ["shop.other"]),
        ("DROP TABLE IF EXISTS nothing", ["shop.hidden", "shop.other"]),
        ("DROP DATABASE shop", []),
    ],
)
def test_a_table_that_the_log_drops_is_no_longer_unseen(
    driver: Callable[..., Driver], sql: str, left: list[str]
) -> None:
    run = driver()
    with closing(run.target.connect()) as session:
        session.begin()
        record_unseen(session, "t", "s", [TableName("shop", "hidden"), TableName("shop", "other")])
        session.commit()
        run.ddl(sql)
        assert [str(name) for name in unseen_tables(session, "t", "s")] == left


def test_the_swap_alters_the_table_and_nothing_else_is_there(driver: Callable[..., Driver]) -> None:
    task = driver()
    for sql in (*SHADOWED, SWAP, "DROP TABLE _t_old"):
        task.ddl(sql)
        task.restart()
    assert set(task.target.store.tables) == {T}
    assert task.columns() == task.known() == ["id", "a", "b"]
    assert task.shadows() == {}


def test_work_that_a_dead_process_has_lost_is_done_again(driver: Callable[..., Driver]) -> None:
    """In each round, the process dies at the next of the named points at which the target in memory calls its hook."""
    for broken in itertools.count():
        task, points = driver(), 0

        def die(point: str, broken: int = broken) -> None:
            nonlocal points
            points += 1
            if points - 1 == broken:
                raise KeyboardInterrupt(point)

        task.target.store.hook = die
        for sql in (*SHADOWED, SWAP, "DROP TABLE _t_old"):
            try:
                task.ddl(sql)
            except KeyboardInterrupt:
                task.restart()
                task.ddl(sql, again=True)
                task.restart()
        task.target.store.hook = None
        assert task.columns() == task.known() == ["id", "a", "b"], broken
        assert task.shadows() == {}, broken
        if points <= broken:
            break
    assert broken > 30


def test_the_table_is_altered_where_its_route_says(driver: Callable[..., Driver]) -> None:
    task = driver(routes=Routes((RouteRule("shop", "t", "there", "u"),)))
    for sql in (*SHADOWED, SWAP):
        task.ddl(sql)
    assert task.columns(TableName("there", "u")) == ["id", "a", "b"]
    assert task.known() == ["id", "a", "b"]


def test_a_filter_applies_to_the_statements_on_the_shadow_table(driver: Callable[..., Driver]) -> None:
    no_adding = FilterRule("shop", "t", (), ("ADD b",), "Ignore")
    task = driver(events=EventFilter((no_adding,)))
    for sql in (*SHADOWED, SWAP):
        task.ddl(sql)
    assert task.columns() == ["id", "a"]
    assert task.known() == ["id", "a", "b"]


@pytest.mark.parametrize("is_filling", [True, False])
def test_a_copy_in_progress_begins_anew(driver: Callable[..., Driver], *, is_filling: bool) -> None:
    task = driver()
    for sql in SHADOWED:
        task.ddl(sql)
    task.target.store.tables[T].rows[1,] = (1, 10)
    task.ddl(SWAP, filling=frozenset({T} if is_filling else ()))
    assert task.target.store.content(T) == ({} if is_filling else {(1,): {"id": 1, "a": 10, "b": None}})


def test_without_rules_the_tables_are_swapped(driver: Callable[..., Driver]) -> None:
    task = driver()
    task.context = replace(task.context, rules=Rules(allow=AllowList(do_dbs=("shop",))))
    for sql in (*SHADOWED, SWAP):
        task.ddl(sql)
    assert set(task.target.store.tables) == {T, TableName("shop", "_t_old")}
    assert task.columns() == task.known() == ["id", "a", "b"]


def test_a_swap_that_halts_waits_for_a_ddl_command(driver: Callable[..., Driver]) -> None:
    task = driver()
    for sql in SHADOWED[:2]:
        task.ddl(sql)
    with pytest.raises(Halted, match="online-ddl-rows"):
        task.ddl(SWAP)
    task.ddl(SWAP, CommandKind.SKIP, again=True)
    assert task.columns() == task.known() == ["id", "a"]
    assert task.shadows() == {}


def test_the_drop_of_a_swap_is_skipped_and_its_rename_alters_the_table(driver: Callable[..., Driver]) -> None:
    task = driver()
    for sql in SHADOWED:
        task.ddl(sql)
    with pytest.raises(Halted, match="online-ddl-dropped"):
        task.ddl("DROP TABLE IF EXISTS t")
    task.ddl("DROP TABLE IF EXISTS t", CommandKind.SKIP, again=True)
    task.ddl("RENAME TABLE _t_new TO t")
    assert task.columns() == task.known() == ["id", "a", "b"]


def test_a_swap_that_is_skipped_leaves_the_sources_structure_on_record(driver: Callable[..., Driver]) -> None:
    task = driver()
    for sql in SHADOWED:
        task.ddl(sql)
    task.ddl("ALTER TABLE t ADD c INT")
    with pytest.raises(Halted, match="online-ddl-differs"):
        task.ddl(SWAP)
    task.ddl(SWAP, CommandKind.SKIP, again=True)
    assert task.columns() == ["id", "a", "c"]
    assert task.known() == ["id", "a", "b"]
    assert task.shadows() == {}


def test_a_lost_target_does_not_fail_the_statement(driver: Callable[..., Driver]) -> None:
    task = driver()
    tried = []

    def refuse(point: str) -> None:
        if point == "connect" and len(tried) < 3:
            tried.append(point)
            raise Transient("target-lost", "gone")

    task.ddl(SHADOWED[0])
    task.target.store.hook = refuse
    task.ddl(SHADOWED[1])
    assert (len(tried), list(task.shadows())) == (3, [TableName("shop", "_t_new")])
