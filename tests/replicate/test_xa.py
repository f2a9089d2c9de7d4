"""Rows of two-phase XA transactions that real servers have committed go through the relay, the planner and the decoder,
and are applied once, at the commit.
"""

from __future__ import annotations

import itertools
import multiprocessing
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

import pymysql
import pytest
from tests.crashes import ProcessDied
from tests.target.conformance.samples import create
from tests.values_target import ValuesTarget

from pidts import sandbox
from pidts.apply import Committer
from pidts.batch.applying import apply
from pidts.batch.blobs import Blob
from pidts.batch.context import JobContext
from pidts.batch.decoding import decode
from pidts.batch.pointers import Pointer, pointers
from pidts.batch.relay_events import ddl_event
from pidts.batch.transaction_classifier import TransactionClassifier
from pidts.batch.workers import Commit, Workers
from pidts.model import (
    Checkpoint,
    Column,
    ColumnType,
    Halted,
    Key,
    Kind,
    Lsn,
    Position,
    SourceTablesKey,
    Table,
    TableName,
)
from pidts.plan import Limits, next_state, plan_between
from pidts.relay import RelayReader, list_segments, purge
from pidts.replicate import AppliedPlace, ReplicatorConfig, run_process
from pidts.replicate.earlier_begin import begin_before_rows
from pidts.replicate.proof import end_of_same_log
from pidts.rules import AllowList
from pidts.sandbox import Server
from pidts.schema import Dialect
from pidts.source import SourceConfig

from .proxy import Proxy
from .test_live import RunSql, assert_holds_the_log, end_of, following, source_of

numbers = itertools.count()
Rows = list[tuple[Any, ...]]


def tables(database: str) -> tuple[Table, ...]:
    columns = (Column("id", ColumnType(Kind.INT), nullable=False), Column("v", ColumnType(Kind.VARCHAR, length=500)))
    key = Key("PRIMARY", ("id",), unique=True, primary=True)
    return tuple(Table(TableName(database, name), columns, (key,)) for name in "im")


class Task:
    """Carries a relay to a target in memory, as a task does; every `run` is a new process.

    `joined`: whether neighbouring transactions are read as one entry.
    """

    def __init__(self, relay: Path, database: str, start: Position, workers: int = 2, *, joined: bool = True) -> None:
        self.relay, self.workers, self.tables, self.joined = relay, workers, tables(database), joined
        self.target = ValuesTarget(f"xa {next(numbers)}")
        self.allow = AllowList(do_dbs=(database,))
        self.first = Checkpoint(task="t", source="s", worker=0, lsn=Lsn.at(start))
        self.lsn = self.first.lsn
        session = self.target.connect()
        for table in self.tables:
            create(session, table)
        session.begin()
        session.meta.structures.save(
            "t", SourceTablesKey("s"), self.first.lsn, {table.name: table for table in self.tables}
        )
        session.commit()
        session.close()

    def run(self, limits: Limits | None = None, seen: Callable[[Lsn], None] = lambda _: None) -> None:
        """Runs until there is nothing left to do."""
        limits = limits or Limits(idle_entries=1)
        session = self.target.connect()
        claimed = tuple(session.meta.checkpoints.claim("t", "s", self.workers, self.first))
        structures = session.meta.structures.load("t", SourceTablesKey("s"))
        session.close()
        workers, state, _ = Workers.claimed(claimed)
        classifier = TransactionClassifier(self.allow, Dialect())
        context = self._context(structures, claimed[0].epoch)
        with (
            closing(RelayReader(self.relay, "s")) as relay,
            closing(Committer(self.target, "t", "s", claimed[0].epoch, sleep=lambda _: None)) as committer,
        ):
            log = partial(relay.entries, joined=self.joined, most=limits.joined)
            while True:
                self.lsn = state.lsn
                end = next_state(state, log, {}, limits, classifier)
                if end is None:
                    return
                plan = plan_between(state, end, log, classifier)
                moved = workers.moved(end)
                blobs: list[list[Blob]] = [[] for _ in range(self.workers)]
                for pointer in pointers(plan):
                    for blob in decode(context, Pointer.from_json(pointer.to_json())):
                        blobs[blob.worker].append(blob)
                for worker in range(self.workers):
                    apply(committer, Commit(workers.checkpoints, moved.checkpoints), worker, blobs[worker])
                state, workers = end, moved
                seen(end.lsn)

    def run_crashing(self) -> None:
        """Runs once for every point of the target's transactions, and dies at this point."""
        for left in itertools.count(1):
            points = iter(range(left))

            def hook(point: str, points: Iterator[int] = points) -> None:
                if next(points, None) is None:
                    raise ProcessDied(point)

            self.target.store.hook = hook
            try:
                self.run()
                break
            except ProcessDied:
                continue
            finally:
                self.target.store.hook = None

    def content(self) -> dict[str, Rows]:
        return {
            table.name.name: sorted(tuple(row.values()) for row in self.target.store.content(table.name).values())
            for table in self.tables
        }

    def _context(self, structures: Mapping[TableName, Table], epoch: int) -> JobContext:
        return JobContext(
            task="t",
            source=SourceConfig("nobody", 1, source_id="s"),
            relay=self.relay,
            staging=self.relay / "staging",
            target=self.target,
            workers=self.workers,
            epoch=epoch,
            change_no=0,
            structures=structures,
            dialect=Dialect(),
            charsets={},
        )


