"""Prepared XA transactions are listed by name, and the place of their rows is found in the log."""

from __future__ import annotations

from pidts.source import log_end, query
from pidts.source.prepared_xa import begin_of_prepared, prepared_xids
from pidts.source.read_only import prepared_transactions

BYTES, TEXT = "X'00ff27',X'782779',7", "X'6f6e65',X'',1"
"""One name has bytes that are no text, as the names that Java programs give have."""


def test_the_place_of_prepared_transactions_is_found(mysql_like, open_session, config_of, database):
    session, config = open_session(mysql_like), config_of(mysql_like)
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
        assert begin_of_prepared(config, session, {BYTES, TEXT}) == (places[0], frozenset())
        assert begin_of_prepared(config, session, {TEXT}) == (places[1], frozenset())
        assert begin_of_prepared(config, session, {TEXT, "gone"}) == (places[1], {"gone"})
        assert begin_of_prepared(config, session, {TEXT}, most_bytes=1) == (None, {TEXT})
    finally:
        for xid, other in open_ones.items():
            query(other, f"XA ROLLBACK {xid}")
