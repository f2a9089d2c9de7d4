"""Sessions that lock gaps: no other session writes a key that one has read as absent, and few others wait."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace

import pyarrow as pa
import pymysql
import pytest
from tests.target.conformance.samples import INT, create, table

from pidts.login import Mode, Tls
from pidts.model import ConfigError, Lsn, TableName, Tombstones, Transient
from pidts.sandbox import Server
from pidts.target import MySqlTarget
from pidts.target.mysql.connection import MySqlConnection
from pidts.target.mysql.session import MySqlSession


@pytest.fixture
def gaps(mysql_like: Server) -> MySqlTarget:
    server = mysql_like
    login = {"host": server.host, "port": server.port, "user": server.user, "password": server.password}
    return MySqlTarget(**login, tls=Tls(Mode.DISABLED), locks_gaps=True)


@pytest.fixture
def sessions(gaps: MySqlTarget) -> Iterator[tuple[MySqlSession, MySqlSession]]:
    """Opens two sessions that lock gaps and do not wait long."""
    with ExitStack() as stack:
        one, two = (stack.enter_context(closing(gaps.connect())) for _ in range(2))
        one.meta.prepare()
        for session in (one, two):
            session.run("SET SESSION innodb_lock_wait_timeout = 1", ())
        yield one, two


def test_a_key_without_a_row_is_locked(
    gaps: MySqlTarget, sessions: tuple[MySqlSession, MySqlSession], name: TableName
) -> None:
    """Without locked gaps, a program could write a row with the key after the session has found none."""
    structure = table(name, {"id": INT, "v": INT})
    reader, _ = sessions
    create(reader, structure)
    keys = pa.table({"id": pa.array([7], structure.arrow.field("id").type)})
    with closing(replace(gaps, locks_gaps=False).connect()) as program:
        program.run("SET SESSION innodb_lock_wait_timeout = 1", ())
        insert = f"INSERT INTO {name.schema}.{name.name} VALUES (7, 1)"
        reader.begin()
        assert reader.read_rows(structure, keys=keys, lock=True).num_rows == 0
        with pytest.raises((Transient, pymysql.err.OperationalError)):
            program.run(insert, ())
        reader.rollback()
        program.run(insert, ())
        assert reader.count(name) == 1


def test_sessions_do_not_wait_for_each_others_tombstones(
    sessions: tuple[MySqlSession, MySqlSession], name: TableName
) -> None:
    one, two = sessions

    def bury(session: MySqlSession, key: str) -> None:
        lsn = str(Lsn(0, 1, 1))
        tombstones = Tombstones(pa.array([key]), pa.array(["1"]), "s", pa.array([lsn]))
        session.meta.tombstones.write(name, tombstones)

    one.begin()
    for key in "aceg":
        bury(one, key)
    one.commit()
    one.begin()
    two.begin()
    bury(one, "0")
    bury(one, "b")
    bury(two, "f")
    assert two.meta.tombstones.read(name, ["d"]) == []
    bury(one, "bb")
    one.commit()
    two.commit()
    assert [tomb.key for tomb in one.meta.tombstones.read(name, list("abcdefg"))] == list("abcefg")


def test_tidb_locks_no_gaps(gaps: MySqlTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = MySqlConnection._asked_server
    monkeypatch.setattr(MySqlConnection, "_asked_server", lambda self: replace(asked(self), tidb=True))
    with pytest.raises(ConfigError, match=r"not-supported.*TiDB"):
        gaps.connect()
