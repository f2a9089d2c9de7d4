"""MySQL and MariaDB: after a deadlock, a held lock, a read-only server or a killed connection, a batch is tried again,
and no row is lost.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pymysql
import pytest
from tests.target.conformance.samples import INT, change, checkpoint, create, lsn, table, write

from pidts.apply import Committer, Outcome, Retry, TargetSession
from pidts.model import Halted, Table, TableName, Transient
from pidts.reduce import NetChange
from pidts.target import MySqlTarget
from pidts.target.mysql import connection
from pidts.target.mysql.errors import translate

BOTH = pytest.mark.parametrize("kind", ["mariadb", "mysql97"])


@pytest.fixture
def structure(target: MySqlTarget, name: TableName) -> Table:
    """Creates a table with 60 rows of value 0."""
    made = table(name, {"id": INT, "v": INT})
    session = target.connect()
    create(session, made)
    write(session, change(made, upserts=[(number, 0) for number in range(60)]))
    session.close()
    return made


@pytest.fixture
def rival(rival: Callable[[str], Any], structure: Table) -> Callable[[str], Any]:
    """Runs a statement about the table `t` on a connection of another application."""
    return lambda sql: rival(sql.replace("{t}", str(structure.name)))


class Attempts:
    """A batch of rows 1 and 2. Each test chooses what happens between them in the first attempt."""

    def __init__(self, structure: Table, between: Callable[[TargetSession], None] = lambda _: None) -> None:
        self._structure, self._between = structure, between
        self.count = 0

    def __call__(self, session: Any) -> Iterator[NetChange]:
        self.count += 1
        yield change(self._structure, upserts=[(1, self.count)])
        if self.count == 1:
            session.pipeline.flush()  # Row 1 is locked from now on.
            self._between(session)
        yield change(self._structure, upserts=[(2, self.count)])


def committed(
    target: MySqlTarget, task: str, attempts: Attempts, *, pause: Callable[[], object] = lambda: None
) -> tuple[Outcome, list[Any]]:
    """Commits the batch; calls `pause` before the second attempt."""
    session = target.connect()
    epoch = session.meta.checkpoints.claim(task, "s", 1, checkpoint(100))[0].epoch
    with Committer(target, task, "s", epoch, retry=Retry(attempts=3), sleep=lambda _: pause() and None) as writer:
        outcome = writer.commit(0, lsn(100), checkpoint(200), attempts)
    (row,) = session.meta.checkpoints.read(task, "s")
    session.close()
    return outcome, [row.lsn]


@BOTH
def test_the_victim_of_a_deadlock_tries_again(
    target: MySqlTarget, task: str, structure: Table, rival: Callable[[str], Any]
) -> None:
    threads: list[threading.Thread] = []
    rival("START TRANSACTION")
    # This transaction is the larger one, so the server does not choose it as the victim.
    rival("UPDATE {t} SET v = -1 WHERE id BETWEEN 2 AND 50")

    def cross(_: TargetSession) -> None:
        threads.append(threading.Thread(target=rival, args=["UPDATE {t} SET v = -1 WHERE id = 1"]))
        threads[0].start()
        time.sleep(0.3)

    def end() -> None:
        threads[0].join()
        rival("COMMIT")

    attempts = Attempts(structure, cross)
    assert committed(target, task, attempts, pause=end) == (Outcome.APPLIED, [lsn(200)])
    assert attempts.count == 2
    assert rival("SELECT v FROM {t} WHERE id IN (1, 2, 3) ORDER BY id") == ((2,), (2,), (-1,))


@BOTH
@pytest.mark.usefixtures("impatient")
def test_a_lock_that_is_held_too_long_is_waited_for_again(
    target: MySqlTarget, task: str, structure: Table, rival: Callable[[str], Any]
) -> None:
    rival("START TRANSACTION")
    rival("UPDATE {t} SET v = -1 WHERE id = 2")
    attempts = Attempts(structure)
    assert committed(target, task, attempts, pause=lambda: rival("COMMIT")) == (Outcome.APPLIED, [lsn(200)])
    assert attempts.count == 2
    assert rival("SELECT v FROM {t} WHERE id IN (1, 2) ORDER BY id") == ((2,), (2,))


@BOTH
def test_a_connection_that_is_killed_is_made_again(
    target: MySqlTarget, task: str, structure: Table, rival: Callable[[str], Any]
) -> None:
    def kill(session: Any) -> None:
        rival(f"KILL {session.pipeline.now(b'SELECT CONNECTION_ID()').rows[0][0]}")

    attempts = Attempts(structure, kill)
    assert committed(target, task, attempts) == (Outcome.APPLIED, [lsn(200)])
    assert attempts.count == 2
    assert rival("SELECT v FROM {t} WHERE id IN (1, 2) ORDER BY id") == ((2,), (2,))


@BOTH
def test_a_server_that_is_read_only_for_a_while_is_waited_for(
    target: MySqlTarget, task: str, structure: Table, rival: Callable[[str], Any]
) -> None:
    user = f"plain_{task.rpartition('-')[2]}"
    rival(f"CREATE USER {user}@localhost IDENTIFIED BY ''")
    rival(f"GRANT SELECT, INSERT, UPDATE, DELETE ON *.* TO {user}@localhost")
    session = target.connect()
    epoch = session.meta.checkpoints.claim(task, "s", 1, checkpoint(100))[0].epoch
    session.close()
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            rival("SET GLOBAL read_only = 0")

    rival("SET GLOBAL read_only = 1")
    try:
        plain = replace(target, user=user, password="")
        with Committer(plain, task, "s", epoch, sleep=pause) as writer:
            assert writer.commit(0, lsn(100), checkpoint(200), Attempts(structure)) is Outcome.APPLIED
    finally:
        rival("SET GLOBAL read_only = 0")
    assert len(pauses) == 2
    assert rival("SELECT COUNT(*) FROM {t} WHERE v > 0") == ((2,),)


@pytest.mark.parametrize("kind", ["mysql97"])
def test_a_commit_that_finds_the_server_read_only_is_not_in(
    target: MySqlTarget, task: str, structure: Table, rival: Callable[[str], Any]
) -> None:
    def freeze(_: TargetSession) -> None:
        rival("SET GLOBAL super_read_only = 1")

    def thaw() -> None:
        assert rival("SELECT COUNT(*) FROM {t} WHERE v > 0") == ((0,),)
        rival("SET GLOBAL read_only = 0")

    attempts = Attempts(structure, freeze)
    try:
        assert committed(target, task, attempts, pause=thaw) == (Outcome.APPLIED, [lsn(200)])
    finally:
        rival("SET GLOBAL read_only = 0")
    assert attempts.count == 2


@pytest.mark.parametrize("kind", ["mariadb"])
def test_a_run_that_stops_in_a_transaction_makes_the_next_run_wait_only_for_a_while(
    target: MySqlTarget, task: str, structure: Table, rival: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    shorter = [sql.replace("_transaction_timeout = 300", "_transaction_timeout = 1") for sql in connection._SETTINGS]
    monkeypatch.setattr(connection, "_SETTINGS", shorter)
    stopped, following = target.connect(), target.connect()
    epoch = stopped.meta.checkpoints.claim(task, "s", 1, checkpoint(100))[0].epoch
    stopped.begin()
    stopped.write(change(structure, upserts=[(1, 1)]))
    stopped.meta.checkpoints.lock(task, "s", 0)
    (claimed,) = following.meta.checkpoints.claim(task, "s", 1, checkpoint(0))
    assert (claimed.lsn, claimed.epoch) == (lsn(100), epoch + 1)
    with pytest.raises(Transient):
        stopped.commit()
    assert rival("SELECT v FROM {t} WHERE id = 1") == ((0,),)
    stopped.close()
    following.close()


@BOTH
def test_a_small_transaction_takes_few_round_trips(target: MySqlTarget, task: str, structure: Table) -> None:
    session = target.connect()
    session.meta.checkpoints.claim(task, "s", 1, checkpoint(100))
    write(session, change(structure, upserts=[(1, 1)]))  # The first write reads the table's structure.
    before = session.pipeline.trips
    session.begin()
    stored = session.meta.checkpoints.lock(task, "s", 0)
    session.write(change(structure, deletes=[(1,)], upserts=[(2, 2)]))
    session.meta.checkpoints.save(replace(stored, lsn=lsn(200)))
    session.commit()
    assert session.pipeline.trips - before == 2
    assert session.meta.checkpoints.read(task, "s")[0].lsn == lsn(200)
    session.close()


@BOTH
def test_rows_that_are_read_to_be_changed_are_locked(
    target: MySqlTarget, structure: Table, rival: Callable[[str], Any]
) -> None:
    session = target.connect()
    session.begin()
    session.write(change(structure, upserts=[(7, 7)]))
    keys = pa.table({"id": pa.array([7, 8, 1000], pa.int32())})
    assert session.read_rows(structure, keys=keys, lock=True).to_pylist() == [{"id": 7, "v": 7}, {"id": 8, "v": 0}]
    rival("SET SESSION innodb_lock_wait_timeout = 1")
    with pytest.raises(pymysql.err.OperationalError, match="Lock wait timeout"):
        rival("UPDATE {t} SET v = -1 WHERE id = 8")
    rival("UPDATE {t} SET v = -1 WHERE id = 9")
    session.rollback()
    rival("UPDATE {t} SET v = -1 WHERE id = 8")
    session.close()


@pytest.mark.parametrize(
    ("number", "kind_of_error"),
    [
        *((number, Transient) for number in (1205, 1213, 1290, 1836, 1180, 2006, 2013, 3100, 3101, 3032)),
        *((number, Transient) for number in (8002, 8005, 8022, 8027, 8028, 9005, 9007)),
        *((number, Halted) for number in (1048, 1062, 1146, 1153, 1197, 1264, 1366, 1406, 1452, 8004, 8025)),
    ],
)
def test_temporary_errors_are_distinguished_from_permanent_ones(number: int, kind_of_error: type[Exception]) -> None:
    assert isinstance(translate(pymysql.err.OperationalError(number, "text"), "a.b"), kind_of_error)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (3, "Error writing file '/tmp/#sql/fd=54' (Errcode: 28 \"No space left on device\")"),
        (3, "Error writing file '/tmp/MLfd=34' (OS errno 28 - No space left on device)"),
        (20, "Disk is full writing './bin.000001' (Errcode: 28). Waiting for someone to free space..."),
        (1005, 'Can\'t create table `d`.`t` (errno: 28 "No space left on device")'),
        (1021, "Disk got full writing '.(temporary)' (Errcode: 28 \"No space left on device\")"),
        (1026, "Error writing file 'bin' (errno: 122 - Disk quota exceeded)"),
        (1030, 'Got error 28 "No space left on device" from storage engine InnoDB'),
        (1030, "Got error 122 - 'Disk quota exceeded' from storage engine"),
        (1114, "The table 't' is full"),
        (1180, "Got error 28 - 'No space left on device' during COMMIT"),
        (1878, "Temporary file write failure."),
        (3675, "Create table/tablespace 't' failed, as disk is full"),
    ],
)
def test_a_full_disk_of_the_target_is_waited_for(number: int, text: str) -> None:
    error = translate(pymysql.err.OperationalError(number, text), "a.b")
    assert isinstance(error, Transient)
    assert error.code == "target-full"
    assert error.what.startswith(f"the target has no space: {text}")
    assert "Make room" in error.todo


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (3, "Error writing file 't' (Errcode: 5 \"Input/output error\")"),
        (1030, 'Got error 122 "Internal (unspecified) error in handler" from storage engine Aria'),
        (1030, 'Got error 168 "Unknown (generic) error from engine" from storage engine InnoDB'),
        (1030, "Got error 168 - 'Unknown (generic) error from engine' from storage engine"),
        (1062, "Duplicate entry 'errno: 28' for key 'PRIMARY'"),
    ],
)
def test_other_errors_of_files_are_not_waited_for(number: int, text: str) -> None:
    """No such error is known to end by itself. A halt stops one table, and waiting would stop the whole task."""
    error = translate(pymysql.err.OperationalError(number, text), "a.b")
    assert isinstance(error, Halted)
    assert error.code == "target-refused"
    assert ("Read the target's error log" in error.todo) == (number != 1062)


@pytest.mark.parametrize(("number", "advice"), [(1180, "error log"), (3100, "transaction_size_limit")])
def test_an_error_inside_the_server_s_commit_names_the_server_s_log(number: int, advice: str) -> None:
    """The task tries again without end: only the server's log has the cause."""
    error = translate(pymysql.err.OperationalError(number, "Error on observer while running replication hook"))
    assert isinstance(error, Transient)
    assert "error log" in error.todo
    assert advice in error.todo


