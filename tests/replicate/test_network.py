"""Slow, dead or cut connections, and servers that go away: this is noticed, and the replicator tries to connect until
it succeeds.
"""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import replace

import pytest

from pidts.login import Mode, Tls
from pidts.model.errors import Halted, Transient
from pidts.relay import RelayReader
from pidts.replicate import ReplicatorConfig, replicator
from pidts.source import BinlogStream, connect, query
from pidts.source.dump import longest_silence
from pidts.target.mysql import MySqlTarget

from .proxy import Proxy
from .test_live import assert_holds_the_log, end_of, following, source_of, write

XID = 16


def kinds(events: list[bytes]) -> list[int]:
    return [event[4] for event in events]


def read_all(stream: BinlogStream, into: list[bytes], seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        into += stream.read_burst(0.1)


def read_on(stream: BinlogStream, seconds: float) -> None:
    read_all(stream, [], seconds)


def test_a_large_event_may_take_long_to_arrive(mariadb, run_sql, database):
    """For longer than the allowed silence, no event is complete, but bytes arrive all the time."""
    run_sql(mariadb, f"CREATE TABLE {database}.t (a INT PRIMARY KEY, b LONGBLOB)")
    start = end_of(mariadb)
    run_sql(mariadb, f"INSERT INTO {database}.t VALUES (1, REPEAT('x', 3000000))")
    with Proxy(mariadb.port, bytes_a_second=2_000_000) as proxy:
        config = replace(source_of(mariadb), port=proxy.port, tls=Tls(Mode.DISABLED))
        with BinlogStream(config, start) as stream:
            stream._silence, stream._searching = 1.0, False
            events = []
            until = time.monotonic() + 60
            while XID not in kinds(events) and time.monotonic() < until:
                events += stream.read_burst(0.1)
    assert XID in kinds(events)


@pytest.mark.parametrize("tls", [Tls(Mode.DISABLED), Tls(Mode.REQUIRED)])
def test_a_line_that_went_dead_is_noticed_within_an_event(mysql97, run_sql, database, tls):
    run_sql(mysql97, f"CREATE TABLE {database}.t (a INT PRIMARY KEY, b LONGBLOB)")
    start = end_of(mysql97)
    run_sql(mysql97, f"INSERT INTO {database}.t VALUES (1, REPEAT('x', 3000000))")
    with Proxy(mysql97.port) as proxy:
        config = replace(source_of(mysql97), port=proxy.port, tls=tls)
        proxy.freeze_after(1_000_000)
        with BinlogStream(config, start, heartbeat=0.1) as stream:
            stream._silence, stream._searching = 0.5, False
            events = []
            with pytest.raises(Transient) as silent:
                read_all(stream, events, 60)
    assert silent.value.code == "source-silent"
    assert XID not in kinds(events)


def test_a_server_may_search_for_the_start_for_a_while_but_not_for_ever(mariadb, monkeypatch):
    start = end_of(mariadb)
    monkeypatch.setattr("pidts.source.dump._SEARCH_SECONDS", 0.6)
    with Proxy(mariadb.port) as proxy:
        config = replace(source_of(mariadb), port=proxy.port, tls=Tls(Mode.DISABLED))
        with BinlogStream(config, start, heartbeat=0.1) as stream:
            proxy.freeze_after(0)
            stream._silence = 0.1
            begun = time.monotonic()
            with pytest.raises(Transient) as silent:
                read_on(stream, 60)
            assert time.monotonic() - begun > 0.4
    assert silent.value.code == "source-silent"


def test_a_dead_line_is_noticed_before_the_stream_begins(mariadb):
    with Proxy(mariadb.port) as proxy:
        config = replace(source_of(mariadb), port=proxy.port)
        session = connect(config, answer_within=0.5)
        proxy.freeze_after(0)
        with pytest.raises(Transient) as lost:
            query(session, "SELECT 1")
        assert lost.value.code == "source-lost"
        with pytest.raises(Transient):
            connect(replace(config, connect_timeout=0.5))


def test_a_line_that_is_cut_or_dead_anywhere_costs_nothing_but_time(mysql97, run_sql, database, tmp_path, monkeypatch):
    monkeypatch.setattr("pidts.source.dump._SEARCH_SECONDS", 2.0)
    start = end_of(mysql97)
    with Proxy(mysql97.port) as proxy:
        source = replace(source_of(mysql97), port=proxy.port, tls=Tls(Mode.REQUIRED), connect_timeout=1.0)
        with following(ReplicatorConfig(source, tmp_path, start, heartbeat=0.1)) as run:
            run.until(lambda: run.replicator.state().connected)
            for number, left in enumerate((0, 20_000), 1):
                proxy.freeze_after(left)
                write(run_sql, mysql97, database, 5, size=8000)
                run.until(lambda: not run.replicator.state().connected)
                error = run.replicator.state().error
                assert error is not None
                assert error.code in {"source-silent", "source-lost", "source-unreachable"}
                proxy.thaw()
                run.until_received(mysql97)
                assert run.replicator.state().reconnects >= number
            proxy.cut()
            write(run_sql, mysql97, database, 3)
            run.until_received(mysql97)
    assert_holds_the_log(tmp_path, mysql97, start)


@pytest.mark.parametrize("kernel", ["compiled", "python"])
def test_bytes_that_arrive_damaged_are_asked_for_again(mariadb, run_sql, database, tmp_path, monkeypatch, kernel):
    if kernel == "python":
        monkeypatch.setattr("pidts.replicate.receiver.compiled", lambda: False)
    run_sql(mariadb, f"CREATE TABLE {database}.t (v VARCHAR(99))")
    start = end_of(mariadb)
    insert = f"INSERT INTO {database}.t VALUES ('row to damage')"
    with Proxy(mariadb.port) as proxy:
        source = replace(source_of(mariadb), port=proxy.port, tls=Tls(Mode.DISABLED))
        with following(ReplicatorConfig(source, tmp_path, start, heartbeat=0.1)) as run:
            run.until(lambda: run.replicator.state().connected)
            # Each replacement changes the value in the row's event, so the event's checksum is wrong.
            for number, (old, new) in enumerate(((b"to damage", b"so damage"), (b"row to d", b"row\0to d")), 1):
                proxy.replace(old, new, times=1)
                run_sql(mariadb, insert)
                run.until(lambda number=number: run.replicator.state().reconnects == number)
                run.until_received(mariadb)
    assert_holds_the_log(tmp_path, mariadb, start)


def test_damage_in_the_records_of_tls_is_a_lost_line(mysql97, run_sql, database, tmp_path):
    start = end_of(mysql97)
    with Proxy(mysql97.port) as proxy:
        source = replace(source_of(mysql97), port=proxy.port, tls=Tls(Mode.REQUIRED))
        with following(ReplicatorConfig(source, tmp_path, start, heartbeat=0.1)) as run:
            run.until(lambda: run.replicator.state().connected)
            proxy.flip_after(5000)
            write(run_sql, mysql97, database, 5, size=8000)
            run.until_received(mysql97)
            assert proxy._flip is None
    assert_holds_the_log(tmp_path, mysql97, start)


def test_damage_that_repeats_at_the_same_place_is_an_error(mariadb, run_sql, database, tmp_path):
    run_sql(mariadb, f"CREATE TABLE {database}.t (v VARCHAR(99))")
    start = end_of(mariadb)
    with Proxy(mariadb.port) as proxy:
        proxy.replace(b"row to damage", b"row so damage", times=9)
        source = replace(source_of(mariadb), port=proxy.port, tls=Tls(Mode.DISABLED))
        run_sql(mariadb, f"INSERT INTO {database}.t VALUES ('a sound row')")
        run_sql(mariadb, f"INSERT INTO {database}.t VALUES ('row to damage')")
        with (
            pytest.raises(Halted) as caught,
            following(ReplicatorConfig(source, tmp_path, start, heartbeat=0.1)) as run,
        ):
            run.until(lambda: False)
        assert caught.value.code == "bad-checksum"
        assert run.replicator.state().reconnects <= 1, "the second time is enough"
    with closing(RelayReader(tmp_path, "s")) as reader:
        assert sum(entry.transaction.row_events for entry in reader.entries()) == 1


def test_a_packet_out_of_order_is_a_lost_line_on_both_sides(mariadb):
    """The packet comes after the login. Before the login, it may come from a program that is no MySQL server."""
    with Proxy(mariadb.port) as proxy:
        config = replace(source_of(mariadb), port=proxy.port, tls=Tls(Mode.DISABLED))
        session = connect(config)
        proxy.replace(b"\1\0\0\1", b"\1\0\0\7", times=1)
        with pytest.raises(Transient) as lost:
            query(session, "SELECT 1")
        assert lost.value.code == "source-damaged"
        target = MySqlTarget("127.0.0.1", proxy.port, source_of(mariadb).user, tls=Tls(Mode.DISABLED))
        with closing(target.connect()) as opened:
            proxy.replace(b"\1\0\0\1", b"\1\0\0\7", times=1)
            with pytest.raises(Transient) as lost:
                opened.meta.checkpoints.read("t", "s")
        assert lost.value.code == "target-lost"


def test_a_long_heartbeat_is_no_silence():
    assert longest_silence(30.0) == 120.0
    assert longest_silence(0.1) == 2.0


def test_tries_again_ever_more_slowly_but_not_without_bound(tmp_path, monkeypatch):
    pauses = []

    class Stop:
        def is_set(self):
            return len(pauses) >= 9

        def wait(self, seconds):
            pauses.append(seconds)

    run = replicator.Replicator(ReplicatorConfig(replace(source_of_nobody(), connect_timeout=0.2), tmp_path))
    run.run(Stop())
    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[-1]) == (0.2, 10.0)


def source_of_nobody():
    from pidts.source import SourceConfig

    return SourceConfig("127.0.0.1", 9, source_id="s")
