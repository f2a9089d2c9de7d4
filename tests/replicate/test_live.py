"""Real servers: whatever happens to them, to the connection or to the replicator, the relay has their log byte for
byte.
"""

from __future__ import annotations

import multiprocessing
import shutil
import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pidts import sandbox
from pidts.binlog import EventType, iter_raw
from pidts.model import Halted, LogEntry, Position
from pidts.relay import RelayReader, list_segments
from pidts.relay.folder import Folder
from pidts.relay.servers_read import servers_read
from pidts.replicate import Replicator, ReplicatorConfig, read_status, run_process
from pidts.sandbox import Server
from pidts.source import SourceConfig, connect, log_end, position

RunSql = Callable[..., list[tuple[Any, ...]]]
pytestmark = pytest.mark.repeats("mysql56")
STARTS = [sandbox.start_mariadb, pytest.param(sandbox.start_mysql56, marks=pytest.mark.long)]
# Events that MariaDB sends only to clients that ask for them.
NOT_SENT = {EventType.ANNOTATE_ROWS}


def source_of(server: Server) -> SourceConfig:
    return SourceConfig(server.host, server.port, server.user, server.password, source_id="s")


def end_of(server: Server) -> Position:
    connection = connect(source_of(server))
    try:
        return log_end(connection)
    finally:
        connection.close()


def executed_on(server: Server) -> str:
    connection = connect(source_of(server))
    try:
        return position(connection)[1]
    finally:
        connection.close()


class Following:
    """A replicator in a thread."""

    def __init__(self, config: ReplicatorConfig) -> None:
        self.replicator = Replicator(config)
        self.reader = RelayReader(config.relay, "s")
        self.error: BaseException | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.replicator.run(self._stop)
        except BaseException as error:  # noqa: BLE001
            self.error = error

    def until(self, condition: Callable[[], object], seconds: float = 60) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            if self.error is not None:
                raise self.error
            assert time.monotonic() < deadline, self.replicator.state()
            time.sleep(0.01)

    def until_received(self, server: Server) -> None:
        """Waits until everything is received that the server has logged by now."""
        end = end_of(server)

        def is_there() -> bool:
            received = self.reader.received
            return received is not None and (received.log_index, received.offset) >= (end.log_index, end.offset)

        self.until(is_there)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(60)
        assert not self._thread.is_alive()
        if self.error is not None:
            raise self.error


@contextmanager
def following(config: ReplicatorConfig) -> Iterator[Following]:
    run = Following(config)
    try:
        yield run
    except BaseException:
        run._stop.set()
        run._thread.join(60)
        raise
    run.stop()


def assert_holds_the_log(relay: Path, server: Server, start: Position) -> list[LogEntry]:
    """Checks that the relay has every byte of the server's files from `start` to the received end, and nothing else.

    The check does not go to the end of the server's log: MariaDB adds a checkpoint event to a new file at any time.
    """
    reader = RelayReader(relay, "s")
    entries = list(reader.entries())
    held: dict[int, bytearray] = defaultdict(bytearray)
    for entry in entries:
        held[entry.transaction.begin.log_index] += reader.read(entry.extent)
    reader.close()
    end = entries[-1].transaction.lsn
    for index in range(start.log_index, end.log_index + 1):
        file = server.directory / "binlog" / Position.of(start.base, index, 4).file
        data = file.read_bytes()[: end.offset if index == end.log_index else None]
        begin = start.offset if index == start.log_index else 4
        real = b"".join(
            raw for raw in map(bytes, iter_raw(data[begin:])) if raw[4] not in NOT_SENT | {EventType.FORMAT_DESCRIPTION}
        )
        assert bytes(held[index]) == real
    assert set(held) <= set(range(start.log_index, end.log_index + 1))
    return entries


def write(run_sql: RunSql, server: Server, database: str, rows: int, size: int = 20) -> None:
    run_sql(
        server, "CREATE TABLE IF NOT EXISTS t (id INT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(9000))", database=database
    )
    for number in range(rows):
        run_sql(server, "INSERT INTO t (v) VALUES (%s), (%s)", "x" * size, f"y{number}", database=database)


