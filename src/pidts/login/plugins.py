"""Login methods that the driver lacks, and two that it handles without enough care.

The driver supports itself: mysql_native_password, sha256_password and caching_sha2_password, the latter two over a
plain connection with the server's public key.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from typing import Any

import pymysql
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pymysql.connections import Connection
from pymysql.constants import CR

from pidts.login.ed25519 import sign

_PARSEC_ITERATIONS = 1024
_PARSEC_MOST = 10
"""The highest work factor that is accepted: a hostile server could request hours of computation."""


class _Method:
    def __init__(self, connection: Any) -> None:
        self._connection = connection


class _Ed25519(_Method):
    """The login method `ed25519` of MariaDB."""

    def authenticate(self, packet: Any) -> Any:
        """Signs the server's challenge."""
        return _answer(self._connection, sign(self._connection.password, packet.read_all()))


class _Parsec(_Method):
    """The login method `parsec` of MariaDB since 11.6: the key is derived from the password with the account's salt."""

    def authenticate(self, packet: Any) -> Any:
        """Requests the salt, then signs the random bytes of both sides."""
        theirs = packet.read_all()
        salt = _answer(self._connection, b"").get_all_data().removeprefix(b"\1")
        if salt[:1] != b"P" or len(salt) < 3 or salt[1] > _PARSEC_MOST:
            raise pymysql.err.OperationalError(CR.CR_AUTH_PLUGIN_ERR, "parsec: the server's salt is not understood")
        rounds = _PARSEC_ITERATIONS << salt[1]
        secret = hashlib.pbkdf2_hmac("sha512", self._connection.password, salt[2:], rounds, 32)
        ours = os.urandom(32)
        signature = Ed25519PrivateKey.from_private_bytes(secret).sign(theirs + ours)
        return _answer(self._connection, ours + signature)


class _Clear(_Method):
    """Sends the password in clear text, which the driver would also do without encryption."""

    def authenticate(self, packet: Any) -> Any:  # noqa: ARG002 - there is nothing in it
        """Only over TLS."""
        _demand_tls(self._connection)
        return _answer(self._connection, self._connection.password + b"\0")


class _Dialog(_Method):
    """MariaDB's PAM asks for passwords in clear text, too."""

    def authenticate(self, packet: Any) -> Any:  # noqa: ARG002 - the driver reads it
        """Only over TLS; there, the driver's own code does it."""
        _demand_tls(self._connection)
        raise AttributeError("authenticate")


def _demand_tls(connection: Any) -> None:
    if not connection._secure:  # noqa: SLF001 - the driver's own flag
        text = "the server asks for the password in clear text, and the connection is not encrypted: set ssl-mode"
        raise pymysql.err.OperationalError(CR.CR_AUTH_PLUGIN_CANNOT_LOAD, text)


def _answer(connection: Any, data: bytes) -> Any:
    connection.write_packet(data)
    return connection._read_packet()  # noqa: SLF001 - the driver's own plugins do the same


PLUGINS: dict[str, Callable[[Connection[Any]], Any]] = {
    "client_ed25519": _Ed25519,
    "parsec": _Parsec,
    "mysql_clear_password": _Clear,
    "dialog": _Dialog,
}
"""The plugins by the name that the server sends."""
