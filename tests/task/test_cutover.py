"""A cutover that is killed at any step is continued or undone; in both cases the source can be made writable again.

The task itself does not run here: its records say that the target has everything. In `tests/spark/test_cutover.py`, the
task runs during the cutover.
"""

from __future__ import annotations

import itertools
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from structlog.testing import capture_logs
from tests.crashes import ProcessDied
from tests.examples import points
from tests.target.conformance.samples import create

from pidts import sandbox
from pidts.apply import TargetSession
from pidts.apply.claim import claim_workers, demand_all_workers
from pidts.cli.app import run_command
from pidts.cli.status_view import show_status, status_json
from pidts.cli.verify import verified
from pidts.model import (
    Checkpoint,
    ConfigError,
    Cutover,
    CutoverServer,
    CutoverStage,
    Fenced,
    Halted,
    Lsn,
    PrecheckFailed,
    SourceTablesKey,
    TableName,
    Transient,
)
from pidts.sandbox import Server
from pidts.source import connect
from pidts.source import read_only as source_read_only
from pidts.source.position import log_end
from pidts.source.structures import read_structures
from pidts.target.postgres import PostgresSession
from pidts.task.config.task_file import TaskConfig, load_parts
from pidts.task.cutover import switch, target_side
from pidts.task.cutover.own_record import OwnRecord
from pidts.task.cutover.source_server import is_same
from pidts.task.cutover.steps import Checklist, StepName, StepState
from pidts.task.cutover.switch import CutoverOptions, CutoverRun, Different
from pidts.task.operate.presence import show_cutover
from pidts.task.operate.status import TaskStatus, task_status
from pidts.task.run.alerts import Alerts
from pidts.task.run.attempts import Attempts
from pidts.task.run.cutover_under_way import CutoverUnderWay
from pidts.task.run.replicator_process import NoReplicator
from pidts.task.run.task_run import run_task
from pidts.task.run.tracker import Tracker
from pidts.verify import ComparisonState, MemoryFile, Report, TableReport

RunSql = Callable[..., list[tuple[Any, ...]]]
InOneSession = Callable[..., None]
EQUAL = Report((TableReport(TableName("shop", "orders"), rows=2),), ())
UNEQUAL = Report((TableReport(TableName("shop", "orders"), rows=2, missing=1),), ())
CUSTOMERS = (
    "CREATE TABLE shop.customers (id INT AUTO_INCREMENT PRIMARY KEY, name VARCHAR(40), "
    "upper_name VARCHAR(40) AS (UPPER(name)) VIRTUAL, CONSTRAINT named CHECK (name <> ''))"
)
ORDERS = (
    "CREATE TABLE shop.orders (id INT AUTO_INCREMENT PRIMARY KEY, customer INT NOT NULL CHECK (customer > 0), "
    "CONSTRAINT positive CHECK (customer BETWEEN 1 AND 1000000), CONSTRAINT bought FOREIGN KEY (customer) REFERENCES customers (id))"
)


MADE = [("bought", True), ("customer", True), ("positive", True)]


@pytest.fixture(scope="module")
def source() -> Iterator[Server]:
    """Starts a server for these tests alone, since it is made read-only."""
    with sandbox.start_mariadb() as server:
        yield server


@pytest.fixture
def parts(
    source: Server, postgres: Server, database: str, run_sql: RunSql, tmp_path: Path
) -> Iterator[tuple[TaskConfig, ...]]:
    """Returns a task whose target has got all rows by the log, so that its counters are behind the rows."""
    run_sql(source, "SET GLOBAL read_only = OFF")
    run_sql(source, "DROP DATABASE IF EXISTS shop")
    for sql in (
        "CREATE DATABASE shop",
        CUSTOMERS,
        ORDERS,
        "INSERT INTO shop.customers (name) VALUES ('Ada'), ('Bob'), ('gone')",
        "DELETE FROM shop.customers WHERE name = 'gone'",
        "INSERT INTO shop.orders (customer) VALUES (1), (2)",
        "CREATE OR REPLACE USER narrow@'%' IDENTIFIED BY 'x'",
        "GRANT SELECT ON shop.* TO narrow@'%'",
        "GRANT REPLICATION CLIENT ON *.* TO narrow@'%'",
    ):
        run_sql(source, sql)
    login = {"host": source.host, "port": source.port, "user": source.user, "password": source.password}
    there = {"host": postgres.host, "port": postgres.port, "user": postgres.user, "password": postgres.password}
    task = {
        "name": "t",
        "task-mode": "all",
        "target-database": {"type": "postgresql", "database": database, **there},
        "mysql-instances": [{"source-id": "one", "from": login, "block-allow-list": "ours"}],
        "block-allow-list": {"ours": {"do-dbs": ["shop"]}},
    }
    path = tmp_path / "t.yaml"
    path.write_text(yaml.safe_dump(task))
    config = load_parts(path)
    begin(config[0], run_sql, postgres, database)
    yield config
    run_sql(source, "SET GLOBAL read_only = OFF")


def begin(config: TaskConfig, run_sql: RunSql, postgres: Server, database: str) -> None:
    """Creates the tables and the records of a task that has applied the whole log."""
    with closing(connect(config.source.server)) as session, closing(config.target.server.connect()) as target:
        tables = read_structures(session, config.allow)
        target.meta.prepare()
        for table in tables.values():
            create(target, table)
        target.begin()
        target.meta.structures.save("t", SourceTablesKey("one"), Lsn(0, 0, 0), tables)
        target.commit()
        end = log_end(session)
        start = Checkpoint(task="t", source="one", worker=0, lsn=Lsn.at(end, 0), position=str(end))
        target.meta.checkpoints.claim("t", "one", 1, start)
    run_sql(postgres, "INSERT INTO shop.customers VALUES (1, 'Ada', 'ADA'), (2, 'Bob', 'BOB')", database=database)
    run_sql(postgres, "INSERT INTO shop.orders VALUES (1, 1), (2, 2)", database=database)


def no_run() -> None:
    pytest.fail("the target has everything: no run is needed")


class KilledCutover(CutoverRun):
    """A cutover that is killed after the step `stopping` is recorded."""

    def _end_runs(self) -> None:
        raise ProcessDied


class UnseenCutover(CutoverRun):
    """A command on a target without named locks: other machines do not see it, and it does not see them."""

    @contextmanager
    def _shown(self) -> Iterator[None]:
        yield


def cut_over(
    parts: tuple[TaskConfig, ...],
    report: Report = EQUAL,
    options: CutoverOptions | None = None,
    kind: type[CutoverRun] = CutoverRun,
) -> Checklist:
    with closing(parts[0].target.server.connect()) as target:
        return made(parts, target, report, options, kind).carry_out()


def made(
    parts: tuple[TaskConfig, ...],
    target: TargetSession,
    report: Report = EQUAL,
    options: CutoverOptions | None = None,
    kind: type[CutoverRun] = CutoverRun,
    say: Callable[[str], None] = lambda _: None,
) -> CutoverRun:
    stop, options = threading.Event(), options or CutoverOptions()
    return kind(parts, target, options, run_once=no_run, verify=lambda *_: report, stop=stop, say=say)


