"""A JDBC catalog of Iceberg in a PostgreSQL database: one row for each table, with its metadata file.

All moves of one call are one transaction, so readers see all tables of a publication or none. The transaction first
locks the rows of its tables. So it waits for a transaction of an earlier publisher that the server may still be working
on, and sees its outcome. Each statement names the metadata file that it replaces.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg

from pidts.login import Tls
from pidts.model import TableName, Transient, Where
from pidts.target.iceberg.catalog_tables import CATALOG_TABLES
from pidts.target.iceberg.server_catalog import Move, Step, step
from pidts.target.postgres.errors import mapped, translate_connect

_AT_ONCE = 1000
_SETTINGS = "SET lock_timeout = '30s'; SET statement_timeout = 0; SET idle_in_transaction_session_timeout = '5min'"
_PLACE = "catalog_name = %s AND table_namespace = %s AND table_name = %s"


@dataclass(frozen=True, slots=True)
class PostgresCatalog:
    """The configuration of the catalog: where to connect, as whom, and the catalog's name."""

    host: str
    port: int
    user: str
    database: str
    catalog: str
    password: str = field(default="", repr=False)
    tls: Tls = field(default_factory=Tls)
    connect_timeout: int = 10

    @property
    def place(self) -> str:
        """The address and the catalog's name."""
        return f"postgresql {self.host}:{self.port}/{self.database}, catalog {self.catalog}"

    def move(self, moves: Sequence[Move]) -> Mapping[TableName, str]:
        """Makes the moves in one transaction."""
        problems = {}
        with self._transaction() as connection:
            there = self._locations(connection, [each.table for each in moves])
            for each in moves:
                found = step(each, there.get(each.table))
                if isinstance(found, str):
                    problems[each.table] = found
                else:
                    self._make(connection, each, found, there.get(each.table))
        return problems

    def check(self) -> None:
        """Writes a row for a namespace, and rolls back."""
        with self._transaction() as connection:
            self._add_namespace(connection, "pidts_check")
            connection.rollback()

    @contextmanager
    def _transaction(self) -> Iterator[psycopg.Connection]:
        address = f"{self.host}:{self.port}/{self.database}"
        try:
            connection = psycopg.connect(
                host=self.host,
                port=self.port,
                user=self.user,
                password=self.password or None,
                dbname=self.database,
                connect_timeout=self.connect_timeout,
                application_name="pidts",
                keepalives_idle=10,
                keepalives_interval=5,
                keepalives_count=4,
                tcp_user_timeout=30_000,
                prepare_threshold=None,
                **self.tls.postgres(),
            )
        except psycopg.Error as error:
            raise translate_connect(error, address) from error
        try:
            with mapped():
                connection.isolation_level, connection.read_only = psycopg.IsolationLevel.READ_COMMITTED, False
                connection.execute(_SETTINGS)
                _make_tables(connection)
                yield connection
                connection.commit()
        finally:
            connection.close()

    def _locations(self, connection: psycopg.Connection, names: Sequence[TableName]) -> dict[TableName, str]:
        """Locks the rows of these tables, and returns their metadata files; an empty one for a view."""
        found = dict[TableName, str]()
        for start in range(0, len(names), _AT_ONCE):
            some = names[start : start + _AT_ONCE]
            is_one = " OR ".join(["(table_namespace = %s AND table_name = %s)"] * len(some))
            values = [text for name in some for text in (name.schema, name.name)]
            rows = connection.execute(
                "SELECT table_namespace, table_name, metadata_location FROM iceberg_tables "
                f"WHERE catalog_name = %s AND ({is_one}) ORDER BY table_namespace, table_name FOR UPDATE",
                (self.catalog, *values),
            )
            found |= {TableName(schema, name): location or "" for schema, name, location in rows}
        return found

    def _make(self, connection: psycopg.Connection, move: Move, what: Step, there: str | None) -> None:
        row = (self.catalog, move.table.schema, move.table.name)
        match what:
            case Step.NOTHING:
                return
            case Step.CREATE:
                self._add_namespace(connection, move.table.schema)
                done = connection.execute(
                    "INSERT INTO iceberg_tables (catalog_name, table_namespace, table_name, metadata_location) "
                    "VALUES (%s, %s, %s, %s) ON CONFLICT DO NOTHING",
                    (*row, move.goal),
                )
            case Step.REPLACE:
                done = connection.execute(
                    "UPDATE iceberg_tables SET metadata_location = %s, previous_metadata_location = %s "
                    f"WHERE {_PLACE} AND metadata_location = %s",
                    (move.goal, there, *row, there),
                )
            case Step.REMOVE:
                done = connection.execute(
                    f"DELETE FROM iceberg_tables WHERE {_PLACE} AND metadata_location = %s", (*row, there)
                )
        if done.rowcount != 1:
            what_happened = "another program has changed the table in the catalog meanwhile"
            raise Transient("target-busy", what_happened, where=Where(table=str(move.table)))

    def _add_namespace(self, connection: psycopg.Connection, name: str) -> None:
        connection.execute(
            "INSERT INTO iceberg_namespace_properties (catalog_name, namespace, property_key, property_value) "
            "VALUES (%s, %s, 'exists', 'true') ON CONFLICT DO NOTHING",
            (self.catalog, name),
        )


def _make_tables(connection: psycopg.Connection) -> None:
    """Makes the catalog's tables if they are missing; with earlier tables of other clients, it needs no privilege."""
    names: list[tuple[Any, ...]] = connection.execute(
        "SELECT to_regclass('iceberg_tables'), to_regclass('iceberg_namespace_properties')"
    ).fetchall()
    if None in names[0]:
        for sql in CATALOG_TABLES:
            connection.execute(sql)
        connection.commit()
