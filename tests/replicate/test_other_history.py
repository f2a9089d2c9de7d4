"""If a source does not have the same log as before, this is noticed, whatever the log's name and length are."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from pidts import sandbox
from pidts.model import Halted, LogFile, Lsn, Position, parse_gtid_set
from pidts.relay import Origin, RelayReader, RelayWriter
from pidts.replicate import AppliedPlace, ReplicatorConfig, log_file_at
from pidts.sandbox import Server
from pidts.source import BinlogStream, connect, event_at, gtids_before, position, server_info

from .test_live import RunSql, assert_holds_the_log, end_of, executed_on, following, source_of, write


def halted(config: ReplicatorConfig) -> Halted:
    with pytest.raises(Halted) as caught, following(config) as run:
        run.until(lambda: False)
    return caught.value


def log_file(server: Server) -> Path:
    return server.directory / "binlog" / end_of(server).file


def test_an_event_is_found_at_its_place_and_nowhere_else(mysql_like: Server, run_sql: RunSql, database: str) -> None:
    begin = end_of(mysql_like)
    write(run_sql, mysql_like, database, 1)
    data = log_file(mysql_like).read_bytes()
    size = int.from_bytes(data[begin.offset + 9 :][:4], "little")
    source = source_of(mysql_like)
    assert event_at(source, begin) == data[begin.offset :][:size]
    for offset in (begin.offset + 7, len(data) + 1000):
        assert event_at(source, replace(begin, offset=offset)) is None


def test_the_gtids_before_a_position_are_all_of_them(mysql_like: Server, run_sql: RunSql, database: str) -> None:
    """This includes domains and tags that were used only once, and positions before the end of the log."""
    several = {"mariadb": "SET gtid_domain_id = 7", "mysql97": "SET gtid_next = 'AUTOMATIC:red'", "mysql56": "DO 0"}
    for change in (several[mysql_like.kind], "DO 0"):
        session = connect(source_of(mysql_like))
        write(run_sql, mysql_like, database, 2)
        session.query(change)
        session.query(f"INSERT INTO {database}.t (v) VALUES ('z')")
        place, executed = position(session)
        write(run_sql, mysql_like, database, 2)
        info = server_info(session)
        for at, expected in ((place, executed), (end_of(mysql_like), executed_on(mysql_like))):
            found = gtids_before(source_of(mysql_like), session, info, at)
            assert found is not None
            assert parse_gtid_set(found) == parse_gtid_set(expected)
        run_sql(mysql_like, "FLUSH BINARY LOGS")
        session.close()


def test_the_gtids_after_an_event_that_is_larger_than_a_packet(
    mysql_like: Server, run_sql: RunSql, database: str
) -> None:
    """MariaDB's function BINLOG_GTID_POS fails at an event that is larger than a packet.

    Then PiDTS itself reads the log file.
    """
    run_sql(mysql_like, "FLUSH BINARY LOGS")
    run_sql(mysql_like, f"CREATE TABLE {database}.large (a LONGTEXT, b LONGTEXT)")
    (packet,) = run_sql(mysql_like, "SELECT @@max_allowed_packet")[0]
    half = f"REPEAT('z', {packet * 2 // 3})"
    run_sql(mysql_like, f"INSERT INTO {database}.large VALUES ({half}, {half})")
    session = connect(source_of(mysql_like))
    found = gtids_before(source_of(mysql_like), session, server_info(session), end_of(mysql_like))
    session.close()
    assert found is not None
    assert parse_gtid_set(found) == parse_gtid_set(executed_on(mysql_like))


@pytest.mark.parametrize("use_gtid", [False, True])
def test_domains_and_tags_are_followed_and_resumed(
    mysql_like: Server, run_sql: RunSql, database: str, tmp_path: Path, use_gtid: bool
) -> None:
    changes = {
        "mariadb": ("SET gtid_domain_id = 3", "SET gtid_domain_id = 4"),
        "mysql97": ("SET gtid_next = 'AUTOMATIC:green'", "SET gtid_next = 'AUTOMATIC:blue'"),
        "mysql56": ("DO 0", "DO 0"),
    }[mysql_like.kind]
    write(run_sql, mysql_like, database, 1)
    start = end_of(mysql_like)
    config = ReplicatorConfig(source_of(mysql_like), tmp_path, start, use_gtid=use_gtid)
    for change in changes:
        with following(config) as run:
            run.until(lambda run=run: run.replicator.state().connected)  # type: ignore[misc]
            session = connect(source_of(mysql_like))
            session.query(change)
            session.query(f"INSERT INTO {database}.t (v) VALUES ('z')")
            session.close()
            run.until_received(mysql_like)
        write(run_sql, mysql_like, database, 1)
    with following(config) as run:
        run.until_received(mysql_like)
    entries = assert_holds_the_log(tmp_path, mysql_like, start)
    # A relay that begins at a position without GTIDs nevertheless has the complete set.
    assert RelayReader(tmp_path, "s").gtid_set(entries[-1].transaction.lsn) == executed_on(mysql_like)


@pytest.mark.parametrize(
    "start_server", [sandbox.start_mariadb, pytest.param(sandbox.start_mysql56, marks=pytest.mark.long)]
)
def test_a_backup_that_was_restored_and_has_grown_since(
    start_server: Callable[..., Server], run_sql: RunSql, tmp_path: Path
) -> None:
    """The restored server is the same server with the same files and all received GTIDs, but with other contents."""
    home, backup, relay = tmp_path / "server", tmp_path / "backup", tmp_path / "relay"
    with start_server(home) as server:
        run_sql(server, "CREATE DATABASE d")
        write(run_sql, server, "d", 2)
        server.stop()
        shutil.copytree(home, backup, symlinks=True)
        server.start()
        config = ReplicatorConfig(source_of(server), relay, Position("bin.000001", 4))
        write(run_sql, server, "d", 2)
        with following(config) as run:
            run.until_received(server)
        received, gtids = end_of(server), executed_on(server)
        server.stop()
        shutil.rmtree(home)
        shutil.copytree(backup, home, symlinks=True)
        server.start()
        write(run_sql, server, "d", 9, size=50)
        mariadb = server.kind == "mariadb"
        assert parse_gtid_set(gtids, mariadb).issubset(parse_gtid_set(executed_on(server), mariadb))
        assert end_of(server).file == received.file
        for use_gtid in (False, True):
            error = halted(replace(config, use_gtid=use_gtid))
            assert (error.code, "is not the event that was received" in error.what) == ("source-went-back", True)


def test_the_check_of_the_log_ends_no_dump_of_another_reader(
    mariadb: Server, run_sql: RunSql, database: str, tmp_path: Path
) -> None:
    """Another task that has a source of the same name checks its log at this moment, and this account cannot see it."""
    write(run_sql, mariadb, database, 2)
    config = ReplicatorConfig(source_of(mariadb), tmp_path, end_of(mariadb))
    write(run_sql, mariadb, database, 2)
    with following(config) as run:
        run.until_received(mariadb)
    run_sql(mariadb, "CREATE USER seer@localhost")
    run_sql(mariadb, "GRANT REPLICATION SLAVE, BINLOG MONITOR, SLAVE MONITOR, SELECT ON *.* TO seer@localhost")
    try:
        source = replace(source_of(mariadb), user="seer", password="")
        with BinlogStream(source, end_of(mariadb), heartbeat=0.2) as other:
            other.read_burst()
            with following(replace(config, source=source)) as run:
                run.until(lambda: run.replicator.state().connected)
            until = time.monotonic() + 1
            while time.monotonic() < until:
                other.read_burst(0.1)  # raises if another dump has ended this one
    finally:
        run_sql(mariadb, "DROP USER seer@localhost")


def test_mysql_is_reset_and_grows_again(run_sql: RunSql, tmp_path: Path) -> None:
    with sandbox.start_mysql97() as server:
        run_sql(server, "CREATE DATABASE d")
        write(run_sql, server, "d", 2)
        config = ReplicatorConfig(source_of(server), tmp_path, Position("bin.000001", 4))
        with following(config) as run:
            run.until_received(server)
        end = end_of(server)
        run_sql(server, "RESET BINARY LOGS AND GTIDS")
        for use_gtid in (False, True):
            assert halted(replace(config, use_gtid=use_gtid)).code == "source-went-back"
        while (end_of(server).file, end_of(server).offset) <= (end.file, end.offset):
            write(run_sql, server, "d", 3)
        for use_gtid in (False, True):
            assert halted(replace(config, use_gtid=use_gtid)).code == "source-went-back"


@pytest.mark.parametrize("start_server", [sandbox.start_mariadb, sandbox.start_mysql97, sandbox.start_mysql56])
def test_a_log_is_reset_before_the_relay_has_received_anything(
    start_server: Callable[..., Server], run_sql: RunSql, tmp_path: Path
) -> None:
    """The new log may have a transaction's end where the old log ended, and by GTID it even seems to continue."""
    with start_server() as server:
        run_sql(server, "CREATE DATABASE d")
        write(run_sql, server, "d", 2)
        config = ReplicatorConfig(source_of(server), tmp_path, end_of(server))
        for _ in range(2):  # the same server, unchanged
            with following(config) as run:
                run.until(lambda run=run: run.replicator.state().connected)  # type: ignore[misc]
        time.sleep(1.1)  # the head of a log file has the second in which the file was created
        run_sql(server, "RESET BINARY LOGS AND GTIDS" if server.kind == "mysql97" else "RESET MASTER")
        write(run_sql, server, "d", 9, size=50)
        for use_gtid in (True, False):
            assert halted(replace(config, use_gtid=use_gtid)).code == "source-went-back"


