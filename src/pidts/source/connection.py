"""Connects to source servers, sets up sessions, and identifies the server."""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

import pymysql
from pymysql.connections import Connection
from pymysql.cursors import Cursor

from pidts.login import Tls
from pidts.login.link import Link
from pidts.login.password_file import state_for_another_process, with_password
from pidts.login.plugins import PLUGINS
from pidts.model import ConfigError, Where
from pidts.source.failures import explained

Session: TypeAlias = "Connection[Cursor]"

_SESSION = (
    # Every value is read as it is stored: in UTC, without padding, including zero and partial dates.
    "SET SESSION time_zone = '+00:00', sql_mode = 'ALLOW_INVALID_DATES', net_write_timeout = 600",
    # If the server's default were READ UNCOMMITTED, a copy would read rows that are never committed.
    "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
)
PLACE_OF_MARIADB = " at "
"""The text between the two parts of a MariaDB server's identity."""
IDENTIFYING = ("version", "server_id", "server_uuid", "server_uid", "gtid_mode")
"""Global variables that identify the server."""


def split_url(url: str, code: str) -> tuple[SplitResult, int | None]:
    """Splits a server's URL; also returns its port, or None if the URL has no port.

    If the host or the port is malformed, raises an error with this code. The error does not show the malformed text,
    because this text may be a part of a password.
    """
    todo = "Write user:password@host:port, and in a password, each of / ? # @ : % as %2F %3F %23 %40 %3A %25"
    try:
        parts = urlsplit(url)
    except ValueError:
        raise ConfigError(code, "the host in the server's URL is malformed", todo=todo) from None
    with suppress(ValueError):
        if parts.port != 0:
            return parts, parts.port
    raise ConfigError(code, "the port in the server's URL is not a number from 1 to 65535", todo=todo)


@dataclass(frozen=True, slots=True)
class SourceConfig:
    """The address and account of one source server."""

    host: str
    port: int = 3306
    user: str = "root"
    password: str = field(default="", repr=False)
    source_id: str = ""
    server_id: int | None = None
    """The server id of the replicator as a replica; None: the replicator chooses an id."""
    connect_timeout: float = 10.0
    tls: Tls = field(default_factory=Tls)
    password_file: str = ""
    """The path of the file with the password, which each login reads again; empty if there is no such file."""

    @classmethod
    def from_url(cls, url: str, source_id: str = "") -> SourceConfig:
        """Parses `mysql://user:password@host:port/?server-id=7&ssl-mode=verify_ca&ssl-ca=/path`, or `mariadb://…`."""
        parts, port = split_url(url, "bad-source-url")
        todo = "Write mysql://user:password@host:port/"
        if parts.scheme not in {"mysql", "mariadb"}:
            raise ConfigError(
                "bad-source-url", f"not a URL of a MySQL or MariaDB server: scheme {parts.scheme!r}", todo=todo
            )
        if not parts.hostname:
            raise ConfigError("bad-source-url", "the server's URL names no host", todo=todo)
        options = dict(parse_qsl(parts.query))
        known = {"server-id", "source-id", "ssl-mode", "ssl-ca", "ssl-cert", "ssl-key"}
        if unknown := sorted(options.keys() - known):
            raise ConfigError(
                "bad-source-url", f"unknown option {unknown[0]!r}", todo=f"Known: {', '.join(sorted(known))}"
            )
        server_id = options.get("server-id")
        if server_id is not None and not (server_id.isascii() and server_id.isdigit() and 0 < int(server_id) < 2**32):
            raise ConfigError(
                "bad-source-url",
                f"server-id {server_id!r} is not a number from 1 to 4294967295",
                todo="Give each replica of the source a number of its own",
            )
        try:
            tls = Tls.of(*(options.get(f"ssl-{name}", "") for name in ("mode", "ca", "cert", "key")))
        except ValueError as error:
            raise ConfigError("bad-source-url", str(error), todo=f"Known: {', '.join(sorted(known))}") from None
        return cls(
            host=parts.hostname,
            port=port or 3306,
            user=unquote(parts.username or "root"),
            password=unquote(parts.password or ""),
            source_id=source_id or options.get("source-id") or f"{parts.hostname}-{port or 3306}",
            server_id=int(server_id) if server_id else None,
            tls=tls,
        )

    def __getstate__(self) -> list[Any]:
        """Returns the state for a pickle: another process gets the last password that the server has accepted."""
        return state_for_another_process(self)

    @property
    def where(self) -> Where:
        """Returns the source's name and address for errors."""
        address = f"{self.host}:{self.port}"
        return Where(source=f"{self.source_id} ({address})" if self.source_id else address)


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """The identity, version and settings of a server."""

    version: str
    is_mariadb: bool
    server_id: int
    server_uuid: str
    """The server's permanent identity: MySQL's UUID, MariaDB's server_uid; empty if the server has neither."""
    gtid_mode: bool
    """Whether the server gives every transaction a GTID."""

    @classmethod
    def of(cls, variables: Mapping[str, str]) -> ServerInfo:
        """Makes the object from the values of the variables in `IDENTIFYING`; a server may lack some of them."""
        is_mariadb = "mariadb" in variables["version"].lower()
        return cls(
            version=variables["version"],
            is_mariadb=is_mariadb,
            server_id=int(variables["server_id"]),
            server_uuid=variables.get("server_uuid") or variables.get("server_uid") or "",
            gtid_mode=is_mariadb or variables.get("gtid_mode") == "ON",
        )

    @property
    def product(self) -> str:
        """Returns `mariadb` or `mysql`."""
        return "mariadb" if self.is_mariadb else "mysql"

    @property
    def identity(self) -> str:
        """Returns a text that identifies the server.

        If two texts differ, the servers differ, even if their addresses are equal. There is one exception: the second
        part of MariaDB's text may differ for the same server.

        MySQL has a UUID in its data folder. MariaDB has a server id, which operators choose and may choose twice.
        MariaDB also computes a unique id from network card and port at each start. So the same server in a new
        container has another unique id: only the server's log shows whether it is the same server.
        """
        if not self.is_mariadb and self.server_uuid:
            return f"{self.product} {self.server_uuid}"
        return f"{self.product} server-id {self.server_id}" + (
            f"{PLACE_OF_MARIADB}{self.server_uuid}" if self.server_uuid else ""
        )

    @property
    def number(self) -> tuple[int, int, int]:
        """Returns the version as numbers, for comparisons."""
        major, minor, patch = re.findall(r"[0-9]+", f"{self.version}.0.0")[:3]
        return int(major), int(minor), int(patch)


