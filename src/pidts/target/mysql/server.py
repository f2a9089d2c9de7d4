"""Describes the differences between the servers that speak MySQL's protocol."""

from __future__ import annotations

from dataclasses import dataclass

from pidts.model import ColumnType, Kind
from pidts.schema import Dialect

_RIGHT_BITS = 56
"""The largest width of a BIT that TiDB 8.4 reads unchanged from `VALUES(column)`. With 57 bits, it read 1 as 2^56."""


@dataclass(frozen=True, slots=True)
class TargetServer:
    """The server at the other end of a connection."""

    dialect: Dialect
    tidb: bool
    collations: frozenset[str]
    max_packet: int
    explicit_timestamp: bool
    takes_files: bool = False
    """Whether the server accepts LOAD DATA LOCAL."""
    version: str = ""
    """The version as the server itself writes it."""
    is_cluster: bool = False
    """Whether the server is a node of a Galera cluster."""

    @property
    def replays_events(self) -> bool:
        """Whether the server executes log events (BINLOG) in a transaction with SQL statements."""
        return self.dialect.mariadb and self.dialect.version >= (10, 5, 0) and not self.is_cluster

    @property
    def row_alias(self) -> bool:
        """Whether the server accepts `VALUES (...) AS new`.

        Servers that accept this form deprecate `VALUES(column)`, which is the only form on all other servers.
        """
        return not self.dialect.mariadb and not self.tidb and self.dialect.version >= (8, 0, 20)

    @property
    def casts_to_float(self) -> bool:
        """Whether the server accepts `CAST(... AS FLOAT)`."""
        since = (10, 4, 0) if self.dialect.mariadb else (8, 0, 17)
        return not self.tidb and self.dialect.version >= since

    @property
    def has_json(self) -> bool:
        """Whether the server has a type JSON. MariaDB's JSON is a LONGTEXT, with a check from 10.4.3 on."""
        return self.dialect.version >= ((10, 2, 7) if self.dialect.mariadb else (5, 7, 8))

    @property
    def has_vector(self) -> bool:
        """Whether the server has the type VECTOR."""
        return not self.tidb and self.dialect.version >= ((11, 7, 1) if self.dialect.mariadb else (9, 0, 0))

    @property
    def has_generated(self) -> bool:
        """Whether the server has generated columns with MySQL's syntax for STORED."""
        return self.dialect.version >= ((10, 2, 1) if self.dialect.mariadb else (5, 7, 6))

    def misreads(self, kind: ColumnType) -> bool:
        """Whether `VALUES(column)` is not the row's value: TiDB reverses the bytes of a wide BIT."""
        return self.tidb and kind.kind is Kind.BIT and (kind.length or 1) > _RIGHT_BITS

    def has_address_type(self, name: str) -> bool:
        """Whether the server has this type: UUID, INET4 or INET6."""
        since = {"inet6": (10, 5, 0), "uuid": (10, 7, 0), "inet4": (10, 10, 0)}
        return self.dialect.mariadb and self.dialect.version >= since[name]