def test_a_row_that_is_locked_meanwhile_ends_the_cutover(
    parts: tuple[TaskConfig, ...], source: Server, postgres: Server, database: str, run_sql: RunSql
) -> None:
    """A comparison with `--verify-tables`, or none at all, would not notice that the target lacks held changes."""

    def locks_a_row(*_: object) -> Report:
        sql = "INSERT INTO pidts_meta.row_lock (task, source, table_schema, table_name, row_key, lsn, about) VALUES ('t', 'one', 'shop', 'orders', 'k', '', '{}')"
        run_sql(postgres, sql, database=database)
        return EQUAL

    with closing(parts[0].target.server.connect()) as target:
        run = CutoverRun(parts, target, CutoverOptions(), run_once=no_run, verify=locks_a_row)
        with pytest.raises(Halted) as ended:
            run.carry_out()
        assert ended.value.code == "cutover-halted"
        assert ended.value.what == "shop.orders: 1 row is locked"
        assert target.meta.cutovers.read("t") is None, "everything is undone"
    with closing(connect(parts[0].source.server)) as session:
        assert not source_read_only.is_read_only(session)


def test_a_checkpoint_that_was_deleted_by_hand_prevents_the_cutover(
    parts: tuple[TaskConfig, ...], source: Server, run_sql: RunSql
) -> None:
    """The target may lack rows of the worker whose checkpoint is missing."""
    with closing(parts[0].target.server.connect()) as target:
        (first,) = target.meta.checkpoints.read("t", "one")
        claim_workers(target, "t", "one", 3, first)
        delete_worker(target, 1)
        step = made(parts, target).look().steps[0]
        assert (step.name, step.state) == (StepName.TABLES, StepState.BLOCKED)
        assert step.details[0].startswith("[checkpoint-deleted] the target has no checkpoint of worker 1 of task t")
        with pytest.raises(Halted, match=r"no checkpoint of worker 1 of task t"):
            made(parts, target).carry_out()
        assert target.meta.cutovers.read("t") is None, "nothing has begun"
        assert [row.worker for row in target.meta.checkpoints.read("t", "one")] == [0, 2], "nothing is claimed"
        assert is_writable(source, run_sql)


def test_the_plan_of_a_cutover_shows_that_the_relay_is_damaged(parts: tuple[TaskConfig, ...]) -> None:
    folder = parts[0].relay / "one"
    folder.mkdir(parents=True)
    for segment in (1, 2):
        (folder / f"{segment:09}.index").write_bytes(b"x" * 100)
    with closing(parts[0].target.server.connect()) as target:
        step = made(parts, target).look().steps[0]
    assert (step.name, step.state) == (StepName.TABLES, StepState.BLOCKED)
    assert step.details[0].startswith("[relay-corrupt] ")


def test_a_cutover_claims_as_many_workers_as_the_task_has(parts: tuple[TaskConfig, ...]) -> None:
    with closing(parts[0].target.server.connect()) as target:
        (first,) = target.meta.checkpoints.read("t", "one")
        target.meta.checkpoints.claim("t", "one", 3, first)  # an earlier version has noted no number of workers
        made(parts, target).carry_out()
        rows = target.meta.checkpoints.read("t", "one")
        demand_all_workers(target, "t", "one", rows)
        delete_worker(target, 2)
        with pytest.raises(Halted, match=r"no checkpoint of worker 2 of task t"):
            demand_all_workers(target, "t", "one", target.meta.checkpoints.read("t", "one"))


def test_a_continued_cutover_claims_no_task_that_lacks_a_checkpoint(parts: tuple[TaskConfig, ...]) -> None:
    with closing(parts[0].target.server.connect()) as target:
        (first,) = target.meta.checkpoints.read("t", "one")
        claim_workers(target, "t", "one", 2, first)
    killed_cutover(parts)
    with closing(parts[0].target.server.connect()) as target:
        delete_worker(target, 1)
        with pytest.raises(Halted, match=r"no checkpoint of worker 1 of task t"):
            made(parts, target).carry_out()
        record = target.meta.cutovers.read("t")
        assert record is not None
        assert record.stage is CutoverStage.STOPPING


def delete_worker(target: TargetSession, worker: int) -> None:
    assert isinstance(target, PostgresSession)
    target.execute(f"DELETE FROM pidts_meta.checkpoint WHERE worker = {worker}")


def test_an_undo_names_a_source_that_the_task_file_does_not_name_any_more(parts: tuple[TaskConfig, ...]) -> None:
    said: list[str] = []
    with closing(parts[0].target.server.connect()) as target:
        record = Cutover(began_at=1.0, read_only={"gone": {"read_only": "OFF"}})
        target.begin()
        assert target.meta.cutovers.replace("t", None, record)
        target.commit()
        CutoverRun(parts, target, CutoverOptions(), run_once=no_run, verify=None, say=said.append).undo()
        assert target.meta.cutovers.read("t") is None
    (line,) = said
    assert line.startswith("the task file no longer names gone")


@pytest.fixture
def other(
    parts: tuple[TaskConfig, ...], mariadb: Server, run_sql: RunSql, tmp_path: Path
) -> Iterator[tuple[TaskConfig, ...]]:
    """Returns the task after a failover: its file names another server, which is read-only, as a replica is."""
    run_sql(mariadb, "SET GLOBAL read_only = ON")
    yield renamed(parts, mariadb, tmp_path)
    run_sql(mariadb, "SET GLOBAL read_only = OFF")


def renamed(
    parts: tuple[TaskConfig, ...], server: Server, folder: Path, *standbys: dict[str, Any]
) -> tuple[TaskConfig, ...]:
    """Returns the task with this server as its source."""
    task = yaml.safe_load(parts[0].path.read_text())
    (instance,) = task["mysql-instances"]
    instance["from"] |= {"host": server.host, "port": server.port, "user": server.user, "password": server.password}
    if standbys:
        instance["standbys"] = list(standbys)
    path = folder / "t.yaml"
    path.write_text(yaml.safe_dump(task))
    return load_parts(path)


def test_an_undo_after_a_failover_leaves_the_new_server_as_it_is(
    parts: tuple[TaskConfig, ...],
    other: tuple[TaskConfig, ...],
    source: Server,
    mariadb: Server,
    run_sql: RunSql,
    capsys: pytest.CaptureFixture[str],
) -> None:
    killed_cutover(parts)
    assert run_command(["cutover", str(other[0].path), "--undo"]) == 0
    said = capsys.readouterr()
    assert f"The cutover has made {source.host}:{source.port} (mariadb server-id " in said.err
    assert "SET GLOBAL read_only = OFF there" in said.err
    assert "undone, except for what is said above" in said.out
    assert recorded(parts) is None
    assert not is_writable(mariadb, run_sql), "a replica was read-only before, too"
    assert not is_writable(source, run_sql)