@contextmanager
def sessions(server: Server, run_sql: RunSql, database: str) -> Iterator[Callable[[str, str], Rows]]:
    """`do("a", sql)` runs SQL in a session of this name, which stays open.

    Prepared transactions that remain are rolled back; MySQL 5.6 does this itself.
    """
    opened: dict[str, pymysql.Connection[Any]] = {}
    prepared: set[str] = set()

    def do(name: str, sql: str) -> Rows:
        if name not in opened:
            opened[name] = pymysql.connect(
                host=server.host,
                port=server.port,
                user=server.user,
                password=server.password,
                database=database,
                autocommit=True,
                ssl_disabled=True,
                init_command="SET SESSION innodb_lock_wait_timeout = 3",
            )
        with opened[name].cursor() as cursor:
            cursor.execute(sql)
            rows = list(cursor.fetchall())
        if sql.startswith("XA PREPARE "):
            prepared.add(sql.removeprefix("XA PREPARE "))
        elif sql.startswith(("XA COMMIT ", "XA ROLLBACK ")):
            prepared.discard(sql.split(" ", 2)[2])
        return rows

    try:
        yield do
    finally:
        for connection in opened.values():
            connection.close()
        for xid in prepared if server.kind != "mysql56" else ():
            until_not_refused(run_sql, server, f"XA ROLLBACK {xid}")


def until_not_refused(run_sql: RunSql, server: Server, sql: str) -> None:
    """Repeats a statement until the server accepts it.

    A server needs a moment until a session can use what a closed session has prepared.
    """
    for _ in range(100):
        try:
            run_sql(server, sql)
        except pymysql.Error:
            time.sleep(0.02)
        else:
            return
    run_sql(server, sql)


def content_of(server: Server, run_sql: RunSql, database: str) -> dict[str, Rows]:
    return {name: run_sql(server, f"SELECT id, v FROM {database}.{name} ORDER BY id") for name in "im"}


def prepare_and_leave(server: Server, name: str, sql: str) -> None:
    connection = pymysql.connect(
        host=server.host, port=server.port, user=server.user, password=server.password, ssl_disabled=True
    )
    with closing(connection), connection.cursor() as cursor:
        for statement in (f"XA START '{name}'", sql, f"XA END '{name}'", f"XA PREPARE '{name}'"):
            cursor.execute(statement)


def make(run_sql: RunSql, server: Server, database: str) -> None:
    for name, engine in (("i", "InnoDB"), ("m", "MyISAM")):
        run_sql(
            server,
            f"CREATE TABLE {name} (id INT PRIMARY KEY, v VARCHAR(500)) ENGINE={engine} CHARSET utf8mb4",
            database=database,
        )


