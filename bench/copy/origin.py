"""Makes the source, with filled tables of several shapes (columns, values), and checks that a copy has all rows
unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import beside  # noqa: F401 - makes the next imports possible
import psycopg
import pymysql
from targets import TargetServer
from workload import SCHEMA, SHAPES, Shape

from pidts import sandbox
from pidts.model import Table
from pidts.rules import AllowList
from pidts.sandbox import Server
from pidts.source import SourceConfig, connect, read_structures

STREAMS = 2
"""Each shape has this number of tables. So a program that copies tables in parallel has equal work for each connection.
"""

_OPTIONS = ("--innodb-buffer-pool-size=2G", "--secure-file-priv=")
START = {
    "mariadb": lambda: sandbox.start_mariadb(options=(*_OPTIONS, "--innodb-log-file-size=1G")),
    "mysql97": lambda: sandbox.start_mysql97(options=(*_OPTIONS, "--innodb-redo-log-capacity=1G")),
}
_CRC_SUM = "SUM(CRC32({}))"
_SHA_SUM = "SUM(CAST(CONV(LEFT(SHA2({}, 256), 8), 16, 10) AS UNSIGNED))"
_POSTGRES_SUM = "SUM(('x' || LEFT(ENCODE(SHA256(CONVERT_TO({}, 'UTF8')), 'hex'), 8))::bit(32)::bigint)"
_COLLATIONS = {"utf8mb4": "utf8mb4_general_ci", "latin1": "latin1_swedish_ci"}
"""All servers have these collations. MariaDB refuses a dump with MySQL 9.7's own default."""
_ID_STEP = 2
"""The ids of the rows are even numbers from 0 on."""


@dataclass(frozen=True)
class CopiedTable:
    """One table of the source."""

    name: str
    shape: Shape
    rows: int
    stream: int

    @property
    def columns(self) -> list[str]:
        return re.findall(r"(?:^|, )([a-z]+) ", self.shape.columns)

    def id_ranges(self, size: int) -> Iterator[tuple[int, int]]:
        """Yields the ranges of ids with `size` rows each: the first id, and the id after the last one."""
        for first in range(0, self.rows, size):
            yield first * _ID_STEP, min(first + size, self.rows) * _ID_STEP


class Source:
    """A private server with the tables. The server's log does not contain the statements that fill the tables."""

    def __init__(self, server: Server, shapes: list[str], rows: int) -> None:
        self.server = server
        each = rows // len(shapes) // STREAMS
        self.tables = [
            CopiedTable(f"{shape}{stream + 1}", SHAPES[shape], each, stream)
            for shape in shapes
            for stream in range(STREAMS)
        ]
        self.rows = each * len(self.tables)
        self._sums: dict[bool, dict[str, tuple[int, str]]] = {}
        self._make()

    def connect(self) -> Any:
        server = self.server
        return pymysql.connect(
            host=server.host, port=server.port, user=server.user, password=server.password, autocommit=True
        )

    def structures(self) -> dict[str, Table]:
        server = self.server
        config = SourceConfig(server.host, server.port, server.user, server.password, source_id="one")
        with closing(connect(config)) as session:
            return {name.name: table for name, table in read_structures(session, AllowList(do_dbs=(SCHEMA,))).items()}

    def sums(self, *, sha: bool) -> dict[str, tuple[int, str]]:
        """Returns for each table the number of rows, and a number that depends on every value."""
        if sha not in self._sums:
            self._sums[sha] = dict(_side_by_side(self.tables, lambda table: _mysql_sum(self.connect(), table, sha=sha)))
        return self._sums[sha]

    def _make(self) -> None:
        """Creates and fills the tables.

        The numbers in the rows come from a table that is doubled until it is large enough: only MariaDB has built-in
        tables of numbers.
        """
        with closing(self.connect()) as session, session.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {SCHEMA} COLLATE {_COLLATIONS['utf8mb4']}")
            cursor.execute("CREATE DATABASE numbers")
            cursor.execute("SET sql_log_bin = 0")
            cursor.execute("CREATE TABLE numbers.n (seq INT PRIMARY KEY)")
            cursor.execute("INSERT INTO numbers.n VALUES (0)")
            known = 1
            while known < self.tables[0].rows:
                cursor.execute(f"INSERT INTO numbers.n SELECT seq + {known} FROM numbers.n")
                known *= 2
        dict(_side_by_side(self.tables, self._fill))

    def _fill(self, table: CopiedTable) -> tuple[int, str]:
        row = table.shape.row.format(id=f"(seq * {_ID_STEP})", n="seq")
        with closing(self.connect()) as session, session.cursor() as cursor:
            cursor.execute("SET sql_log_bin = 0, unique_checks = 0")
            cursor.execute(f"USE {SCHEMA}")
            collation = _COLLATIONS[table.shape.charset]
            cursor.execute(f"CREATE TABLE {table.name} ({table.shape.columns}) COLLATE {collation}")
            where = f"WHERE seq < {table.rows} ORDER BY seq"
            cursor.execute(f"INSERT INTO {table.name} SELECT {row} FROM numbers.n {where}")
            cursor.execute(f"ANALYZE TABLE {table.name}")
        return table.rows, ""


def check(source: Source, target: TargetServer) -> None:
    """Checks that every row and every value of a copy is equal."""
    is_postgres = target.kind == "postgres"
    one = _postgres_sum if is_postgres else _mysql_sum
    found = dict(_side_by_side(source.tables, lambda table: one(target.connect(), table)))
    if found != (wanted := source.sums(sha=is_postgres)):
        raise AssertionError(f"the copy differs from the source (rows and sums): {found}, not {wanted}")


def _side_by_side(tables: list[CopiedTable], work: Any) -> Iterator[tuple[str, tuple[int, str]]]:
    with ThreadPoolExecutor(STREAMS) as pool:
        yield from zip([table.name for table in tables], pool.map(work, tables), strict=True)


def _mysql_sum(session: Any, table: CopiedTable, *, sha: bool = False) -> tuple[int, str]:
    text = f"CONCAT_WS('|', {', '.join(table.columns)})"
    with closing(session), session.cursor() as cursor:
        cursor.execute(f"SELECT COUNT(*), {(_SHA_SUM if sha else _CRC_SUM).format(text)} FROM {SCHEMA}.{table.name}")
        count, found = cursor.fetchone()
    return int(count), str(found)


def _postgres_sum(session: psycopg.Connection, table: CopiedTable) -> tuple[int, str]:
    text = f"CONCAT_WS('|', {', '.join(f'{column}::text' for column in table.columns)})"
    with closing(session):
        row = session.execute(f"SELECT COUNT(*), {_POSTGRES_SUM.format(text)} FROM {SCHEMA}.{table.name}").fetchone()
    return int(row[0]), str(row[1])


def outfile(cursor: Any, table: CopiedTable, first: int, behind: int, path: Path) -> None:
    """Lets the server write the rows of a range of ids to a file."""
    cursor.execute(f"SELECT * FROM {SCHEMA}.{table.name} WHERE id >= {first} AND id < {behind} INTO OUTFILE '{path}'")
