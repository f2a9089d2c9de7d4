"""The start of a run that sends a past part of the log again: what is recorded, what is left, and what is refused."""

from __future__ import annotations

import threading
import time
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.forked_programs import LoadedPrograms
from tests.running import connect as plain_connection
from tests.task.applied_task import begin

from pidts.apply.uncopied_keys import unpacked
from pidts.model import (
    ChangeBatch,
    Checkpoint,
    Column,
    ColumnType,
    ConfigError,
    Fenced,
    Key,
    Kind,
    Lsn,
    Op,
    PrecheckFailed,
    RowLock,
    Table,
    TableName,
)
from pidts.plan import CopyMode, CopyState, Phase, PlanState
from pidts.plan.state import held_at
from pidts.sandbox import Server, start_mariadb
from pidts.source import connect, log_end
from pidts.task.config.task_file import TaskConfig, load_task
from pidts.task.run.replicator_process import ReplicatorProcess
from pidts.task.run.rewind import Rewind, SentAgain, changed_keys
from pidts.task.run.start import StartState, begin_task
from pidts.task.run.table_set import StartRequest
from pidts.task.tables.rewind_request import RewindPoint, rewinds_of

FILE = """\
name: {schema}
task-mode: all
target-database: {{type: postgresql, host: {target.host}, port: {target.port}, user: {target.user},
  password: "{target.password}", database: {schema}}}
mysql-instances:
  - source-id: s
    from: {{host: {source.host}, port: {source.port}, user: {source.user}, password: "{source.password}"}}
    block-allow-list: ours
    filter-rules: [f]
block-allow-list: {{ours: {{do-dbs: ["{schema}"]}}}}
filters: {{f: {{schema-pattern: "{schema}", table-pattern: "filtered*", events: [update], action: Ignore}}}}
pidts: {{relay: relay}}
"""


@dataclass
class Task:
    """A task that has applied the log up to a place; nothing but its starts is run."""

    config: TaskConfig
    source: Server
    schema: str
    programs: LoadedPrograms
    replicators: list[ReplicatorProcess] = field(default_factory=list)

    def sql(self, *statements: str) -> None:
        with closing(plain_connection(self.source)) as connection, connection.cursor() as cursor:
            cursor.execute(f"USE {self.schema}")
            for statement in statements:
                cursor.execute(statement)

    def name(self, table: str) -> TableName:
        return TableName(self.schema, table)

    def end(self) -> Lsn:
        with closing(connect(self.config.source.server)) as session:
            return Lsn.at(log_end(session))

    def apply_all(self) -> None:
        """Makes the checkpoint that of a task that has applied everything until now."""
        with closing(self.config.target.server.connect()) as target:
            begin(self.config, target)

    def start(self, point: RewindPoint, config: TaskConfig | None = None) -> StartState:
        config = config or self.config
        self.replicators.append(ReplicatorProcess(config, forker=self.programs.replicators))
        with (
            closing(connect(config.source.server)) as source,
            closing(config.target.server.connect()) as target,
        ):
            wanted = StartRequest(rewind=point)
            try:
                return begin_task(config, source, target, self.replicators[-1], threading.Event(), wanted)
            finally:
                self.replicators.pop().stop()

    def record(
        self, point: RewindPoint, begun: StartState, claimed: Checkpoint | None = None, **more: Any
    ) -> SentAgain:
        """Records keys without a start, under a claim."""
        first = begun.checkpoints[0]
        state = PlanState.from_checkpoint(first.lsn, "")
        replicator = ReplicatorProcess(self.config, forker=self.programs.replicators)
        with (
            closing(connect(self.config.source.server)) as source,
            closing(self.config.target.server.connect()) as target,
        ):
            one = Rewind(self.config, source, target, replicator, threading.Event(), claimed or first, **more)
            return one.record(point, state.lsn, state, begun.structures)

    def copies(self, state: StartState) -> dict[str, CopyState]:
        first = state.checkpoints[0]
        return {name.name: one for name, one in PlanState.from_checkpoint(first.lsn, first.copy).copy.items()}

    def keys(self, table: str) -> list[dict[str, Any]]:
        """Returns the recorded keys of a table."""
        with closing(self.config.target.server.connect()) as target:
            records = target.meta.rereads.read(self.config.name, "s", self.name(table), Lsn(0, 0, 0), 1000)
        return [key for _, text in records for key in unpacked(text).to_pylist()]


@pytest.fixture
def task(tmp_path: Path, mariadb: Server, postgres: Server, database: str, programs: LoadedPrograms) -> Task:
    path = tmp_path / "task.yaml"
    path.write_text(FILE.format(schema=database, source=mariadb, target=postgres))
    return Task(load_task(path), mariadb, database, programs)


