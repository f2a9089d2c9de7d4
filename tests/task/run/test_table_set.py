"""At a task's start, tables join it, leave it or are copied again, and the target's records show this afterwards."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from structlog.testing import capture_logs
from tests.forked_programs import LoadedPrograms
from tests.replicated_pair import NO_GTIDS, promote, replicated_pair, wait
from tests.running import connect as plain_connect

from pidts.apply.claim import claim_workers
from pidts.apply.unseen_tables import unseen_tables
from pidts.batch.workers import Workers
from pidts.follow.client import RelayServerAddress
from pidts.model import (
    Checkpoint,
    ConfigError,
    Cutover,
    CutoverStage,
    Fenced,
    Halt,
    Halted,
    Lsn,
    MissedChangesKey,
    PrecheckFailed,
    SourceTablesKey,
    Table,
    TableName,
    Transaction,
    Transient,
    Xa,
    XaStep,
    xa_not_received,
)
from pidts.plan import CopyMode, CopyState, Phase, PlanState
from pidts.relay import RelayReader
from pidts.relay.reader import OWN_RELAY
from pidts.relay.task_needs import TaskNeed, forget_need
from pidts.rules import AllowList, Rules
from pidts.sandbox import Server, start_mariadb, start_mysql56, start_mysql97
from pidts.schema.online.names import SHADOW, TRASH
from pidts.source import Session, connect, position, read_structures
from pidts.source.connection import hang_up
from pidts.source.position import log_end
from pidts.target.postgres.meta import PostgresCheckpoints
from pidts.task.checks.all_sources import lost_log_findings
from pidts.task.checks.circles.passed_check import is_checked
from pidts.task.checks.source import check_one_source
from pidts.task.checks.task_records import record_source
from pidts.task.config.current_server import address_of, choose_server
from pidts.task.config.relay_origin import RelayOrigin
from pidts.task.config.task_file import TaskConfig, load_task
from pidts.task.operate.log_loss import LogLoss, find_loss, loses_log, loss_from, with_loss_explained
from pidts.task.operate.presence import show_presence
from pidts.task.operate.status import task_status
from pidts.task.run import start, table_set
from pidts.task.run.attempt.next_attempt import NextAttempt
from pidts.task.run.attempts import Attempts
from pidts.task.run.read_structures import LogPoint, StructureReader
from pidts.task.run.replicator_process import ReplicatorProcess
from pidts.task.run.start import StartState, begin_task
from pidts.task.run.table_set import StartRequest
from pidts.task.tables import rule_changes
from pidts.task.tables.copy_start import Patterns

RunSql = Callable[..., list[tuple[Any, ...]]]


@dataclass
class Task:
    """A task without Spark: its starts, and its records on the target."""

    config: TaskConfig
    source: Server
    target: Server
    schema: str
    run_sql: RunSql
    programs: LoadedPrograms
    replicators: list[ReplicatorProcess] = field(default_factory=list)
    """The replicators that were started. The last one continues to run between the starts of the task."""

    def sql(self, *statements: str) -> None:
        for statement in statements:
            self.run_sql(self.source, statement, database=self.schema)

    def there(self, statement: str) -> list[tuple[Any, ...]]:
        return self.run_sql(self.target, statement, database=self.schema)

    def name(self, table: str) -> TableName:
        return TableName(self.schema, table)

    def follow(self, *tables: str) -> None:
        pairs = tuple((self.schema, table) for table in tables)
        self.config = replace(self.config, rules=Rules(allow=AllowList(do_tables=pairs)))

    def start(self, resync: Patterns = None, *, sent: list[str] | None = None, **wanted: Any) -> StartState:
        """Starts the task. Puts the statements that the start sends to the source into `sent`."""
        if not self.replicators:
            self.replicators.append(self.replicator())
        with (
            closing(connect(self.config.source.server)) as source,
            closing(self.config.target.server.connect()) as target,
        ):
            asked = StartRequest(resync, **wanted)
            if sent is not None:
                send = source.query
                source.query = lambda sql, *more: (sent.append(str(sql)), send(sql, *more))[1]
            return begin_task(self.config, source, target, self.replicators[-1], threading.Event(), asked)

    def replicator(self) -> ReplicatorProcess:
        return ReplicatorProcess(self.config, forker=self.programs.replicators)

    def stop(self) -> None:
        while self.replicators:
            self.replicators.pop().stop()

    def state(self) -> PlanState:
        """Returns the checkpoint, which is the same for all workers."""
        with closing(self.config.target.server.connect()) as target:
            stored = target.meta.checkpoints.read(self.config.name, "s")
        assert len(stored) == 2
        assert len({row.copy for row in stored}) == 1
        return Workers.claimed(tuple(stored))[1]

    def structures(self) -> set[str]:
        with closing(self.config.target.server.connect()) as target:
            return {name.name for name in target.meta.structures.load(self.config.name, SourceTablesKey("s"))}

    def make(self, table: str, row: str = "") -> None:
        """Runs a statement on the target, as another program does."""
        self.there(f'CREATE SCHEMA IF NOT EXISTS "{self.schema}"')
        self.there(f'CREATE TABLE "{self.schema}".{table} (id integer PRIMARY KEY, a integer)')
        if row:
            self.there(f'INSERT INTO "{self.schema}".{table} VALUES ({row})')


def make_task(
    folder: Path, source: Server, target: Server, schema: str, run_sql: RunSql, programs: LoadedPrograms
) -> Task:
    path = folder / "task.yaml"
    kind = f"type: postgresql, database: {schema}" if target.kind == "postgres" else "type: mysql"
    path.write_text(f"""\
name: {schema}
task-mode: all
target-database: {{{kind}, host: {target.host}, port: {target.port}, user: {target.user},
  password: "{target.password}"}}
mysql-instances:
  - source-id: s
    from: {{host: {source.host}, port: {source.port}, user: {source.user}, password: "{source.password}"}}
    syncer-thread: 2
