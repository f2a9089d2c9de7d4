"""PostgreSQL as a target: one configured database, with one schema for each of the source's databases."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import psycopg

from pidts.login import Tls
from pidts.model.type_map import TypeMap
from pidts.target.meta_schema import USUAL
from pidts.target.postgres.errors import translate_connect
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
    """The schema of the product's own tables."""
    types: TypeMap = field(default_factory=TypeMap)
    changes: SchemaChanges = field(default_factory=SchemaChanges, repr=False, compare=False)

    piece_rows: ClassVar[int] = 2_500

    def connect(self) -> PostgresSession:
        """Returns a new session; a peer that is silent for half a minute counts as lost."""
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
                autocommit=True,
                **self.tls.postgres(),
            )
        except psycopg.Error as error:
            raise translate_connect(error, f"{self.host}:{self.port}/{self.database}") from error
        try:
            return PostgresSession(connection, meta_schema=self.meta_schema, types=self.types, changes=self.changes)
        except BaseException:
            connection.close()
            raise


__all__ = ["PostgresSession", "PostgresTarget"]