def connect(config: SourceConfig, *, answer_within: float | None = None) -> Session:
    """Returns a session that reads exact values: UTC, utf8mb4, no padding, autocommit.

    `answer_within` is for short queries: if the server has to answer and sends nothing for this number of seconds, the
    connection is closed. None: the session waits without limit.
    """
    connection = with_password(partial(_log_in, config), config)
    try:
        # The login has succeeded, so an error here is an error of the connection.
        with explained(config.where):
            for statement in _SESSION:
                connection.query(statement)
        connection._read_timeout = answer_within  # type: ignore[attr-defined]  # noqa: SLF001 - there is no other way
    except BaseException:
        hang_up(connection)
        raise
    return connection


def _log_in(config: SourceConfig, password: str) -> Session:
    with explained(config.where, login=True):
        return Link(
            host=config.host,
            port=config.port,
            user=config.user,
            # The driver would encode a text in latin1, but the servers' own clients send the password in UTF-8.
            password=password.encode(),
            charset="utf8mb4",
            autocommit=True,
            connect_timeout=config.connect_timeout,
            # If the peer is not a MySQL server, it may never answer. After the session's first statements, `connect`
            # replaces this limit by `answer_within`, since later statements may take long.
            read_timeout=config.connect_timeout,
            auth_plugin_map=PLUGINS,
            **config.tls.mysql(),
        )


def encryption(connection: Session) -> str:
    """Returns the TLS version in use; empty if the connection is plain."""
    peer = connection._sock  # type: ignore[attr-defined]  # noqa: SLF001 - the driver has no other way
    return str(peer.version()) if isinstance(peer, ssl.SSLSocket) else ""


def query(connection: Session, sql: str, args: Sequence[Any] | None = None) -> list[tuple[Any, ...]]:
    """Returns all rows of a small result. `args` are the values for the placeholders in `sql`."""
    with explained(where_of(connection)), connection.cursor() as cursor:
        cursor.execute(sql, args)
        return list(cursor.fetchall())


def named(connection: Session, sql: str, args: Sequence[Any] | None = None) -> list[dict[str, Any]]:
    """Returns rows as mappings from column names in lower case, since servers differ in the case of these names."""
    with explained(where_of(connection)), connection.cursor() as cursor:
        cursor.execute(sql, args)
        names = [str(column[0]).lower() for column in cursor.description or ()]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def hang_up(connection: Session) -> None:
    """Closes a connection, even in the middle of an answer. The connection may be closed already."""
    with suppress(pymysql.err.Error, OSError):
        connection._force_close()  # type: ignore[attr-defined]  # noqa: SLF001 - the driver's way without a goodbye


def where_of(connection: Session) -> Where:
    """Returns the address of an open connection."""
    return Where(source=f"{connection.host}:{connection.port}")


def variables(connection: Session, *names: str) -> dict[str, str]:
    """Returns the values of global variables. Leaves out variables that the server does not have."""
    placeholders = ", ".join(["%s"] * len(names))
    rows = query(connection, f"SHOW GLOBAL VARIABLES WHERE variable_name IN ({placeholders})", names)
    return {str(name).lower(): str(value) for name, value in rows}


def server_info(connection: Session) -> ServerInfo:
    """Asks the server for its identity."""
    return ServerInfo.of(variables(connection, *IDENTIFYING))