def test_the_keys_of_all_changes_in_the_range_are_recorded_and_no_others(task: Task) -> None:
    task.sql(
        "CREATE TABLE t (id INT PRIMARY KEY, a INT)",
        "CREATE TABLE quiet (id INT PRIMARY KEY)",
        "INSERT INTO t SELECT seq, 0 FROM seq_1_to_50",
        "INSERT INTO quiet VALUES (1)",
    )
    start = task.end()
    task.sql(
        "UPDATE t SET a = a + 1 WHERE id < 5",
        "UPDATE t SET id = 100 WHERE id = 6",
        "DELETE FROM t WHERE id = 7",
        "INSERT INTO t VALUES (200, 1)",
        "XA START 'x'", "UPDATE t SET a = 9 WHERE id = 40", "XA END 'x'", "XA PREPARE 'x'", "XA COMMIT 'x'",
    )  # fmt: skip
    task.apply_all()
    task.sql("UPDATE t SET a = 5 WHERE id = 30")
    begun = task.start(start)
    assert sorted(key["id"] for key in task.keys("t")) == [1, 2, 3, 4, 6, 7, 40, 100, 200]
    assert task.keys("quiet") == []
    state = task.copies(begun)
    assert state.keys() == {"t"}
    assert (state["t"].phase, state["t"].after, state["t"].mode) == (Phase.REREAD, None, CopyMode.ADD)
    assert "9 rows of" in begun.notes[0]
    # The same request once more adds records, and overwrites none.
    task.start(start)
    assert len(task.keys("t")) == 18


def test_tables_without_known_keys_are_copied_whole_and_others_are_left_with_the_reason(task: Task) -> None:
    tables = ("keyless", "altered", "locked", "halted", "filtered", "copied", "again")
    task.sql(
        "CREATE TABLE keyless (a INT)",
        *(f"CREATE TABLE {name} (id INT PRIMARY KEY, a INT)" for name in tables[1:]),
        *(f"INSERT INTO {name} VALUES (1, 1)" for name in tables[1:]),
    )
    start = task.end()
    task.sql(
        "UPDATE altered SET a = 2",
        "ALTER TABLE altered ADD b INT",
        "INSERT INTO keyless VALUES (1)",
        *(f"UPDATE {name} SET a = 2" for name in tables[2:]),
    )
    task.apply_all()
    with closing(task.config.target.server.connect()) as target:
        (row,) = target.meta.checkpoints.read(task.config.name, "s")
        copy = {task.name("copied"): CopyState(), task.name("again"): CopyState(phase=Phase.FINISH)}
        held = held_at({task.name("halted"): start}, row.lsn)
        lock = RowLock(
            table=Table(task.name("locked"), (Column("id", ColumnType(Kind.INT)),)),
            id=f"{1:064}", key="", shown="id=1", origin=task.name("locked"), lsn=start, why="so", since=1.0,
        )  # fmt: skip
        target.begin()
        target.meta.checkpoints.save(replace(row, copy=PlanState(row.lsn, copy, held).copy_json()))
        target.meta.row_locks.add(task.config.name, "s", [lock])
        target.commit()
    begun = task.start(start)
    phases = {name: state.phase for name, state in task.copies(begun).items()}
    rows, reread = Phase.ROWS, Phase.REREAD
    assert phases == {"keyless": rows, "altered": rows, "again": reread, "copied": rows}
    notes = "\n".join(begun.notes)
    for name, reason in {
        "keyless is copied again as a whole": "it has no key",
        "altered is copied again as a whole": "the range contains a schema change of the table: ALTER TABLE altered ADD b INT",
        "locked is not sent again": "it has locked rows",
        "halted is not sent again": "it is halted or waits",
        "filtered is not sent again": "a filter leaves out inserts or updates of the table",
        "copied is not sent again": "it is being copied",
    }.items():
        assert f"{task.schema}.{name}: {reason}" in notes
    assert "1 row of" in notes
    assert [task.keys(name) for name in tables] == [[], [], [], [], [], [], [{"id": 1}]]


def test_a_place_that_is_not_before_the_checkpoint_is_refused_and_changes_nothing(task: Task) -> None:
    task.sql("CREATE TABLE t (id INT PRIMARY KEY)")
    before = task.end()
    with pytest.raises(ConfigError, match="the task has not begun"):
        task.start(before)
    task.apply_all()
    reached = task.end()
    task.sql("INSERT INTO t VALUES (1)")
    for point in (reached, task.end()):
        with pytest.raises(ConfigError, match="is not before the task's checkpoint"):
            task.start(point)
    with pytest.raises(ConfigError, match="the log of another server"):
        task.start(replace(before, change_no=1))
    with closing(task.config.target.server.connect()) as target:
        (row,) = target.meta.checkpoints.read(task.config.name, "s")
    assert (row.epoch, row.lsn, row.copy) == (1, reached, "")


