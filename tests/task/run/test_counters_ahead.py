"""Counters of a PostgreSQL target follow rows of the log, if the task file asks for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.target.conformance.samples import create

from pidts.model import Checkpoint, Column, ColumnType, ConfigError, Key, Kind, Lsn, SourceTablesKey, Table, TableName
from pidts.plan.copy.state import CopyState
from pidts.plan.state import PlanState
from pidts.sandbox import Server
from pidts.target.postgres import PostgresSession
from pidts.task.config.task_file import TaskConfig, load_task
from pidts.task.run import counters_ahead
from pidts.task.run.counters_ahead import CountersAhead, move_counters

RunSql = Callable[..., list[tuple[Any, ...]]]
KEY = (Key("PRIMARY", ("id",), unique=True, primary=True),)


def written(folder: Path, target: dict[str, Any], **pidts: Any) -> Path:
    task = {
        "name": "t",
        "task-mode": "all",
        "target-database": target,
        "mysql-instances": [{"source-id": "one", "from": {"host": "h", "user": "u"}, "block-allow-list": "ours"}],
        "block-allow-list": {"ours": {"do-dbs": ["shop"]}},
        "pidts": pidts,
    }
    path = folder / "t.yaml"
    path.write_text(yaml.safe_dump(task))
    return path


@pytest.fixture
def config(postgres: Server, database: str, tmp_path: Path) -> TaskConfig:
    login = {"host": postgres.host, "port": postgres.port, "user": postgres.user, "password": postgres.password}
    target = {"type": "postgresql", "database": database, **login}
    return load_task(written(tmp_path, target, **{"counters-ahead": True}))


@pytest.fixture
def session(config: TaskConfig) -> Iterator[PostgresSession]:
    with closing(config.target.server.connect()) as made:
        assert isinstance(made, PostgresSession)
        made.meta.prepare()
        kinds = {"whole": ColumnType(Kind.INT), "large": ColumnType(Kind.BIGINT, unsigned=True)}
        tables = {}
        for name, kind in kinds.items():
            column = Column("id", kind, nullable=False, auto_increment=True)
            tables[TableName("shop", name)] = Table(TableName("shop", name), (column,), KEY)
        for table in tables.values():
            create(made, table)
        made.begin()
        made.meta.structures.save("t", SourceTablesKey("one"), Lsn(0, 0, 0), tables)
        made.commit()
        made.meta.checkpoints.claim("t", "one", 1, Checkpoint(task="t", source="one", worker=0, lsn=Lsn(0, 0, 0)))
        for name in kinds:
            made.execute(f"INSERT INTO shop.{name} OVERRIDING SYSTEM VALUE VALUES (41)")
        yield made


def test_the_next_number_is_above_those_of_the_rows(config: TaskConfig, session: PostgresSession) -> None:
    move_counters(config, session, threading.Event(), set())
    for table in ("whole", "large"):
        session.execute(f"INSERT INTO shop.{table} DEFAULT VALUES")
        assert session.rows(f"SELECT max(id)::int FROM shop.{table}") == [(42,)]
        session.execute(f"INSERT INTO shop.{table} OVERRIDING SYSTEM VALUE VALUES (7)")
    move_counters(config, session, threading.Event(), set())
    session.execute("INSERT INTO shop.whole DEFAULT VALUES")
    assert session.rows("SELECT max(id) FROM shop.whole") == [(43,)], "never back"


def test_a_counter_that_cannot_be_moved_stops_no_other(
    config: TaskConfig, session: PostgresSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    warned: list[str] = []
    monkeypatch.setattr(counters_ahead._log, "warning", lambda _, **about: warned.append(about["table"]))
    session.execute("ALTER TABLE shop.large OWNER TO pg_monitor")  # The account cannot own a sequence of this column.
    failed: set[TableName] = set()
    for _ in range(2):
        move_counters(config, session, threading.Event(), failed)
    assert warned == ["shop.large"]
    session.execute("INSERT INTO shop.whole DEFAULT VALUES")
    assert session.rows("SELECT max(id) FROM shop.whole") == [(42,)]


def test_a_table_that_is_being_copied_waits(config: TaskConfig, session: PostgresSession) -> None:
    (row,) = session.meta.checkpoints.read("t", "one")
    copying = PlanState(row.lsn, {TableName("shop", "whole"): CopyState()}).copy_json()
    session.begin()
    session.meta.checkpoints.save(replace(row, copy=copying))
    session.commit()
    move_counters(config, session, threading.Event(), set())
    session.execute("INSERT INTO shop.whole DEFAULT VALUES")
    assert session.rows("SELECT min(id) FROM shop.whole") == [(1,)]


def test_a_run_moves_them_beside_its_work(
    config: TaskConfig, session: PostgresSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved = threading.Event()
    real = counters_ahead.move_counters

    def watched(*arguments: Any) -> None:
        real(*arguments)
        moved.set()

    monkeypatch.setattr(counters_ahead, "move_counters", watched)
    with closing(CountersAhead(config)):
        assert moved.wait(60)
    session.execute("INSERT INTO shop.whole DEFAULT VALUES")
    assert session.rows("SELECT max(id) FROM shop.whole") == [(42,)]


def test_only_postgresql_needs_counters_ahead(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="only PostgreSQL needs this key"):
        load_task(written(tmp_path, {"host": "h", "user": "u"}, **{"counters-ahead": True}))