def test_follows_over_rotations(mysql_like: Server, run_sql: RunSql, database: str, tmp_path: Path) -> None:
    run_sql(mysql_like, "FLUSH BINARY LOGS")
    start = Position(end_of(mysql_like).file, 4)
    with following(ReplicatorConfig(source_of(mysql_like), tmp_path, start)) as run:
        for _ in range(3):
            write(run_sql, mysql_like, database, 5)
            run_sql(mysql_like, "FLUSH BINARY LOGS")
        write(run_sql, mysql_like, database, 5)
        run.until_received(mysql_like)
        # Log that was received is in the relay before it is in the state.
        run.until(lambda: run.replicator.state().source_time >= time.time() - 120)
        assert run.replicator.state().connected
    entries = assert_holds_the_log(tmp_path, mysql_like, start)
    assert sum(entry.transaction.row_events for entry in entries) == 20
    assert any((entry.transaction.ddl or "").startswith("CREATE TABLE") for entry in entries)
    assert len(list_segments(tmp_path, "s")) >= 4
    status = read_status(tmp_path, "s")
    assert status is not None
    assert (status["connected"], status["error"]) == (False, None)
    assert status["received"] == str(entries[-1].transaction.lsn)


def test_starts_in_the_middle_and_continues_in_the_same_segment(
    mysql_like: Server, run_sql: RunSql, database: str, tmp_path: Path
) -> None:
    write(run_sql, mysql_like, database, 2)
    start = end_of(mysql_like)
    for _ in range(3):
        with following(ReplicatorConfig(source_of(mysql_like), tmp_path, None)) as run:
            run.until(lambda run=run: run.replicator.state().connected)  # type: ignore[misc]
            write(run_sql, mysql_like, database, 3)
            run.until_received(mysql_like)
        write(run_sql, mysql_like, database, 2)
    folder, address = Folder.of(tmp_path, "s").path, f"{mysql_like.host}:{mysql_like.port}"
    assert servers_read(folder) == {0: address}
    (folder / "servers").unlink()  # As if the disk had been full when this part of the log began
    with following(ReplicatorConfig(source_of(mysql_like), tmp_path, None)) as run:
        run.until_received(mysql_like)
    assert servers_read(folder) == {0: address}
    assert_holds_the_log(tmp_path, mysql_like, start)
    assert len(list_segments(tmp_path, "s")) == 1


def test_gtid_and_position_give_the_same_relay(
    mysql_like: Server, run_sql: RunSql, database: str, tmp_path: Path
) -> None:
    write(run_sql, mysql_like, database, 1)
    run_sql(mysql_like, "FLUSH BINARY LOGS")
    write(run_sql, mysql_like, database, 1)
    start, gtids = end_of(mysql_like), executed_on(mysql_like)
    write(run_sql, mysql_like, database, 3)
    run_sql(mysql_like, "FLUSH BINARY LOGS")
    write(run_sql, mysql_like, database, 3)
    by_position = ReplicatorConfig(source_of(mysql_like), tmp_path / "position", start)
    by_gtid = ReplicatorConfig(source_of(mysql_like), tmp_path / "gtid", gtids, use_gtid=True)
    found = []
    for config in (by_position, by_gtid):
        with following(config) as run:
            run.until_received(mysql_like)
        write(run_sql, mysql_like, database, 1)
        with following(config) as run:
            run.until_received(mysql_like)
        entries = list(RelayReader(config.relay, "s").entries())
        found.append([entry.transaction for entry in entries if entry.transaction.gtid])
    in_one, in_other = found
    by_lsn = [(one.lsn, one.gtid, one.begin, one.tables) for one in in_one]
    assert by_lsn == [(one.lsn, one.gtid, one.begin, one.tables) for one in in_other][: len(by_lsn)]
    reader = RelayReader(by_gtid.relay, "s")
    assert reader.received is not None
    assert reader.gtid_set(reader.received) == executed_on(mysql_like)


def test_a_cut_connection_is_made_again(mysql_like: Server, run_sql: RunSql, database: str, tmp_path: Path) -> None:
    start = end_of(mysql_like)
    with following(ReplicatorConfig(source_of(mysql_like), tmp_path, start)) as run:
        for number in range(1, 4):
            write(run_sql, mysql_like, database, 3, size=5000)
            run.until(lambda: run.replicator.state().connected)
            dumps = "SELECT id FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'"
            for (thread,) in run_sql(mysql_like, dumps):
                run_sql(mysql_like, f"KILL {thread}")
            write(run_sql, mysql_like, database, 3, size=5000)
            run.until_received(mysql_like)
            assert run.replicator.state().reconnects == number
    assert_holds_the_log(tmp_path, mysql_like, start)


