"""Decodes text in the servers' charsets, and finds the charset of a collation id.

Apart from the differences listed here, Python's codecs agree with the servers' tables. This was checked character by
character on every server. Bytes that are in no table are an error: text is never replaced by question marks. For some
bytes, only Python has a character (eight of cp1256, seven duplicates of big5). Programs that write these bytes mean
this character.
"""

# Tables of characters are full of characters that look like others.
# ruff: noqa: RUF001

from __future__ import annotations

import codecs
from collections.abc import Callable, Mapping
from functools import cache

from pidts.binlog.values import charset_tables
from pidts.model.errors import Halted

Decoder = Callable[[bytes], str]
"""Decodes bytes; raises UnicodeDecodeError if they are not text."""

UTF8 = frozenset({"utf8", "utf8mb3", "utf8mb4"})

_CODECS = {
    "ascii": "ascii",
    "big5": "big5",
    "cp1250": "cp1250",
    "cp1251": "cp1251",
    "cp1256": "cp1256",
    "cp1257": "cp1257",
    "cp850": "cp850",
    "cp852": "cp852",
    "cp932": "cp932",
    "euckr": "cp949",
    "gb2312": "gb2312",
    "gbk": "gbk",
    "hp8": "hp_roman8",
    "koi8r": "koi8_r",
    "latin2": "iso8859_2",
    "latin5": "iso8859_9",
    "latin7": "iso8859_13",
    "macce": "mac_latin2",
    "macroman": "mac_roman",
    "tis620": "tis_620",
    "ucs2": "utf_16_be",
    "utf16": "utf_16_be",
    "utf16le": "utf_16_le",
    "utf32": "utf_32_be",
    "utf8": "utf_8",
    "utf8mb3": "utf_8",
    "utf8mb4": "utf_8",
}

# For each charset of one byte per character, a codec of Python, and how the servers differ from this codec. MySQL's
# latin1 is cp1252 with characters for five bytes that cp1252 leaves undefined.
_PATCHED = {
    "latin1": ("cp1252", {0x81: "\x81", 0x8D: "\x8d", 0x8F: "\x8f", 0x90: "\x90", 0x9D: "\x9d"}),
    "cp866": ("cp866", {0xFC: "ⁿ", 0xFD: "²"}),
    "greek": ("iso8859_7", {0xA1: "ʽ", 0xA2: "ʼ", 0xA4: "\ufffe", 0xA5: "\ufffe", 0xAA: "\ufffe"}),
    "hebrew": ("iso8859_8", {0xAF: "‾"}),
    "koi8u": ("koi8_u", {0x95: "•"}),
    "swe7": ("ascii", dict(zip(b"@[\\]^`{|}~\x7f", "ÉÄÖÅÜéäöåü\ufffe", strict=True))),
}
_UPPER_HALVES = {
    "armscii8": charset_tables.ARMSCII8,
    "dec8": charset_tables.DEC8,
    "geostd8": charset_tables.GEOSTD8,
    "keybcs2": charset_tables.KEYBCS2,
}
# For each charset of several bytes per character: Python's codec, and the characters for which the servers have other
# characters, each with the servers' character for the same bytes.
_MOVED = {
    "gb18030": ("gb18030", {"\ue7c7": "ḿ", "ḿ": "\ue7c7"}),
    "sjis": ("shift_jis", {"＼": "\\"}),
    "ujis": ("euc_jp", {"＼": "\\"}),
    "eucjpms": ("euc_jp", dict(zip("〜‖−¢£¬¦", "～∥－￠￡￢￤", strict=True))),
}
# Characters that the servers have and the codec lacks.
_ADDED = {
    "big5": charset_tables.BIG5_ADDED,
    "ujis": charset_tables.EUC_USER_DEFINED,
    "eucjpms": charset_tables.EUC_USER_DEFINED | charset_tables.EUCJPMS_ADDED,
}
_FULLWIDTH_TILDE = (b"\x8f\xa2\xb7", b"\xa1\xc1")
"""eucjpms has this character twice; Python uses the first form for the ASCII tilde. No character ends with 8F, so the
bytes are unambiguous.
"""
_WIDTHS = {"utf8": 3, "utf8mb3": 3, "utf8mb4": 4, "utf16": 4, "utf16le": 4, "utf32": 4, "ucs2": 2, "gb18030": 4}
_WIDTHS |= {"ujis": 3, "eucjpms": 3} | dict.fromkeys(("big5", "gbk", "gb2312", "euckr", "sjis", "cp932"), 2)


@cache
def charset_of(collation: int) -> str | None:
    """Returns the charset of a collation id; None for 0 and for ids that no known server has."""
    for charset, first in charset_tables.MARIADB_UCA1400.items():
        if first <= collation < first + 256:
            return charset
    if collation >= charset_tables.MARIADB_NOPAD:
        collation -= charset_tables.MARIADB_NOPAD
    for charset, ranges in charset_tables.COLLATIONS.items():
        for span in ranges.split():
            first_id, _, last_id = span.partition("-")
            if int(first_id) <= collation <= int(last_id or first_id):
                return charset
    return None


def width(charset: str) -> int:
    """Returns the number of bytes that the charset's longest character has."""
    return _WIDTHS.get(charset, 1)


@cache
def decoder(charset: str, errors: str = "strict") -> Decoder:
    """Returns the function that decodes this charset. `errors`: Python's name for the handling of invalid bytes."""
    if charset in _CODECS:
        return _by_codec(_CODECS[charset], charset, errors)
    if charset in _MOVED:
        codec, moved = _MOVED[charset]
        plain, table = _by_codec(codec, charset, errors), str.maketrans(moved)
        if charset == "eucjpms":
            return lambda data: plain(data.replace(*_FULLWIDTH_TILDE)).translate(table)
        return lambda data: plain(data).translate(table)
    if charset in _PATCHED:
        return _by_table(_patched(*_PATCHED[charset]), errors)
    if charset in _UPPER_HALVES:
        return _by_table("".join(map(chr, range(128))) + _UPPER_HALVES[charset], errors)
    raise Halted(
        "unknown-charset",
        f"charset {charset!r} is not known",
        todo="Convert the column to utf8mb4 on the source, or leave the table out",
    )


def _by_codec(codec: str, charset: str, errors: str) -> Decoder:
    decode = codecs.getdecoder(codec)
    if added := _ADDED.get(charset):
        filling = f"pidts-{charset}-{errors}"
        codecs.register_error(filling, _filling(added, codecs.lookup_error(errors)))
        errors = filling
    return lambda data: decode(data, errors)[0]


_Handler = Callable[[UnicodeError], tuple[str | bytes, int]]


def _filling(added: Mapping[bytes, str], otherwise: _Handler) -> _Handler:
    """Returns a handler that decodes the bytes in `added`, and calls the handler `otherwise` for all other bytes."""

    def fill(error: UnicodeError) -> tuple[str | bytes, int]:
        if isinstance(error, UnicodeDecodeError):
            for size in (2, 3):
                character = added.get(error.object[error.start : error.start + size])
                if character is not None:
                    return character, error.start + size
        return otherwise(error)

    return fill


def _by_table(table: str, errors: str) -> Decoder:
    return lambda data: codecs.charmap_decode(data, errors, table)[0]


def _patched(codec: str, changes: dict[int, str]) -> str:
    characters = []
    for byte in range(256):
        known = bytes([byte]).decode(codec, "ignore")
        characters.append(changes.get(byte, known or charset_tables.UNDEFINED))
    return "".join(characters)