@pytest.mark.parametrize("start_server", [sandbox.start_mariadb, sandbox.start_mysql97, sandbox.start_mysql56])
def test_a_log_is_reset_and_the_relay_is_lost(
    start_server: Callable[..., Server], run_sql: RunSql, tmp_path: Path
) -> None:
    """The new log has a transaction's end at the checkpoint's place, and the same GTIDs before this place."""

    def fill(word: str) -> None:
        run_sql(server, "DROP DATABASE IF EXISTS d")
        time.sleep(1.1)  # the head of a log file has the second in which the file was created
        run_sql(server, "RESET BINARY LOGS AND GTIDS" if server.kind == "mysql97" else "RESET MASTER")
        run_sql(server, "CREATE DATABASE d")
        write(run_sql, server, "d", 2)
        run_sql(server, f"INSERT INTO d.t (v) VALUES ('{word}')")

    with start_server() as server:
        fill("old")
        config = ReplicatorConfig(source_of(server), tmp_path / "lost", Position("bin.000001", 4))
        with following(config) as run:
            run.until_received(server)
        start = applied(config.relay, server)
        write(run_sql, server, "d", 2)
        for use_gtid in (True, False):  # the same log
            again = replace(config, relay=tmp_path / f"again {use_gtid}", start=start, use_gtid=use_gtid)
            with following(again) as run:
                run.until_received(server)
        fill("new")
        assert (str(end_of(server)), executed_on(server)) == (start.position, start.gtid_set)
        write(run_sql, server, "d", 2)
        for use_gtid in (True, False):
            error = halted(replace(again, relay=tmp_path / f"new {use_gtid}", use_gtid=use_gtid))
            assert (error.code, "bin.000001 (created" in error.what) == ("source-went-back", True)