@BOTH
def test_a_transaction_that_is_too_large_for_the_log_names_no_row(
    target: MySqlTarget, task: str, structure: Table
) -> None:
    session = target.connect()
    names = ("binlog_cache_size", "max_binlog_cache_size")
    usual = [session.rows(f"SELECT @@{name}")[0][0] for name in names]

    def limit(*sizes: int) -> None:
        for name, size in zip(names, sizes, strict=True):
            session.execute(f"SET GLOBAL {name} = {size}")

    epoch = session.meta.checkpoints.claim(task, "s", 1, checkpoint(100))[0].epoch
    large = change(structure, upserts=[(number, number) for number in range(30_000)])
    limit(32 << 10, 64 << 10)
    with Committer(target, task, "s", epoch) as writer:
        try:
            with pytest.raises(Halted, match="1197") as caught:
                writer.commit(0, lsn(100), checkpoint(200), lambda _: [large])
        finally:
            limit(*usual)
            session.close()
    assert caught.value.code == "transaction-too-large"
    assert not caught.value.where.key, "any row might be the last one that fits"
    assert "max_binlog_cache_size" in caught.value.todo


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (1044, "Grant"),
        (1142, "Grant"),
        (1197, "max_binlog_cache_size"),
        (8004, "split"),
        (8025, "txn-entry-size-limit"),
        (1062, "Compare"),
    ],
)
def test_the_advice_fits_the_refusal(number: int, advice: str) -> None:
    refused = translate(pymysql.err.OperationalError(number, "text"), "a.b")
    assert isinstance(refused, Halted)
    assert advice in refused.todo
