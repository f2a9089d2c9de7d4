"""Connections to a source server: how to reach it, how a session is set up, and what server it is."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from urllib.parse import parse_qsl, unquote, urlsplit

import pymysql
from pymysql.connections import Connection
from pymysql.cursors import Cursor

from pidts.model import ConfigError, Where
from pidts.source.failures import explained

Session: TypeAlias = "Connection[Cursor]"

_SESSION = (
    # Every value is read as it is stored: in UTC, without padding, unreal dates included.
    "SET SESSION time_zone = '+00:00', sql_mode = 'ALLOW_INVALID_DATES', net_write_timeout = 600",
    # A server-wide READ UNCOMMITTED would let a copy read rows that never come to be.
    "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
)


@dataclass(frozen=True, slots=True)
class SourceConfig:
    """How to reach one source server."""

    host: str
    port: int = 3306
    user: str = "root"
    password: str = field(default="", repr=False)
    source_id: str = ""
    server_id: int | None = None
    """Ours, as a replica; chosen where it is None."""
    connect_timeout: float = 10.0
    ssl_ca: str | None = None
    ssl_cert: str | None = None
    ssl_key: str | None = None

    @classmethod
    def from_url(cls, url: str, source_id: str = "") -> SourceConfig:
        """`mysql://user:password@host:port/?server-id=7&ssl-ca=/path`; `mariadb://` is the same."""
        parts = urlsplit(url)
        try:
            port = parts.port
        except ValueError as error:
            raise ConfigError("bad-source-url", f"the source's URL has no usable port: {error}") from error
        if parts.scheme not in {"mysql", "mariadb"} or not parts.hostname:
            todo = "Write mysql://user:password@host:port/"
            raise ConfigError(
                "bad-source-url", f"not a URL of a MySQL or MariaDB server: scheme {parts.scheme!r}", todo=todo
            )
        options = dict(parse_qsl(parts.query))
        known = {"server-id", "source-id", "ssl-ca", "ssl-cert", "ssl-key"}
        if unknown := sorted(options.keys() - known):
            raise ConfigError(
                "bad-source-url", f"unknown option {unknown[0]!r}", todo=f"Known: {', '.join(sorted(known))}"
            )
        server_id = options.get("server-id")
        if server_id is not None and not (server_id.isascii() and server_id.isdigit() and 0 < int(server_id) < 2**32):
            raise ConfigError("bad-source-url", f"server-id {server_id!r} is not a number from 1 to 4294967295")
        return cls(
            host=parts.hostname,
            port=port or 3306,
            user=unquote(parts.username or "root"),
            password=unquote(parts.password or ""),
            source_id=source_id or options.get("source-id") or f"{parts.hostname}-{port or 3306}",
            server_id=int(server_id) if server_id else None,
            ssl_ca=options.get("ssl-ca"),
            ssl_cert=options.get("ssl-cert"),
            ssl_key=options.get("ssl-key"),
        )

    @property
    def where(self) -> Where:
        """For errors: the source's name and its address."""
        address = f"{self.host}:{self.port}"
        return Where(source=f"{self.source_id} ({address})" if self.source_id else address)


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """Which server this is."""

    version: str
    is_mariadb: bool
    server_id: int
    server_uuid: str
    """Names the server for good: MySQL's UUID, MariaDB's server_uid; empty where it has neither."""
    gtid_mode: bool
    """Whether every transaction has a GTID."""

    @property
    def flavor(self) -> str:
        """`mariadb` or `mysql`."""
        return "mariadb" if self.is_mariadb else "mysql"

    @property
    def identity(self) -> str:
        """Another text is another server, whatever its address.

        A MySQL has a UUID. MariaDB's own unique id follows the network card, which a container changes at will.
        """
        if self.is_mariadb or not self.server_uuid:
            return f"{self.flavor} server-id {self.server_id}"
        return f"{self.flavor} {self.server_uuid}"

    @property
    def number(self) -> tuple[int, int, int]:
        """The version, to compare."""
        major, minor, patch = re.findall(r"[0-9]+", f"{self.version}.0.0")[:3]
        return int(major), int(minor), int(patch)


def connect(config: SourceConfig) -> Session:
    """A session whose reading is exact: UTC, utf8mb4, no padding, autocommit."""
    with explained(config.where, login=True):
        connection: Session = pymysql.connect(
            host=config.host,
            port=config.port,
            user=config.user,
            password=config.password,
            charset="utf8mb4",
            autocommit=True,
            connect_timeout=config.connect_timeout,
            # Something that is no MySQL may say nothing for ever; once it has spoken, statements take what they take.
            read_timeout=config.connect_timeout,
            **_tls(config),
        )
        connection._read_timeout = None  # type: ignore[attr-defined]  # noqa: SLF001 - there is no other way
        try:
            for statement in _SESSION:
                connection.query(statement)
        except BaseException:
            connection.close()
            raise
        return connection


def _tls(config: SourceConfig) -> dict[str, Any]:
    if not (config.ssl_ca or config.ssl_cert):
        return {}
    return {
        "ssl_ca": config.ssl_ca,
        "ssl_cert": config.ssl_cert,
        "ssl_key": config.ssl_key,
        "ssl_verify_cert": config.ssl_ca is not None,
    }


def query(connection: Session, sql: str, args: Sequence[Any] | None = None) -> list[tuple[Any, ...]]:
    """All rows of a small result."""
    with explained(where_of(connection)), connection.cursor() as cursor:
        cursor.execute(sql, args)
        return list(cursor.fetchall())


def named(connection: Session, sql: str, args: Sequence[Any] | None = None) -> list[dict[str, Any]]:
    """The same by column name, in lower case: servers differ in the case of their own tables' columns."""
    with explained(where_of(connection)), connection.cursor() as cursor:
        cursor.execute(sql, args)
        names = [str(column[0]).lower() for column in cursor.description or ()]
        # MySQL 5.6 leaves out the last column of SHOW SLAVE HOSTS for a replica that is just going.
        return [dict(zip(names, row, strict=False)) for row in cursor.fetchall()]


def hang_up(connection: Session) -> None:
    """Close a connection in the middle of an answer; closing it again later does no harm."""
    with suppress(pymysql.err.Error, OSError):
        connection._force_close()  # type: ignore[attr-defined]  # noqa: SLF001 - the driver's way without a goodbye


def where_of(connection: Session) -> Where:
    """The address of an open connection."""
    return Where(source=f"{connection.host}:{connection.port}")


def variables(connection: Session, *names: str) -> dict[str, str]:
    """Global variables; those the server does not know are left out."""
    marks = ", ".join(["%s"] * len(names))
    rows = query(connection, f"SHOW GLOBAL VARIABLES WHERE variable_name IN ({marks})", names)
    return {str(name).lower(): str(value) for name, value in rows}


def server_info(connection: Session) -> ServerInfo:
    """Ask the server who it is."""
    found = variables(connection, "version", "server_id", "server_uuid", "server_uid", "gtid_mode")
    is_mariadb = "mariadb" in found["version"].lower()
    return ServerInfo(
        version=found["version"],
        is_mariadb=is_mariadb,
        server_id=int(found["server_id"]),
        server_uuid=found.get("server_uuid") or found.get("server_uid") or "",
        gtid_mode=is_mariadb or found.get("gtid_mode") == "ON",
    )
