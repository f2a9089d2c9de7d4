"""The microsecond of a commit is read from the server's log, if the log has it: with GTIDs, without them, with tags."""

from __future__ import annotations

import time
from contextlib import closing

import pytest
from tests.conftest import RunSql
from tests.running import connect

from pidts.binlog.commit_time import COMMIT_TIME_EVENTS, commit_time
from pidts.binlog.events import EventType
from pidts.sandbox import Server
from pidts.source import BinlogStream, SourceConfig
from pidts.source import connect as connect_source
from pidts.source.position import log_end

_TYPE_AT = 4


def found(server: Server, database: str, run_sql: RunSql, *before: str) -> tuple[float, float, list[bytes]]:
    """Commits one row.

    Returns the times before and after the commit, and the events of the log that begin transactions.
    """
    run_sql(server, f"CREATE TABLE {database}.t (id INT PRIMARY KEY)")
    config = SourceConfig(server.host, server.port, server.user, server.password)
    with closing(connect_source(config)) as session:
        end = log_end(session)
    with closing(connect(server)) as session, session.cursor() as cursor:
        for sql in before:
            cursor.execute(sql)
        began = time.time()
        cursor.execute(f"INSERT INTO {database}.t VALUES (1)")
        ended = time.time()
        if before:
            cursor.execute("SET gtid_next = 'AUTOMATIC'")
    raws: list[bytes] = []
    with BinlogStream(config, end, non_blocking=True) as stream:
        while not stream.ended:
            raws += stream.read_burst()
    return began, ended, [raw for raw in raws if raw[_TYPE_AT] in COMMIT_TIME_EVENTS | {EventType.MARIADB_GTID}]


@pytest.mark.parametrize("tag", ["", "AUTOMATIC:shop"])
def test_a_recent_server_sends_the_moment(mysql97: Server, database: str, run_sql: RunSql, tag: str) -> None:
    own = (f"SET gtid_next = '{tag}'",) if tag else ()
    began, ended, events = found(mysql97, database, run_sql, *own)
    assert (EventType.GTID_TAGGED in {raw[_TYPE_AT] for raw in events}) == bool(tag)
    reported = commit_time(events[-1])
    assert reported is not None
    assert began - 0.001 <= reported <= ended + 0.001
    assert commit_time(events[-1] + b"more events behind it") == reported
    assert all(commit_time(events[-1][:size]) is None for size in range(20, 60))


def test_other_servers_send_none(mariadb: Server, mysql56: Server, database: str, run_sql: RunSql) -> None:
    for server in (mariadb, mysql56):
        *_, events = found(server, database, run_sql)
        assert [commit_time(raw) for raw in events] == [None] * len(events)
