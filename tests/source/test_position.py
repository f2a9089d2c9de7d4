"""The end of the log is read, and all transactions before it are visible afterwards."""

from __future__ import annotations

import threading
import time

from pidts.model import parse_gtid_set
from pidts.source import binary_logs, log_end, position, query, server_info, settled


def test_the_position_moves_with_each_transaction_and_carries_its_gtids(mysql_like, open_session, database):
    session = open_session(mysql_like)
    query(session, f"CREATE TABLE {database}.t (a INT PRIMARY KEY)")
    before, gtids = position(session)
    query(session, f"INSERT INTO {database}.t VALUES (1)")
    after, more = position(session)
    assert before.file == after.file
    assert before.offset < after.offset
    mariadb = mysql_like.kind == "mariadb"
    old, new = parse_gtid_set(gtids, mariadb), parse_gtid_set(more, mariadb)
    assert old != new
    assert old.issubset(new)
    assert log_end(session) == after


def test_the_logs_that_are_there_are_listed(mysql_like, open_session):
    session = open_session(mysql_like)
    query(session, "FLUSH BINARY LOGS")
    logs = binary_logs(session)
    assert logs[-1][0] == log_end(session).file
    assert len(logs) >= 2
    assert all(size > 4 for _, size in logs)


def test_committed_transactions_are_visible(mysql_like, open_session, database):
    """Other sessions write all the time.

    What is read after the call must include all transactions that the log had before it.
    """
    session, reader = open_session(mysql_like), open_session(mysql_like)
    query(session, f"CREATE TABLE {database}.t (a INT AUTO_INCREMENT PRIMARY KEY) ENGINE=InnoDB")
    query(session, f"INSERT INTO {database}.t VALUES ()")
    start = log_end(session)
    query(session, f"INSERT INTO {database}.t VALUES ()")
    size = log_end(session).offset - start.offset
    server, stop = server_info(reader), threading.Event()

    def write() -> None:
        while not stop.is_set():
            query(session, f"INSERT INTO {database}.t VALUES ()")

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(100):
            end = log_end(reader)
            place = settled(reader, server)
            count = query(reader, f"SELECT COUNT(*) FROM {database}.t")[0][0]
            query(reader, "ROLLBACK")
            assert (place.log_index, place.offset) >= (end.log_index, end.offset)
            # Every transaction of one row has the same number of bytes, so the position shows how many there are.
            assert 1 + (place.offset - start.offset) // size <= count
    finally:
        stop.set()
        writer.join()


def test_a_transaction_that_owns_its_gtid_is_waited_for(mysql97, open_session, database):
    session, reader = open_session(mysql97), open_session(mysql97)
    query(session, f"CREATE TABLE {database}.t (a INT PRIMARY KEY)")
    # The moment in which a transaction is in the log and not yet visible in the tables is too short to hit. A GTID that
    # is set by hand belongs to the session from its beginning.
    query(session, "SET gtid_next = '3e11fa47-71ca-11e1-9e33-c80aa9429562:1'")
    query(session, "BEGIN")
    query(session, f"INSERT INTO {database}.t VALUES (1)")
    seen: list[int] = []

    def read() -> None:
        settled(reader, server_info(reader))
        seen.append(query(reader, f"SELECT COUNT(*) FROM {database}.t")[0][0])

    reading = threading.Thread(target=read)
    reading.start()
    time.sleep(0.2)
    assert not seen
    query(session, "COMMIT")
    query(session, "SET gtid_next = 'AUTOMATIC'")
    reading.join(60)
    assert seen == [1]


def test_mariadbs_snapshot_is_the_settled_position(mariadb, open_session, database):
    session, reader = open_session(mariadb), open_session(mariadb)
    query(session, f"CREATE TABLE {database}.t (a INT PRIMARY KEY) ENGINE=InnoDB")
    place = settled(reader, server_info(reader))
    query(session, f"INSERT INTO {database}.t VALUES (1)")
    assert query(reader, f"SELECT COUNT(*) FROM {database}.t") == [(0,)]
    query(reader, "ROLLBACK")
    assert place.offset < log_end(session).offset
