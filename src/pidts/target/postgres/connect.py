"""Opens a connection to PostgreSQL."""

from __future__ import annotations

import logging
import os
import re
import selectors
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo
from psycopg.pq import ConnStatus, PGconn, PollingStatus
from psycopg.pq.abc import PGconn as Connection

from pidts.login import Tls
from pidts.target.postgres.errors import asks_for_clear_password, offers_no_tls, translate_connect

# When a connection breaks, PiDTS reports the error. psycopg would also log a warning about statements that are still in
# a pipeline. A process of Spark, which configures no logs, would print this warning. The level WARNING is the driver's
# own; a command may have chosen another level before.
_driver_log = logging.getLogger("psycopg")
if _driver_log.level == logging.WARNING:
    _driver_log.setLevel(logging.ERROR)


_HAS_REQUIRE_AUTH = 16_00_00
"""The first version of libpq (PostgreSQL's client library) that can refuse methods of authentication."""
_REFUSAL_SECONDS = 5.0
_REFUSED = re.compile(rb'\tErrorResponse\t.* C "(\w{5})" ')
_WAITS_FOR: dict[int, int] = {PollingStatus.READING: selectors.EVENT_READ, PollingStatus.WRITING: selectors.EVENT_WRITE}


def connect(
    host: str, port: int, user: str, password: str, database: str, tls: Tls, connect_timeout: int, **more: Any
) -> psycopg.Connection[tuple[Any, ...]]:
    """Returns a connection that fails if the server is silent for half a minute."""
    login = {
        "host": host,
        "port": port,
        "user": user,
        "password": password or None,
        "dbname": database,
        "connect_timeout": connect_timeout,
        "application_name": "pidts",
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 4,
        "tcp_user_timeout": 30_000,
        **tls.postgres(),
    }
    if not tls.mode.is_demanded and not host.startswith("/") and psycopg.pq.version() >= _HAS_REQUIRE_AUTH:
        login["require_auth"] = "!password"
    try:
        return _logged_in(login, more)
    except psycopg.Error as error:
        raise translate_connect(error, f"{host}:{port}/{database}", lambda: _asked_refusal(login)) from error


def _logged_in(login: Mapping[str, Any], more: Mapping[str, Any]) -> psycopg.Connection[tuple[Any, ...]]:
    """Logs in. If the server asks for the password in clear text, it gets the password only over TLS.

    With `prefer`, it is not known before the login whether the connection will be encrypted. So the first login refuses
    to send a clear password. If it fails for this reason, a second login demands TLS.
    """
    try:
        return psycopg.connect(**login, **more)
    except psycopg.OperationalError as error:
        if not asks_for_clear_password(error) or login["sslmode"] != "prefer":
            raise
        try:
            return psycopg.connect(**{**login, "sslmode": "require", "require_auth": None}, **more)
        except psycopg.OperationalError as encrypted:
            raise error if offers_no_tls(encrypted) else encrypted from None


def _asked_refusal(login: Mapping[str, Any]) -> str:
    with suppress(Exception):  # else the caller reports the first login's error; only Linux can trace into memory
        return login_refusal(make_conninfo(**login), _REFUSAL_SECONDS)
    return ""


def login_refusal(conninfo: str, seconds: float) -> str:
    """Logs in once more, and returns the SQLSTATE of the server's refusal.

    The driver's error of a login has only a text, which the server may have translated (lc_messages). libpq shows the
    SQLSTATE only in its trace of the protocol.

    The result is empty if the server does not refuse the login, or does not answer within these seconds. It is also
    empty with libpq before version 17, which does not trace logins.
    """
    ends = time.monotonic() + seconds
    with os.fdopen(os.memfd_create("login"), "rb") as trace:  # in memory only, since it may contain secrets
        connection: Connection = PGconn.connect_start(conninfo.encode())
        try:
            connection.trace(trace.fileno())
            status: int = PollingStatus.WRITING
            while status in _WAITS_FOR and _is_ready(connection, _WAITS_FOR[status], ends):
                status = connection.connect_poll()
            connection.untrace()
        finally:
            connection.finish()
        trace.seek(0)
        found: list[bytes] = _REFUSED.findall(trace.read())
    return found[-1].decode() if found else ""


def _is_ready(connection: Connection, event: int, ends: float) -> bool:
    if connection.status == ConnStatus.BAD:
        return False
    with selectors.DefaultSelector() as selector:
        selector.register(connection.socket, event)
        return bool(selector.select(max(0.0, ends - time.monotonic())))