@pytest.mark.parametrize("start_server", [sandbox.start_mariadb, sandbox.start_mysql56])
def test_a_relay_that_has_only_the_head_of_the_next_file_is_of_the_same_log(
    start_server: Callable[..., Server], tmp_path: Path
) -> None:
    """The server died, and the replicator died at the first event of the log file that the server then began."""
    with start_server() as server:
        place = end_of(server)
        server.kill()
        time.sleep(1.1)  # the head of a log file has the second in which the file was created
        server.restart()
        source = source_of(server)
        with closing(connect(source)) as session, closing(RelayWriter.open(tmp_path, "s")) as writer:
            writer.begin(Origin(server_info(session).identity, place.base, 0), Lsn.at(place), None)
            for file in (place.file, end_of(server).file):
                head = event_at(source, Position(file, 4))
                assert head is not None
                writer.start_segment(head)
        with following(ReplicatorConfig(source, tmp_path, place)) as run:
            run.until_received(server)


def test_the_log_file_of_a_place_is_found_before_and_after_log_was_received(
    mysql_like: Server, run_sql: RunSql, database: str, tmp_path: Path
) -> None:
    """A checkpoint at this place then has the log file, even if the relay is lost before it has received anything."""
    source, place = source_of(mysql_like), end_of(mysql_like)
    with closing(connect(source)) as session, closing(RelayReader(tmp_path, "s")) as relay:
        server = server_info(session).identity
        with following(ReplicatorConfig(source, tmp_path, place)) as run:
            run.until(lambda: run.replicator.state().connected)
            head = log_file(mysql_like).read_bytes()[4:]
            expected = LogFile.of_head(place.file, head, server)
            assert relay.first == relay.received == Lsn.at(place)
            assert log_file_at(source, session, relay, Lsn.at(place)) == expected
            assert log_file_at(source, session, relay, Lsn.at(place, 1)) is None
            write(run_sql, mysql_like, database, 1)
            run.until_received(mysql_like)
            assert log_file_at(source, session, relay, Lsn.at(place)) == expected


def test_a_relay_that_has_only_the_head_of_the_next_file_shows_no_log_file(
    mariadb: Server, run_sql: RunSql, tmp_path: Path
) -> None:
    place = end_of(mariadb)
    time.sleep(1.1)  # the head of a log file has the second in which the file was created
    run_sql(mariadb, "FLUSH BINARY LOGS")
    source = source_of(mariadb)
    with closing(connect(source)) as session, closing(RelayWriter.open(tmp_path, "s")) as writer:
        writer.begin(Origin(server_info(session).identity, place.base, 0), Lsn.at(place), None)
        head = event_at(source, Position(end_of(mariadb).file, 4))
        assert head is not None
        writer.start_segment(head)
        with closing(RelayReader(tmp_path, "s")) as relay:
            assert log_file_at(source, session, relay, Lsn.at(place)) is None