def test_kill_9_of_the_replicator(mariadb: Server, run_sql: RunSql, database: str, tmp_path: Path) -> None:
    start = end_of(mariadb)
    config = ReplicatorConfig(source_of(mariadb), tmp_path, start, segment_bytes=20_000)
    spawn = multiprocessing.get_context("spawn")
    writing = threading.Event()

    def keep_writing() -> None:
        while not writing.is_set():
            write(run_sql, mariadb, database, 5, size=3000)
            time.sleep(0.1)  # More rows would only make the final comparison longer.

    thread = threading.Thread(target=keep_writing)
    thread.start()
    try:
        for number in range(4):
            process = spawn.Process(target=run_process, args=(config,))
            process.start()
            before = RelayReader(tmp_path, "s").received
            assert RelayReader(tmp_path, "s").wait(before, 60)
            time.sleep(0.07 * number)
            process.kill()
            process.join()
            list(RelayReader(tmp_path, "s").entries())
    finally:
        writing.set()
        thread.join()
    with following(config) as run:
        run.until_received(mariadb)
    assert_holds_the_log(tmp_path, mariadb, start)


@pytest.mark.parametrize("start_server", STARTS)
def test_the_server_dies_and_comes_back_and_is_reset(
    start_server: Callable[[], Server], run_sql: RunSql, tmp_path: Path
) -> None:
    with start_server() as server:
        run_sql(server, "CREATE DATABASE d")
        start = Position("bin.000001", 4)
        config = ReplicatorConfig(source_of(server), tmp_path, start)
        with following(config) as run:
            for _ in range(2):
                write(run_sql, server, "d", 10)
                run.until_received(server)
                server.kill()
                run.until(lambda: not run.replicator.state().connected)
                server.start()
                write(run_sql, server, "d", 10)
                run.until_received(server)
        assert_holds_the_log(tmp_path, server, start)
        run_sql(server, "RESET MASTER")
        with pytest.raises(Halted) as caught, following(config) as run:
            run.until(lambda: False)
        assert caught.value.code == "source-went-back"
        status = read_status(tmp_path, "s")
        assert status is not None
        assert status["error"]["code"] == "source-went-back"


@pytest.mark.parametrize("start_server", STARTS)
def test_a_log_that_was_reset_and_grew_again_is_not_the_old_log(
    start_server: Callable[[], Server], run_sql: RunSql, tmp_path: Path
) -> None:
    with start_server() as server:
        run_sql(server, "CREATE DATABASE d")
        config = ReplicatorConfig(source_of(server), tmp_path, Position("bin.000001", 4))
        run_sql(server, "RESET MASTER")
        write(run_sql, server, "d", 3)
        with following(config) as run:
            run.until_received(server)
        received = end_of(server)
        run_sql(server, "DROP TABLE d.t")
        time.sleep(1.1)  # The time of a file's creation has whole seconds.
        run_sql(server, "RESET MASTER")
        write(run_sql, server, "d", 3)
        assert end_of(server) == received
        write(run_sql, server, "d", 3)
        with pytest.raises(Halted, match="is not the event that was received") as caught, following(config) as run:
            run.until(lambda: False)
        assert caught.value.code == "source-went-back"


