"""The charsets of MySQL and MariaDB, with their default collations and the largest number of bytes of a character."""

from __future__ import annotations

_DEFAULTS = {
    "armscii8": ("general_ci", 1),
    "ascii": ("general_ci", 1),
    "big5": ("chinese_ci", 2),
    "cp1250": ("general_ci", 1),
    "cp1251": ("general_ci", 1),
    "cp1256": ("general_ci", 1),
    "cp1257": ("general_ci", 1),
    "cp850": ("general_ci", 1),
    "cp852": ("general_ci", 1),
    "cp866": ("general_ci", 1),
    "cp932": ("japanese_ci", 2),
    "dec8": ("swedish_ci", 1),
    "eucjpms": ("japanese_ci", 3),
    "euckr": ("korean_ci", 2),
    "gb18030": ("chinese_ci", 4),
    "gb2312": ("chinese_ci", 2),
    "gbk": ("chinese_ci", 2),
    "geostd8": ("general_ci", 1),
    "greek": ("general_ci", 1),
    "hebrew": ("general_ci", 1),
    "hp8": ("english_ci", 1),
    "keybcs2": ("general_ci", 1),
    "koi8r": ("general_ci", 1),
    "koi8u": ("general_ci", 1),
    "latin1": ("swedish_ci", 1),
    "latin2": ("general_ci", 1),
    "latin5": ("turkish_ci", 1),
    "latin7": ("general_ci", 1),
    "macce": ("general_ci", 1),
    "macroman": ("general_ci", 1),
    "sjis": ("japanese_ci", 2),
    "swe7": ("swedish_ci", 1),
    "tis620": ("thai_ci", 1),
    "ucs2": ("general_ci", 2),
    "ujis": ("japanese_ci", 3),
    "utf16": ("general_ci", 4),
    "utf16le": ("general_ci", 4),
    "utf32": ("general_ci", 4),
    "utf8mb3": ("general_ci", 3),
    "utf8mb4": ("general_ci", 4),
}
_UCA1400 = frozenset({"ucs2", "utf16", "utf32", "utf8mb3", "utf8mb4"})
_BINARY = "binary"


def charset_name(name: str) -> str:
    """Returns the same name for all spellings of a charset: in lower case, and `utf8mb3` for the older name `utf8`."""
    name = name.lower()
    return "utf8mb3" if name == "utf8" else name


def collation_name(name: str) -> str:
    """Returns the same name for all spellings of a collation: in lower case, and `utf8mb3_` for an older `utf8_`."""
    name = name.lower()
    return f"utf8mb3_{name.removeprefix('utf8_')}" if name.startswith("utf8_") else name


def is_charset(name: str) -> bool:
    """Whether servers have a charset of this name."""
    name = charset_name(name)
    return name == _BINARY or name in _DEFAULTS


def charset_of(collation: str) -> str | None:
    """Returns the charset of a collation; None for a collation of several charsets (`uca1400_ai_ci`)."""
    prefix = collation_name(collation).partition("_")[0]
    return prefix if is_charset(prefix) else None


def default_collation(charset: str, *, mariadb: bool, version: tuple[int, int, int]) -> str:
    """Returns the collation that a server of this kind and version uses if a statement names only the charset."""
    charset = charset_name(charset)
    if charset == _BINARY:
        return _BINARY
    if mariadb and version >= (11, 5, 0) and charset in _UCA1400:
        return f"{charset}_uca1400_ai_ci"
    if not mariadb and version >= (8, 0, 1) and charset == "utf8mb4":
        return "utf8mb4_0900_ai_ci"
    return f"{charset}_{_DEFAULTS[charset][0]}"


def bytes_per_character(charset: str) -> int:
    """Returns the largest number of bytes that a character takes."""
    charset = charset_name(charset)
    return 1 if charset == _BINARY else _DEFAULTS[charset][1]