def test_a_mariadb_with_the_same_server_id(run_sql: RunSql, tmp_path: Path) -> None:
    """In a new container, the server is recognized by its log. Another server with the same server id is not taken for
    it.
    """
    relay = tmp_path / "relay"
    number = ("--server-id=77",)
    with sandbox.start_mariadb(tmp_path / "a", number) as server, sandbox.start_mariadb(options=number) as stranger:
        for one in (server, stranger):
            run_sql(one, "CREATE DATABASE d")
            write(run_sql, one, "d", 4)
            # Two servers with the same server id that run the same statements in the same second write the same log.
            time.sleep(1.1)
        config = ReplicatorConfig(source_of(server), relay, Position("bin.000001", 4), patience=0.3)
        with following(config) as run:
            run.until_received(server)
        # By its GTIDs, this server has all log that was received.
        write(run_sql, stranger, "d", 4)
        error = halted(replace(config, source=source_of(stranger)))
        assert (error.code, "server-id 77" in error.what) == ("other-source", True)
        for _ in range(20):
            run_sql(server, "INSERT INTO d.t (v) VALUES ('more')")
        with following(config) as run:
            run.until_received(server)
        error = halted(replace(config, source=source_of(stranger), use_gtid=True))
        assert (error.code, "lacks transactions" in error.what) == ("source-went-back", True)
        received = RelayReader(relay, "s").received
        server.stop()
    with sandbox.start_mariadb(tmp_path / "a", number) as moved:
        assert moved.port != server.port
        write(run_sql, moved, "d", 2)
        with following(replace(config, source=source_of(moved))) as run:
            run.until(lambda: run.replicator.state().connected)
            run.until_received(moved)
        entries = [entry.transaction for entry in RelayReader(relay, "s").entries(received)]
        assert {entry.lsn.change_no for entry in entries} == {1}
        assert sum(entry.row_events for entry in entries) == 2


def test_a_relay_that_was_lost_is_made_again_with_the_same_lsns(run_sql: RunSql, tmp_path: Path) -> None:
    with sandbox.start_mariadb(tmp_path / "a") as first:
        run_sql(first, "CREATE DATABASE d")
        write(run_sql, first, "d", 3)
        first.stop()
        shutil.copytree(tmp_path / "a", tmp_path / "b", ignore=shutil.ignore_patterns("auto.cnf", "s.sock"))
        first.start()
        with following(ReplicatorConfig(source_of(first), tmp_path / "old", Position("bin.000001", 4))) as run:
            run.until_received(first)
        before = applied(tmp_path / "old", first)
    with sandbox.start_mariadb(tmp_path / "b") as second:
        config = ReplicatorConfig(source_of(second), tmp_path / "old", use_gtid=True)
        write(run_sql, second, "d", 2)
        with following(config) as run:
            run.until(lambda: run.replicator.state().position == str(end_of(second)))
        after = applied(tmp_path / "old", second)
        assert (before.lsn.change_no, after.lsn.change_no) == (0, 1)
        write(run_sql, second, "d", 3)
        with following(config) as run:
            run.until(lambda: run.replicator.state().position == str(end_of(second)))
        for number, (start, use_gtid) in enumerate([(before, True), (after, True), (after, False)]):
            relay = tmp_path / f"new{number}"
            with following(replace(config, relay=relay, start=start, use_gtid=use_gtid)) as run:
                run.until(lambda run=run: run.replicator.state().position == str(end_of(second)))  # type: ignore[misc]
            known, made = (entries_of(at, start) for at in (tmp_path / "old", relay))
            # The copy of a server has the same log at this place, so the position is valid there, too.
            assert [(one.lsn.position("bin"), one.gtid, one.row_events) for one in made] == [
                (one.lsn.position("bin"), one.gtid, one.row_events) for one in known
            ]
            assert start is before or [one.lsn for one in made] == [one.lsn for one in known]
            assert made[0].lsn > start.lsn
            assert RelayReader(relay, "s").first == start.lsn
            last = RelayReader(relay, "s").received
            assert last is not None
            assert RelayReader(relay, "s").gtid_set(last) == executed_on(second)
        elsewhere = replace(after, position=str(replace(end_of(second), offset=4)))
        error = halted(replace(config, relay=tmp_path / "none", start=elsewhere, use_gtid=False))
        assert error.code == "other-source"


def applied(relay: Path, server: Server) -> AppliedPlace:
    reader = RelayReader(relay, "s")
    received = reader.received
    assert received is not None
    return AppliedPlace(received, str(end_of(server)), executed_on(server), reader.log_file(received))


def entries_of(relay: Path, start: AppliedPlace) -> list:
    entries = (entry.transaction for entry in RelayReader(relay, "s").entries(start.lsn))
    return [entry for entry in entries if entry.gtid]
