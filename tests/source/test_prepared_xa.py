"""Prepared XA transactions are listed by name, and the place of their rows is found in the log."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace

import pytest
from structlog.testing import capture_logs
from tests.replicate.proxy import Proxy

from pidts import sandbox
from pidts.source import Session, connect, log_end, query
from pidts.source.log_proof import log_events
from pidts.source.prepared_xa import begin_of_prepared, begin_with_prepared, prepared_xids
from pidts.source.read_only import prepared_transactions

BYTES, TEXT = "X'00ff27',X'782779',7", "X'6f6e65',X'',1"
"""One name has bytes that are no text, as the names that Java programs give have."""
SEMI_SYNC = {
    "mariadb": (
        "SET GLOBAL rpl_semi_sync_master_wait_point = 'AFTER_SYNC'",
        "SET GLOBAL rpl_semi_sync_master_timeout = 4000",
        "SET GLOBAL rpl_semi_sync_master_enabled = ON",
    ),
    "mysql97": (
        "INSTALL PLUGIN rpl_semi_sync_source SONAME 'semisync_source.so'",
        "SET GLOBAL rpl_semi_sync_source_timeout = 4000",
        "SET GLOBAL rpl_semi_sync_source_enabled = ON",
    ),
}
"""Without a replica, each transaction waits four seconds between its place in the log and its end."""


@contextmanager
def prepared(session: Session, xid: str, insert: str) -> Iterator[None]:
    query(session, f"XA START {xid}")
    query(session, insert)
    query(session, f"XA END {xid}")
    query(session, f"XA PREPARE {xid}")
    try:
        yield
    finally:
        query(session, f"XA ROLLBACK {xid}")


def test_the_place_of_prepared_transactions_is_found(mysql_like, open_session, config_of, database):
    session, config, stop = open_session(mysql_like), config_of(mysql_like), threading.Event()
    query(session, f"CREATE TABLE {database}.t (a INT PRIMARY KEY)")
    query(session, "FLUSH BINARY LOGS")
    places, open_ones = [], {}
    for row, xid in enumerate((BYTES, TEXT)):
        open_ones[xid] = other = open_session(mysql_like)
        query(session, f"INSERT INTO {database}.t VALUES ({row + 10})")
        places.append(log_end(session))
        query(other, f"XA START {xid}")
        query(other, f"INSERT INTO {database}.t VALUES ({row})")
        query(other, f"XA END {xid}")
        query(other, f"XA PREPARE {xid}")
        query(session, "FLUSH BINARY LOGS")
    try:
        seen = prepared_xids(session)
        if mysql_like.kind == "mysql56":
            assert seen == frozenset(), "the rows are logged by the COMMIT"
            return
        assert seen >= {BYTES, TEXT}
        assert prepared_transactions(session) == len(seen)
        end = log_end(session)
        assert begin_of_prepared(config, session, {BYTES, TEXT}, end, stop) == (places[0], frozenset())
        assert begin_of_prepared(config, session, {TEXT}, end, stop) == (places[1], frozenset())
        assert begin_of_prepared(config, session, {TEXT, "gone"}, end, stop) == (places[1], {"gone"})
        assert begin_of_prepared(config, session, {TEXT}, end, stop, most_bytes=1) == (None, {TEXT})
        # The newest file is small, so the file before it is searched, whatever its size.
        assert begin_of_prepared(config, session, {TEXT}, end, stop, most_bytes=end.offset + 1) == (places[1], set())
        # The log after the place is not read, however much the source goes on writing.
        assert begin_of_prepared(config, session, {BYTES, TEXT}, places[1], stop) == (places[0], {TEXT})
        assert begin_of_prepared(config, session, {BYTES}, places[0], stop) == (None, {BYTES})
        stop.set()
        assert begin_of_prepared(config, session, {TEXT}, end, stop) == (None, {TEXT})
    finally:
        for xid, other in open_ones.items():
            query(other, f"XA ROLLBACK {xid}")


def test_a_prepared_transaction_is_found_in_a_compressed_one(mysql97, open_session, config_of, database):
    session, other = open_session(mysql97), open_session(mysql97)
    query(session, f"CREATE TABLE {database}.t (a INT PRIMARY KEY, b TEXT)")
    query(other, "SET SESSION binlog_transaction_compression = ON")
    place = log_end(session)
    with prepared(other, TEXT, f"INSERT INTO {database}.t VALUES (1, REPEAT('a', 4000))"):
        begin = begin_of_prepared(config_of(mysql97), session, {TEXT}, log_end(session), threading.Event())
    assert begin == (place, frozenset())


@pytest.mark.parametrize("kind", ["mariadb", "mysql97"])
def test_a_transaction_that_is_being_prepared_is_waited_for(kind, tmp_path, open_session, config_of):
    start = sandbox.start_mariadb if kind == "mariadb" else sandbox.start_mysql97
    with start(tmp_path / "server") as server:
        session, other = open_session(server), open_session(server)
        for sql in ("CREATE DATABASE d", "CREATE TABLE d.t (a INT PRIMARY KEY)", *SEMI_SYNC[kind]):
            query(session, sql)
        before = log_end(session)
        for sql in (f"XA START {TEXT}", "INSERT INTO d.t VALUES (1)", f"XA END {TEXT}"):
            query(other, sql)
        preparing = threading.Thread(target=query, args=(other, f"XA PREPARE {TEXT}"))
        preparing.start()
        while (end := log_end(session)) == before:
            time.sleep(0.01)
        assert prepared_xids(session) == frozenset()
        stopped = threading.Event()
        stopped.set()
        assert begin_with_prepared(config_of(server), session, end, stopped) == end
        assert preparing.is_alive()
        assert begin_with_prepared(config_of(server), session, end, threading.Event()) == before
        preparing.join()


def test_a_search_that_fails_is_told_and_ends_no_start(mariadb, open_session, config_of, database):
    session, other = open_session(mariadb), open_session(mariadb)
    query(session, f"CREATE TABLE {database}.t (a INT PRIMARY KEY)")
    lost = replace(config_of(mariadb), port=1)
    with prepared(other, TEXT, f"INSERT INTO {database}.t VALUES (1)"), capture_logs() as logs:
        end = log_end(session)
        assert begin_with_prepared(lost, session, end, threading.Event()) == end
    failed, missing = (one for one in logs if one["log_level"] == "warning")
    assert "source-unreachable" in failed["cause"]
    assert TEXT in missing["xids"]


def test_a_slow_connection_ends_no_search_while_bytes_arrive(mariadb, open_session, config_of, database):
    session, size = open_session(mariadb), 600_000
    query(session, f"CREATE TABLE {database}.t (a INT PRIMARY KEY, b LONGTEXT)")
    place = log_end(session)
    for row in range(4):
        query(session, f"INSERT INTO {database}.t VALUES ({row}, REPEAT('a', {size}))")
    with Proxy(mariadb.port, bytes_a_second=400_000) as proxy:
        slow, began = replace(config_of(mariadb), port=proxy.port), time.monotonic()
        assert sum(len(raw) for raw in log_events(slow, place, None, patience=1.5)) > 4 * size
        assert time.monotonic() - began > 3


def test_an_account_that_may_not_see_prepared_transactions_is_told_so(mysql97, open_session, config_of, database):
    session, other = open_session(mysql97), open_session(mysql97)
    query(session, f"CREATE TABLE {database}.t (a INT PRIMARY KEY)")
    query(session, "CREATE USER 'few_xa'@'%' IDENTIFIED BY 'secret'")
    query(session, "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO 'few_xa'@'%'")
    few = replace(config_of(mysql97), user="few_xa", password="secret")
    with prepared(other, TEXT, f"INSERT INTO {database}.t VALUES (1)"), capture_logs() as logs:
        end = log_end(session)
        with closing(connect(few)) as account:
            assert prepared_xids(account) is None
            assert begin_with_prepared(few, account, end, threading.Event()) == end
    (warning,) = (one for one in logs if one["log_level"] == "warning")
    assert "XA_RECOVER_ADMIN" in warning["todo"]
    query(session, "DROP USER 'few_xa'@'%'")