pidts: {{relay: relay}}
""")
    task = Task(load_task(path), source, target, schema, run_sql, programs)
    task.follow("t")
    task.sql("CREATE TABLE t (id INT PRIMARY KEY, a INT)", "INSERT INTO t VALUES (1, 1)")
    return task


@pytest.fixture
def task(
    tmp_path: Path, mariadb: Server, postgres: Server, database: str, run_sql: RunSql, programs: LoadedPrograms
) -> Iterator[Task]:
    made = make_task(tmp_path, mariadb, postgres, database, run_sql, programs)
    yield made
    made.stop()


def test_a_first_start_refuses_tables_that_hold_rows_and_says_how_to_empty_them(task: Task) -> None:
    task.make("t", "5, 5")
    with pytest.raises(PrecheckFailed, match="it already has rows on the target") as caught:
        task.start()
    assert "TRUNCATE" in caught.value.todo
    task.there(f'TRUNCATE "{task.schema}".t')
    task.start()


def login_of(server: Server) -> dict[str, Any]:
    return {"host": server.host, "port": server.port, "user": server.user, "password": server.password}


@pytest.fixture
def to_mysql(
    tmp_path: Path, mariadb: Server, mysql97: Server, database: str, run_sql: RunSql, programs: LoadedPrograms
) -> Iterator[Task]:
    """A task without a copy, to a server that another task may read."""
    made = make_task(tmp_path, mariadb, mysql97, database, run_sql, programs)
    made.there("CREATE TABLE t (id INT PRIMARY KEY, a INT)")
    made.config = replace(made.config, mode="incremental")
    yield made
    made.stop()


def test_after_a_cutover_the_relay_is_not_applied_before_the_source_was_asked(to_mysql: Task) -> None:
    """A way back may have run. The relay may hold its changes, for example after a start that was refused.

    Every cutover claims the task, also one that an earlier version has undone, or whose record was deleted by hand.
    """
    task = to_mysql
    away = Transient("source-lost", "gone")

    def resume(**changes: Any) -> StartState:
        config = replace(task.config, **changes)
        with closing(task.config.target.server.connect()) as target:
            return begin_task(config, away, target, task.replicators[-1], threading.Event(), StartRequest())

    first = task.start().checkpoints[0].epoch
    assert [resume().checkpoints[0].epoch - first for _ in range(2)] == [1, 2]
    with closing(task.config.target.server.connect()) as target:
        rows = target.meta.checkpoints.read(task.config.name, "s")
        claim_workers(target, task.config.name, "s", len(rows), rows[0])
    task.stop()
    task.replicators.append(task.replicator())
    with capture_logs() as logs, pytest.raises(Transient, match="gone"):
        resume()
    assert "the log in the relay is not applied" in str(logs)
    assert task.replicators[-1].resume_at is None, "the relay is not filled"
    assert resume(ignored_checks=("circular_replication",)).checkpoints[0].epoch - first == 4, (
        "the last claim was the third"
    )
    with pytest.raises(Transient, match="gone"):
        resume()
    task.start()
    resume()


def test_a_start_whose_source_is_lost_after_the_claim_lets_the_relay_be_applied(to_mysql: Task) -> None:
    """No cutover has claimed the task since the last check, so no way back can have run."""
    config, request = to_mysql.config, StartRequest()
    to_mysql.start()
    replicator = to_mysql.replicators[-1]

    def start(source: Session | Transient, on_claim: Callable[[int], None] = lambda _: None) -> StartState:
        with closing(config.target.server.connect()) as target:
            return begin_task(config, source, target, replicator, threading.Event(), request, (), on_claim)

    source = connect(config.source.server)
    with pytest.raises(Transient):
        start(source, lambda _: hang_up(source))
    assert start(Transient("source-lost", "gone")).checkpoints


def test_a_first_start_before_the_switch_of_a_way_back_leaves_no_checkpoint(to_mysql: Task) -> None:
    """Otherwise a corrected start in the task file would have no effect, and the task would be refused again."""
    task, back = to_mysql, f"back_{to_mysql.schema}"
    with closing(connect(task.config.source.server)) as source:
        start, structures = log_end(source), read_structures(source, task.config.allow)
        task.sql("INSERT INTO t VALUES (7, 7)")
        switch = log_end(source)
    way = replace(
        task.config,
        name=back,
        source=replace(task.config.source, server=replace(task.config.source.server, **login_of(task.target))),
        target=replace(task.config.target, **login_of(task.source)),
    )
    record = Cutover(stage=CutoverStage.DONE, position=str(switch), done_at=time.time())
    with closing(way.target.server.connect()) as there, closing(connect(way.source.server)) as source:
        there.meta.prepare()
        there.meta.checkpoints.claim(back, "s", 1, Checkpoint(task=back, source="s", worker=0, lsn=Lsn.at(start)))
        there.meta.structures.save(back, SourceTablesKey("s"), Lsn.at(start), structures)
        rule_changes.record_rules(way, there)
        record_source(way, source, there)
        assert there.meta.cutovers.replace(back, None, record)
    try:
        task.config = replace(task.config, source=replace(task.config.source, start=start))
        with pytest.raises(PrecheckFailed, match="the start in this task's file"):
            task.start()
        with closing(task.config.target.server.connect()) as target:
            assert target.meta.checkpoints.read(task.config.name, "s") == []
        task.stop()
        task.config = replace(task.config, source=replace(task.config.source, start=switch))
        assert {row.position for row in task.start().checkpoints} == {str(switch)}
    finally:
        for table in ("checkpoint", "note", "cutover"):
            task.sql(f"DELETE FROM pidts_meta.{table} WHERE task = '{back}'")


def test_a_first_start_by_gtid_is_refused_if_its_relay_begins_elsewhere(to_mysql: Task) -> None:
    """The relay may be that of another task, or of a former life of the task. Its beginning is not the given place."""
    task = to_mysql

    def first_start(gtids: str) -> list[str]:
        task.stop()
        task.there(f"DELETE FROM pidts_meta.checkpoint WHERE task = '{task.config.name}'")
        task.config = replace(task.config, source=replace(task.config.source, start=gtids))
        return [row.gtid for row in task.start().checkpoints]

    with closing(task.config.target.server.connect()) as target:
        target.meta.prepare()
    with closing(connect(task.config.source.server)) as source:
        _, earlier = position(source)
        task.sql("INSERT INTO t VALUES (7, 7)")
        _, later = position(source)
    assert {*first_start(earlier)} == {earlier}
    with pytest.raises(Halted, match="its relay already has log, which begins after the GTIDs") as caught:
        first_start(later)
    assert caught.value.code == "relay-start"
    assert {*first_start(earlier)} == {earlier}, "the relay begins there"


def test_a_first_start_is_not_checked_before_it_has_passed(to_mysql: Task) -> None:
    """Otherwise it might be refused after its claim, and continue later without its source."""
    config, request = to_mysql.config, StartRequest()
    to_mysql.replicators.append(to_mysql.replicator())
    with closing(connect(config.source.server)) as source, closing(config.target.server.connect()) as target:

        def claims(epoch: int) -> None:
            assert not is_checked(config, target, target.meta.checkpoints.read(config.name, "s"))

        begin_task(config, source, target, to_mysql.replicators[-1], threading.Event(), request, (), claims)
        assert is_checked(config, target, target.meta.checkpoints.read(config.name, "s"))


def test_a_table_that_is_dropped_between_a_first_start_and_its_repetition_is_not_on_record(
    task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    task.sql("CREATE TABLE k (id INT PRIMARY KEY)")
    task.follow("t", "k")
    with monkeypatch.context() as patch:
        patch.setattr(PostgresCheckpoints, "claim", killed)
        with pytest.raises(KeyboardInterrupt):
            task.start()
    assert task.structures() == {"t", "k"}
    task.sql("DROP TABLE k")
    task.start()
    assert task.structures() == {"t"}


def test_a_checkpoint_that_was_set_back_by_hand_is_continued_only_with_a_new_copy(task: Task) -> None:
    task.sql("CREATE TABLE k (a INT)")
    task.follow("t", "k")
    task.start()
    table = "UPDATE pidts_meta.checkpoint SET"
    task.there(f"{table} copy_progress = regexp_replace(copy_progress, '\"digest\": \"[0-9a-f]+\", ', '')")
    task.start()  # The record is one that the previous version has left.
    lsn = task.state().lsn
    task.there(f"{table} lsn = '{replace(lsn, offset=4)}'")
    for resync in (None, ("t",)):
        with pytest.raises(Halted, match="checkpoint-altered"):
            task.start(resync=resync)
    assert "changed by hand" in task.start(resync=()).notes[-1]
    assert task.state().lsn >= lsn
    for garbage in ("lsn = 'x'", "lsn = ''", "copy_progress = 'x'", "copy_progress = '5'", "log_position = 'x'"):
        task.there(f"{table} {garbage}")
        with pytest.raises(Halted, match="checkpoint-altered"):
            task.start()
        assert "changed by hand" in task.start(resync=()).notes[-1]
    assert task.state().lsn >= lsn
    assert {name.name for name in task.state().copy} == {"t", "k"}
    task.start()


def test_a_table_that_the_rules_let_pass_joins_after_what_was_applied(task: Task) -> None:
    task.sql("CREATE TABLE u (id INT PRIMARY KEY, a INT, KEY (a))", "INSERT INTO u VALUES (1, 1)")
    task.sql("CREATE TABLE k (a INT)")
    first = task.start()
    assert first.joined == ()
    (begun,) = task.state().copy.items()
    assert begun == (task.name("t"), CopyState(estimate=1, row_bytes=begun[1].row_bytes))
    task.sql("ALTER TABLE u ADD b INT", "INSERT INTO u VALUES (2, 2, 2)")
    task.follow("t", "u", "k")
    begun = task.start()
    assert begun.joined == (task.name("k"), task.name("u"))
    state = task.state()
    assert [state.copy[name].since is None for name in sorted(state.copy)] == [False, True, False]
    joined = state.copy[task.name("u")]
    assert joined.since is not None
    assert joined.since > state.lsn
    assert (joined.mode, joined.phase, joined.keyless) == (CopyMode.NEW, Phase.ROWS, False)
    assert state.copy[task.name("k")].keyless
    assert begun.structures[task.name("u")].arrow.names == ["id", "a", "b"]
    indexes = "SELECT count(*) FROM pg_indexes WHERE tablename = 'u'"
    assert task.there(indexes) == [(1,)], "keys that are faster made afterwards are not there yet"
    assert task.start().joined == ()
    assert task.state().copy[task.name("u")] == joined


def test_a_later_start_without_new_tables_reads_only_the_names(task: Task) -> None:
    """A task may have 20,000 tables, and the check before the start has read their structures."""
    task.start()
    sent: list[str] = []
    task.start(sent=sent)
    assert sent
    task.start(sent=sent, resync=("*.t",))
    assert not [sql for sql in sent if "SELECT * FROM information_schema.columns" in sql or "SHOW INDEX" in sql]
    task.sql("CREATE TABLE u (id INT PRIMARY KEY)")
    task.follow("t", "u")
    task.start(sent=sent)
    assert [sql for sql in sent if "SELECT * FROM information_schema.columns" in sql]


def test_created_tables_come_by_the_log_and_renamed_ones_join(task: Task) -> None:
    task.follow("t", "w", "n", "made", "like_t", "like_x")
    task.sql("CREATE TABLE x (id INT PRIMARY KEY, a INT)", "INSERT INTO x VALUES (1, 1)")
    task.start()
    task.sql(
        "CREATE TABLE made (id INT PRIMARY KEY)",
        "CREATE TABLE like_t LIKE t",
        "CREATE TABLE like_x LIKE x",
        "RENAME TABLE t TO w, x TO n",
    )
    begun = task.start()
    assert begun.joined == (task.name("like_x"), task.name("n"))
    assert task.structures() == {"t", "like_x", "n"}
    assert task.start().joined == ()


def test_a_table_whose_name_another_one_has_taken_begins_anew_and_so_does_what_became_of_it(task: Task) -> None:
    task.follow("t", "old")
    task.start()
    task.there(f'INSERT INTO "{task.schema}".t VALUES (1, 1)')
    task.sql("CREATE TABLE new (id INT PRIMARY KEY, a INT)", "RENAME TABLE t TO old, new TO t")
    begun = task.start(renames=True)
    assert begun.joined == (task.name("old"), task.name("t"))
    copy = task.state().copy
    assert copy[task.name("t")].mode is CopyMode.REPAIR, "its rows are those of another table"
    assert copy[task.name("old")].mode is CopyMode.NEW
    assert task.start(renames=True).joined == ()


def test_rows_of_a_table_that_was_dropped_again_are_skipped(task: Task) -> None:
    task.sql("CREATE TABLE x (id INT PRIMARY KEY)")
    task.start()
    task.follow("t", "gone")
    task.sql("RENAME TABLE x TO gone", "INSERT INTO gone VALUES (1)", "DROP TABLE gone")
    begun = task.start(unknown=frozenset({f"{task.schema}.gone"}))
    assert begun.joined == (task.name("gone"),)
    state = task.state().copy[task.name("gone")]
    assert (state.phase, state.since is None) == (Phase.FINISH, False)
    assert task.structures() == {"t"}
    assert not any("does not see" in note for note in begun.notes), "its DROP is in the log"


def test_a_task_whose_checkpoint_was_deleted_is_copied_again_if_a_person_asks(task: Task) -> None:
    task.start()
    task.there(f'INSERT INTO "{task.schema}".t VALUES (7, 7)')
    task.there(f"DELETE FROM pidts_meta.checkpoint WHERE task = '{task.config.name}'")
    command = f"pidts run {task.config.path} --resync"
    with pytest.raises(PrecheckFailed, match="it already has rows on the target") as caught:
        task.start()
    assert (
        f"If the rows are this task's, compare them with the source's and repair them: {command}" in caught.value.todo
    )
    assert "This removes rows that the source lacks" in caught.value.todo
    (found,) = [one for one in check_one_source(task.config) if not one.ok]
    assert command in found.fix
    assert all(one.ok for one in check_one_source(task.config, ()) if one.item == "target_tables")
    task.start(resync=())
    assert task.state().copy[task.name("t")].mode is CopyMode.REPAIR


@pytest.mark.parametrize("worker", [0, 1])
def test_a_task_that_lacks_the_checkpoint_of_one_worker_begins_only_with_a_new_copy(task: Task, worker: int) -> None:
    task.start()
    task.there(f"DELETE FROM pidts_meta.checkpoint WHERE task = '{task.config.name}' AND worker = {worker}")
    with pytest.raises(Halted, match=f"has no checkpoint of worker {worker} of task") as caught:
        task.start()
    assert caught.value.code == "checkpoint-deleted"
    task.start(resync=())
    assert {one.mode for one in task.state().copy.values()} <= {CopyMode.REPAIR, CopyMode.NEW}
    task.config = replace(task.config, workers=1)
    task.start()
    task.start()


def test_an_incremental_task_whose_checkpoint_was_deleted_does_not_begin_later_without_a_word(task: Task) -> None:
    task.start()
    task.config = replace(task.config, mode="incremental")
    task.there(f"DELETE FROM pidts_meta.checkpoint WHERE task = '{task.config.name}'")
    with pytest.raises(PrecheckFailed, match="cannot copy tables again") as caught:
        task.start(resync=())
    assert "Write task-mode: all" in caught.value.todo
    assert any("no checkpoint" in note for note in task.start().notes)
    assert task.start().notes == (), "now it has a checkpoint"


def test_a_start_does_not_warn_of_tables_that_were_dropped_with_their_database(task: Task) -> None:
    task.start()
    task.follow("t", "gone")
    task.sql("CREATE TABLE gone (id INT PRIMARY KEY)", f"DROP DATABASE {task.schema}")
    task.run_sql(task.source, f"CREATE DATABASE {task.schema}")
    begun = task.start(unknown=frozenset({f"{task.schema}.gone"}))
    assert begun.joined == (task.name("gone"),)
    assert not any("does not see" in note for note in begun.notes)


def test_a_change_that_arrives_while_the_status_is_read_is_not_after_the_end_of_the_log(task: Task) -> None:
    task.start()

    def connect_later() -> Any:
        """Takes a while. A change that the task could apply before the status is read comes at the end of this time."""
        time.sleep(0.5)
        task.sql("CREATE TABLE late (id INT PRIMARY KEY)")
        return spec.server.connect()

    spec = task.config.target
    target: Any = SimpleNamespace(**{name: getattr(spec, name) for name in dir(spec) if name[0] != "_"})
    target.server = SimpleNamespace(connect=connect_later)
    (found,) = task_status([replace(task.config, target=target)]).sources
    assert found.log is not None
    with closing(connect(task.config.source.server)) as source:
        assert found.log.end.position == log_end(source)


def test_a_start_warns_of_a_table_of_the_log_that_the_account_does_not_see(task: Task) -> None:
    """An account sees only the tables that it may read. Nobody would notice that the other tables' rows are missing."""
    task.start()
    task.follow("t", "hidden")
    with capture_logs() as lines:
        begun = task.start(unknown=frozenset({f"{task.schema}.hidden"}))
    (note,) = (note for note in begun.notes if "does not see" in note)
    assert "pidts grants" in note
    assert f"--resync {task.schema}.hidden" in note
    (line,) = (line for line in lines if line.get("table") == f"{task.schema}.hidden")
    assert line["log_level"] == "warning"

    def unseen() -> tuple[TableName, ...]:
        (found,) = task_status([task.config]).sources
        return found.unseen

    task.start()
    assert unseen() == (task.name("hidden"),)
    task.sql("CREATE TABLE hidden (id INT PRIMARY KEY)")
    task.start(resync=(f"{task.schema}.hidden",), unknown=frozenset({f"{task.schema}.hidden"}))
    assert unseen() == (), "the task has the table now"
    with closing(task.config.target.server.connect()) as target:
        assert unseen_tables(target, task.config.name, "s") == [], "a later DROP does not bring the name back"


