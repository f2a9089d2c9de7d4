"""Completes a column's type once its charset is known.

A column inherits its charset from the table, a table from its database, and a database from the server. The charset
also decides types: CHAR in charset `binary` is BINARY, and `text(100)` is the smallest text type for a hundred
characters. If a column is rewritten in a wider charset, it may get a larger text type.
"""

from __future__ import annotations

from dataclasses import replace

from pidts.model.advice import REPLACE, SKIP
from pidts.model.errors import Halted, Where
from pidts.model.table import Column, Table
from pidts.model.types import LOB_BYTES, TEXTS, ColumnType, Kind
from pidts.schema.charsets import bytes_per_character, charset_name, charset_of, collation_name
from pidts.schema.dialect import Dialect
from pidts.schema.labels import decoded_labels
from pidts.schema.literals import BytesLiteral, parse_default
from pidts.schema.parse.lexer import NotUnderstoodError
from pidts.schema.stored_default import stored_default

Charset = tuple[str, str]
"""A charset, and one of its collations."""

_BYTES = {
    Kind.CHAR: Kind.BINARY,
    Kind.VARCHAR: Kind.VARBINARY,
    Kind.TINYTEXT: Kind.TINYBLOB,
    Kind.TEXT: Kind.BLOB,
    Kind.MEDIUMTEXT: Kind.MEDIUMBLOB,
    Kind.LONGTEXT: Kind.LONGBLOB,
}
_BLOBS = frozenset({Kind.TEXT, Kind.BLOB})
_VARYING = {Kind.VARCHAR: Kind.TEXT, Kind.VARBINARY: Kind.BLOB}
_MOST_BYTES_IN_ROW = 65535
_MOST_BYTES_IN_MARIADBS_ROW = 65532
"""A row has at most 65,535 bytes. In MariaDB, two of these bytes are a text's length, and one is for NULL flags."""


def completed(charset: str | None, collation: str | None, inherited: Charset, dialect: Dialect) -> Charset:
    """Returns the full names of a charset and a collation.

    Either name may be missing. A collation's name may lack the charset: MariaDB has `uca1400_ai_ci` for each of several
    charsets.
    """
    if collation == "default":
        charset = charset_name(charset or inherited[0])
        return charset, collation_name(dialect.collation_of(charset))
    if collation is not None and charset_of(collation) is None:
        charset = charset_name(charset or inherited[0])
        return (charset, "binary") if charset == "binary" else (charset, f"{charset}_{collation}")
    if charset is None:
        charset, collation = (inherited[0], collation or inherited[1])
        return charset_of(collation) or charset_name(charset), collation_name(collation)
    return charset_name(charset), collation_name(collation or dialect.collation_of(charset))


def closed(column: Column, table: Charset, dialect: Dialect) -> Column:
    """Returns the column with the charset and collation that it inherits, and its default as the server stores it."""
    kind = column.type
    if kind.is_text:
        charset, collation = completed(kind.charset, kind.collation, table, dialect)
        kind = replace(kind, charset=charset, collation=collation, labels=_labels(kind.labels, charset, dialect))
        if charset == "binary" and kind.kind in _BYTES:
            kind = replace(kind, kind=_BYTES[kind.kind], charset=None, collation=None)
    kind = _sized(kind, dialect)
    stored = stored_default(column.default, kind)
    default = column.default if stored is None else stored
    return column if (kind, default) == (column.type, column.default) else replace(column, type=kind, default=default)


def _labels(labels: tuple[str, ...], charset: str, dialect: Dialect) -> tuple[str, ...]:
    try:
        return decoded_labels(labels, charset, dialect)
    except NotUnderstoodError as error:
        raise Halted(
            "ddl-not-understood",
            str(error),
            where=Where(),
            todo=f"For a task: make the change on the target by hand, then run {SKIP}; or leave the table out. A "
            "program that only reads the log can begin after the statement",
        ) from error


