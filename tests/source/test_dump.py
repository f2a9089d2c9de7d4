"""The log of real servers arrives as a stream of events."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from pidts.model import Halted, PidtsError, Position, parse_gtid_set
from pidts.model.errors import Transient
from pidts.source import BinlogStream, log_end, position, query

ROTATE, FORMAT, XID = 4, 15, 16
ROWS = {23, 30}


def drain(stream: BinlogStream) -> list[bytes]:
    events = []
    with stream:
        while not stream.ended:
            events += stream.read_burst()
    return events


def read_on(stream: BinlogStream, seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        stream.read_burst(0.1)


def kinds(events: list[bytes]) -> list[int]:
    return [event[4] for event in events]


def ends(event: bytes) -> int:
    return int.from_bytes(event[13:17], "little")


def test_a_dump_brings_all_from_a_position_to_the_end(mysql_like, config_of, open_session, database):
    session = open_session(mysql_like)
    query(session, f"CREATE TABLE {database}.t (a INT PRIMARY KEY)")
    start = log_end(session)
    query(session, f"INSERT INTO {database}.t VALUES (1), (2)")
    query(session, f"UPDATE {database}.t SET a = 3 WHERE a = 2")
    events = drain(BinlogStream(config_of(mysql_like), start, non_blocking=True))
    assert kinds(events)[:2] == [ROTATE, FORMAT]
    assert kinds(events).count(XID) == 2
    assert all(len(event) == int.from_bytes(event[9:13], "little") for event in events)
    assert ends(events[-1]) == log_end(session).offset


def test_the_start_is_exact(mysql_like, config_of, open_session, database):
    session = open_session(mysql_like)
    query(session, f"CREATE TABLE {database}.t (a INT PRIMARY KEY)")
    events = drain(BinlogStream(config_of(mysql_like), log_end(session), non_blocking=True))
    assert kinds(events) == [ROTATE, FORMAT]


def test_a_dump_by_gtid_leaves_out_what_the_set_holds(mysql_like, config_of, open_session, database):
    session = open_session(mysql_like)
    query(session, f"CREATE TABLE {database}.t (a INT PRIMARY KEY)")
    place, gtids = position(session)
    query(session, f"INSERT INTO {database}.t VALUES (1)")
    start = parse_gtid_set(gtids, mysql_like.kind == "mariadb")
    events = drain(BinlogStream(config_of(mysql_like), start, non_blocking=True))
    assert kinds(events).count(XID) == 1
    assert ends(events[-1]) > place.offset


def test_a_dump_by_gtid_knows_tags(mysql97, config_of, open_session, database):
    session = open_session(mysql97)
    query(session, f"CREATE TABLE {database}.t (a INT PRIMARY KEY)")
    query(session, "SET gtid_next = 'AUTOMATIC:blue'")
    query(session, f"INSERT INTO {database}.t VALUES (1)")
    query(session, "SET gtid_next = 'AUTOMATIC'")
    start = parse_gtid_set(position(session)[1])
    assert ":blue:" in str(start)
    assert XID not in kinds(drain(BinlogStream(config_of(mysql97), start, non_blocking=True)))
    query(session, "SET gtid_next = 'AUTOMATIC:blue'")
    query(session, f"INSERT INTO {database}.t VALUES (2)")
    query(session, "SET gtid_next = 'AUTOMATIC'")
    assert kinds(drain(BinlogStream(config_of(mysql97), start, non_blocking=True))).count(XID) == 1


def test_an_idle_source_sends_heartbeats_which_are_no_events(mysql_like, config_of, open_session):
    with BinlogStream(config_of(mysql_like), log_end(open_session(mysql_like)), heartbeat=0.2) as stream:
        stream._silence = 0.5
        until = time.monotonic() + 1.0
        seen = []
        while time.monotonic() < until:
            seen += stream.read_burst(0.1)
    assert kinds(seen) == [ROTATE, FORMAT]


def test_a_source_without_a_heartbeat_is_silent(mysql_like, config_of, open_session):
    with BinlogStream(config_of(mysql_like), log_end(open_session(mysql_like)), heartbeat=3600) as stream:
        stream._silence, stream._searching = 0.3, False
        with pytest.raises(Transient) as silent:
            read_on(stream, 60)
    assert silent.value.code == "source-silent"


def test_changes_arrive_as_they_happen(mysql_like, config_of, open_session, database):
    session = open_session(mysql_like)
    query(session, f"CREATE TABLE {database}.t (a INT PRIMARY KEY)")
    with BinlogStream(config_of(mysql_like), log_end(session)) as stream:
        stream.read_burst()
        for number in range(3):
            query(session, f"INSERT INTO {database}.t VALUES ({number})")
            seen: list[int] = []
            until = time.monotonic() + 60
            while XID not in seen and time.monotonic() < until:
                seen += kinds(stream.read_burst())
            assert ROWS & set(seen)


def test_an_event_larger_than_a_packet_comes_whole(mariadb, config_of, open_session, database, run_sql):
    run_sql(mariadb, "SET GLOBAL max_allowed_packet = 67108864")
    session = open_session(mariadb)
    query(session, f"CREATE TABLE {database}.t (a INT PRIMARY KEY, b LONGBLOB)")
    start = log_end(session)
    query(session, f"INSERT INTO {database}.t VALUES (1, REPEAT('x', 17000000))")
    events = drain(BinlogStream(config_of(mariadb), start, non_blocking=True))
    large = [event for event in events if event[4] in ROWS]
    assert len(large[0]) == int.from_bytes(large[0][9:13], "little") > 17_000_000
    assert kinds(events)[-1] == XID


@pytest.mark.parametrize("place", [Position("bin.099999", 4), Position("bin.000001", 4_000_000_000)])
def test_a_position_that_is_not_there_halts(mysql_like, config_of, open_session, place):
    base = log_end(open_session(mysql_like)).base
    start = Position(f"{base}.{place.log_index:06}", place.offset)
    with pytest.raises(Halted) as lost:
        drain(BinlogStream(config_of(mysql_like), start, non_blocking=True))
    assert lost.value.code == "position-lost"
    assert "docs/operate/log-purged.md" in lost.value.todo
    assert str(start) in str(lost.value)


def test_a_gtid_set_of_another_product_halts(mysql_like, config_of):
    text = "3e11fa47-71ca-11e1-9e33-c80aa9429562:1" if mysql_like.kind == "mariadb" else "0-1-2"
    with pytest.raises(Halted) as refused:
        BinlogStream(config_of(mysql_like), parse_gtid_set(text))
    assert refused.value.code == "other-server"


def test_a_second_replica_with_our_id_ends_the_first(mysql_like, config_of, open_session):
    start = log_end(open_session(mysql_like))
    with (
        BinlogStream(config_of(mysql_like), start, server_id=4711, heartbeat=0.2) as first,
        BinlogStream(config_of(mysql_like), start, server_id=4711, heartbeat=0.2) as second,
    ):
        second.read_burst()
        with pytest.raises(PidtsError) as ended:
            read_on(first, 60)
        # MySQL 5.6 does not say the reason.
        expected = ("source-lost",) if mysql_like.kind == "mysql56" else ("server-id-in-use",)
        assert ended.value.code in expected


def test_where_a_server_sends_no_reason_for_the_end_nobody_ends_another_process(
    mysql56, config_of, open_session, monkeypatch
):
    start, ours = log_end(open_session(mysql56)), replace(config_of(mysql56), server_id=4713)
    with BinlogStream(ours, start, heartbeat=0.2) as first:
        first.read_burst()
        monkeypatch.setattr("pidts.source.replica._PROCESS", "another")
        with BinlogStream(ours, start, heartbeat=0.2) as second:
            second.read_burst()
            read_on(first, 3)
            read_on(second, 1)


def test_nobody_is_registered_where_that_may_outlive_the_connection(mysql56, config_of, open_session):
    """If an old server is asked for its replicas after a registered replica has left, it reads memory that it has
    freed.
    """
    session = open_session(mysql56)
    with pytest.raises(Halted):
        BinlogStream(config_of(mysql56), parse_gtid_set("0-1-2"))
    with BinlogStream(config_of(mysql56), log_end(session)) as stream:
        stream.read_burst()
        assert query(session, "SHOW SLAVE HOSTS") == []


def test_two_streams_of_one_name_get_on_with_each_other(mysql_like, config_of, open_session):
    start = log_end(open_session(mysql_like))
    with (
        BinlogStream(config_of(mysql_like), start, heartbeat=0.2) as first,
        BinlogStream(config_of(mysql_like), start, heartbeat=0.2) as second,
    ):
        assert first.server_id != second.server_id
        read_on(first, 2)


def test_a_killed_connection_is_worth_another_try(mysql_like, config_of, open_session):
    session = open_session(mysql_like)
    with BinlogStream(config_of(mysql_like), log_end(session), heartbeat=0.2) as stream:
        stream.read_burst()
        query(session, f"KILL {stream._connection.thread_id()}")
        with pytest.raises(Transient) as lost:
            read_on(stream, 60)
    assert lost.value.code == "source-lost"


def test_an_account_without_the_privilege_gets_a_message_about_it(mysql_like, config_of, open_session, run_sql):
    grants_make_users = mysql_like.kind == "mysql56"
    account = "plain@localhost IDENTIFIED BY 'pw'"
    run_sql(mysql_like, f"GRANT USAGE ON *.* TO {account}" if grants_make_users else f"CREATE USER {account}")
    start = log_end(open_session(mysql_like))
    with pytest.raises(PidtsError) as refused:
        drain(BinlogStream(replace(config_of(mysql_like), user="plain", password="pw"), start, non_blocking=True))
    assert refused.value.code == "missing-privilege"