def test_a_table_that_leaves_is_forgotten_and_has_to_be_copied_when_it_comes_back(task: Task) -> None:
    task.sql("CREATE TABLE u (id INT PRIMARY KEY, a INT)")
    task.follow("t", "u")
    task.start()
    task.there(f'INSERT INTO "{task.schema}".u VALUES (1, 1)')
    task.follow("t")
    assert task.start().notes == (f"{task.schema}.u leaves the task, its rows stay on the target",)
    assert task.structures() == {"t"}
    assert set(task.state().copy) == {task.name("t")}
    task.follow("t", "u")
    with pytest.raises(Halted, match="already has rows on the target") as caught:
        task.start()
    assert caught.value.code == "target-shape"
    assert "TRUNCATE" not in caught.value.todo
    assert f"--resync s:{task.schema}.u " in caught.value.todo
    assert task.structures() == {"t"}
    joined = task.start(resync=("*.u",))
    assert joined.joined == (task.name("u"),)
    assert "rows that the source does not have are removed from the target" in joined.notes[-1]
    assert task.state().copy[task.name("u")].mode is CopyMode.REPAIR
    # The task leaves out the log of a joining table up to now: its rows may not fit the recorded structure. It leaves
    # out no log of a table that is only copied again.
    since = task.state().copy[task.name("u")].since
    assert since is not None
    task.start(resync=("*.t",))
    assert task.state().copy[task.name("t")].since is None


