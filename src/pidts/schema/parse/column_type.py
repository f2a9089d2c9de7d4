"""Parses column types: `int(10) unsigned`, `enum('a','b')`, `national character varying(20)`."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from pidts.model.errors import Halted, Where
from pidts.model.types import IDENTIFIERS, ColumnType, Kind
from pidts.schema.charsets import charset_name, charset_of, collation_name, is_charset
from pidts.schema.dialect import MYSQL, Dialect
from pidts.schema.labels import bytes_as_label, decoded_labels, literal_bytes
from pidts.schema.parse.lexer import Lexeme, NotUnderstoodError
from pidts.schema.parse.token_cursor import TokenCursor

_INTEGERS = {
    "TINYINT": Kind.TINYINT,
    "INT1": Kind.TINYINT,
    "SMALLINT": Kind.SMALLINT,
    "INT2": Kind.SMALLINT,
    "MEDIUMINT": Kind.MEDIUMINT,
    "INT3": Kind.MEDIUMINT,
    "MIDDLEINT": Kind.MEDIUMINT,
    "INT": Kind.INT,
    "INT4": Kind.INT,
    "INTEGER": Kind.INT,
    "BIGINT": Kind.BIGINT,
    "INT8": Kind.BIGINT,
}
_PLAIN = {
    "DATE": Kind.DATE,
    "INET4": Kind.INET4,
    "INET6": Kind.INET6,
    "UUID": Kind.UUID,
    "TINYTEXT": Kind.TINYTEXT,
    "MEDIUMTEXT": Kind.MEDIUMTEXT,
    "LONGTEXT": Kind.LONGTEXT,
    "TINYBLOB": Kind.TINYBLOB,
    "MEDIUMBLOB": Kind.MEDIUMBLOB,
    "LONGBLOB": Kind.LONGBLOB,
    "GEOMETRY": Kind.GEOMETRY,
    "POINT": Kind.GEOMETRY,
    "LINESTRING": Kind.GEOMETRY,
    "POLYGON": Kind.GEOMETRY,
    "MULTIPOINT": Kind.GEOMETRY,
    "MULTILINESTRING": Kind.GEOMETRY,
    "MULTIPOLYGON": Kind.GEOMETRY,
    "GEOMETRYCOLLECTION": Kind.GEOMETRY,
    "GEOMCOLLECTION": Kind.GEOMETRY,
}
_FRACTIONAL = {"TIME": Kind.TIME, "DATETIME": Kind.DATETIME, "TIMESTAMP": Kind.TIMESTAMP}
_SIZED = {"TEXT": Kind.TEXT, "BLOB": Kind.BLOB, "VARBINARY": Kind.VARBINARY}
_NATIONAL = "utf8mb3"
_FLOAT_DIGITS = 24
_VECTOR_ELEMENTS = 2048


@lru_cache(maxsize=1024)  # the tables of a server have the same few types
def column_type(
    text: str, charset: str | None = None, collation: str | None = None, *, dialect: Dialect = MYSQL
) -> ColumnType:
    """Parses a type from `information_schema.columns`: COLUMN_TYPE, CHARACTER_SET_NAME and COLLATION_NAME."""
    # In labels of enum and set, servers write backslashes as escapes, even if the SQL mode forbids escapes.
    try:
        cursor = TokenCursor(text, replace(dialect, ansi_quotes=False, no_backslash_escapes=False))
        kind = parse_type(cursor)
        cursor.expect_end()
        if kind.labels and charset is None:
            charset = collation = "binary"  # MySQL 8 and later show no charset in this case
        if kind.labels:
            kind = replace(kind, labels=decoded_labels(kind.labels, charset_name(charset or "binary"), dialect))
    except NotUnderstoodError as error:
        raise Halted(
            "unknown-type", f"column type {text!r} is not known: {error}", where=Where(), todo="Leave the table out."
        ) from error
    if kind.is_text and charset is not None:
        named = charset_name(charset)
        return replace(kind, charset=named, collation=collation_name(collation or dialect.collation_of(named)))
    return kind


def parse_type(cursor: TokenCursor) -> ColumnType:
    """Parses a type with its attributes. The type may be open (`pidts.schema.actions`)."""
    base = _base(cursor)
    if base.is_integer or base.kind in (Kind.DECIMAL, Kind.FLOAT, Kind.DOUBLE):
        base = _signed(cursor, base)
    elif base.is_text:
        base = parse_charset(cursor, base)
    if cursor.take("COMPRESSED") and cursor.take_sign("="):  # a compressed column is logged as its plain type
        cursor.name()
    return parse_charset(cursor, base) if base.is_text else base


def _base(cursor: TokenCursor) -> ColumnType:
    if cursor.peek().lexeme is not Lexeme.WORD:
        raise cursor.surprise("a type")
    word = cursor.peek().word
    if word in _INTEGERS:
        cursor.next()
        return ColumnType(_INTEGERS[word], length=_size(cursor))
    if word in _FRACTIONAL:
        cursor.next()
        return ColumnType(_FRACTIONAL[word], fsp=_size(cursor) or 0)
    if word in _PLAIN:
        if _PLAIN[word] in IDENTIFIERS and not cursor.dialect.mariadb:
            raise cursor.surprise("a type of MySQL")
        cursor.next()
        if _PLAIN[word] is Kind.GEOMETRY and cursor.dialect.mariadb:
            _spatial_reference(cursor)
        return ColumnType(_PLAIN[word])
    if word in _SIZED:
        cursor.next()
        return ColumnType(_SIZED[word], length=_size(cursor))
    found = _number(cursor) or _text(cursor) or _special(cursor)
    if found is None:
        raise cursor.surprise("a type")
    return found


def _spatial_reference(cursor: TokenCursor) -> None:
    """Skips attributes of MariaDB's spatial types: two meaningless numbers, and REF_SYSTEM_ID."""
    _precision(cursor)
    if cursor.take("REF_SYSTEM_ID"):
        cursor.expect_sign("=")
        cursor.number()