STEPS = """
a XA START 'one', 'br', 7
a INSERT INTO m VALUES (1, 'at once')
a INSERT INTO i VALUES (1, 'one')
b XA START X'00ff27', 'x''y'
b INSERT INTO i VALUES (2, 'two'), (3, 'two')
c INSERT INTO i VALUES (4, 'plain')
b XA END X'00ff27', 'x''y'
b XA PREPARE X'00ff27', 'x''y'
a UPDATE i SET v = 'changed' WHERE id = 1
a SAVEPOINT s
a INSERT INTO i VALUES (90, 'undone')
a ROLLBACK TO s
a XA END 'one', 'br', 7
a XA PREPARE 'one', 'br', 7
c FLUSH BINARY LOGS
c UPDATE i SET v = 'between' WHERE id = 4
a XA COMMIT 'one', 'br', 7
a UPDATE i SET v = 'after' WHERE id = 1
b XA COMMIT X'00ff27', 'x''y'
b DELETE FROM i WHERE id = 2
b XA START 'back'
b DELETE FROM i WHERE id = 3
b XA END 'back'
b XA PREPARE 'back'
c INSERT INTO i VALUES (5, 'plain')
b XA ROLLBACK 'back'
b XA START 'quick'
b INSERT INTO i VALUES (6, 'one phase')
b XA END 'quick'
b XA COMMIT 'quick' ONE PHASE
b XA START 'one', 'br', 7
b INSERT INTO i VALUES (7, 'name used again')
b XA END 'one', 'br', 7
b XA PREPARE 'one', 'br', 7
b XA COMMIT 'one', 'br', 7
a XA START 'never'
a INSERT INTO i VALUES (91, 'never decided')
a XA END 'never'
a XA PREPARE 'never'
""".strip().splitlines()
COMPRESSED = [
    "b SET SESSION binlog_transaction_compression = 1",
    "b XA START 'packed'",
    "b INSERT INTO i VALUES (8, REPEAT('a', 499)), (9, REPEAT('a', 499)), (10, REPEAT('a', 499))",
    "b XA END 'packed'",
    "b XA PREPARE 'packed'",
    "b INSERT INTO m VALUES (2, 'between')",
    "b XA COMMIT 'packed'",
]


def test_each_is_visible_from_its_commit_on(mysql_like: Server, run_sql: RunSql, database: str, tmp_path: Path) -> None:
    server = mysql_like
    make(run_sql, server, database)
    start = end_of(server)
    states: dict[Lsn, dict[str, Rows]] = {}
    steps = [*(COMPRESSED if server.kind == "mysql97" else []), *STEPS]
    with sessions(server, run_sql, database) as do:
        for step in steps:
            do(step[0], step[2:])
            newest = max((server.directory / "binlog").glob("bin.0*"))
            here = Lsn.at(Position(newest.name, newest.stat().st_size))
            states[here] = {name: do("look", f"SELECT id, v FROM {name} ORDER BY id") for name in "im"}
        config = ReplicatorConfig(source_of(server), tmp_path, start, segment_bytes=600)
        with following(config) as run:
            run.until_received(server)
    assert_holds_the_log(tmp_path, server, start)
    assert len(list_segments(tmp_path, "s")) > 5
    task, met = Task(tmp_path, database, start), list[Lsn]()

    def check(lsn: Lsn) -> None:
        if lsn in states:
            assert task.content() == states[lsn], str(lsn)
            met.append(lsn)

    task.run(Limits(transactions=1, idle_entries=1), check)
    assert len(met) > 10
    assert task.content()["i"][0] == (1, "after")
    at_once = Task(tmp_path, database, start)
    at_once.run()
    one_by_one = Task(tmp_path, database, start, joined=False)
    one_by_one.run()
    crashing = Task(tmp_path, database, start)
    crashing.run_crashing()
    assert at_once.content() == one_by_one.content() == crashing.content() == content_of(server, run_sql, database)