@pytest.mark.parametrize("start_server", STARTS)
def test_another_server_takes_over_by_gtid(
    start_server: Callable[..., Server], run_sql: RunSql, tmp_path: Path
) -> None:
    relay = tmp_path / "relay"
    with start_server(tmp_path / "a") as first:
        run_sql(first, "CREATE DATABASE d")
        write(run_sql, first, "d", 5)
        first.stop()
        shutil.copytree(tmp_path / "a", tmp_path / "b", ignore=shutil.ignore_patterns("auto.cnf", "s.sock"))
        # The copied list of log files has the former paths. So the copied server begins a log of its own, and has
        # executed all that the first server had executed.
        first.start()
        with following(ReplicatorConfig(source_of(first), relay, Position("bin.000001", 4))) as run:
            run.until_received(first)
    with start_server(tmp_path / "b") as second:
        with pytest.raises(Halted) as caught, following(ReplicatorConfig(source_of(second), relay)) as run:
            run.until(lambda: False)
        assert caught.value.code == "other-source"
        write(run_sql, second, "d", 3)
        config = ReplicatorConfig(source_of(second), relay, use_gtid=True)
        with following(config) as run:
            run.until(lambda: run.replicator.state().connected)
            write(run_sql, second, "d", 2)
            run.until(lambda: run.replicator.state().position == str(end_of(second)))
        with following(config) as run:
            run.until(lambda: run.replicator.state().connected)
            write(run_sql, second, "d", 2)
            run.until(lambda: run.replicator.state().position == str(end_of(second)))
        entries = [entry.transaction for entry in RelayReader(relay, "s").entries()]
        new = [one for one in entries if one.lsn.change_no == 1]
        assert sum(one.row_events for one in new) == 7
        assert {one.lsn.change_no for one in entries} == {0, 1}
        gtids = [one.gtid for one in entries if one.gtid]
        assert len(gtids) == len(set(gtids))
        assert RelayReader(relay, "s").gtid_set(entries[-1].lsn) == executed_on(second)


def test_mariadb_binlog_reads_a_segment(mariadb: Server, run_sql: RunSql, database: str, tmp_path: Path) -> None:
    start = end_of(mariadb)
    write(run_sql, mariadb, database, 5)
    with following(ReplicatorConfig(source_of(mariadb), tmp_path, start)) as run:
        run.until_received(mariadb)
    command = ["mariadb-binlog", "--no-defaults", "--verify-binlog-checksum", "-v", tmp_path / "s" / "000000001.log"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count(f"### INSERT INTO `{database}`.`t`") == 10


def test_an_unreachable_server_is_tried_again_and_a_refused_login_is_not(mariadb: Server, tmp_path: Path) -> None:
    nobody = SourceConfig("127.0.0.1", 9, source_id="s")
    with following(ReplicatorConfig(nobody, tmp_path)) as run:
        run.until(lambda: run.replicator.state().error)
        error = run.replicator.state().error
        assert error is not None
        assert error.code == "source-unreachable"
    stranger = SourceConfig(mariadb.host, mariadb.port, "nobody", "secret-word", source_id="s")
    run = Following(ReplicatorConfig(stranger, tmp_path))
    run.until(lambda: run.error)
    assert "access-denied" in str(run.error)
    status = (tmp_path / "s" / "status.json").read_text()
    assert "access-denied" in status
    assert "secret-word" not in status + str(run.error)


def test_a_transaction_s_bytes_begin_with_it_however_fast_files_rotate(
    mariadb: Server, database: str, run_sql: RunSql, tmp_path: Path
) -> None:
    """MariaDB writes bookkeeping events at the head of a file, and more of them while the log is full of MyISAM rows."""
    start = end_of(mariadb)
    run_sql(mariadb, "CREATE TABLE i (id INT AUTO_INCREMENT PRIMARY KEY) ENGINE=InnoDB", database=database)
    run_sql(mariadb, "CREATE TABLE m (id INT AUTO_INCREMENT PRIMARY KEY) ENGINE=MyISAM", database=database)
    for number in range(12):
        for _ in range(10):
            run_sql(mariadb, "INSERT INTO i VALUES ()", database=database)
        for _ in range(1 + 2 * (number % 3 == 0)):
            run_sql(mariadb, "FLUSH LOGS")
        run_sql(mariadb, "INSERT INTO m VALUES ()", database=database)
    # All rows are written in a few bursts, so that nothing is synced in between.
    following = Following(ReplicatorConfig(source_of(mariadb), tmp_path, start))
    try:
        following.until_received(mariadb)
    finally:
        following.stop()
    reader = following.reader
    rows = 0
    for entry in reader.entries():
        first = bytes(next(iter_raw(reader.read(entry.extent))))
        end_pos, size = int.from_bytes(first[13:17], "little"), int.from_bytes(first[9:13], "little")
        if entry.transaction.row_events:
            assert end_pos - size == entry.transaction.begin.offset
            rows += 1
    assert rows == 12 * 11
    reader.close()
