"""Signs with a password as MariaDB's account plugin `ed25519` requires.

It is Ed25519 (RFC 8032) but for the secret: there it is 32 random bytes, here a password of any length, so no library
with the usual interface can do it. It runs once a login and takes milliseconds.
"""

from __future__ import annotations

import hashlib
from typing import TypeAlias

_P = 2**255 - 19
_ORDER = 2**252 + 27742317777372353535851937790883648493
_D = -121665 * pow(121666, -1, _P) % _P
_Point: TypeAlias = "tuple[int, int, int, int]"
"""X, Y, Z and T with x = X/Z, y = Y/Z and x*y = T/Z."""


def sign(password: bytes, message: bytes) -> bytes:
    """Returns the signature of 64 bytes."""
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
    """Returns the base point multiplied by `factor`."""
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
