"""Lines that are slow, go dead or are cut, and servers that go away: noticed, and tried again until they are back."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from pidts.login import Mode, Tls
from pidts.model.errors import Transient
from pidts.replicate import ReplicatorConfig, replicator
from pidts.source import BinlogStream, connect, query

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


def test_a_large_event_may_be_long_on_its_way(mariadb, run_sql, database):
    """No event is complete for longer than the silence that would be too long, but bytes come all the time."""
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
