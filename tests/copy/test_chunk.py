"""A chunk of a table and the two positions between which it was read."""

from __future__ import annotations

import pytest

from pidts.copy import read_chunk
from pidts.model import Table, TableName
from pidts.model.errors import Halted, Transient
from pidts.sandbox import start_mysql97
from pidts.source import Session, connect, log_end, query, read_structure


def make(session: Session, database: str, rows: int) -> Table:
    query(session, f"CREATE TABLE {database}.t (a INT PRIMARY KEY, v VARCHAR(9)) ENGINE=InnoDB")
    if rows:
        query(session, f"INSERT INTO {database}.t VALUES " + ", ".join(f"({number}, 'x')" for number in range(rows)))
    table = read_structure(session, TableName(database, "t"))
    assert table is not None
    return table


def test_chunks_bring_the_whole_table(mysql_like, config_of, open_session, database):
    table = make(open_session(mysql_like), database, 7)
    seen, key, done = [], None, False
    while not done:
        chunk = read_chunk(config_of(mysql_like), table, key, 3)
        seen += chunk.rows.column("a").to_pylist()
        key, done = chunk.last_key, chunk.done
        assert not chunk.stale
    assert seen == list(range(7))


def test_an_empty_table_is_done_at_once(mysql_like, config_of, open_session, database):
    table = make(open_session(mysql_like), database, 0)
    chunk = read_chunk(config_of(mysql_like), table, None, 3)
    assert (chunk.rows.num_rows, chunk.last_key, chunk.done) == (0, None, True)


def test_the_positions_close_the_reading_in(mysql_like, config_of, open_session, database):
    session = open_session(mysql_like)
    table = make(session, database, 3)
    before = log_end(session)
    chunk = read_chunk(config_of(mysql_like), table, None, 10)
    after = log_end(session)
    places = [(place.log_index, place.offset) for place in (before, chunk.low, chunk.high, after)]
    assert places == sorted(places)


def test_a_changed_table_gives_a_stale_chunk(mysql_like, config_of, open_session, database):
    session = open_session(mysql_like)
    table = make(session, database, 3)
    query(session, f"ALTER TABLE {database}.t DROP COLUMN v")
    chunk = read_chunk(config_of(mysql_like), table, None, 10)
    assert (chunk.stale, chunk.rows.num_rows, chunk.last_key, chunk.done) == (True, 0, None, False)
    assert chunk.rows.schema == table.arrow
    query(session, f"DROP TABLE {database}.t")
    assert read_chunk(config_of(mysql_like), table, None, 10).stale


def test_text_that_is_none_is_an_error_and_not_a_change(mysql_like, config_of, open_session, database):
    session = open_session(mysql_like)
    table = make(session, database, 0)
    query(session, f"CREATE TABLE {database}.b (a INT PRIMARY KEY, v VARBINARY(9))")
    query(session, f"INSERT INTO {database}.b VALUES (1, X'c328')")
    wrong = Table(TableName(database, "b"), table.columns, table.keys)
    with pytest.raises(Halted) as refused:
        read_chunk(config_of(mysql_like), wrong, None, 10)
    assert refused.value.code == "undecodable-text"


def test_without_gtids_a_chunk_waits_for_writers(config_of):
    """A transaction that the log holds already still has its rows locked: reading past the lock would lose it."""
    options = ["--gtid-mode=OFF", "--enforce-gtid-consistency=OFF", "--innodb-lock-wait-timeout=1"]
    with start_mysql97(options=options) as server:
        session = connect(config_of(server))
        query(session, "CREATE DATABASE d")
        table = make(session, "d", 3)
        assert read_chunk(config_of(server), table, None, 10).rows.num_rows == 3
        query(session, "BEGIN")
        query(session, "UPDATE d.t SET v = 'y' WHERE a = 1")
        with pytest.raises(Transient) as waiting:
            read_chunk(config_of(server), table, None, 10)
        session.close()
    assert waiting.value.code == "source-busy"
