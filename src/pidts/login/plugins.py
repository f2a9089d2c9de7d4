"""Two login methods that the MySQL driver lacks, and two that send the password in clear text, here only over TLS.

The driver itself supports mysql_native_password, sha256_password and caching_sha2_password. Over a plain connection,
it encrypts the password of sha256_password and caching_sha2_password with the server's public key.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from typing import Any, TypeAlias

import pymysql
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pymysql.connections import Connection
from pymysql.constants import CR

_PARSEC_ITERATIONS = 1024
_PARSEC_MOST = 10
"""The highest accepted work factor. Without a limit, a hostile server could demand hours of computation."""
_P = 2**255 - 19
_ORDER = 2**252 + 27742317777372353535851937790883648493
_D = -121665 * pow(121666, -1, _P) % _P
_Point: TypeAlias = "tuple[int, int, int, int]"
"""A point of the curve of Ed25519, as X, Y, Z and T with x = X/Z, y = Y/Z and x*y = T/Z."""


def sign(password: bytes, message: bytes) -> bytes:
    """Returns the 64-byte signature that MariaDB's account plugin `ed25519` requires.

    The signature is Ed25519 (RFC 8032), except for the secret: 32 random bytes in the RFC, a password of any length
    here. So the usual libraries cannot compute it. Each login needs one signature, which takes some milliseconds.
    """
    digest = hashlib.sha512(password).digest()
    secret = int.from_bytes(digest[:32], "little") & ((1 << 254) - 8) | (1 << 254)
    nonce = _number(digest[32:], message)
    public, commitment = _packed(_times(secret)), _packed(_times(nonce))
    answer = (nonce + _number(commitment, public, message) * secret) % _ORDER
    return commitment + answer.to_bytes(32, "little")


def _number(*parts: bytes) -> int:
    return int.from_bytes(hashlib.sha512(b"".join(parts)).digest(), "little") % _ORDER


def _base() -> _Point:
    y = 4 * pow(5, -1, _P) % _P
    square = (y * y - 1) * pow(_D * y * y + 1, -1, _P) % _P
    x = pow(square, (_P + 3) // 8, _P)
    if (x * x - square) % _P:
        x = x * pow(2, (_P - 1) // 4, _P) % _P
    if x % 2:
        x = _P - x
    return x, y, 1, x * y % _P


def _plus(one: _Point, other: _Point) -> _Point:
    a = (one[1] - one[0]) * (other[1] - other[0]) % _P
    b = (one[1] + one[0]) * (other[1] + other[0]) % _P
    c = 2 * one[3] * other[3] * _D % _P
    d = 2 * one[2] * other[2] % _P
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % _P, g * h % _P, f * g % _P, e * h % _P


def _times(factor: int) -> _Point:
    """Returns the curve's base point multiplied by `factor`."""
    result, doubled = (0, 1, 1, 0), _base()
    while factor:
        if factor & 1:
            result = _plus(result, doubled)
        doubled = _plus(doubled, doubled)
        factor >>= 1
    return result


def _packed(point: _Point) -> bytes:
    inverse = pow(point[2], -1, _P)
    x, y = point[0] * inverse % _P, point[1] * inverse % _P
    return (y | (x & 1) << 255).to_bytes(32, "little")


class _Method:
    def __init__(self, connection: Any) -> None:
        self._connection = connection


class _Ed25519(_Method):
    """The login method `ed25519` of MariaDB."""

    def authenticate(self, packet: Any) -> Any:
        return _answer(self._connection, sign(self._connection.password, packet.read_all()))


class _Parsec(_Method):
    """The login method `parsec` of MariaDB since 11.6: the key is derived from the password with the account's salt."""

    def authenticate(self, packet: Any) -> Any:
        """Requests the salt, then signs the random bytes of the server and of this client."""
        theirs = packet.read_all()
        salt = _answer(self._connection, b"").get_all_data().removeprefix(b"\1")
        if salt[:1] != b"P" or len(salt) < 3 or salt[1] > _PARSEC_MOST:
            raise pymysql.err.OperationalError(CR.CR_AUTH_PLUGIN_ERR, "parsec: the server's salt cannot be parsed")
        rounds = _PARSEC_ITERATIONS << salt[1]
        secret = hashlib.pbkdf2_hmac("sha512", self._connection.password, salt[2:], rounds, 32)
        ours = os.urandom(32)
        signature = Ed25519PrivateKey.from_private_bytes(secret).sign(theirs + ours)
        return _answer(self._connection, ours + signature)


class _Clear(_Method):
    """Sends the password in clear text, but only over TLS. The driver itself would also send it without TLS."""

    def authenticate(self, packet: Any) -> Any:  # noqa: ARG002 - the packet is empty
        _demand_tls(self._connection)
        return _answer(self._connection, self._connection.password + b"\0")


class _Dialog(_Method):
    """Answers MariaDB's PAM plugin, but only over TLS: the plugin also asks for passwords in clear text."""

    def authenticate(self, packet: Any) -> Any:  # noqa: ARG002 - the driver reads it
        _demand_tls(self._connection)
        # The driver catches this error, and then answers with its own code.
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
"""The login methods, by the plugin names that servers send."""