def test_a_range_without_changes_of_the_task_sends_nothing(task: Task) -> None:
    task.sql("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    start = task.end()
    task.sql("CREATE DATABASE IF NOT EXISTS beside", "CREATE TABLE beside.t (a INT)", "INSERT INTO beside.t VALUES (1)")
    task.apply_all()
    for point in (start, datetime.now(UTC) + timedelta(seconds=1)):
        begun = task.start(point)
        assert "has no change of the task's tables: nothing is sent again" in begun.notes[0]
        assert task.copies(begun) == {}


def test_a_statement_that_mysql_logs_with_other_databases_copies_no_table(
    tmp_path: Path, mysql97: Server, postgres: Server, database: str, programs: LoadedPrograms
) -> None:
    """The other table is gone when its triggers would be asked for."""
    path, other = tmp_path / "task.yaml", f"{database}_o"
    path.write_text(FILE.format(schema=database, source=mysql97, target=postgres))
    task = Task(load_task(path), mysql97, database, programs)
    task.sql("CREATE TABLE t (id INT PRIMARY KEY)", f"CREATE DATABASE {other}", f"CREATE TABLE {other}.gone (a INT)")
    start = task.end()
    task.sql("SET SESSION binlog_format = STATEMENT", f"INSERT INTO {other}.gone VALUES (1)", f"DROP DATABASE {other}")
    task.apply_all()
    begun = task.start(start)
    assert "has no change of the task's tables: nothing is sent again" in begun.notes[0]
    assert task.copies(begun) == {}


def test_a_range_whose_log_was_purged_is_refused_for_an_lsn_and_for_a_time(task: Task, postgres: Server) -> None:
    with start_mariadb() as source:
        path = task.config.path
        path.write_text(FILE.format(schema=task.schema, source=source, target=postgres))
        task.source, task.config = source, load_task(path)
        with closing(plain_connection(source)) as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {task.schema}")
            task.sql("CREATE TABLE t (id INT PRIMARY KEY)")
            start, moment = task.end(), datetime.now(UTC).replace(microsecond=0)
            task.sql("INSERT INTO t VALUES (1)", "FLUSH BINARY LOGS")
            time.sleep(1.1)
            task.sql("INSERT INTO t VALUES (2)")
            task.apply_all()
            cursor.execute("SHOW BINARY LOGS")
            cursor.execute(f"PURGE BINARY LOGS TO '{cursor.fetchall()[-1][0]}'")
        for point in (start, moment):
            with pytest.raises(PrecheckFailed, match="Nothing was changed") as refused:
                task.start(point)
            assert refused.value.code == "rewind-log-purged"
        assert task.keys("t") == []


def test_a_run_that_was_replaced_writes_no_records(task: Task) -> None:
    task.sql("CREATE TABLE t (id INT PRIMARY KEY)")
    start = task.end()
    task.sql("INSERT INTO t VALUES (1)")
    task.apply_all()
    begun = task.start(start)
    (before,) = begun.checkpoints
    with pytest.raises(Fenced):
        task.record(start, begun, claimed=replace(before, epoch=before.epoch - 1))
    assert task.keys("t") == [{"id": 1}], "the records of the run that was not replaced"


def test_a_table_whose_rows_cannot_be_read_is_copied_whole(task: Task) -> None:
    task.sql(
        "CREATE TABLE t (id INT PRIMARY KEY, a INT)",
        "CREATE TABLE u (id INT PRIMARY KEY)",
        "CREATE TABLE large (id INT PRIMARY KEY)",
    )
    start = task.end()
    task.sql("INSERT INTO t VALUES (1, 1)", "INSERT INTO u VALUES (1)")
    # A statement that is not in the log.
    task.sql("SET sql_log_bin = 0", "ALTER TABLE t DROP a", "SET sql_log_bin = 1")
    task.apply_all()
    begun = task.start(start)
    assert {name: one.phase for name, one in task.copies(begun).items()} == {"t": Phase.ROWS, "u": Phase.REREAD}
    assert "its rows in the range cannot be read" in "".join(begun.notes)
    found = task.record(start, begun, most_bytes=10)
    assert found.whole[task.name("u")] == "a transaction of the range is too large to be read again"


TABLE = Table(TableName("s", "t"), (Column("id", ColumnType(Kind.INT)), Column("k", ColumnType(Kind.INT))))


def test_changed_keys_are_those_before_and_after_the_changes_each_once() -> None:
    table = replace(TABLE, keys=(Key("PRIMARY", ("k",), unique=True, primary=True),))
    kind = pa.struct(list(table.arrow))
    before = pa.array([None, {"id": 1, "k": 2}, {"id": 1, "k": 3}, {"id": 9, "k": 9}], kind)
    after = pa.array([{"id": 1, "k": 2}, {"id": 1, "k": 3}, {"id": 2, "k": 3}, None], kind)
    lsns = pa.array([Lsn(0, 1, n).to_bytes() for n in range(4)], pa.binary(Lsn.SIZE))
    ops = pa.array([int(op) for op in (Op.INSERT, Op.UPDATE, Op.UPDATE, Op.DELETE)], pa.int8())
    keys = changed_keys(ChangeBatch.of(table, lsns, ops, before, after))
    assert sorted(keys.to_pylist(), key=lambda key: key["k"]) == [{"k": 2}, {"k": 3}, {"k": 9}]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {"a": None, "b": None}),
        ("2024-05-01T08:00:00Z", dict.fromkeys("ab", datetime(2024, 5, 1, 8, tzinfo=UTC))),
        ("2024-05-01 08:00:00", dict.fromkeys("ab", datetime(2024, 5, 1, 8, tzinfo=UTC))),
        ("2024-05-01T08:00:00+02:00", dict.fromkeys("ab", datetime(2024, 5, 1, 6, tzinfo=UTC))),
        ("2024-05-01T08:00:00.7", dict.fromkeys("ab", datetime(2024, 5, 1, 8, tzinfo=UTC))),
        ("2024-05-01", dict.fromkeys("ab", datetime(2024, 5, 1, tzinfo=UTC))),
        ("b:0000.0000000001.000000000004.0000000000", {"a": None, "b": Lsn(0, 1, 4)}),
        ("a:2024-05-01", {"a": datetime(2024, 5, 1, tzinfo=UTC), "b": None}),
    ],
)
def test_a_time_is_meant_for_all_sources_and_is_utc_without_a_zone(text: str, expected: dict[str, Any]) -> None:
    assert rewinds_of(["a", "b"], text) == expected