def _special(cursor: TokenCursor) -> ColumnType | None:
    if cursor.take_any("BOOL", "BOOLEAN"):
        return ColumnType(Kind.TINYINT, length=1)
    if cursor.take("BIT"):
        return ColumnType(Kind.BIT, length=_size(cursor) or 1)
    if cursor.take("VECTOR"):
        return ColumnType(Kind.VECTOR, length=_size(cursor, _VECTOR_ELEMENTS))
    if cursor.take("BINARY"):
        return ColumnType(Kind.BINARY, length=_size(cursor, 1))
    if cursor.take_any("YEAR", "SQL_TSI_YEAR"):
        return ColumnType(Kind.YEAR, length=2 if _size(cursor) == 2 and cursor.dialect.mariadb else None)
    if cursor.take("JSON"):
        if cursor.dialect.mariadb:
            return ColumnType(Kind.LONGTEXT, charset="utf8mb4", collation="utf8mb4_bin")
        return ColumnType(Kind.JSON)
    if word := cursor.take_any("ENUM", "SET"):
        return ColumnType(Kind.ENUM if word == "ENUM" else Kind.SET, labels=_labels(cursor))
    return None


def _number(cursor: TokenCursor) -> ColumnType | None:
    if cursor.take_any("DECIMAL", "DEC", "NUMERIC", "FIXED"):
        precision, scale = _precision(cursor)
        return ColumnType(Kind.DECIMAL, precision=precision or 10, scale=scale or 0)
    if cursor.take_any("FLOAT", "FLOAT4"):
        precision, scale = _precision(cursor)
        if scale is None:  # a single number is a number of bits, and only selects the type
            return ColumnType(Kind.DOUBLE if (precision or 0) > _FLOAT_DIGITS else Kind.FLOAT)
        return ColumnType(Kind.FLOAT, precision=precision, scale=scale)
    if word := cursor.take_any("DOUBLE", "FLOAT8", "REAL"):
        cursor.take("PRECISION")
        precision, scale = _precision(cursor)
        kind = Kind.FLOAT if word == "REAL" and cursor.dialect.real_as_float else Kind.DOUBLE
        return ColumnType(kind, precision=precision, scale=scale)
    return None


