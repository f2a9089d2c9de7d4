"""The driver's connection without its dearest habit: loading the system's authorities for a certificate nobody checks.

That costs 30 ms of CPU a connection, several times what the login itself does; a copy makes a connection a chunk.
"""

from __future__ import annotations

import ssl
from functools import cache
from typing import TYPE_CHECKING, Any

from pymysql.connections import Connection
from pymysql.cursors import Cursor

if TYPE_CHECKING:
    _Connection = Connection[Cursor]
else:  # Only the type checker knows that it has a parameter.
    _Connection = Connection


class Link(_Connection):
    """A connection to a MySQL or MariaDB server."""

    def _create_ssl_ctx(self, sslp: Any) -> ssl.SSLContext:
        """Without any wishes the driver encrypts where the server can, whoever that is: `preferred`."""
        context: ssl.SSLContext = super()._create_ssl_ctx(sslp) if sslp else _unchecked()  # type: ignore[misc]
        return context


@cache
def _unchecked() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