@pytest.mark.parametrize("start_server", [sandbox.start_mariadb, sandbox.start_mysql97])
def test_kills_restarts_rotations_and_purges_in_between(
    start_server: Callable[[], Server], run_sql: RunSql, tmp_path: Path
) -> None:
    with start_server() as server:
        run_sql(server, "CREATE DATABASE d")
        make(run_sql, server, "d")
        start = end_of(server)
        config = ReplicatorConfig(source_of(server), tmp_path, start, segment_bytes=2_000)
        task = Task(tmp_path, "d", start)
        process = multiprocessing.get_context("spawn").Process(target=run_process, args=(config,))
        process.start()
        try:
            for name, row in (("early", 1), ("late", 2), ("back", 3)):
                prepare_and_leave(server, name, f"INSERT INTO d.i VALUES ({row}, '{name}')")
            until_not_refused(run_sql, server, "XA COMMIT 'early'")
            end = Lsn.at(end_of(server))
            reader = RelayReader(tmp_path, "s")
            while (received := reader.received) is None or received < end:
                assert reader.wait(received, 60)
        finally:
            process.kill()
            process.join()
        server.kill()
        server.start()
        run_sql(server, "FLUSH BINARY LOGS")
        for number in range(10, 40):
            run_sql(server, f"INSERT INTO d.i VALUES ({number}, REPEAT('x', 200))")
        with following(config) as run:
            run.until_received(server)
        task.run()
        assert [row[0] for row in task.content()["i"]] == [1, *range(10, 40)]
        kept = len(list_segments(tmp_path, "s"))
        purge(tmp_path, "s", task.lsn)
        assert len(list_segments(tmp_path, "s")) == 1 < kept
        assert len(list((tmp_path / "s").glob("*.log"))) > 1
        with following(config) as run:
            run_sql(server, "XA COMMIT 'late'")
            run_sql(server, "XA ROLLBACK 'back'")
            run_sql(server, "UPDATE d.i SET v = 'last' WHERE id = 2")
            run.until_received(server)
        task.run_crashing()
        assert task.content() == content_of(server, run_sql, "d")


def test_a_transaction_prepared_before_the_relay_halts_at_its_commit(
    mysql_like: Server, run_sql: RunSql, database: str, tmp_path: Path
) -> None:
    server = mysql_like
    make(run_sql, server, database)
    with sessions(server, run_sql, database) as do:
        for name, row in (("a", 1), ("b", 2)):
            do(name, f"XA START '{name}'")
            do(name, f"INSERT INTO i VALUES ({row}, '{name}')")
            do(name, f"XA END '{name}'")
            do(name, f"XA PREPARE '{name}'")
        start = end_of(server)
        do("a", "XA ROLLBACK 'a'")
        do("c", "INSERT INTO i VALUES (3, 'before')")
        do("b", "XA COMMIT 'b'")
    with following(ReplicatorConfig(source_of(server), tmp_path, start)) as run:
        run.until_received(server)
    task = Task(tmp_path, database, start)
    if server.kind == "mysql56":  # The server logs the rows with the commit.
        task.run()
        assert task.content()["i"] == [(2, "b"), (3, "before")]
        return
    with pytest.raises(Halted) as caught:
        task.run()
    assert caught.value.code == "xa-not-received"
    assert "X'62',X'',1" in caught.value.what
    assert task.content()["i"] == [(3, "before")]
    with closing(RelayReader(tmp_path, "s")) as reader:
        received = reader.received
        assert received is not None
        assert begin_before_rows(source_of(server), reader, received, Event()) is None, "no COMMIT lacks rows here"
        begin = begin_before_rows(source_of(server), reader, task.lsn, Event())
    assert begin is not None
    assert begin.lsn < Lsn.at(start)
    # A relay that begins there has the rows, and the task continues in it at its place.
    task.relay = tmp_path / "earlier"
    with following(ReplicatorConfig(source_of(server), task.relay, begin)) as run:
        run.until_received(server)
    task.run_crashing()
    assert task.content()["i"] == [(2, "b"), (3, "before")]


def prepare(do: Callable[[str, str], Rows], name: str, row: int) -> None:
    for statement in (f"START '{name}'", "", f"END '{name}'", f"PREPARE '{name}'"):
        do(name, f"XA {statement}" if statement else f"INSERT INTO i VALUES ({row}, '{name}')")


