"""A JDBC catalog of Iceberg in a database of PostgreSQL, MySQL or MariaDB.

Each table has one row, with the path of its metadata file. All changes of one call are one transaction, so readers see
all new states of a publication or none. The transaction first locks the rows of its tables. If the server is still
executing the transaction of an earlier publisher, this lock waits until that transaction ends. Each statement names the
metadata file that it replaces.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import psycopg
import pymysql

from pidts.login import Tls
from pidts.login.link import Link
from pidts.login.password_file import with_password
from pidts.login.plugins import PLUGINS
from pidts.model import TableName, Transient, Where
from pidts.target.iceberg.catalog_tables import CATALOG_TABLES
from pidts.target.iceberg.server_catalog import CatalogAction, CatalogUpdate, step
from pidts.target.mysql import errors as mysql
from pidts.target.mysql.driver import force_close
from pidts.target.postgres import errors as postgres
from pidts.target.postgres.connect import connect

_AT_ONCE = 1000
_PLACE = "catalog_name = %s AND table_namespace = %s AND table_name = %s"
_ANSWER_SECONDS = 60
_POSTGRES = "SET lock_timeout = '30s'; SET statement_timeout = 0; SET idle_in_transaction_session_timeout = '5min'"
_MYSQL = (
    "SET SESSION sql_mode = 'STRICT_ALL_TABLES'",
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE",
)


class _Connection(Protocol):
    def execute(self, sql: str, values: Sequence[Any] = ()) -> Any:
        """Executes a statement; returns the cursor."""

    def commit(self) -> None:
        """Commits the transaction."""

    def rollback(self) -> None:
        """Rolls the transaction back."""


@dataclass(frozen=True, slots=True)
class JdbcCatalog(ABC):
    """The configuration of the catalog: where to connect, as whom, and the catalog's name."""

    host: str
    port: int
    user: str
    database: str
    catalog: str
    password: str = field(default="", repr=False)
    tls: Tls = field(default_factory=Tls)
    connect_timeout: int = 10
    password_file: str = ""
    """The file from which the password comes; each login reads it again. Empty if there is no such file."""

    kind: ClassVar[str]
    ignoring: ClassVar[str]
    """The end of an INSERT that does nothing if the row exists."""
    tables: ClassVar[str]
    """A query that counts how many of the catalog's own tables exist."""
    undoes_ddl: ClassVar[bool] = True
    """Whether a rollback removes tables that the transaction has created."""
    charset: ClassVar[str] = ""
    """The end of the statements that create the catalog's tables."""

    @property
    def place(self) -> str:
        """The address and the catalog's name."""
        return f"{self.kind} {self.host}:{self.port}/{self.database}, catalog {self.catalog}"

    def move(self, moves: Sequence[CatalogUpdate]) -> Mapping[TableName, str]:
        """Brings the tables to their next states in one transaction."""
        problems = {}
        with self._transaction() as connection:
            there = self._locations(connection, [each.table for each in moves])
            for each in moves:
                found = step(each, there.get(each.table))
                problem = (
                    found if isinstance(found, str) else self._make(connection, each, found, there.get(each.table))
                )
                if problem:
                    problems[each.table] = problem
        return problems

    def check(self) -> None:
        """Writes a row for a namespace and rolls back; raises if this is not possible.

        If the catalog's tables are missing, the check creates them if the rollback removes them (`undoes_ddl`).
        """
        with self._connected() as connection:
            is_made = self._is_made(connection)
            if not is_made and self.undoes_ddl:
                self._make_tables(connection)
            if is_made or self.undoes_ddl:
                self._add_namespace(connection, "pidts_check")
            connection.rollback()

    @contextmanager
    def _transaction(self) -> Iterator[_Connection]:
        with self._connected() as connection:
            if not self._is_made(connection):
                self._make_tables(connection)
            connection.commit()
            yield connection
            connection.commit()

    @abstractmethod
    @contextmanager
    def _connected(self) -> Iterator[_Connection]:
        """Connects without autocommit; converts errors of the block, and closes the connection at its end."""

    def _is_made(self, connection: _Connection) -> bool:
        return bool(connection.execute(self.tables).fetchone()[0] == len(CATALOG_TABLES))

    def _make_tables(self, connection: _Connection) -> None:
        for sql in CATALOG_TABLES:
            connection.execute(sql + self.charset)

    def _locations(self, connection: _Connection, names: Sequence[TableName]) -> dict[TableName, str]:
        """Locks the rows of these tables, and returns their metadata files; an empty text for a view."""
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
            found |= {TableName(schema, name): location or "" for schema, name, location in rows.fetchall()}
        return found

    def _make(self, connection: _Connection, move: CatalogUpdate, what: CatalogAction, there: str | None) -> str:
        """Brings a table to its next state; returns the reason if this is not possible."""
        row = (self.catalog, move.table.schema, move.table.name)
        match what:
            case CatalogAction.NOTHING:
                return ""
            case CatalogAction.CREATE:
                self._add_namespace(connection, move.table.schema)
                done = connection.execute(
                    "INSERT INTO iceberg_tables (catalog_name, table_namespace, table_name, metadata_location) "
                    f"VALUES (%s, %s, %s, %s) {self.ignoring}",
                    (*row, move.goal),
                )
                taken = "the catalog's database already has this name, or another name that it treats as equal"
                return "" if done.rowcount else taken
            case CatalogAction.REPLACE:
                done = connection.execute(
                    "UPDATE iceberg_tables SET metadata_location = %s, previous_metadata_location = %s "
                    f"WHERE {_PLACE} AND metadata_location = %s",
                    (move.goal, there, *row, there),
                )
            case CatalogAction.REMOVE:
                done = connection.execute(
                    f"DELETE FROM iceberg_tables WHERE {_PLACE} AND metadata_location = %s", (*row, there)
                )
        if done.rowcount != 1:
            what_happened = "another program has changed the table in the catalog meanwhile"
            raise Transient("target-busy", what_happened, where=Where(table=str(move.table)))
        return ""

    def _add_namespace(self, connection: _Connection, name: str) -> None:
        connection.execute(
            "INSERT INTO iceberg_namespace_properties (catalog_name, namespace, property_key, property_value) "
            f"VALUES (%s, %s, 'exists', 'true') {self.ignoring}",
            (self.catalog, name),
        )


