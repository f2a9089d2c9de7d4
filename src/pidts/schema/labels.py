"""Decodes texts that a statement writes as bytes, mostly labels of enum and set (`enum(0x41, x'42', b'01000011')`).

The bytes are text in the column's charset, which is known only after the whole clause, or the whole table, is parsed.
Until then, a lone surrogate stands for each byte: no text of a statement can contain a lone surrogate.
"""

from __future__ import annotations

from pidts.schema.dialect import Dialect
from pidts.schema.parse.lexer import NotUnderstoodError

_FIRST, _LAST = 0xDC00, 0xDCFF
_CODECS = {
    "ascii": "ascii",
    "binary": "utf_8",
    "ucs2": "utf_16_be",
    "utf16": "utf_16_be",
    "utf16le": "utf_16_le",
    "utf32": "utf_32_be",
    "utf8mb3": "utf_8",
    "utf8mb4": "utf_8",
}
WIDTHS = {"ucs2": 2, "utf16": 2, "utf16le": 2, "utf32": 4}
"""The charsets that encode ASCII characters as other bytes, each with its smallest number of bytes per character."""
_LATIN1_HOLES = b"\x81\x8d\x8f\x90\x9d"
"""Bytes that are control characters in MySQL's latin1, and undefined in cp1252."""


def literal_bytes(text: str) -> bytes:
    """Returns the bytes of a hexadecimal or bit literal in a statement."""
    digits = text[2:].rstrip("'")
    if text[0] in "bB" or text[:2] == "0b":
        return int(digits or "0", 2).to_bytes((len(digits) + 7) // 8, "big")
    return bytes.fromhex("0" * (len(digits) % 2) + digits)


def bytes_as_label(data: bytes) -> str:
    """Returns the bytes as surrogates in a text, until the charset is known."""
    return "".join(chr(_FIRST + byte) for byte in data)


def text_of(data: bytes, charset: str) -> str | None:
    """Returns the text of these bytes in a charset; None if the bytes are no text, or if the charset has no codec here.

    If there are too few bytes for a character, zeros are put before them, as servers do.
    """
    width = WIDTHS.get(charset, 1)
    data = bytes(-len(data) % width) + data
    if charset == "latin1":
        return _latin1(data)
    codec = "ascii" if data.isascii() and charset not in _CODECS else _CODECS.get(charset)
    try:
        return data.decode(codec) if codec is not None else None
    except UnicodeDecodeError:
        return None


def decoded_labels(labels: tuple[str, ...], charset: str, dialect: Dialect) -> tuple[str, ...]:
    """Returns the labels as the catalog shows them in this charset. In charset `binary`, they keep trailing spaces."""
    texts = (_decoded(label, charset, dialect) if _is_bytes(label) else label for label in labels)
    return tuple(texts) if charset == "binary" else tuple(text.rstrip(" ") for text in texts)


def _is_bytes(label: str) -> bool:
    return bool(label) and all(_FIRST <= ord(sign) <= _LAST for sign in label)


def _decoded(label: str, charset: str, dialect: Dialect) -> str:
    """Decodes a label as the server's catalog shows it.

    If the label has bytes that are not text, the catalog of MySQL 8 and later shows only the part before them. The
    catalogs of MariaDB and MySQL 5 show question marks for these bytes.
    """
    data = bytes(ord(sign) - _FIRST for sign in label)
    if charset == "latin1":
        return _latin1(data)
    if data.isascii() and charset not in _CODECS:
        return data.decode("ascii")
    if charset not in _CODECS:
        raise NotUnderstoodError(f"a label is written as bytes of charset {charset}: 0x{data.hex()}")
    return _text(data, _CODECS[charset], cut=not dialect.mariadb and dialect.version >= (8, 0, 0))


def _latin1(data: bytes) -> str:
    return "".join(chr(byte) if byte in _LATIN1_HOLES else bytes([byte]).decode("cp1252") for byte in data)


def _text(data: bytes, codec: str, *, cut: bool) -> str:
    try:
        return data.decode(codec)
    except UnicodeDecodeError as error:
        good = data[: error.start].decode(codec)
        return good if cut else good + "?" + _text(data[error.start + 1 :], codec, cut=False)