def _sized(kind: ColumnType, dialect: Dialect) -> ColumnType:
    """Replaces a text type with a size by the type for this size. A VARCHAR that is too long for a row becomes TEXT."""
    if kind.length is None:
        return kind
    size = kind.length * (bytes_per_character(kind.charset) if kind.charset else 1)
    if kind.kind in _BLOBS:
        if kind.length == 0 and (dialect.mariadb or dialect.version < (8, 0, 0)):
            return replace(kind, length=None)
    elif kind.kind not in _VARYING or size <= (_MOST_BYTES_IN_MARIADBS_ROW if dialect.mariadb else _MOST_BYTES_IN_ROW):
        return kind
    return replace(kind, kind=_text_for(size, as_bytes=kind.is_bytes), length=None)


def _text_for(size: int, *, as_bytes: bool) -> Kind:
    text = next((name for name in TEXTS if size <= LOB_BYTES[name]), Kind.LONGTEXT)
    return _BYTES[text] if as_bytes else text


def text_for_old(asked: Kind, old: ColumnType, charset: str) -> Kind:
    """Returns the type that MySQL 8.0 and later give a column if one statement redefines it as text and has a CONVERT.

    The result is LONGTEXT if the statement says LONGTEXT; if not, the text type with room for the old column's
    characters.
    """
    is_bytes = asked in _BYTES.values()
    if asked in (Kind.LONGTEXT, Kind.LONGBLOB):
        return asked
    size, width = _shown_characters(old), 1 if is_bytes else bytes_per_character(charset)
    if width > (bytes_per_character(old.charset) if old.charset else 1):
        size *= width
    return _text_for(size, as_bytes=is_bytes)


def _shown_characters(kind: ColumnType) -> int:
    """Returns the number of characters in a type's longest value; 0 if the value fits into the smallest text type."""
    if kind.kind in LOB_BYTES:
        return LOB_BYTES[kind.kind] // (bytes_per_character(kind.charset) if kind.charset else 1)
    if kind.kind in (Kind.JSON, Kind.GEOMETRY):
        return 2**32 - 1
    if kind.labels:
        return shown_length(kind)
    if kind.kind is Kind.DECIMAL:
        return (kind.precision or 10) + 2
    return (kind.length or 0) if kind.is_text or kind.is_bytes else 0


def shown_length(kind: ColumnType) -> int:
    """Returns the length of the longest value of an enum or a set, in characters."""
    lengths = [len(label) for label in kind.labels]
    return max(lengths) if kind.kind is Kind.ENUM else sum(lengths) + len(lengths) - 1


def converted(column: Column, table: Charset, dialect: Dialect) -> Column:
    """Returns the column after CONVERT TO CHARACTER SET."""
    kind = column.type
    if not kind.is_text or kind.charset in (None, "binary"):
        return column
    most = LOB_BYTES[kind.kind] if kind.kind in TEXTS else None
    charset, collation = table
    default = parse_default(column.default)
    if charset != kind.charset and isinstance(default, BytesLiteral) and not default.value.isascii():
        raise Halted(
            "ddl-not-understood",
            f"column {column.name} has the default {column.default} in bytes of charset {kind.charset}, and is "
            f"converted to {charset}: its default after the conversion is not known",
            todo=f"Make the change on the target, then run {SKIP}. Or give other statements: run {REPLACE}",
        )
    if most is not None:
        characters = most // bytes_per_character(kind.charset)
        kind = replace(kind, kind=_text_for(characters * bytes_per_character(charset), as_bytes=False))
    return closed(replace(column, type=replace(kind, charset=charset, collation=collation)), table, dialect)


def close_table(table: Table, inherited: Charset, dialect: Dialect) -> Table:
    """Returns the table with its own charset filled in, and with the charsets of its columns."""
    own = completed(table.charset, table.collation, inherited, dialect)
    columns = tuple(closed(column, own, dialect) for column in table.columns)
    return replace(table, charset=own[0], collation=own[1], columns=columns)