def test_an_undo_after_a_failover_leaves_the_former_server_read_only_even_as_a_standby(
    parts: tuple[TaskConfig, ...],
    other: tuple[TaskConfig, ...],
    source: Server,
    mariadb: Server,
    run_sql: RunSql,
    tmp_path: Path,
) -> None:
    """It may be a replica of the new server. Rows that programs write to a replica are on no other server."""
    killed_cutover(parts)
    with_standby = renamed(parts, mariadb, tmp_path, {"host": source.host, "port": source.port})
    with closing(parts[0].target.server.connect()) as target:
        run = made(with_standby, target)
        run.undo()
        assert run.leaves_read_only
    assert recorded(parts) is None
    assert not is_writable(mariadb, run_sql)
    assert not is_writable(source, run_sql)


def test_a_cutover_is_not_continued_on_another_server(
    parts: tuple[TaskConfig, ...], other: tuple[TaskConfig, ...]
) -> None:
    """Programs may have written to the new server after the comparison, although it is read-only now."""
    killed_cutover(parts)
    with pytest.raises(PrecheckFailed) as refused:
        cut_over(other)
    assert refused.value.code == "cutover-other-server"
    assert "--undo" in refused.value.todo
    record = recorded(parts)
    assert record is not None
    assert record.stage is CutoverStage.STOPPING


def test_a_cutover_that_was_killed_before_stop_begins_anew_on_another_server(
    parts: tuple[TaskConfig, ...], other: tuple[TaskConfig, ...], mariadb: Server, run_sql: RunSql
) -> None:
    class Killed(CutoverRun):
        def _undo_after(self, error: BaseException) -> None:
            pass

    with pytest.raises(Different):
        cut_over(parts, UNEQUAL, kind=Killed)
    # What the target has applied is a matter of the log, which the other server here does not have.
    with closing(parts[0].target.server.connect()) as target:
        run = made(other, target)
        run._own.current = record = recorded(parts)
        assert record is not None
        with pytest.raises(PrecheckFailed, match="now, but the cutover has begun with") as refused:
            run._read_only(record)
        assert refused.value.todo == "This command undoes what it has done. Then run it again", "nothing is undone yet"
    assert not is_writable(mariadb, run_sql)


UUID, OTHER_UUID = "mysql 7d3c", "mysql 9f21"


@pytest.mark.parametrize(
    ("one", "other", "is_one"),
    [
        (CutoverServer("a:3306", UUID), CutoverServer("b:3306", UUID), True),
        (CutoverServer("a:3306", UUID), CutoverServer("a:3306", OTHER_UUID), False),
        (
            CutoverServer("a:3306", "mariadb server-id 1 at x"),
            CutoverServer("b:3306", "mariadb server-id 1 at x"),
            True,
        ),
        (
            CutoverServer("a:3306", "mariadb server-id 1 at x"),
            CutoverServer("a:3306", "mariadb server-id 1 at y"),
            True,
        ),
        (
            CutoverServer("a:3306", "mariadb server-id 1 at x"),
            CutoverServer("b:3306", "mariadb server-id 1 at y"),
            False,
        ),
        (CutoverServer("a:3306", "mariadb server-id 1"), CutoverServer("b:3306", "mariadb server-id 1"), False),
        (CutoverServer("a:3306", "mariadb server-id 1"), CutoverServer("a:3306", "mariadb server-id 2"), False),
    ],
)
def test_a_server_is_recognized_by_its_identity(one: CutoverServer, other: CutoverServer, is_one: bool) -> None:
    assert is_same(one, other) == is_same(other, one) == is_one


