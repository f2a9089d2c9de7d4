"""PostgreSQL as a target: one configured database, with one schema for each of the source's databases."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import psycopg

from pidts.login import Tls
from pidts.login.password_file import state_for_another_process, with_password
from pidts.model.type_map import TypeMap
from pidts.target.meta_schema import USUAL
from pidts.target.postgres.connect import connect
from pidts.target.postgres.session import PostgresSession
from pidts.target.postgres.writer import SchemaChanges


@dataclass(frozen=True, slots=True)
class PostgresTarget:
    """The configuration of a PostgreSQL target: where to connect, and as whom."""

    host: str
    port: int = 5432
    user: str = "postgres"
    password: str = field(default="", repr=False)
    database: str = "postgres"
    connect_timeout: int = 10
    tls: Tls = field(default_factory=Tls)
    meta_schema: str = USUAL
    """The schema of PiDTS's own tables."""
    types: TypeMap = field(default_factory=TypeMap)
    password_file: str = ""
    """The file from which the password comes; each login reads it again. Empty if there is no such file."""
    changes: SchemaChanges = field(default_factory=SchemaChanges, repr=False, compare=False)

    piece_rows: ClassVar[int] = 2_500
    buffers_rows: ClassVar[bool] = False

    def __getstate__(self) -> list[Any]:
        """Returns the state for a pickle: another process gets the last password that the server has accepted."""
        return state_for_another_process(self)

    def connect(self) -> PostgresSession:
        """Returns a new session; its connection fails if the server is silent for half a minute."""
        connection = with_password(self._log_in, self)
        try:
            return PostgresSession(connection, meta_schema=self.meta_schema, types=self.types, changes=self.changes)
        except BaseException:
            connection.close()
            raise

    def _log_in(self, password: str) -> psycopg.Connection[tuple[Any, ...]]:
        login = (self.host, self.port, self.user, password, self.database, self.tls)
        return connect(*login, self.connect_timeout, autocommit=True)


__all__ = ["PostgresSession", "PostgresTarget"]
