"""A snapshot reads a whole table as it is at one moment, in memory of limited size."""

from __future__ import annotations

import pytest

from pidts.copy import read_snapshot
from pidts.copy import snapshot as snapshot_module
from pidts.model import Table, TableName
from pidts.source import Session, log_end, query, read_structure


def make(session: Session, database: str, engine: str = "InnoDB") -> Table:
    query(session, f"CREATE TABLE {database}.t (a INT, v VARCHAR(1000)) ENGINE={engine} DEFAULT CHARSET latin1")
    query(session, f"INSERT INTO {database}.t VALUES (1, 'x'), (1, 'x'), (2, NULL)")
    return structure(session, database)


def structure(session: Session, database: str) -> Table:
    table = read_structure(session, TableName(database, "t"))
    assert table is not None
    return table


def test_all_rows_are_of_one_moment(mysql_like, config_of, open_session, database):
    session = open_session(mysql_like)
    table = make(session, database)
    before = log_end(session)
    with read_snapshot(config_of(mysql_like), table) as snapshot:
        query(session, f"DELETE FROM {database}.t")
        query(session, f"INSERT INTO {database}.t VALUES (3, 'y')")
        rows = [row for batch in snapshot.batches for row in batch.to_pylist()]
    assert sorted(map(str, rows)) == sorted(map(str, [{"a": 1, "v": "x"}, {"a": 1, "v": "x"}, {"a": 2, "v": None}]))
    assert (snapshot.low, snapshot.high, snapshot.altered) == (before, before, False)


def test_the_low_end_of_a_snapshot_has_no_commit_that_the_rows_lack(
    mysql_like, config_of, open_session, database, monkeypatch
):
    """Another session commits just before the low position is read, and just after it.

    The copy counts the log up to the low position as done. So a snapshot that was opened before the first commit would
    lose this commit's row.
    """
    session, real, ends = open_session(mysql_like), snapshot_module.settled, []
    table = make(session, database)

    def commit(value: int) -> None:
        query(session, f"INSERT INTO {database}.t VALUES ({value}, 'y')")
        ends.append(log_end(session))

    def between_writers(*arguments):
        commit(7)
        low = real(*arguments)
        commit(8)
        return low

    monkeypatch.setattr(snapshot_module, "settled", between_writers)
    with read_snapshot(config_of(mysql_like), table) as snapshot:
        found = {row["a"] for batch in snapshot.batches for row in batch.to_pylist()}
    low, first, second, high = ((place.log_index, place.offset) for place in (snapshot.low, *ends, snapshot.high))
    assert first <= low < second
    assert 7 in found
    assert (8 in found) <= (second <= high), "what is shown lies at or before the high end"


def test_an_engine_without_transactions_shows_what_is_there_when_it_is_read(
    mysql_like, config_of, open_session, database
):
    session = open_session(mysql_like)
    table = make(session, database, "MyISAM")
    with read_snapshot(config_of(mysql_like), table) as snapshot:
        assert sum(batch.num_rows for batch in snapshot.batches) == 3
        assert snapshot.high == log_end(session)


def test_an_empty_table(mysql_like, config_of, open_session, database):
    session = open_session(mysql_like)
    table = make(session, database)
    query(session, f"DELETE FROM {database}.t")
    with read_snapshot(config_of(mysql_like), table) as snapshot:
        assert sum(batch.num_rows for batch in snapshot.batches) == 0
    assert not snapshot.altered


@pytest.fixture
def large(mariadb, open_session, database) -> Table:
    session = open_session(mariadb)
    make(session, database)
    query(session, f"USE {database}")  # The server looks for seq_1_to_60000 in the session's database.
    query(session, "INSERT INTO t SELECT seq, REPEAT(CHAR(65 + seq % 26), 1000) FROM seq_1_to_60000")
    return structure(session, database)


def test_a_large_table_comes_in_pieces(mariadb, config_of, large):
    with read_snapshot(config_of(mariadb), large) as snapshot:
        sizes = [(batch.num_rows, batch.nbytes) for batch in snapshot.batches]
    assert sum(rows for rows, _ in sizes) == 60_003
    assert len(sizes) > 2
    assert all(size < 20 << 20 for _, size in sizes)


def test_whoever_has_seen_enough_may_go(mariadb, config_of, large):
    with read_snapshot(config_of(mariadb), large) as snapshot:
        assert next(snapshot.batches).num_rows > 0
    with read_snapshot(config_of(mariadb), large) as snapshot:
        assert sum(batch.num_rows for batch in snapshot.batches) == 60_003
