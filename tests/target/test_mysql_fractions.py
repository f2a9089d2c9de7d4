"""A column of MySQL or MariaDB gets fewer digits of a second only if all rows get the values of the source's session."""

from __future__ import annotations

from contextlib import closing

import pytest

from pidts.model import Halted
from pidts.sandbox import Server
from pidts.schema import Dialect, apply, classify
from pidts.target.mysql import MySqlTarget

SOURCES = {"mariadb": ("10.11.6-MariaDB", 1 << 34), "mysql97": ("8.4.0", 1 << 32)}
"""The version of a source, and the bit of the mode with which its session does the opposite of the server."""


@pytest.mark.parametrize("opposite", [False, True])
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("kind", SOURCES)
def test_a_table_halts_if_its_server_rounds_what_the_source_s_session_cuts(
    mariadb: Server, mysql97: Server, database: str, kind: str, source: str, *, opposite: bool
) -> None:
    """Or the other way round. The kinds of the two servers alone do not decide."""
    server = {one.kind: one for one in (mariadb, mysql97)}[kind]
    version, bit = SOURCES[source]
    dialect, charsets = Dialect.of(version).under(bit if opposite else 0), {database: ("utf8mb4", "utf8mb4_bin")}
    make = f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY, v DATETIME(6))"
    with closing(MySqlTarget(server.host, server.port, server.user, server.password).connect()) as session:
        session.execute(make)
        session.execute(f"INSERT INTO `{database}`.t VALUES (1, '2024-02-29 12:00:00.5')")
        before = apply(classify(make, database, dialect=dialect), {}, charsets, dialect=dialect)
        statement = classify("ALTER TABLE t MODIFY v DATETIME", database, dialect=dialect)
        tables = {name: table for name, table in before.items() if table is not None}
        after = apply(statement, tables, charsets, dialect=dialect)
        if (kind == source) is opposite:
            with pytest.raises(Halted, match="fewer digits of a second"):
                session.schema.ddl_statements(statement, before, after)
        else:
            assert session.schema.ddl_statements(statement, before, after).statements
