"""A chunk has rows of a table, and the two log positions between which they were read."""

from __future__ import annotations

import pyarrow as pa
import pytest

from pidts.copy import Range, highest, ranges, read_keys, read_range, read_snapshot
from pidts.copy import chunk as chunk_module
from pidts.copy import snapshot as snapshot_module
from pidts.model import Table, TableName
from pidts.model.errors import Halted, Transient
from pidts.sandbox import start_mysql97
from pidts.source import Session, StructureChanged, connect, log_end, query, read_structure

ALL = Range(None, None, is_last=True)


def make(session: Session, database: str, rows: int, columns: str = "a INT PRIMARY KEY, v VARCHAR(9)") -> Table:
    query(session, f"CREATE TABLE {database}.t ({columns}) ENGINE=InnoDB DEFAULT CHARSET latin1")
    if rows:
        query(session, f"INSERT INTO {database}.t VALUES " + ", ".join(f"({number}, 'x')" for number in range(rows)))
    table = read_structure(session, TableName(database, "t"))
    assert table is not None
    return table


def test_ranges_bring_the_whole_table(mysql_like, config_of, open_session, database):
    session = open_session(mysql_like)
    table = make(session, database, 7)
    cut = ranges(session, table, None, highest(session, table), 3, 9)
    chunks = [read_range(config_of(mysql_like), table, one) for one in cut]
    assert [chunk.rows.column("a").to_pylist() for chunk in chunks] == [[0, 1, 2], [3, 4, 5], [6]]
    assert not any(chunk.altered for chunk in chunks)
    assert len({chunk.server for chunk in chunks}) == 1


def test_an_empty_table_has_no_highest_key(mysql_like, config_of, open_session, database):
    session = open_session(mysql_like)
    table = make(session, database, 0)
    assert highest(session, table) is None
    assert read_range(config_of(mysql_like), table, ALL).rows.num_rows == 0


@pytest.mark.parametrize("read", ["range", "keys"])
def test_the_positions_close_the_reading_in(mysql_like, config_of, open_session, database, monkeypatch, read):
    """Another session commits just before and just after the rows are read.

    The low position includes the first commit, and the high position includes the second one.
    """
    session = open_session(mysql_like)
    table = make(session, database, 3)
    ends = []

    def commit(key: int) -> None:
        query(session, f"INSERT INTO {database}.t VALUES ({key}, 'y')")
        ends.append(log_end(session))

    def beside_writers(real):
        def reads(*arguments, **options):
            rows = real(*arguments, **options)
            commit(8)
            return rows

        return reads

    for name in ("select_range", "find_rows"):
        monkeypatch.setattr(chunk_module, name, beside_writers(getattr(chunk_module, name)))
    commit(7)
    keys = pa.table({"a": pa.array([1, 2, 7, 8], pa.int32())})
    config = config_of(mysql_like)
    found = read_range(config, table, ALL) if read == "range" else read_keys(config, table, keys)
    assert found.rows.column("a").to_pylist() == ([0, 1, 2, 7] if read == "range" else [1, 2, 7])
    low, first, second, high = ((place.log_index, place.offset) for place in (found.low, ends[0], ends[1], found.high))
    assert first <= low < second <= high


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE {t} DROP COLUMN v",
        "ALTER TABLE {t} MODIFY v VARCHAR(9) CHARACTER SET utf8mb4",
        "ALTER TABLE {t} MODIFY v VARBINARY(9)",
        "ALTER TABLE {t} MODIFY a BIGINT",
        "ALTER TABLE {t} MODIFY a INT UNSIGNED",
        "ALTER TABLE {t} DROP PRIMARY KEY",
        "DROP TABLE {t}",
    ],
)
def test_a_changed_table_gives_a_chunk_without_rows(mysql_like, config_of, open_session, database, change):
    """The chunk has no rows even if the new values could be read: text in another charset would become other text."""
    session = open_session(mysql_like)
    table = make(session, database, 3)
    upto = highest(session, table)
    query(session, change.format(t=f"{database}.t"))
    (one,) = ranges(session, table, None, upto, 3, 9)
    assert one.is_last
    chunk = read_range(config_of(mysql_like), table, one)
    assert (chunk.altered, chunk.rows.num_rows, chunk.rows.schema) == (True, 0, table.arrow)
    if "PRIMARY" not in change:  # A snapshot needs no primary key, so it still has all rows when the key was dropped.
        assert read_keys(config_of(mysql_like), table, table.arrow.empty_table()).rows.num_rows == 0
        with read_snapshot(config_of(mysql_like), table) as snapshot:
            assert (snapshot.altered, list(snapshot.batches)) == (True, [])
    if "v" not in change:
        with pytest.raises(StructureChanged):
            highest(session, table)
    assert query(session, "SELECT 'é'") == [("é",)], "the session is as it was"


def test_text_that_is_none_is_an_error_and_not_a_change(mysql_like, config_of, open_session, database):
    session = open_session(mysql_like)
    table = make(session, database, 0, "a INT PRIMARY KEY, v VARCHAR(9) CHARACTER SET tis620")
    query(session, f"INSERT INTO {database}.t VALUES (1, X'41DB')")
    with pytest.raises(Halted) as refused:
        read_range(config_of(mysql_like), table, ALL)
    assert refused.value.code == "undecodable-text"


def test_without_gtids_a_chunk_waits_for_writers(config_of, monkeypatch):
    """A transaction that is in the log may still have its rows locked. A read that skips locked rows would miss it."""
    options = ["--gtid-mode=OFF", "--enforce-gtid-consistency=OFF", "--innodb-lock-wait-timeout=1"]
    with start_mysql97(options=options) as server:
        config, session = config_of(server), connect(config_of(server))
        query(session, "CREATE DATABASE d")
        table = make(session, "d", 3)
        assert read_range(config, table, ALL).rows.num_rows == 3
        query(session, "BEGIN")
        query(session, "UPDATE d.t SET v = 'y' WHERE a = 1")
        with pytest.raises(Transient) as waiting:
            read_range(config, table, ALL)
        assert waiting.value.code == "source-busy"
        with pytest.raises(Transient) as waiting, read_snapshot(config, table):
            pass
        assert waiting.value.code == "source-busy"
        query(session, "COMMIT")
        end = log_end(session)
        with read_snapshot(config, table) as snapshot:
            query(session, "UPDATE d.t SET v = 'z'")  # No session is prevented from writing while the chunk is read.
            assert [row["v"] for rows in snapshot.batches for row in rows.to_pylist()] == ["x", "y", "x"]
            assert snapshot.low == snapshot.high == end

        def while_somebody_writes(connection):
            # The high position is read when other sessions may write again.
            monkeypatch.setattr(snapshot_module, "log_end", log_end)
            query(session, "SET lock_wait_timeout = 1")
            with pytest.raises(Transient) as refused:
                query(session, "UPDATE d.t SET v = 'w'")
            assert refused.value.code == "source-busy", "nobody writes between the low end and the snapshot"
            return log_end(connection)

        monkeypatch.setattr(snapshot_module, "log_end", while_somebody_writes)
        with read_snapshot(config, table) as snapshot:
            assert [row["v"] for rows in snapshot.batches for row in rows.to_pylist()] == ["z"] * 3
        session.close()