def _text(cursor: TokenCursor) -> ColumnType | None:
    if cursor.take("LONG"):
        if cursor.take("VARBINARY"):
            return ColumnType(Kind.MEDIUMBLOB)
        # In `LONG CHARACTER SET latin1`, CHARACTER SET begins the type's charset: it is not the type LONG CHARACTER.
        if not cursor.take_any("VARCHAR", "VARCHARACTER") and cursor.peek(1).word == "VARYING":
            cursor.take_any("CHAR", "CHARACTER")
            cursor.expect("VARYING")
        return ColumnType(Kind.MEDIUMTEXT)
    if cursor.take("NVARCHAR"):
        return ColumnType(Kind.VARCHAR, length=_required(cursor), charset=_NATIONAL)
    if cursor.take("NCHAR"):
        varying = bool(cursor.take_any("VARCHAR", "VARCHARACTER", "VARYING"))
        return _char(cursor, _NATIONAL, varying=varying)
    charset = _NATIONAL if cursor.take("NATIONAL") else None
    if cursor.take_any("VARCHAR", "VARCHARACTER"):
        return _char(cursor, charset, varying=True)
    if cursor.take_any("CHAR", "CHARACTER"):
        return _char(cursor, charset, varying=cursor.take("VARYING"))
    if charset is not None:
        raise cursor.surprise("CHAR or VARCHAR")
    return None


def _char(cursor: TokenCursor, charset: str | None, *, varying: bool) -> ColumnType:
    if varying:
        return ColumnType(Kind.VARCHAR, length=_required(cursor), charset=charset)
    return ColumnType(Kind.CHAR, length=_size(cursor, 1), charset=charset)


def _required(cursor: TokenCursor) -> int:
    if not cursor.at_sign("("):
        raise cursor.surprise("a length")
    return _size(cursor) or 0


def _size(cursor: TokenCursor, default: int | None = None) -> int | None:
    if not cursor.take_sign("("):
        return default
    size = cursor.length()
    cursor.expect_sign(")")
    return size


def _precision(cursor: TokenCursor) -> tuple[int | None, int | None]:
    if not cursor.take_sign("("):
        return None, None
    precision = cursor.length()
    scale = cursor.number() if cursor.take_sign(",") else None
    cursor.expect_sign(")")
    return precision, scale


def _labels(cursor: TokenCursor) -> tuple[str, ...]:
    cursor.expect_sign("(")
    labels = [_label(cursor)]
    while cursor.take_sign(","):
        labels.append(_label(cursor))
    cursor.expect_sign(")")
    return tuple(labels)


def _label(cursor: TokenCursor) -> str:
    token = cursor.peek()
    return bytes_as_label(literal_bytes(cursor.next().text)) if token.lexeme is Lexeme.BYTES else cursor.text()


def _signed(cursor: TokenCursor, base: ColumnType) -> ColumnType:
    while word := cursor.take_any("UNSIGNED", "SIGNED", "ZEROFILL"):
        if word != "SIGNED":  # ZEROFILL implies UNSIGNED
            base = replace(base, unsigned=True, zerofill=word == "ZEROFILL" or bool(base.zerofill))
    return base


def parse_charset(cursor: TokenCursor, base: ColumnType) -> ColumnType:
    """Parses CHARACTER SET, BINARY, ASCII, UNICODE, BYTE and COLLATE after a text type, in any order."""
    while True:
        if cursor.take("ASCII"):
            base = replace(base, charset="latin1")
        elif cursor.take("UNICODE"):
            base = replace(base, charset="ucs2")
        elif cursor.take("BYTE"):
            base = replace(base, charset="binary")
        elif cursor.take("BINARY"):
            base = replace(base, collation="bin")
        elif cursor.take("CHARACTER", "SET") or cursor.take("CHAR", "SET") or cursor.take("CHARSET"):
            base = replace(base, charset=parse_charset_name(cursor))
        elif cursor.take("COLLATE"):
            named = parse_collation_name(cursor)
            if base.collation == "bin" and base.charset is None:
                # MariaDB refuses BINARY and COLLATE together. On MySQL, a COLLATE after BINARY sets only the charset.
                base = replace(base, charset=charset_of(named))
            else:
                base = replace(base, collation=named)
        else:
            return base


def parse_charset_name(cursor: TokenCursor) -> str:
    """Parses the name of a charset that exists."""
    name = cursor.word_or_text()
    if not is_charset(name):
        raise NotUnderstoodError(f"charset {name} is not known")
    return charset_name(name)


def parse_collation_name(cursor: TokenCursor) -> str:
    """Parses the name of a collation, either of one existing charset or for several charsets.

    MariaDB and older MySQL also accept DEFAULT: the default collation of the charset, which may be inherited.
    """
    if cursor.take("DEFAULT"):
        return "default"
    name = collation_name(cursor.word_or_text())
    if charset_of(name) is None and not name.startswith("uca1400_"):
        raise NotUnderstoodError(f"the charset of collation {name} is not known")
    return name