@pytest.mark.parametrize(
    ("text", "code", "part"),
    [
        ("0000.0000000001.000000000004.0000000000", "rewind-place", "--rewind-to a:0000.0000000001"),
        ("9999-01-01", "rewind-place", "a time such as"),
        ("yesterday", "bad-value", "a time such as"),
        ("2024-13-01", "bad-value", "a time such as"),
        ("bin.000001:4", "bad-value", "an Lsn, a time"),
        ("0-1-7", "bad-value", "an Lsn, a time"),
        ("c:2024-05-01", "unknown-name", "Name one of a, b"),
    ],
)
def test_any_other_text_is_refused_with_the_forms(text: str, code: str, part: str) -> None:
    with pytest.raises(ConfigError) as refused:
        rewinds_of(["a", "b"], text)
    assert refused.value.code == code
    assert part in refused.value.todo


def test_changes_that_only_one_worker_has_applied_are_sent_again(task: Task) -> None:
    task.sql("CREATE TABLE t (id INT PRIMARY KEY, a INT)", "INSERT INTO t VALUES (1, 1), (2, 2)")
    start = task.end()
    task.sql("UPDATE t SET a = 9 WHERE id = 1")
    task.apply_all()
    task.sql("UPDATE t SET a = 9 WHERE id = 2")
    with closing(task.config.target.server.connect()) as target:
        (row,) = target.meta.checkpoints.read(task.config.name, "s")
        row = target.meta.checkpoints.claim(task.config.name, "s", 2, row)[0]
        target.begin()
        target.meta.checkpoints.save(replace(row, worker=1, lsn=task.end(), batch=row.batch + 1))
        target.commit()
    task.start(start, replace(task.config, workers=2))
    assert sorted(key["id"] for key in task.keys("t")) == [1, 2]


def test_an_xa_transaction_that_was_prepared_in_an_earlier_file(task: Task) -> None:
    begin = ("XA START 'y'", "UPDATE t SET a = 5 WHERE id = 1", "XA END 'y'", "XA PREPARE 'y'")
    task.sql("CREATE TABLE t (id INT PRIMARY KEY, a INT)", "INSERT INTO t VALUES (1, 1), (2, 2)", *begin)
    task.sql("FLUSH BINARY LOGS", "XA COMMIT 'y'")
    start = task.end()
    task.sql("UPDATE t SET a = 9 WHERE id = 2")
    task.apply_all()
    with pytest.raises(ConfigError, match="an XA transaction was prepared there") as caught:
        task.start(start)
    assert caught.value.code == "rewind-place"