def test_after_an_error_the_command_says_whether_everything_is_undone(
    parts: tuple[TaskConfig, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(parts[0].path)
    assert run_command(["cutover", path, "--yes", "--verify-tables", "shop.nothing"]) == 2
    said = capsys.readouterr().err
    assert "unknown-name" in said
    assert "everything is undone: the source is as it was before" in said
    # A command that has changed nothing has nothing to say about it.
    with closing(parts[0].target.server.connect()) as target, closing(parts[0].target.server.connect()) as other:
        assert show_cutover(other, "t")
        assert target.meta.cutovers.read("t") is None
        assert run_command(["cutover", path, "--yes"]) == 3
    said = capsys.readouterr().err
    assert "cutover-running" in said
    assert "undone: " not in said


def test_a_cutover_that_is_done_is_shown_by_the_command_after_its_source_is_gone(
    parts: tuple[TaskConfig, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The old server may be switched off when somebody repeats the command."""
    assert cut_over(parts).is_done
    path = tmp_path / "later.yaml"
    path.write_text(
        parts[0].path.read_text().replace(f"port: {parts[0].source.server.port}", f"port: {sandbox.server.free_port()}")
    )
    capsys.readouterr()
    assert run_command(["cutover", str(path), "--yes"]) == 0
    said = capsys.readouterr()
    assert "all steps are done" in said.out
    assert UNLISTED.format("Can't connect") in said.out
    assert "undone" not in said.out + said.err


def test_a_cutover_names_what_the_target_lacks_before_it_sends_the_application_there(
    parts: tuple[TaskConfig, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments in (["--yes"], []):
        assert run_command(["cutover", str(parts[0].path), *arguments]) == 0
        said = capsys.readouterr().out
        assert said.count("point the application to") == 1
        assert "CHECK (`name` <> '')" in said[: said.index("point the application to")]


def killed_cutover(parts: tuple[TaskConfig, ...]) -> None:
    """Kills a cutover after the step `stopping` is recorded."""
    with pytest.raises(ProcessDied):
        cut_over(parts, kind=KilledCutover)


def wait_until_it_is_seen_as_killed(parts: tuple[TaskConfig, ...]) -> TaskStatus:
    """Waits until the server has noticed that the session of a killed command is gone; returns the status then."""
    deadline = time.monotonic() + 60
    while not (found := task_status(parts)).needs_operator:
        assert time.monotonic() < deadline
    return found


def replaced(
    monkeypatch: pytest.MonkeyPatch, owner: object, name: str, before: Callable[[], None], behind: Callable[[], None]
) -> None:
    """Calls `before` and `behind` before and after each call of this function."""
    inner = getattr(owner, name)

    def effect(*given: Any, **named: Any) -> Any:
        before()
        result = inner(*given, **named)
        behind()
        return result

    monkeypatch.setattr(owner, name, effect)


def is_writable(source: Server, run_sql: RunSql) -> bool:
    return run_sql(source, "SELECT @@GLOBAL.read_only") == [(0,)]


def keys(postgres: Server, database: str, run_sql: RunSql) -> list[tuple[Any, ...]]:
    sql = (
        "SELECT conname::text, convalidated FROM pg_constraint "
        "WHERE contype IN ('f', 'c') AND connamespace = 'shop'::regnamespace ORDER BY 1"
    )
    return run_sql(postgres, sql, database=database)


@pytest.fixture
def killing(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], list[str]]:
    """`killing(n)` kills the next cutover before or after its nth effect. The list has the effects so far."""

    def kill(number: int) -> list[str]:
        effects: list[str] = []

        def at(effect: str) -> None:
            effects.append(effect)
            if len(effects) > number:
                raise ProcessDied

        def wrapped(owner: object, name: str) -> None:
            replaced(monkeypatch, owner, name, partial(at, f"before {name}"), partial(at, f"behind {name}"))

        monkeypatch.setattr(CutoverRun, "_undo_after", lambda *_: None)
        wrapped(OwnRecord, "save")
        wrapped(source_read_only, "make_read_only")
        wrapped(target_side, "move_counters")
        wrapped(CutoverRun, "_make_constraint")
        wrapped(CutoverRun, "_end_runs")
        wrapped(switch, "target_log_end")
        return effects

    return kill


def test_a_cutover_is_continued_wherever_it_was_killed(
    parts: tuple[TaskConfig, ...],
    source: Server,
    postgres: Server,
    database: str,
    run_sql: RunSql,
    killing: Callable[[int], list[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for number in points(3):
        effects = killing(number)
        with suppress(ProcessDied):
            cut_over(parts)
        monkeypatch.undo()
        if len(effects) <= number:
            break
        with closing(parts[0].target.server.connect()) as target:
            before = target.meta.cutovers.read("t")
        found = cut_over(parts)
        assert found.is_done, effects
        assert keys(postgres, database, run_sql) == MADE, effects
        assert not is_writable(source, run_sql)
        if before is not None and before.stage is CutoverStage.DONE:
            assert found.record == before, "what was recorded once stays"
        inserted = run_sql(postgres, "INSERT INTO shop.customers (name) VALUES ('Eve') RETURNING id", database=database)
        assert inserted == [(4,)], effects
        with closing(parts[0].target.server.connect()) as target:
            made(parts, target).undo()
        assert is_writable(source, run_sql), effects
        assert keys(postgres, database, run_sql) == []
        run_sql(postgres, "DELETE FROM shop.customers WHERE name = 'Eve'", database=database)
        run_sql(postgres, "SELECT setval('shop.customers_id_seq', 1, false)", database=database)
    # The counters of customers and orders, one key, and the record at each of its stages.
    assert effects.count("behind save") >= 4
    assert {"before make_read_only", "behind move_counters", "behind _make_constraint", "behind target_log_end"} <= set(
        effects
    )


@pytest.mark.long
def test_a_cutover_is_undone_wherever_it_was_killed(
    parts: tuple[TaskConfig, ...],
    source: Server,
    postgres: Server,
    database: str,
    run_sql: RunSql,
    killing: Callable[[int], list[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for number in itertools.count():
        effects = killing(number)
        with suppress(ProcessDied):
            cut_over(parts)
        monkeypatch.undo()
        with closing(parts[0].target.server.connect()) as target:
            made(parts, target).undo()
            assert target.meta.cutovers.read("t") is None
        assert is_writable(source, run_sql), effects
        assert keys(postgres, database, run_sql) == [], effects
        if len(effects) <= number:
            return


@pytest.fixture
def disturbed(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, Callable[[], None]], list[str]]:
    """`disturbed(n, other)` calls `other` before or after the nth effect of the next command, as another machine may.

    The list has the effects so far.
    """

    def disturb(number: int, other: Callable[[], None]) -> list[str]:
        effects: list[str] = []

        def at(effect: str) -> None:
            if len(effects) <= number and effect:
                effects.append(effect)
                if len(effects) > number:
                    other()

        def wrapped(owner: object, name: str, *, before: bool = True, behind: bool = True) -> None:
            texts = [f"before {name}" if before else "", f"behind {name}" if behind else ""]
            replaced(monkeypatch, owner, name, *(partial(at, text) for text in texts))

        wrapped(OwnRecord, "save")
        wrapped(CutoverRun, "_demand_read_only")
        wrapped(source_read_only, "make_read_only")
        wrapped(target_side, "move_counters")
        # Between the look at the record and these effects is a gap of one statement, in which nobody else acts here.
        wrapped(OwnRecord, "demand_own", behind=False)
        wrapped(target_side, "drop", before=False)
        wrapped(source_read_only, "restore", before=False)
        wrapped(CutoverRun, "_make_constraint")
        wrapped(CutoverRun, "_end_runs")
        wrapped(switch, "target_log_end")
        return effects

    return disturb


def recorded(parts: tuple[TaskConfig, ...]) -> Cutover | None:
    with closing(parts[0].target.server.connect()) as target:
        return target.meta.cutovers.read("t")


@pytest.mark.timeout(600)
def test_a_cutover_that_another_machine_undoes_does_not_end_as_done(
    parts: tuple[TaskConfig, ...],
    source: Server,
    postgres: Server,
    database: str,
    run_sql: RunSql,
    disturbed: Callable[[int, Callable[[], None]], list[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found: list[str] = []

    def undo() -> None:
        before = recorded(parts)
        found.append(before.stage.value if before is not None else "")
        with closing(parts[0].target.server.connect()) as target:
            if before is not None and before.stage is CutoverStage.DONE:
                with pytest.raises(ConfigError, match="the cutover is done"):
                    made(parts, target, kind=UnseenCutover).undo(even_if_done=False)
            else:
                made(parts, target, kind=UnseenCutover).undo(even_if_done=False)
        assert recorded(parts) == (before if found[-1] == "done" else None)
        assert is_writable(source, run_sql) or found[-1] == "done"

    for number in points(3):
        effects = disturbed(number, undo)
        error: BaseException | None = None
        try:
            done = cut_over(parts, kind=UnseenCutover)
        except Fenced as raised:
            error = raised
        monkeypatch.undo()
        if len(effects) <= number:
            break
        assert is_writable(source, run_sql) == (error is not None), effects
        if error is not None:
            assert isinstance(error, Fenced)
            assert error.code == "cutover-taken"
            assert found[-1] in {"begun", "stopping"}, effects
            assert recorded(parts) is None
            assert keys(postgres, database, run_sql) == [], effects
        else:
            assert found[-1] in {"", "done"}, effects
            assert done.is_done
            with closing(parts[0].target.server.connect()) as target:
                made(parts, target).undo()
        run_sql(postgres, "SELECT setval('shop.customers_id_seq', 1, false)", database=database)
    assert "begun" in found


@pytest.mark.timeout(600)
def test_an_undo_during_which_another_machine_continues_the_cutover_leaves_it_whole(
    parts: tuple[TaskConfig, ...],
    source: Server,
    postgres: Server,
    database: str,
    run_sql: RunSql,
    disturbed: Callable[[int, Callable[[], None]], list[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    outcomes = set()
    for number in itertools.count():
        killed_cutover(parts)
        done: list[bool] = []

        def go_on(done: list[bool] = done) -> None:
            done.append(cut_over(parts, kind=UnseenCutover).is_done)

        effects = disturbed(number, go_on)
        outcome = "undone"
        with closing(parts[0].target.server.connect()) as target:
            try:
                made(parts, target, kind=UnseenCutover).undo()
            except Fenced as raised:
                outcome = raised.code
        monkeypatch.undo()
        outcomes.add(outcome)
        if len(effects) <= number:
            break
        assert done == [True], effects
        assert (recorded(parts) is not None) == (not is_writable(source, run_sql)), effects
        assert keys(postgres, database, run_sql) == MADE, effects
        with closing(parts[0].target.server.connect()) as target:
            made(parts, target).undo()
    assert outcomes == {"undone", "cutover-taken"}


@pytest.mark.timeout(600)
def test_a_cutover_that_continues_after_a_killed_undo_has_a_source_that_is_read_only(
    parts: tuple[TaskConfig, ...],
    source: Server,
    postgres: Server,
    database: str,
    run_sql: RunSql,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The undo makes the source writable. If the cutover only continued at its last step, later writes would be lost."""
    for owner, name, when in (
        (OwnRecord, "save", "behind"),
        (target_side, "drop", "behind"),
        (source_read_only, "restore", "before"),
        (source_read_only, "restore", "behind"),
    ):
        killed_cutover(parts)
        inner = getattr(owner, name)

        def kill(*given: Any, inner: Callable[..., Any] = inner, when: str = when) -> None:
            if when == "behind":
                inner(*given)
            raise ProcessDied

        with monkeypatch.context() as patch, closing(parts[0].target.server.connect()) as target:
            patch.setattr(owner, name, kill)
            with pytest.raises(ProcessDied):
                made(parts, target).undo()
        state = task_status(parts).cutover
        assert state is not None
        assert "an undo of this has begun" in str(state)
        found = cut_over(parts)
        assert found.is_done
        assert "read-only" in {step.name for step in found.steps}, "all steps are done anew"
        assert not is_writable(source, run_sql)
        assert keys(postgres, database, run_sql) == MADE
        with closing(parts[0].target.server.connect()) as target:
            made(parts, target).undo()


def test_a_source_that_was_restarted_after_the_kill_does_not_end_as_done(
    parts: tuple[TaskConfig, ...], source: Server, run_sql: RunSql
) -> None:
    killed_cutover(parts)
    run_sql(source, "SET GLOBAL read_only = OFF")  # A restart does the same, since the value is not in a file.
    with pytest.raises(PrecheckFailed) as refused:
        cut_over(parts)
    assert refused.value.code == "source-writable"
    assert f"pidts cutover {parts[0].path} --undo" in refused.value.todo
    record = recorded(parts)
    assert record is not None
    assert record.stage is CutoverStage.STOPPING


@pytest.mark.parametrize("options", [CutoverOptions(), CutoverOptions(read_only=False)])
def test_rows_that_a_source_got_after_stop_are_found_although_it_is_read_only_again(
    parts: tuple[TaskConfig, ...], source: Server, run_sql: RunSql, options: CutoverOptions
) -> None:
    killed_cutover(parts)
    run_sql(source, "SET GLOBAL read_only = OFF")
    run_sql(source, "FLUSH BINARY LOGS")
    run_sql(source, "INSERT INTO shop.orders (customer) VALUES (1)")
    run_sql(source, "SET GLOBAL read_only = ON")
    with pytest.raises(
        PrecheckFailed, match=r"a program has changed shop\.orders on source one after the step"
    ) as refused:
        cut_over(parts, options=options)
    assert refused.value.code == "source-writable"
    assert f"pidts cutover {parts[0].path} --undo" in refused.value.todo
    record = recorded(parts)
    assert record is not None
    assert record.stage is CutoverStage.STOPPING


def test_rows_that_a_later_statement_of_a_transaction_has_changed_after_stop_are_found(
    parts: tuple[TaskConfig, ...], source: Server, run_sql: RunSql, in_one_session: InOneSession
) -> None:
    """The first statement of the transaction changes another table, and the log has no rows."""
    killed_cutover(parts)
    run_sql(source, "CREATE OR REPLACE DATABASE others")
    run_sql(source, "CREATE TABLE others.shop (id INT PRIMARY KEY)")
    in_one_session(
        source,
        "others",
        "SET SESSION binlog_format = STATEMENT",
        "BEGIN",
        "INSERT INTO others.shop VALUES (1) -- a comment",
        "UPDATE others.shop AS o, shop.orders SET orders.customer = 2",
        "COMMIT",
    )
    with pytest.raises(PrecheckFailed, match=r"a program has changed tables \(INSERT INTO others") as refused:
        cut_over(parts)
    assert refused.value.code == "source-writable"


@pytest.mark.parametrize("table", ["watched", "plain"])
def test_after_stop_a_statement_on_another_table_is_found_if_the_table_has_a_trigger(
    parts: tuple[TaskConfig, ...], source: Server, run_sql: RunSql, in_one_session: InOneSession, table: str
) -> None:
    killed_cutover(parts)
    run_sql(source, "CREATE OR REPLACE DATABASE others")
    run_sql(source, "CREATE TABLE others.plain (id INT PRIMARY KEY)")
    run_sql(source, "CREATE TABLE others.watched (id INT PRIMARY KEY)")
    run_sql(
        source,
        "CREATE TRIGGER others.tr AFTER INSERT ON others.watched FOR EACH ROW UPDATE shop.orders SET customer = NEW.id",
    )
    in_one_session(
        source, "others", "SET SESSION binlog_format = STATEMENT", f"INSERT INTO others.{table} SELECT 2 FROM DUAL"
    )
    if table == "plain":
        assert cut_over(parts).is_done
        return
    with pytest.raises(PrecheckFailed, match=r"a program has changed tables \(INSERT INTO others\.watched") as refused:
        cut_over(parts)
    assert refused.value.code == "source-writable"


def test_a_schema_change_after_stop_is_found(parts: tuple[TaskConfig, ...], source: Server, run_sql: RunSql) -> None:
    killed_cutover(parts)
    run_sql(source, "ALTER TABLE shop.orders ADD COLUMN note TEXT")
    with pytest.raises(PrecheckFailed, match=r"has changed tables \(ALTER TABLE shop\.orders ADD COLUMN note TEXT\)"):
        cut_over(parts)


def test_a_log_that_is_not_there_any_more_proves_nothing(
    parts: tuple[TaskConfig, ...], source: Server, run_sql: RunSql
) -> None:
    killed_cutover(parts)
    run_sql(source, "FLUSH BINARY LOGS")
    while len(files := run_sql(source, "SHOW BINARY LOGS")) > 1:  # the server may still need the former file
        run_sql(source, f"PURGE BINARY LOGS TO '{files[-1][0]}'")
        time.sleep(0.1)
    with pytest.raises(PrecheckFailed, match="it is not known whether programs have written to source one") as refused:
        cut_over(parts)
    assert refused.value.code == "source-writable"


def test_a_longer_log_without_changes_of_the_task_does_not_prevent_the_end(
    parts: tuple[TaskConfig, ...], source: Server, run_sql: RunSql
) -> None:
    """A restarted server begins a new log file. With `--writers-stopped`, programs may write to other tables."""
    killed_cutover(parts)
    run_sql(source, "FLUSH BINARY LOGS")
    run_sql(source, "CREATE OR REPLACE DATABASE others")
    run_sql(source, "CREATE TABLE others.rows_of_others (id INT PRIMARY KEY)")
    run_sql(source, "INSERT INTO others.rows_of_others VALUES (1)")
    assert cut_over(parts).is_done


LOST = CutoverOptions(read_only=False, lost_seconds=0.0)
UNLISTED = "the objects that the target does not have cannot be listed: {}"


def without_source(parts: tuple[TaskConfig, ...]) -> tuple[TaskConfig, ...]:
    """Returns the task with a source that does not answer."""
    server = replace(parts[0].source.server, port=sandbox.server.free_port())
    return (replace(parts[0], source=replace(parts[0].source, server=server)),)


def test_a_cutover_is_completed_without_a_source_that_is_lost_after_stop(parts: tuple[TaskConfig, ...]) -> None:
    killed_cutover(parts)
    lost = without_source(parts)
    with pytest.raises(Transient) as refused:
        cut_over(lost)
    assert refused.value.code == "source-unreachable"
    assert f"pidts cutover {parts[0].path} --yes --writers-stopped" in refused.value.todo
    record = recorded(parts)
    assert record is not None
    assert record.stage is CutoverStage.STOPPING
    found = cut_over(lost, options=LOST)
    assert found.is_done
    assert [(step.name, step.state) for step in found.steps] == [
        ("stop", "done"),
        ("on-update", "skipped"),
        ("switch", "done"),
    ]
    assert "source one does not answer" in found.steps[1].about
    assert found.steps[-1].details == (UNLISTED.format("source one does not answer"),)
    again = cut_over(lost)
    with closing(lost[0].target.server.connect()) as target:
        looked = made(lost, target).look()
    for one in (again, looked):
        assert one.is_done
        assert [step.name for step in one.steps] == ["switch"]
        assert one.steps[0].details[0].startswith(UNLISTED.format("Can't connect"))


def test_a_lost_source_ends_a_cutover_that_has_not_reached_stop(parts: tuple[TaskConfig, ...]) -> None:
    """Only after `stop` it is certain that the target has the whole log."""

    class Killed(CutoverRun):
        def _undo_after(self, error: BaseException) -> None:
            pass

    with pytest.raises(Different):
        cut_over(parts, UNEQUAL, kind=Killed)
    with pytest.raises(Transient) as refused:
        cut_over(without_source(parts), options=LOST)
    assert refused.value.code == "source-unreachable"
    record = recorded(parts)
    assert record is None or record.stage is CutoverStage.BEGUN


def test_a_second_command_is_refused_while_a_cutover_runs(
    parts: tuple[TaskConfig, ...], source: Server, run_sql: RunSql
) -> None:
    refused: list[PrecheckFailed] = []

    def compare(*_: object) -> Report:
        for second in ("undo", "carry_out"):
            with closing(parts[0].target.server.connect()) as target, pytest.raises(PrecheckFailed) as raised:
                getattr(made(parts, target), second)()
            refused.append(raised.value)
        assert not is_writable(source, run_sql)
        cutover = task_status(parts).cutover
        assert cutover is not None
        assert f"process {os.getpid()} on {socket.gethostname()}; session " in cutover.todo
        return EQUAL

    with closing(parts[0].target.server.connect()) as target:
        found = CutoverRun(parts, target, CutoverOptions(), run_once=no_run, verify=compare).carry_out()
    assert found.is_done
    for error in refused:
        assert error.code == "cutover-running"
        assert f"another cutover command of task t runs: process {os.getpid()} on {socket.gethostname()}" in error.what
        assert "If its machine is gone, run SELECT pg_terminate_backend(" in error.todo


@pytest.mark.parametrize("is_undone", [False, True])
def test_a_constraint_that_was_made_and_not_checked_yet_is_continued_or_undone(
    parts: tuple[TaskConfig, ...],
    postgres: Server,
    database: str,
    run_sql: RunSql,
    monkeypatch: pytest.MonkeyPatch,
    is_undone: bool,
) -> None:
    execute = PostgresSession.execute

    def execute_or_die(session: PostgresSession, sql: str, *given: Any) -> Any:
        if 'VALIDATE CONSTRAINT "customer"' in sql:
            raise ProcessDied
        return execute(session, sql, *given)

    with monkeypatch.context() as patch:
        patch.setattr(PostgresSession, "execute", execute_or_die)
        patch.setattr(CutoverRun, "_undo_after", lambda *_: None)
        with pytest.raises(ProcessDied):
            cut_over(parts)
    assert keys(postgres, database, run_sql) == [("bought", True), ("customer", False)]
    if is_undone:
        with closing(parts[0].target.server.connect()) as target:
            made(parts, target).undo()
    else:
        assert cut_over(parts).is_done
    assert keys(postgres, database, run_sql) == ([] if is_undone else MADE)


def test_a_source_that_was_read_only_before_stays_so(
    parts: tuple[TaskConfig, ...], source: Server, run_sql: RunSql
) -> None:
    run_sql(source, "SET GLOBAL read_only = ON")
    with pytest.raises(Different):
        cut_over(parts, UNEQUAL)
    assert not is_writable(source, run_sql)


def test_a_check_that_the_rows_do_not_fulfil_is_listed_with_its_statement(
    parts: tuple[TaskConfig, ...], postgres: Server, database: str, run_sql: RunSql
) -> None:
    run_sql(postgres, "UPDATE shop.orders SET customer = 1000001 WHERE id = 2", database=database)
    run_sql(postgres, "INSERT INTO shop.customers VALUES (1000001, 'Cid', 'CID')", database=database)
    found = cut_over(parts)
    assert found.is_done
    (checks,) = [step for step in found.steps if step.name == "checks"]
    assert checks.about == "1 made, 1 not"
    assert "VALIDATE CONSTRAINT" in checks.details[0]
    assert keys(postgres, database, run_sql) == [("bought", True), ("customer", True), ("positive", False)]


def test_a_foreign_key_that_was_there_is_no_check_and_outlives_the_undo(
    parts: tuple[TaskConfig, ...], postgres: Server, database: str, run_sql: RunSql
) -> None:
    own = "ALTER TABLE shop.orders ADD CONSTRAINT positive FOREIGN KEY (customer) REFERENCES shop.customers (id)"
    run_sql(postgres, own, database=database)
    found = cut_over(parts)
    (checks,) = [step for step in found.steps if step.name == "checks"]
    assert checks.about == "1 made, 1 not"
    assert "ADD CONSTRAINT" in checks.details[0]
    with closing(parts[0].target.server.connect()) as target:
        made(parts, target).undo()
    assert keys(postgres, database, run_sql) == [("positive", True)]


def test_differences_undo_everything(parts: tuple[TaskConfig, ...], source: Server, run_sql: RunSql) -> None:
    with pytest.raises(Different):
        cut_over(parts, UNEQUAL)
    assert is_writable(source, run_sql)
    with closing(parts[0].target.server.connect()) as target:
        assert target.meta.cutovers.read("t") is None


def test_an_account_that_may_not_make_the_source_read_only(
    parts: tuple[TaskConfig, ...], source: Server, run_sql: RunSql, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_read_only, "make_read_only", lambda _: False)
    with pytest.raises(PrecheckFailed) as refused:
        cut_over(parts, options=CutoverOptions(wait_seconds=0.5))
    assert refused.value.code == "source-writable"
    assert "SET GLOBAL read_only = ON" in refused.value.todo
    assert is_writable(source, run_sql)


def test_all_sources_that_the_account_may_not_make_read_only_are_named_once(parts: tuple[TaskConfig, ...]) -> None:
    """Two ids for one server do. The command looks twice."""
    two = [("one", parts[0], "SET x"), ("two", parts[0], "SET y")]
    said: list[str] = []
    with closing(parts[0].target.server.connect()) as target:
        run = made(parts, target, options=CutoverOptions(wait_seconds=1.5), say=said.append)
        with pytest.raises(PrecheckFailed) as refused:
            run._await_read_only(two)
    assert [text.rpartition("; ")[2] for text in said[:2]] == ["run there: SET x;", "run there: SET y;"]
    assert said[2:] == ["this command waits up to 1 s (--wait) for it, and then undoes the cutover"]
    assert refused.value.what == "sources one, two are not read-only, and the account may not change this"
    assert refused.value.todo.startswith("Run on source one: SET x; on source two: SET y; Then run this command again")


def test_a_privilege_that_the_switch_needs_is_listed_before_it(
    parts: tuple[TaskConfig, ...], source: Server, run_sql: RunSql
) -> None:
    account = narrowed(parts)

    def details() -> tuple[str, ...]:
        with closing(account[0].target.server.connect()) as target:
            (step,) = [one for one in made(account, target).look().steps if one.name is StepName.READ_ONLY]
        return step.details

    grant = "GRANT READ_ONLY ADMIN ON *.* TO 'narrow'@'%';"
    assert details() == (f"source one: READ_ONLY ADMIN on *.* is missing: {grant}",)
    run_sql(source, grant)
    assert details() == ()


def test_a_foreign_key_without_its_referenced_table_is_listed_before_the_switch(
    parts: tuple[TaskConfig, ...], postgres: Server, database: str, run_sql: RunSql
) -> None:
    run_sql(postgres, "ALTER TABLE shop.customers RENAME TO others", database=database)
    with closing(parts[0].target.server.connect()) as target:
        (before,) = [one for one in made(parts, target).look().steps if one.name is StepName.FOREIGN_KEYS]
    assert before.about == "1 not made"
    (line,) = before.details
    assert line.startswith("not made: ")
    assert line.endswith(": the target has no table shop.customers")


@pytest.mark.timeout(300)
def test_a_comparison_that_was_killed_continues_only_while_nothing_has_moved(
    parts: tuple[TaskConfig, ...],
    source: Server,
    run_sql: RunSql,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def compare(stop: threading.Event, state: str) -> Report:
        return verified(parts, "", examples=9, restart=False, stop=stop, state=state)

    def cut(*, dies: bool = False) -> bool:
        """Returns whether the comparison continued an earlier one; `dies`: the process dies after the first table."""
        with monkeypatch.context() as patch, closing(parts[0].target.server.connect()) as target:
            if dies:
                save = MemoryFile.save

                def save_and_die(file: MemoryFile, memory: ComparisonState) -> None:
                    save(file, memory)
                    raise ProcessDied

                patch.setattr(MemoryFile, "save", save_and_die)
                patch.setattr(CutoverRun, "_undo_after", lambda *_: None)
            one = CutoverRun(parts, target, CutoverOptions(), run_once=no_run, verify=compare)
            with pytest.raises(ProcessDied) if dies else nullcontext():
                assert one.carry_out().is_done
        return "continuing the interrupted comparison" in capsys.readouterr().err

    def undo() -> None:
        with closing(parts[0].target.server.connect()) as target:
            made(parts, target).undo()

    assert not cut(dies=True)
    assert not is_writable(source, run_sql)
    assert cut()
    undo()
    cut(dies=True)
    undo()
    assert not cut(), "the source could be written to meanwhile"
    undo()
    cut(dies=True)
    with closing(parts[0].target.server.connect()) as target:
        checkpoints = target.meta.checkpoints
        checkpoints.claim("t", "one", 1, checkpoints.read("t", "one")[0])
    assert not cut(), "a run has begun meanwhile"


def test_looking_changes_nothing(
    parts: tuple[TaskConfig, ...], source: Server, postgres: Server, database: str, run_sql: RunSql
) -> None:
    with closing(parts[0].target.server.connect()) as target:
        found = made(parts, target).look()
        assert target.meta.cutovers.read("t") is None
    assert is_writable(source, run_sql)
    assert keys(postgres, database, run_sql) == []
    assert [step.name.value for step in found.steps] == [
        "tables",
        "lag",
        "read-only",
        "verify",
        "counters",
        "foreign-keys",
        "checks",
        "keys",
        "stop",
        "on-update",
        "switch",
    ]
    checks = next(step for step in found.steps if step.name == "checks")
    assert checks.details == ("customer of shop.orders is made", "positive of shop.orders is made")
    assert [(one.kind, one.name, one.text) for one in found.left] == [
        ("check", "named", "CONSTRAINT `named` CHECK (`name` <> '')"),
        ("generated column", "upper_name", "`upper_name` AS (ucase(`name`)) VIRTUAL"),
    ]
    counters = next(step for step in found.steps if step.name == "counters")
    assert counters.details == (
        "shop.customers.id continues at 1, and has to continue at 4",
        "shop.orders.id continues at 1, and has to continue at 3",
    )
    assert not found.unseen


def test_a_task_that_was_cut_over_says_so_before_anything_is_checked(
    parts: tuple[TaskConfig, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cut_over(parts)

    def checked(*_: object) -> None:
        pytest.fail("the checks would name the source, which is read-only now, or gone")

    monkeypatch.setattr("pidts.task.run.task_run.require_all_sources_fit", checked)
    with pytest.raises(Fenced) as raised:
        run_task(parts, until_synced=True, stop=threading.Event(), on_progress=lambda _: None)
    assert raised.value.code == "cut-over"
    place = parts[0].target.place
    assert re.search(rf"task t was cut over at [-0-9]+ [:0-9]+ UTC to {re.escape(place)}; PiDTS", raised.value.what)
    assert "PiDTS has made source one read-only for it" in raised.value.what
    assert f"pidts cutover {parts[0].path} --undo --yes" in raised.value.todo

    # The output of `pidts status` names the cutover, too.
    found = task_status(parts)
    assert show_status(found, parts[0].path, as_json=False) == 0
    said = capsys.readouterr().out
    assert "t: was cut over at" in said
    assert "read-only for it" in said
    assert "not running" not in said
    reported = status_json(found, parts[0].path)["cutover"]
    assert (reported["stage"], reported["read_only"]) == ("done", ["one"])


def test_a_run_that_the_cutover_has_fenced_names_the_cutover(
    parts: tuple[TaskConfig, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run was writing when the cutover claimed the task, and had not read the cutover's record yet."""

    def fenced(*_: object, **__: object) -> None:
        raise Fenced("fenced", "another run has taken over the task")

    monkeypatch.setattr(Attempts, "_attempt_once", fenced)
    monkeypatch.setattr(Attempts, "_has_arrived", lambda *_, **__: False)
    shared: Any = SimpleNamespace(alerts=Alerts(tmp_path, "t"))
    tracker, stop = Tracker("t", "one", lambda _: None), threading.Event()
    run = Attempts(parts[0], NoReplicator(parts[0]), tmp_path, tracker, shared, stop, None)
    with pytest.raises(Fenced) as raised:
        run.attempt(until_synced=False)
    assert raised.value.code == "fenced"
    cut_over(parts)
    with pytest.raises(Fenced) as raised:
        run.attempt(until_synced=False)
    assert raised.value.code == "cut-over"


def test_a_task_whose_cutover_was_killed_waits_for_its_end(parts: tuple[TaskConfig, ...]) -> None:
    killed_cutover(parts)
    wait_until_it_is_seen_as_killed(parts)
    with pytest.raises(CutoverUnderWay) as raised:
        run_task(parts, until_synced=True, stop=threading.Event(), on_progress=lambda _: None)
    assert raised.value.code == "being-cut-over"
    assert f"pidts cutover {parts[0].path} --undo" in raised.value.todo
    with closing(parts[0].target.server.connect()) as target:
        made(parts, target).undo()
    assert task_status(parts).cutover is None


def test_the_status_of_a_cutover_that_was_killed_needs_an_operator(
    parts: tuple[TaskConfig, ...],
    source: Server,
    run_sql: RunSql,
    killing: Callable[[int], list[str]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    during: list[TaskStatus] = []

    def killed(*_: object) -> Report:
        during.append(task_status(parts))
        raise ProcessDied

    path = parts[0].path
    killing(1000)  # None of the effects kills the cutover: it dies while it compares, and undoes nothing.
    with closing(parts[0].target.server.connect()) as target, pytest.raises(ProcessDied):
        CutoverRun(parts, target, CutoverOptions(), run_once=no_run, verify=killed).carry_out()
    monkeypatch.undo()
    assert not is_writable(source, run_sql)
    assert show_status(during[0], path, as_json=False) == 0
    said = capsys.readouterr().out
    assert "but no cutover command is seen" not in said
    assert "wait until it has ended" in said
    assert status_json(during[0], path)["cutover"]["active"]

    found = wait_until_it_is_seen_as_killed(parts)
    assert show_status(found, path, as_json=False) == 5
    said = capsys.readouterr().out
    assert "t: is being cut over to" in said
    assert "but no cutover command is seen; PiDTS has made source one read-only for it" in said
    assert f"pidts cutover {path} --yes; or give it up: pidts cutover {path} --undo" in said
    assert "action needed, see above" in said
    reported = status_json(found, path)
    assert (reported["needs_operator"], reported["cutover"]["active"]) == (True, False)
    with closing(parts[0].target.server.connect()) as target:
        made(parts, target).undo()
    assert show_status(task_status(parts), path, as_json=False) == 0


@pytest.mark.parametrize("options", [CutoverOptions(), CutoverOptions(read_only=False)])
def test_a_source_is_called_read_only_only_if_the_cutover_made_it_so(
    parts: tuple[TaskConfig, ...], options: CutoverOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(*_: object) -> None:
        raise Transient("target-lost", "the connection is gone")

    monkeypatch.setattr(CutoverRun, "undo_own", lost)
    with capture_logs() as lines, pytest.raises(Different):
        cut_over(parts, UNEQUAL, options)
    (line,) = [line["event"] for line in lines if line["log_level"] == "warning"]
    assert line == ("the source may still be read-only" if options.read_only else "the cutover is not undone yet")


def test_no_remains_are_reported_if_nothing_was_begun(
    parts: tuple[TaskConfig, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(*_: object) -> None:
        raise Transient("target-lost", "the connection is gone")

    monkeypatch.setattr(CutoverRun, "undo_own", lost)
    monkeypatch.setattr(CutoverRun, "_drain", lost)
    with capture_logs() as lines, pytest.raises(Transient):
        cut_over(parts)
    assert [line for line in lines if line["log_level"] == "warning"] == []


def narrowed(parts: tuple[TaskConfig, ...]) -> tuple[TaskConfig, ...]:
    """Returns the task with an account that may only read."""
    server = replace(parts[0].source.server, user="narrow", password="x")
    return (replace(parts[0], source=replace(parts[0].source, server=server)),)


def test_a_source_that_the_account_could_not_make_read_only_is_not_called_so(
    parts: tuple[TaskConfig, ...], source: Server, run_sql: RunSql, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = narrowed(parts)
    with capture_logs() as lines, pytest.raises(PrecheckFailed) as raised:
        cut_over(account, options=CutoverOptions(wait_seconds=0.0))
    assert raised.value.code == "source-writable"
    assert [line for line in lines if line["log_level"] == "warning"] == []
    assert task_status(account).cutover is None
    # If the operator makes the source read-only, the operator has to undo it.
    monkeypatch.setattr(CutoverRun, "_await_read_only", lambda *_: run_sql(source, "SET GLOBAL read_only = ON"))
    assert cut_over(account).is_done
    found = task_status(account).cutover
    assert found is not None
    assert "read-only" not in str(found)
    with closing(account[0].target.server.connect()) as target:
        made(account, target).undo()
    assert not is_writable(source, run_sql)


def test_the_preview_says_what_the_account_may_not_see(
    parts: tuple[TaskConfig, ...], source: Server, run_sql: RunSql
) -> None:
    run_sql(source, "CREATE OR REPLACE TRIGGER shop.hidden BEFORE INSERT ON shop.orders FOR EACH ROW SET @x = 1")
    account = narrowed(parts)

    def hidden() -> list[str]:
        with closing(account[0].target.server.connect()) as target:
            return list(map(str, made(account, target).look().unseen))

    assert hidden() == [
        "triggers in shop: the account lacks TRIGGER on `shop`.*",
        "events in shop: the account lacks EVENT on `shop`.*",
        "routines in shop: the account lacks SELECT on `mysql`.`proc`",
    ]
    run_sql(source, "GRANT TRIGGER, EVENT ON shop.* TO narrow@'%'")
    run_sql(source, "GRANT SELECT ON mysql.proc TO narrow@'%'")
    assert hidden() == []
