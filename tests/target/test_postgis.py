"""The copy and the log write geometries to PostGIS, and they are read in the form in which the source stores them.

These tests are skipped if PostgreSQL has no PostGIS.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from tests.target.conformance.samples import create

from pidts.model import Halted, Table, TableName
from pidts.model.type_map import TypeChoice, TypeMap
from pidts.reduce import Counts, NetChange
from pidts.sandbox import Server
from pidts.source import SourceConfig, connect, read_structures
from pidts.target import PostgresTarget

RunSql = Callable[..., list[tuple[Any, ...]]]
NAME = TableName("mapped", "t")
SHAPES = (
    "POINT(1.5 -2)",
    "LINESTRING(0 0,1 1,2 0)",
    "POLYGON((0 0,4 0,4 4,0 4,0 0),(1 1,2 1,2 2,1 2,1 1))",
    "MULTIPOINT(0 0,1 1)",
    "MULTILINESTRING((0 0,1 1),(2 2,3 3))",
    "MULTIPOLYGON(((0 0,1 0,1 1,0 0)))",
    "GEOMETRYCOLLECTION(POINT(1 2),LINESTRING(0 0,1 1))",
)


def opened(postgres: Server, database: str) -> PostgresTarget:
    types = TypeMap((TypeChoice.parse("geometry", "postgis"),))
    return PostgresTarget(postgres.host, postgres.port, postgres.user, postgres.password, database, types=types)


@pytest.fixture(params=["mariadb", "mysql97"])
def source(request: pytest.FixtureRequest, run_sql: RunSql) -> Any:
    server: Server = request.getfixturevalue(request.param)
    run_sql(server, "DROP DATABASE IF EXISTS mapped")
    run_sql(server, "CREATE DATABASE mapped")
    run_sql(server, "CREATE TABLE mapped.t (id INT PRIMARY KEY, g GEOMETRY)")
    for number, shape in enumerate(SHAPES):
        for place, srid in enumerate((0, 4326)):
            sql = f"INSERT INTO mapped.t VALUES ({2 * number + place}, ST_GeomFromText('{shape}', {srid}))"
            run_sql(server, sql)
    run_sql(server, "INSERT INTO mapped.t VALUES (99, NULL)")
    yield server
    run_sql(server, "DROP DATABASE mapped")


def structure(source: Server) -> Table:
    config = SourceConfig(source.host, source.port, source.user, source.password, source_id="s")
    with closing(connect(config)) as session:
        return read_structures(session, NAME.__eq__)[NAME]


def test_a_database_without_the_extension_is_refused(
    source: Server, postgres: Server, database: str, run_sql: RunSql
) -> None:
    with (
        closing(opened(postgres, database).connect()) as target,
        pytest.raises(Halted, match="CREATE EXTENSION") as error,
    ):
        target.schema.create_statements(structure(source))
    assert error.value.code == "type-not-possible"


@pytest.mark.parametrize("schema", ["public", "Geo data"])
def test_geometries_are_those_of_the_source(
    source: Server, postgres: Server, database: str, run_sql: RunSql, schema: str
) -> None:
    run_sql(postgres, f'CREATE SCHEMA IF NOT EXISTS "{schema}"', database=database)
    try:
        run_sql(postgres, f'CREATE EXTENSION postgis SCHEMA "{schema}"', database=database)
    except psycopg.Error as error:
        pytest.skip(f"no PostGIS: {error}")
    table = structure(source)
    rows = run_sql(source, "SELECT id, g FROM mapped.t ORDER BY id")
    given = pa.table([pa.array(each) for each in zip(*rows, strict=True)], table.arrow.names).cast(table.arrow)
    with closing(opened(postgres, database).connect()) as target:
        create(target, table)
        assert target.schema.misfits(table) == []
        target.begin()
        assert target.load(table, given.slice(0, 5))
        target.write(NetChange(table, given.slice(0, 2).select(["id"]), given.slice(3), Counts()))
        target.commit()
        found = target.read_rows(table)
        assert found.to_pylist() == given.slice(2).to_pylist()
        kept = [(row[0], row[1]) for row in rows[2:] if row[1] is not None]
        shown = run_sql(
            postgres,
            f'SELECT id, "{schema}".st_srid(g), "{schema}".st_astext(g) FROM mapped.t ORDER BY id',
            database=database,
        )
        assert [row[1] for row in shown if row[0] != 99] == [int.from_bytes(value[:4], "little") for _, value in kept]
        # MySQL reads the latitude first if the SRID says so; MariaDB does not. Both store x first.
        longitude = run_sql(
            postgres, f'SELECT "{schema}".st_x("{schema}".st_endpoint(g)) FROM mapped.t WHERE id = 3', database=database
        )
        assert longitude == [(0.0 if source.kind == "mysql97" else 2.0,)]
        high = pa.table([[7], [b"\xff\xff\xff\xff" + rows[0][1][4:]]], table.arrow.names).cast(table.arrow)
        target.begin()
        with pytest.raises(Halted, match="SRID 4294967295"):
            target.write(NetChange(table, given.slice(0, 0).select(["id"]), high, Counts()))
        target.rollback()
