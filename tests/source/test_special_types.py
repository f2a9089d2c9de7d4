"""Values of types that few programs support stay equal when they are copied to a target of the same product."""

from __future__ import annotations

import pytest
from tests.target.conformance.samples import write

from pidts.model import Kind, TableName
from pidts.reduce import Counts, NetChange
from pidts.source import read_structures, select_range
from pidts.target import MySqlTarget

DECLARED = {
    "mariadb": "u uuid, i4 inet4, i6 inet6, g geometry, p point",
    "mysql97": "v vector(3), g geometry, p point SRID 4326",
    "mysql56": "g geometry, p point",
}
VALUES = {
    "mariadb": "uuid(), '10.0.0.0', '1:0:2:3:4:5:6:7', st_geomfromtext('LINESTRING(0 0,1.5 -1)', 4326), st_geomfromtext('POINT(1 2)')",
    "mysql97": "string_to_vector('[1,-2.5,1e-30]'), st_geomfromtext('LINESTRING(0 0,1.5 -1)', 4326), st_geomfromtext('POINT(1 2)', 4326)",
    "mysql56": "st_geomfromtext('LINESTRING(0 0,1.5 -1)', 4326), st_geomfromtext('POINT(1 2)')",
}


@pytest.mark.parametrize("kind", list(DECLARED))
def test_special_types_reach_a_target_of_the_same_kind(request, run_sql, kind, open_session):
    server = request.getfixturevalue(kind)
    run_sql(server, "DROP DATABASE IF EXISTS special")
    run_sql(server, "CREATE DATABASE special")
    for statement in (
        f"CREATE TABLE special.t (id int PRIMARY KEY, {DECLARED[kind]})",
        f"INSERT INTO special.t VALUES (1, {VALUES[kind]})",
        "INSERT INTO special.t (id) VALUES (2)",
        "CREATE TABLE special.copy LIKE special.t",
    ):
        run_sql(server, statement)
    try:
        connection = open_session(server)
        table = read_structures(connection, lambda name: name == TableName("special", "t"))[TableName("special", "t")]
        rows = select_range(connection, table, None, None)
        there = table.renamed(TableName("special", "copy"))
        session = MySqlTarget(server.host, server.port, server.user, server.password).connect()
        write(session, NetChange(there, rows.select(["id"]).slice(0, 0), rows, Counts(inserted=2)))
        copied = session.read_rows(there).sort_by("id")
        session.close()
        assert copied.equals(rows)
        assert all(column.null_count == 1 for column in rows.columns[1:])
        assert {column.type.kind for column in table.columns} & {Kind.GEOMETRY}
        same = run_sql(
            server,
            "SELECT count(*) FROM special.t a JOIN special.copy b ON a.id = b.id AND "
            + " AND ".join(f"hex(a.{column.name}) <=> hex(b.{column.name})" for column in table.columns),
        )
        assert same == [(2,)]
    finally:
        run_sql(server, "DROP DATABASE special")
