"""Opens a connection to PostgreSQL."""

from __future__ import annotations

import logging
from typing import Any

import psycopg

from pidts.login import Tls
from pidts.target.postgres.errors import translate_connect

# When a connection breaks, the error is reported. psycopg would also warn about statements that are still in a
# pipeline. A process of Spark sets up no logs, and would print this. WARNING is the driver's own choice; a command may
# have chosen another level before.
_driver_log = logging.getLogger("psycopg")
if _driver_log.level == logging.WARNING:
    _driver_log.setLevel(logging.ERROR)


def connect(
    host: str, port: int, user: str, password: str, database: str, tls: Tls, connect_timeout: int, **more: Any
) -> psycopg.Connection[tuple[Any, ...]]:
    """Returns a connection that fails if the server is silent for half a minute."""
    try:
        return psycopg.connect(
            host=host,
            port=port,
            user=user,
            password=password or None,
            dbname=database,
            connect_timeout=connect_timeout,
            application_name="pidts",
            keepalives_idle=10,
            keepalives_interval=5,
            keepalives_count=4,
            tcp_user_timeout=30_000,
            **tls.postgres(),
            **more,
        )
    except psycopg.Error as error:
        raise translate_connect(error, f"{host}:{port}/{database}") from error