def purge_before(server: Server, run_sql: RunSql, file: str) -> None:
    while run_sql(server, "SHOW BINARY LOGS")[0][0] != file:
        run_sql(server, f"PURGE BINARY LOGS TO '{file}'")  # without effect while a file is being read
        time.sleep(0.1)


def test_a_relay_does_not_begin_before_rows_that_the_source_no_longer_has(run_sql: RunSql, tmp_path: Path) -> None:
    with sandbox.start_mariadb(tmp_path / "server") as server:
        run_sql(server, "CREATE DATABASE d")
        make(run_sql, server, "d")
        with sessions(server, run_sql, "d") as do:
            prepare(do, "a", 1)
            run_sql(server, "FLUSH BINARY LOGS")
            second = end_of(server)
            prepare(do, "b", 2)
            run_sql(server, "FLUSH BINARY LOGS")
            start = end_of(server)
            do("a", "XA COMMIT 'a'")
            do("b", "XA COMMIT 'b'")
        for row in (3, 4):
            run_sql(server, "FLUSH BINARY LOGS")
            run_sql(server, f"INSERT INTO d.i VALUES ({row}, 'b')")
        with following(ReplicatorConfig(source_of(server), tmp_path / "relay", start)) as run:
            run.until_received(server)

        def found(*, by: int | None = None) -> AppliedPlace | None:
            source = replace(source_of(server), port=by or server.port)
            with closing(RelayReader(tmp_path / "relay", "s")) as reader:
                return begin_before_rows(source, reader, Lsn.at(start), Event())

        begin = found()
        assert begin is not None
        # The relay is damaged after the COMMITs.
        for path in (tmp_path / "relay" / "s").glob("*2.*"):
            path.unlink()
        assert found() == begin
        # After the proof that the source has the relay's log, another server answers at its address. It has XA
        # transactions of the same names.
        with sandbox.start_mariadb() as other:
            run_sql(other, "CREATE DATABASE d")
            make(run_sql, other, "d")
            with sessions(other, run_sql, "d") as do:
                prepare(do, "a", 1)
                prepare(do, "b", 2)
                for _ in range(start.log_index):
                    run_sql(other, "FLUSH BINARY LOGS")
                with Proxy(server.port) as proxy, closing(RelayReader(tmp_path / "relay", "s")) as reader:
                    assert end_of_same_log(replace(source_of(server), port=proxy.port), reader) is not None
                    proof = proxy.connections
                with Proxy(server.port) as proxy:
                    proxy.change_to(other.port, after=proof)
                    assert found(by=proxy.port) is None
                    assert proxy.connections > proof
        # The rows of the first COMMIT are gone, and those of the second are not.
        purge_before(server, run_sql, second.file)
        assert found() is None
        purge_before(server, run_sql, start.file)
        assert found() is None
        server.kill()
        with sandbox.start_mariadb(port=server.port):
            assert found() is None


def test_a_statement_in_it_is_seen_when_it_commits(
    mysql_like: Server, run_sql: RunSql, database: str, tmp_path: Path
) -> None:
    server = mysql_like
    make(run_sql, server, database)
    start = end_of(server)
    with sessions(server, run_sql, database) as do:
        for sql in (
            "SET SESSION binlog_format = STATEMENT",
            "XA START 'text'",
            "INSERT INTO i VALUES (1, 'a')",
            "XA END 'text'",
            "XA PREPARE 'text'",
            "XA COMMIT 'text'",
        ):
            do("a", sql)
    with following(ReplicatorConfig(source_of(server), tmp_path, start)) as run:
        run.until_received(server)
    with closing(RelayReader(tmp_path, "s")) as reader:
        (entry,) = [entry for entry in reader.entries() if entry.transaction.ddl]
        assert (entry.prepared is None) is (server.kind == "mysql56")
        assert ddl_event(reader, entry).sql == entry.transaction.ddl == "INSERT INTO i VALUES (1, 'a')"