class PostgresCatalog(JdbcCatalog):
    """A catalog in a PostgreSQL database."""

    __slots__ = ()
    kind = "postgresql"
    ignoring = "ON CONFLICT DO NOTHING"
    tables = "SELECT num_nonnulls(to_regclass('iceberg_tables'), to_regclass('iceberg_namespace_properties'))"

    @contextmanager
    def _connected(self) -> Iterator[_Connection]:
        connection = with_password(self._log_in, self)
        try:
            with postgres.mapped():
                connection.isolation_level, connection.read_only = psycopg.IsolationLevel.READ_COMMITTED, False
                connection.execute(_POSTGRES)
                yield connection
        finally:
            connection.close()

    def _log_in(self, password: str) -> psycopg.Connection[tuple[Any, ...]]:
        login = (self.host, self.port, self.user, password, self.database, self.tls)
        return connect(*login, self.connect_timeout, prepare_threshold=None)


class MySqlCatalog(JdbcCatalog):
    """A catalog in a database of MySQL or MariaDB."""

    __slots__ = ()
    kind = "mysql"
    # With the driver's usual flags, the server reports 0 rows for an INSERT with this clause if the row exists. For an
    # UPDATE it reports the number of changed rows.
    ignoring = "ON DUPLICATE KEY UPDATE catalog_name = catalog_name"
    tables = (
        "SELECT count(*) FROM information_schema.tables WHERE table_schema = DATABASE() "
        "AND table_name IN ('iceberg_tables', 'iceberg_namespace_properties')"
    )
    undoes_ddl = False
    charset = " ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin"

    @contextmanager
    def _connected(self) -> Iterator[_Connection]:
        link = with_password(self._log_in, self)
        try:
            with mysql.mapped():
                for sql in _MYSQL:
                    link.cursor().execute(sql)
                yield _OfMySql(link)
        finally:
            force_close(link)

    def _log_in(self, password: str) -> Link:
        try:
            return Link(
                host=self.host,
                port=self.port,
                user=self.user,
                # The driver would encode a text in latin1, but the server's own clients send its bytes in UTF-8.
                password=password.encode(),
                database=self.database,
                charset="utf8mb4",
                autocommit=False,
                connect_timeout=self.connect_timeout,
                read_timeout=_ANSWER_SECONDS,
                write_timeout=_ANSWER_SECONDS,
                program_name="pidts",
                auth_plugin_map=PLUGINS,
                **self.tls.mysql(),
            )
        except (pymysql.err.Error, OSError) as error:
            raise mysql.translate_connect(error, f"{self.host}:{self.port}") from error


@dataclass(frozen=True, slots=True)
class _OfMySql:
    """A connection to MySQL with the methods of a connection to PostgreSQL."""

    link: Link

    def execute(self, sql: str, values: Sequence[Any] = ()) -> Any:
        """Executes a statement; returns the cursor."""
        cursor = self.link.cursor()
        cursor.execute(sql, values or None)
        return cursor

    def commit(self) -> None:
        """Commits the transaction."""
        self.link.commit()

    def rollback(self) -> None:
        """Rolls the transaction back."""
        self.link.rollback()