def test_a_start_that_dies_between_making_a_table_and_remembering_it_is_made_good(
    task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    task.sql("CREATE TABLE u (id INT PRIMARY KEY, a INT)")
    task.start()
    task.follow("t", "u")

    def die(*_: object) -> CopyState:
        raise Transient("target-lost", "gone")

    with monkeypatch.context() as patched:
        patched.setattr(table_set, "copy_states", die)
        with pytest.raises(Transient):
            task.start()
    assert task.there(f"SELECT count(*) FROM pg_tables WHERE schemaname = '{task.schema}'") == [(2,)]
    assert task.structures() == {"t"}
    assert task.start().joined == (task.name("u"),)
    assert task.structures() == {"t", "u"}


def test_a_run_that_was_taken_over_changes_nothing(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    task.sql("CREATE TABLE u (id INT PRIMARY KEY, a INT)")
    task.start()
    task.follow("t", "u")
    real = table_set.copy_states

    def taken_over(*given: Any) -> dict[TableName, CopyState]:
        with closing(task.config.target.server.connect()) as other:
            other.meta.checkpoints.claim(
                task.config.name, "s", 2, other.meta.checkpoints.read(task.config.name, "s")[0]
            )
        return real(*given)

    with monkeypatch.context() as patched:
        patched.setattr(table_set, "copy_states", taken_over)
        with pytest.raises(Fenced):
            task.start()
    assert task.structures() == {"t"}
    assert set(task.state().copy) == {task.name("t")}


def test_tables_are_copied_once_more_while_their_log_flows_on(task: Task) -> None:
    task.sql("CREATE TABLE u (id INT PRIMARY KEY, a INT)", "CREATE TABLE v (id INT PRIMARY KEY, a INT)")
    task.follow("t", "u", "v")
    task.start()
    task.there(f'INSERT INTO "{task.schema}".u VALUES (1, 1)')
    with pytest.raises(ConfigError, match="other"):
        task.start(resync=("*.u", "*.other"))
    lsn = task.state().lsn
    begun = task.start(resync=("*.u", "*.v"))
    assert begun.notes[0] == f"{task.schema}.u, {task.schema}.v are copied again"
    assert [note for note in begun.notes[1:] if f"overwrite those of {task.schema}.u, and" in note], "v has no rows"
    state = task.state()
    assert {name.name: (one.mode, one.since) for name, one in state.copy.items()} == {
        "t": (CopyMode.NEW, None),
        "u": (CopyMode.REPAIR, None),
        "v": (CopyMode.NEW, None),
    }
    assert state.lsn == lsn
    task.there(f'ALTER TABLE "{task.schema}".u DROP a')
    with pytest.raises(Halted, match="lacks column a"):
        task.start(resync=())


def refuse_rows(task: Task, *later: str) -> TableName:
    """Lets the table `u` halt because the target has refused its rows; then the source runs the later statements."""
    task.sql("CREATE TABLE u (id INT PRIMARY KEY, a INT)")
    task.follow("t", "u")
    task.start()
    task.there(f'INSERT INTO "{task.schema}".u VALUES (1, 1)')
    task.sql("INSERT INTO u VALUES (1, 1), (2, 2)", *later)
    name = task.name("u")
    record_refusal(task, name)
    return name


def record_refusal(task: Task, name: TableName, code: str = "target-refused") -> None:
    halt = Halt(tables=(name,), lsn=task.state().at(name), code=code, what="no")
    with closing(task.config.target.server.connect()) as target:
        target.meta.halts.save(task.config.name, "s", halt)


def test_a_table_whose_rows_are_refused_is_copied_from_a_place_after_them(task: Task) -> None:
    name = refuse_rows(task, "UPDATE u SET a = 3 WHERE id = 2")
    missed_changes = {name: Table(name, ()) for name in (task.name("t"), task.name("u"))}
    with closing(task.config.target.server.connect()) as target:
        for place in range(2):
            target.begin()
            lsn = task.state().lsn
            target.meta.structures.save(task.config.name, MissedChangesKey("s", place), lsn, missed_changes)
            target.commit()
    begun = task.start(resync=("*.u",))
    assert begun.joined == (name,)
    assert begun.notes[0].startswith(f"{name} is copied again: the task reads its present structure, skips")
    state = task.state()
    since = state.copy[name].since
    assert since is not None
    assert since > state.lsn, "what the log had up to now is left out"
    assert (state.copy[name].mode, state.at(name)) == (CopyMode.REPAIR, state.lsn)
    with closing(task.config.target.server.connect()) as target:
        left = [set(target.meta.structures.load(task.config.name, MissedChangesKey("s", place))) for place in range(2)]
    assert left == [{task.name("t")}] * 2, "it begins behind whatever other shards have made without it"


def test_only_the_changes_before_the_next_schema_change_of_the_table_are_left_out(
    task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = refuse_rows(
        task,
        "ALTER TABLE t ADD x INT",
        "INSERT INTO u VALUES (3, 3)",
        "ALTER TABLE u ADD b INT",
        "UPDATE u SET a = 3 WHERE id = 2",
        "ALTER TABLE u ADD c INT",
    )
    lsn = task.state().lsn
    with monkeypatch.context() as dies:
        dies.setattr(table_set, "settle_missed", lambda *_: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            task.start(resync=("*.u",))
    assert task.state().copy[name].since is None
    begun = task.start(resync=("*.u",))
    with closing(RelayReader(task.config.relay, "s")) as relay:
        assert relay.received is not None
        changes = [one for one in relay.schema_changes(lsn, relay.received) if one.ddl and " u " in one.ddl]
    assert [one.ddl for one in changes] == ["ALTER TABLE u ADD b INT", "ALTER TABLE u ADD c INT"]
    assert begun.joined == ()
    assert [column.name for column in begun.structures[name].columns] == ["id", "a"]
    skips = (
        f"{name} is copied again: the task skips its changes before its next schema change, runs ALTER TABLE u ADD b "
    )
    assert begun.notes[0].startswith(f"{skips}INT (at ")
    assert begun.notes[0].endswith(") and 1 later schema change, and then copies all its rows")

    def is_before_the_change() -> bool:
        state = task.state()
        copy = state.copy[name]
        return (copy.since, copy.mode, state.at(name)) == (changes[0].prev_lsn, CopyMode.REPAIR, lsn)

    assert is_before_the_change()
    task.start()
    assert is_before_the_change()
    with closing(task.config.target.server.connect()) as target:
        target.meta.halts.resolve(task.config.name, "s")
    task.start(resync=("*.u",))
    assert is_before_the_change(), "another copy leaves out the same changes"


def test_a_target_table_with_the_present_structure_joins_after_the_schema_change(task: Task) -> None:
    name = refuse_rows(task, "ALTER TABLE u CHANGE a b INT")
    task.there(f'ALTER TABLE "{task.schema}".u RENAME a TO c')
    with pytest.raises(Halted, match=r"lacks column b\. .* has run: ALTER TABLE u CHANGE a b INT \(at .*:\d+\)"):
        task.start(resync=("*.u",))
    task.there(f'ALTER TABLE "{task.schema}".u RENAME c TO b')
    begun = task.start(resync=("*.u",))
    assert begun.joined == (name,)
    assert [column.name for column in begun.structures[name].columns] == ["id", "b"]


def test_a_table_that_was_altered_outside_the_log_joins_anew_whatever_statement_comes_later(task: Task) -> None:
    name = refuse_rows(task, "SET STATEMENT sql_log_bin = 0 FOR ALTER TABLE u ADD b INT", "ALTER TABLE u ADD c INT")
    record_refusal(task, name, "changed-outside-log")
    task.there(f'ALTER TABLE "{task.schema}".u ADD b integer')
    with pytest.raises(Halted, match="lacks column c") as caught:
        task.start(resync=("*.u",))
    assert "before these statements" not in caught.value.todo, "the task would not run them"
    task.there(f'ALTER TABLE "{task.schema}".u ADD c integer')
    begun = task.start(resync=("*.u",))
    assert begun.joined == (name,)
    assert [column.name for column in begun.structures[name].columns] == ["id", "a", "b", "c"]
    since = task.state().copy[name].since
    assert since is not None
    assert since > task.state().lsn


def test_an_incremental_task_leaves_out_the_changes_with_the_refused_row(task: Task) -> None:
    task.sql("CREATE TABLE v (id INT PRIMARY KEY, a INT)")
    for table in ("t", "u", "v"):
        task.make(table)
    task.config = replace(task.config, mode="incremental")
    name = refuse_rows(task, "UPDATE u SET a = 3 WHERE id = 2")
    lsn = task.state().lsn
    begun = task.start(resync=("*.u",))
    assert begun.joined == ()
    assert begun.notes[0] == (
        f"{name} is copied again: the task skips its changes up to now, and then copies all its rows"
    )
    state = task.state()
    copy = state.copy[name]
    assert (copy.mode, state.at(name), state.lsn) == (CopyMode.REPAIR, lsn, lsn)
    assert copy.since is not None
    with closing(RelayReader(task.config.relay, "s")) as relay:
        assert relay.received is not None
        assert [
            entry.transaction.tables for entry in relay.entries(copy.since) if name in entry.transaction.tables
        ] == []
    task.sql("INSERT INTO u VALUES (3, 3)", "ALTER TABLE u ADD b INT", "INSERT INTO u VALUES (4, 4, 4)")
    record_refusal(task, name)
    begun = task.start(resync=("*.u",))
    skips = (
        f"{name} is copied again: the task skips its changes before its next schema change, runs ALTER TABLE u ADD b "
    )
    assert begun.notes[0].startswith(f"{skips}INT (at ")
    assert begun.notes[0].endswith("), and then copies all its rows")
    later = task.state().copy[name].since
    assert later is not None
    with closing(RelayReader(task.config.relay, "s")) as relay:
        (alter,) = relay.schema_changes(copy.since, relay.received or copy.since)
    assert copy.since < later == alter.prev_lsn


def test_an_incremental_task_copies_a_table_that_was_altered_outside_the_log_when_it_may_read_its_structure(
    task: Task,
) -> None:
    for table in ("t", "u"):
        task.make(table)
    task.config = replace(task.config, mode="incremental")
    name = refuse_rows(task, "SET STATEMENT sql_log_bin = 0 FOR ALTER TABLE u ADD b INT")
    record_refusal(task, name, "changed-outside-log")
    task.there(f'ALTER TABLE "{task.schema}".u ADD b integer')
    before = task.state()
    for asked in (("*.u",), ()):
        with pytest.raises(Halted, match="not in its log") as caught:
            task.start(resync=asked)
        assert caught.value.code == "changed-outside-log"
        assert f"Write task-mode: all into the task file, and copy the table again: pidts run {task.config.path} " in (
            caught.value.todo
        )
        assert f" --resync {name} " in caught.value.todo
    assert task.state() == before
    task.start(resync=("*.t",))
    task.config = replace(task.config, mode="all")
    begun = task.start(resync=(str(name),))
    assert begun.joined == (name,)
    assert [column.name for column in begun.structures[name].columns] == ["id", "a", "b"]
    task.config = replace(task.config, mode="incremental")
    assert [column.name for column in task.start().structures[name].columns] == ["id", "a", "b"]


@pytest.fixture
def purged(request: pytest.FixtureRequest) -> Iterator[Task]:
    """Yields a task whose source has purged the log after the task's checkpoint. Its source is MariaDB by default."""
    fixtures = ("tmp_path", "postgres", "database", "run_sql", "programs")
    tmp_path, postgres, database, run_sql, programs = map(request.getfixturevalue, fixtures)
    with getattr(request, "param", start_mariadb)() as source:
        run_sql(source, f"CREATE DATABASE {database}")
        task = make_task(tmp_path, source, postgres, database, run_sql, programs)
        task.follow("t", "u", "gone")
        task.sql("CREATE TABLE u (id INT PRIMARY KEY, a INT)", "CREATE TABLE gone (id INT PRIMARY KEY)")
        task.start()
        task.stop()
        task.there(f'INSERT INTO "{database}".t VALUES (7, 7)')
        task.sql("DROP TABLE gone", "INSERT INTO t VALUES (2, 2)", "FLUSH BINARY LOGS", "INSERT INTO t VALUES (3, 3)")
        last = run_sql(source, "SHOW BINARY LOGS")[-1][0]
        while run_sql(source, "SHOW BINARY LOGS")[0][0] != last:
            task.sql(f"PURGE BINARY LOGS TO '{last}'")  # This fails as long as the replicator's connection remains.
            time.sleep(0.1)
        yield task
        task.stop()
        source.kill()


def assert_lost(task: Task, code: str) -> None:
    """A check says that the log is gone, and what to do."""
    (found,) = lost_log_findings([task.config])
    assert (found.item, found.ok, found.code) == ("log_kept", False, code)
    assert f"[{code}] " in found.message
    assert f"pidts run {task.config.path} --resync" in found.fix


def test_a_check_finds_no_loss_while_the_relay_or_the_source_has_the_log(task: Task) -> None:
    assert lost_log_findings([task.config]) == [], "the task has not begun"
    task.start()
    for use_gtid in (False, True):
        config = replace(task.config, source=replace(task.config.source, use_gtid=use_gtid))
        assert lost_log_findings([config]) == []
    task.stop()
    assert lost_log_findings([task.config]) == []
    lose_relay(task)
    assert lost_log_findings([task.config]) == [], "the source still has it"
    task.there("UPDATE pidts_meta.checkpoint SET lsn = '0000.0000000001.000000000004.0000000000'")
    (altered,) = lost_log_findings([task.config])
    assert altered.code == "checkpoint-altered"


def test_a_check_finds_that_the_checkpoint_of_a_worker_was_deleted(task: Task) -> None:
    task.config = replace(task.config, workers=3)
    task.start()
    assert lost_log_findings([task.config]) == []
    task.there("DELETE FROM pidts_meta.checkpoint WHERE worker = 1")
    (found,) = lost_log_findings([task.config])
    assert (found.item, found.ok, found.code) == ("log_kept", False, "checkpoint-deleted")
    with pytest.raises(Halted, match="no checkpoint of worker 1"):
        task.start()


@pytest.mark.parametrize("purged", [start_mysql97], indirect=True)
@pytest.mark.parametrize("use_gtid", [False, True])
def test_a_check_of_a_mysql_source_finds_the_lost_log(purged: Task, *, use_gtid: bool) -> None:
    purged.config = replace(purged.config, source=replace(purged.config.source, use_gtid=use_gtid))
    assert_lost(purged, "position-lost")
    lose_relay(purged)
    assert_lost(purged, "position-lost")
    (found,) = lost_log_findings([purged.config])
    assert found.fix.startswith("If the task runs on another machine, run this check there.")
    with closing(purged.config.target.server.connect()) as session:
        show_presence(session, purged.config.name, "s")
        assert lost_log_findings([purged.config]) == [], "a run on another machine has its relay there"


def lose_relay(task: Task) -> None:
    for path in (task.config.relay / "s").glob("0*"):
        path.unlink()


def relay_begin(task: Task) -> Lsn:
    with closing(RelayReader(task.config.relay, "s")) as relay:
        assert relay.first is not None
        return relay.first


def test_a_log_that_is_lost_is_reported_and_all_tables_are_copied_from_a_new_position(purged: Task) -> None:
    task = purged
    before = task.state()
    with pytest.raises(Halted, match="position-lost"):
        run_until_it_halts(task)
    with closing(connect(task.config.source.server)) as source, closing(task.config.target.server.connect()) as target:
        loss = find_loss(task.config, source, target.meta.checkpoints.read(task.config.name, "s"))
        place, _ = position(source)
    assert loss is not None
    assert not loss.keeps_relay
    assert_lost(task, "position-lost")
    found = with_loss_explained(task.config, Halted("position-lost", "gone", todo="Mend it"), 1_000_000_000)
    assert f"{task.schema}.gone, {task.schema}.t, {task.schema}.u after " in found.what
    assert f" (2001-09-09 01:46:40 UTC) and before {place.file}:4 (20" in found.what
    assert found.todo.startswith(f"Copy the rows that may have changed, online: pidts run {task.config.path} --resync")
    with pytest.raises(Halted, match="all of them have to be copied") as caught:
        task.start(resync=("*.t",))
    assert caught.value.code == "position-lost"

    lose_relay(task)
    assert_lost(task, "position-lost")
    source_spec = replace(task.config.source, use_gtid=True)
    assert_lost(replace(task, config=replace(task.config, source=source_spec)), "position-lost")
    task.sql("ALTER TABLE u ADD b INT")
    with pytest.raises(Halted, match="lacks column b"):
        task.start(resync=())
    assert task.state() == before, "what is refused changes nothing"
    task.there(f'ALTER TABLE "{task.schema}".u ADD b integer')
    begun = task.start(resync=())
    assert f"the source has no table {task.schema}.gone any more, and its rows stay on the target" in begun.notes
    state = task.state()
    assert {name.name: one.mode for name, one in state.copy.items()} == {"t": CopyMode.REPAIR, "u": CopyMode.NEW}
    assert state.lsn.change_no == before.lsn.change_no + 1
    assert relay_begin(task) <= state.lsn
    assert task.structures() == {"t", "u"}
    assert task.there(f'SELECT * FROM "{task.schema}".t') == [(7, 7)], "nobody sees it empty"
    assert task.start().notes == ()
    assert task.state() == state


def test_after_a_lost_log_a_shard_has_missed_the_changes_that_it_had_not_reached(purged: Task) -> None:
    task = purged
    before = task.state()
    task.sql("ALTER TABLE u ADD b INT")
    task.there(f'ALTER TABLE "{task.schema}".u ADD b integer')
    names = [task.name(name) for name in ("t", "u", "gone")]
    with closing(connect(task.config.source.server)) as source, closing(task.config.target.server.connect()) as target:
        came = read_structures(source, task.config.allow)[task.name("u")]
        later = replace(came, columns=came.columns[:1])
        for place, step in enumerate((came, later)):
            target.begin()
            target.meta.structures.save(
                task.config.name, MissedChangesKey("s", place), before.lsn, dict.fromkeys(names, step)
            )
            target.commit()
    lose_relay(task)
    task.start(resync=())
    with closing(task.config.target.server.connect()) as target:
        left = [target.meta.structures.load(task.config.name, MissedChangesKey("s", place)) for place in range(2)]
    (t, u, _) = names
    assert {name: len(table.columns) for name, table in left[0].items()} == {t: 3, u: 1}, "u was where b came to it"
    assert set(left[1]) == {t}


def run_until_it_halts(task: Task) -> None:
    """Runs until the replicator reports the halt."""
    replicator = task.replicator()
    task.replicators.append(replicator)
    replicator.start()
    try:
        for _ in range(300):
            replicator.watch()
            time.sleep(0.1)
    except Halted as error:
        raise Halted(error.code, f"{error.code}: {error.what}") from error


def fill_from_now(task: Task) -> None:
    """Fills the lost relay as another task does that is further: from the end of the source's log on."""
    lose_relay(task)
    other = task.replicator()
    task.replicators.append(other)
    with closing(connect(task.config.source.server)) as source:
        other.start_at = str(position(source)[0])
    other.start()
    with closing(RelayReader(task.config.relay, "s")) as relay:
        while relay.first is None:
            other.watch()
            time.sleep(0.05)
    task.stop()


def test_a_relay_that_continues_for_others_is_kept(purged: Task) -> None:
    """The relay begins after the task's checkpoint, and the source still has the log that the relay lacks."""
    task = purged
    fill_from_now(task)
    begins = relay_begin(task)
    assert_lost(task, "relay-purged")
    found_out = Halted("relay-purged", "the file is gone")
    assert loses_log(found_out)
    notes = task.start(resync=(), lost=loss_from(found_out)).notes
    assert [note for note in notes if note.startswith("the relay begins after")]
    assert relay_begin(task) == begins
    assert task.state().lsn >= begins


REFUSALS = {
    "replicator": Halted("other-source", "this is not the server that was read before", todo="Point the source back"),
    "relay": Halted("other-source", "the relay has the log of another server", todo=OWN_RELAY),
}


@pytest.mark.parametrize("refusal", REFUSALS.values(), ids=REFUSALS)
def test_a_relay_that_others_need_is_not_emptied_after_any_refusal_of_a_source(task: Task, refusal: Halted) -> None:
    task.start()
    before, begins = task.state(), relay_begin(task)
    attempt = NextAttempt(())
    assert attempt.takes_new_position(refusal)
    lost = attempt.request.lost
    TaskNeed(task.config.relay, "s", "other").begin()
    with pytest.raises(Halted) as caught:
        task.start(resync=(), lost=lost)
    assert (caught.value.code, refusal.what in caught.value.what) == ("relay-still-needed", True)
    assert "task other still needs it" in caught.value.what
    assert (task.state(), relay_begin(task)) == (before, begins), "what is refused changes nothing"
    forget_need(task.config.relay, "s", "other")
    assert task.start(resync=(), lost=lost).notes[0].startswith(refusal.what)
    assert task.state().lsn.change_no == relay_begin(task).change_no == before.lsn.change_no + 1, "it was emptied"


def test_a_refused_source_lets_a_task_empty_a_relay_that_begins_after_it(purged: Task) -> None:
    """Otherwise the replicator would refuse the source again: the relay's own log says nothing about this source."""
    task = purged
    fill_from_now(task)
    begins = relay_begin(task)
    notes = task.start(resync=(), lost=loss_from(REFUSALS["replicator"])).notes
    assert [note for note in notes if note.startswith(REFUSALS["replicator"].what)]
    assert relay_begin(task).change_no == begins.change_no + 1


def test_a_relay_that_others_need_is_not_emptied_after_its_log_was_lost(purged: Task) -> None:
    """The other task can still apply the log in the relay."""
    task = purged
    before, begins = task.state(), relay_begin(task)
    TaskNeed(task.config.relay, "s", "other").begin()
    with pytest.raises(Halted, match="relay-still-needed") as caught:
        task.start(resync=())
    assert "purged its log after" in caught.value.what
    assert "task other still needs it" in caught.value.what
    assert (task.state(), relay_begin(task)) == (before, begins), "what is refused changes nothing"
    forget_need(task.config.relay, "s", "other")
    task.start(resync=())
    assert task.state().lsn.change_no == before.lsn.change_no + 1


def test_tables_are_not_copied_again_before_the_replicator_has_accepted_the_source(task: Task) -> None:
    """Otherwise the copies are recorded, and then the run ends with an error."""
    task.start()
    task.stop()
    before = task.state()
    with start_mariadb() as other:
        task.run_sql(other, f"CREATE DATABASE {task.schema}")
        task.run_sql(other, "CREATE TABLE t (id INT PRIMARY KEY, a INT)", database=task.schema)
        path, ports = task.config.path, (str(task.config.source.server.port), str(other.port))
        path.write_text(path.read_text().replace(*ports))
        task.config = load_task(path)
        task.follow("t")
        for resync in (("*.t",), ()):
            with pytest.raises(Halted) as caught:
                task.start(resync=resync)
            assert caught.value.code == "other-source"
            assert task.state() == before
            task.stop()


@pytest.mark.parametrize(
    ("start_server", "options"), [(start_mariadb, ["--server-id=7"]), (start_mysql56, ["--server-id=7", *NO_GTIDS])]
)
def test_a_task_that_has_applied_no_log_refuses_another_server_after_its_relay_was_lost(
    start_server: Callable[..., Server],
    options: list[str],
    tmp_path: Path,
    postgres: Server,
    database: str,
    run_sql: RunSql,
    programs: LoadedPrograms,
) -> None:
    """The other server's log has a file of the same name, which goes on after the same place and GTIDs."""
    with start_server(options=options) as source, ExitStack() as later:
        time.sleep(1.1)  # the head of a log file has the second in which the file was created
        other = later.enter_context(start_server(options=options))
        for server in (other, source):
            run_sql(server, f"CREATE DATABASE {database}")
            task = make_task(tmp_path, server, postgres, database, run_sql, programs)
        run_sql(other, "INSERT INTO t VALUES (2, 2)", database=database)
        for resync in (None, ()):  # a first start, and a new position in the log
            task.start(resync=resync, lost=LogLoss("the log is gone") if resync is not None else None)
            task.stop()
            lose_relay(task)
            point_to(other, task)
            assert_lost(task, "other-source")
            with pytest.raises(Halted, match="other-source"):
                run_from_checkpoint(task)
            task.stop()
            point_to(source, task)
            run_from_checkpoint(task)
            task.stop()
        for server in (source, other):
            server.kill()


def point_to(server: Server, task: Task) -> None:
    """Lets another server answer at the source's address."""
    path, port = task.config.path, task.config.source.server.port
    path.write_text(path.read_text().replace(f"port: {port},", f"port: {server.port},"))
    task.config = load_task(path)
    task.follow("t")


def run_from_checkpoint(task: Task) -> None:
    """Runs until the log is received, or until the replicator reports an error."""
    task.start()
    try:
        while not task.replicators[-1].has_connected:
            task.replicators[-1].watch()
            time.sleep(0.05)
    except Halted as error:
        raise Halted(error.code, f"{error.code}: {error.what}") from error


def test_a_task_gets_past_the_commit_of_rows_that_were_not_received(task: Task) -> None:
    task.start()
    begins, before = relay_begin(task), task.state()
    TaskNeed(task.config.relay, "s", "other").begin()
    at = Lsn.parse("0000.0000000001.000000000004.0000000000")
    error = xa_not_received(
        Transaction(lsn=at, prev_lsn=at, begin=at, xa=Xa(step=XaStep.COMMIT, xid="X'31',X'',1", at=at))
    )
    advice = with_loss_explained(task.config, error).todo
    assert "(XA RECOVER lists those that are not): copy the rows that may have changed, online" in advice
    assert advice.endswith(f"pidts run {task.config.path} --resync")
    attempt = NextAttempt(())
    assert attempt.takes_new_position(error)
    task.sql("INSERT INTO t VALUES (2, 2)")
    begun = task.start(resync=(), lost=attempt.request.lost)
    assert begun.notes[0].startswith("the XA transaction X'31',X'',1 is committed here")
    assert relay_begin(task) == begins, "the relay is kept"
    assert task.state().lsn > before.lsn
    assert [one.phase for one in task.state().copy.values()] == [Phase.ROWS]


def test_a_task_gets_past_log_that_its_source_cannot_read() -> None:
    error = Halted("source-log-unreadable", "bogus data in log event")
    assert loss_from(error) == LogLoss(error.what)
    assert NextAttempt(()).takes_new_position(error)


def test_a_new_position_that_was_not_remembered_is_asked_for_again(
    purged: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = purged
    lose_relay(task)
    before = task.state()

    def die(*_: object) -> dict[TableName, Table]:
        raise Transient("target-lost", "gone")

    with monkeypatch.context() as patched:
        patched.setattr(table_set, "copy_states", die)
        with pytest.raises(Transient):
            task.start(resync=())
    assert task.state() == before
    with closing(connect(task.config.source.server)) as source, closing(task.config.target.server.connect()) as target:
        loss = find_loss(task.config, source, target.meta.checkpoints.read(task.config.name, "s"))
    assert loss is not None
    assert loss.keeps_relay
    task.start(resync=())
    assert {one.mode for one in task.state().copy.values()} == {CopyMode.REPAIR, CopyMode.NEW}


def test_a_task_begins_in_the_middle_of_online_schema_changes(task: Task) -> None:
    task.sql("CREATE TABLE u (id INT PRIMARY KEY, a INT)", "CREATE TABLE _t_new LIKE t", "CREATE TABLE _u_gho LIKE u")
    task.sql("ALTER TABLE _t_new ADD b INT", "CREATE TABLE _t_old (id INT)", "CREATE TABLE _x_new (id INT)")

    def remembered() -> dict[str, list[str]]:
        with closing(task.config.target.server.connect()) as target:
            found = target.meta.shadows.load(task.config.name, "s")
        assert not any(shadow.complete for shadow in found.values())
        return {n.name: [c.name for c in one.structure.columns] for n, one in found.items() if one.structure}

    def follow(*tables: str) -> None:
        task.follow(*tables)
        allow = replace(task.config.allow, shadow=SHADOW, trash=TRASH)
        task.config = replace(task.config, rules=Rules(allow=allow))

    follow("t")
    task.start()
    assert remembered() == {"_t_new": ["id", "a", "b"]}
    assert task.structures() == {"t"}
    follow("t", "u")
    task.sql("ALTER TABLE _u_gho ADD c INT")
    assert task.start().joined == (task.name("u"),)
    assert remembered() == {"_t_new": ["id", "a", "b"], "_u_gho": ["id", "a", "c"]}
    # The swap is not applied yet. The current table is nevertheless followed, and need not join again.
    task.sql("RENAME TABLE t TO _t_del, _t_new TO t", "CREATE TABLE v (id INT PRIMARY KEY, a INT)")
    follow("t", "u", "v")
    assert task.start().joined == ()


@pytest.mark.parametrize("kind", ["mariadb", "mysql97"])
def test_a_table_that_joins_after_a_failover_ignores_its_changes_up_to_a_place_in_the_new_servers_log(
    kind: str, tmp_path: Path, postgres: Server, database: str, run_sql: RunSql, programs: LoadedPrograms
) -> None:
    """The start is connected to the new server before the replicator receives its log."""
    with replicated_pair(kind, tmp_path, run_sql) as (primary, standby):
        run_sql(primary, f"CREATE DATABASE {database}")
        task = make_task(tmp_path, primary, postgres, database, run_sql, programs)
        text, at = task.config.path.read_text(), f"{{host: {standby.host}, port: {standby.port}}}"
        task.config.path.write_text(
            text.replace("    from:", f"    enable-gtid: true\n    standbys: [{at}]\n    from:")
        )
        task.config = load_task(task.config.path)
        task.follow("t")
        task.sql("CREATE TABLE u (id INT PRIMARY KEY, a INT)")
        task.start()
        task.stop()
        wait(lambda: len(run_sql(standby, f"SHOW TABLES IN {database}")) == 2, "the standby has the tables")
        promote(standby, run_sql)
        chosen = choose_server(task.config.source, task.config.relay, address_of(task.config.source.standbys[0]))
        task.source, task.config = standby, replace(task.config, source=chosen)
        task.sql("CREATE TABLE k (id INT PRIMARY KEY)", "ALTER TABLE u ADD b INT", "INSERT INTO u VALUES (1, 1, 1)")
        task.follow("t", "u", "k")
        begun = task.start()
        with closing(connect(chosen.server)) as session:
            end = Lsn.at(log_end(session), 1)
        assert begun.joined == (task.name("u"),), "k comes with its CREATE TABLE in the log"
        assert task.state().copy[task.name("u")].since == end
        assert begun.structures[task.name("u")].arrow.names == ["id", "a", "b"]
        # The old server still answers, and the relay no longer receives its log.
        old = replace(chosen.server, port=primary.port)
        with closing(connect(old)) as session, closing(RelayReader(task.config.relay, "s")) as relay:
            reader = StructureReader(task.config, session, task.replicators[-1], threading.Event(), patience=0.1)
            with pytest.raises(Transient, match=r"source-moved.*always leads to the same server"):
                reader.log_end(relay)
            steps, server = list[str](), RelayServerAddress("http://127.0.0.1:9", tmp_path / "token")
            follows = replace(
                reader,
                config=replace(task.config, relay_from=RelayOrigin(server, "here")),
                show_step=steps.append,
                patience=2,
            )
            with pytest.raises(Transient, match=r"source-moved.*Do nothing if the relay server is behind"):
                follows.log_end(relay)
            assert steps[0].startswith("step 2 of 3: waiting for the log of")
            with pytest.raises(Transient, match=r"source-moved.*always leads to the same server"):
                reader.wait(relay, LogPoint(Lsn.at(log_end(session), 0), log_end(session), ""))
        task.stop()


@pytest.mark.parametrize("lost", [None, LogLoss("the log is gone")])
def test_a_relay_that_begins_has_the_rows_of_xa_transactions_that_are_prepared_already(
    lost: LogLoss | None,
    tmp_path: Path,
    mysql_like: Server,
    postgres: Server,
    database: str,
    run_sql: RunSql,
    programs: LoadedPrograms,
) -> None:
    task = make_task(tmp_path, mysql_like, postgres, database, run_sql, programs)
    if lost is not None:
        task.start()
    xids = ["X'00ff27', X'782779', 7", "'late'"]
    with plain_connect(mysql_like) as early, plain_connect(mysql_like) as late:
        for session, xid, row in zip((early, late), xids, (5, 6), strict=True):
            with session.cursor() as cursor:
                cursor.execute(f"XA START {xid}")
                cursor.execute(f"INSERT INTO {database}.t VALUES ({row}, {row})")
                cursor.execute(f"XA END {xid}")
                cursor.execute(f"XA PREPARE {xid}")
            task.sql(f"INSERT INTO t VALUES ({row + 10}, 0)", "FLUSH LOGS")
        begun = task.start(resync=None if lost is None else (), lost=lost)
        for session, xid in zip((late, early), reversed(xids), strict=True):
            with session.cursor() as cursor:
                cursor.execute(f"XA COMMIT {xid}")
    lsn = begun.checkpoints[0].lsn
    with closing(connect(task.config.source.server)) as session, closing(RelayReader(task.config.relay, "s")) as relay:
        end = Lsn.at(log_end(session), lsn.change_no)
        while (received := relay.received) is None or received < end:
            relay.wait(received, 1)
        found = list(relay.entries(lsn))
    assert sum(entry.transaction.row_events for entry in found) == 2
    assert not any(entry.lacks_rows for entry in found)
    task.stop()


def test_a_second_task_on_a_relay_does_not_search_the_log_for_prepared_transactions(task: Task) -> None:
    sent: list[str] = []
    task.start(sent=sent)
    assert "XA RECOVER" in sent
    task.stop()
    task.config = replace(task.config, name=f"{task.config.name}_2")
    task.follow("u")
    task.sql("CREATE TABLE u (id INT PRIMARY KEY)")
    sent.clear()
    assert set(task.start(sent=sent).structures) == {task.name("u")}
    assert "XA RECOVER" not in sent


def test_a_task_begins_before_its_tables_are_there(task: Task) -> None:
    task.follow("later")
    assert task.start().structures == {}
    assert task.structures() == set()
    assert not task.state().copying


@pytest.fixture
def attempts(task: Task) -> Attempts:
    """A run that has not begun, of a task that an earlier run has begun."""
    task.start()
    shards = SimpleNamespace(exclude=lambda *_, **__: None)
    shared = SimpleNamespace(reload=SimpleNamespace(parts=(task.config,)), shards=shards, alerts=None, epochs={})
    anything = cast("Any", None)
    return Attempts(task.config, task.replicators[-1], anything, anything, cast("Any", shared), threading.Event(), None)


def begin(attempts: Attempts) -> None:
    config = attempts._config
    with closing(connect(config.source.server)) as source, closing(config.target.server.connect()) as there:
        attempts._begin(source, there, TaskNeed(config.relay, "s", config.name))


def test_a_run_whose_start_fails_after_the_claim_is_not_taken_for_a_replaced_one(
    task: Task, attempts: Attempts, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object, **__: object) -> None:
        raise Transient("source-lost", "gone")

    begin(attempts)
    with monkeypatch.context() as patched:
        patched.setattr(start, "record_source", die)
        with pytest.raises(Transient, match="gone"):
            begin(attempts)
    attempts._demand_own_epoch()
    begin(attempts)
    attempts._demand_own_epoch()
    task.start()
    with pytest.raises(Fenced):
        attempts._demand_own_epoch()


@pytest.mark.parametrize("mode", ["all", "incremental"])
def test_a_run_does_not_begin_anew_after_its_checkpoint_was_deleted(task: Task, attempts: Attempts, mode: str) -> None:
    attempts._config = task.config = replace(task.config, mode=mode)
    begin(attempts)
    attempts._has_begun = True
    task.there(f"DELETE FROM pidts_meta.checkpoint WHERE task = '{task.config.name}'")
    for look in (attempts._demand_own_epoch, lambda: begin(attempts)):
        with pytest.raises(Fenced, match="has no checkpoint") as refused:
            look()
        assert "somebody has deleted the checkpoint" in refused.value.todo
    assert task.there(f"SELECT * FROM pidts_meta.checkpoint WHERE task = '{task.config.name}'") == []


def test_a_run_does_not_take_the_task_back_after_it_has_looked_at_its_epoch(task: Task, attempts: Attempts) -> None:
    begin(attempts)
    attempts._demand_own_epoch()
    later = task.start().checkpoints[0].epoch
    with pytest.raises(Fenced):
        begin(attempts)
    assert task.start().checkpoints[0].epoch == later + 1, "it has claimed nothing"


def test_a_run_does_not_take_the_task_back_after_it_has_read_the_checkpoint(
    task: Task, attempts: Attempts, monkeypatch: pytest.MonkeyPatch
) -> None:
    def checks(*_: object) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(rule_changes, "require_unmoved_rows", lambda *_: None)
            task.start()

    begin(attempts)
    with monkeypatch.context() as patched:
        patched.setattr(rule_changes, "require_unmoved_rows", checks)
        with pytest.raises(Transient, match="task-taken"):
            begin(attempts)
    with pytest.raises(Fenced):
        attempts._demand_own_epoch()
