"""Renders names, types, columns and keys as SQL for MySQL and MariaDB."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping

from pidts.model.table import Column, Key, Table, TableName
from pidts.model.types import BLOBS, TEXTS, WITH_FSP, ColumnType, Kind
from pidts.schema.charsets import bytes_per_character
from pidts.schema.computed import GeneratedExpression
from pidts.schema.defaults import literal

_UNLIMITED = frozenset({*TEXTS, *BLOBS, Kind.GEOMETRY, Kind.JSON})
_VARYING = frozenset({Kind.VARCHAR, Kind.VARBINARY})
_NOT_IN_KEYS = frozenset({Kind.GEOMETRY, Kind.JSON, Kind.VECTOR})
_BYTES_IN_KEY = 3072


def quote(identifier: str) -> str:
    """Returns a name as SQL."""
    return "`" + identifier.replace("`", "``") + "`"


def quote_table(name: TableName) -> str:
    """Returns a table's full name as SQL."""
    return f"{quote(name.schema)}.{quote(name.name)}"


def type_text(kind: ColumnType, collations: Container[str] | None = None) -> str:
    """Returns a type as SQL, with its charset.

    `collations` are the collations that the server knows; None: all. In all functions of this module, a collation that
    the server does not know is left out.
    """
    text = kind.kind.value + _size(kind)
    if kind.unsigned:
        text += " unsigned"
    return text + charset_clause(kind.charset, kind.collation, collations) if kind.is_text else text


def _size(kind: ColumnType) -> str:
    if kind.labels:
        return "(" + ",".join(map(literal, kind.labels)) + ")"
    if kind.kind in WITH_FSP:
        return f"({kind.fsp})" if kind.fsp else ""
    if kind.precision is not None:
        return f"({kind.precision})" if kind.scale is None else f"({kind.precision},{kind.scale})"
    return "" if kind.length is None else f"({kind.length})"


def charset_clause(charset: str | None, collation: str | None, collations: Container[str] | None) -> str:
    """Returns ` CHARACTER SET x COLLATE y`. Leaves out values that are not set, and collations not in `collations`."""
    text = f" CHARACTER SET {charset}" if charset is not None else ""
    if charset == "binary" or collation == "default":
        return text
    if collation == "bin":
        return text + " BINARY"
    if collation is not None and (collations is None or collation in collations):
        text += f" COLLATE {collation}"
    return text


def column_clause(column: Column, collations: Container[str] | None = None) -> str:
    """Returns a column's definition. A generated column becomes a plain column, since the log has its values."""
    parts = [quote(column.name), type_text(column.type, collations), "NULL" if column.nullable else "NOT NULL"]
    if column.default is not None and not column.generated:
        parts.append(f"DEFAULT {default_sql(column.type, column.default)}")
    if column.auto_increment:
        parts.append("AUTO_INCREMENT")
    if column.comment:
        parts.append(f"COMMENT {literal(column.comment)}")
    return " ".join(parts)


def computed_clause(
    column: Column, computed: GeneratedExpression, collations: Container[str] | None, *, mariadb: bool
) -> str:
    """Returns a generated column's definition. In it, MariaDB accepts neither NULL nor NOT NULL."""
    parts = [quote(column.name), type_text(column.type, collations), f"GENERATED ALWAYS AS {computed.sql}"]
    parts.append("STORED" if computed.stored else "VIRTUAL")
    if not (mariadb or column.nullable):
        parts.append("NOT NULL")
    if column.comment:
        parts.append(f"COMMENT {literal(column.comment)}")
    return " ".join(parts)


def default_sql(kind: ColumnType, default: str) -> str:
    """Returns a default for MySQL: in parentheses if it is a function call, or if MySQL allows no other form.

    For TEXT, BLOB, JSON and GEOMETRY, MySQL allows only defaults in parentheses.
    """
    if default.startswith("(") or default.lower().startswith("current_timestamp"):
        return default
    return f"({default})" if kind.kind in _UNLIMITED or _CALL.match(default) else default


_CALL = re.compile(r"[A-Za-z]\w*\s*\(")


def key_clause(key: Key, table: Table | None, prefixes: tuple[int | None, ...] = ()) -> str:
    """Returns a key's definition; empty if a column's type allows no key and the key is not primary.

    If a column is too long for a key, the key gets the longest prefix that fits, unless `prefixes` gives a length. With
    a longer prefix, a unique key never refuses more rows. If a unique key over whole columns gets a prefix, it becomes
    a plain key.
    """
    kinds = {column.name: column.type for column in table.columns} if table is not None else {}
    if not key.primary and any(kinds[name].kind in _NOT_IN_KEYS for name in key.columns if name in kinds):
        return ""
    if prefixes:
        lengths = {name: f"({length})" for name, length in zip(key.columns, prefixes, strict=True) if length}
    else:
        lengths = _prefixes(key, kinds)
    columns = ", ".join(quote(name) + lengths.get(name, "") for name in key.columns)
    if key.primary:
        return f"PRIMARY KEY ({columns})"
    unique = key.unique and (bool(prefixes) or not lengths)
    return f"{'UNIQUE ' if unique else ''}KEY{f' {quote(key.name)}' if key.name else ''} ({columns})"


def _prefixes(key: Key, kinds: Mapping[str, ColumnType]) -> dict[str, str]:
    room = _BYTES_IN_KEY // len(key.columns)
    prefixes = {}
    for name in key.columns:
        kind = kinds.get(name)
        if kind is None:
            continue
        size = bytes_per_character(kind.charset) if kind.charset else 1
        if kind.kind in _UNLIMITED or (kind.kind in _VARYING and (kind.length or 0) * size > room):
            most = 255 if kind.kind in (Kind.TINYTEXT, Kind.TINYBLOB) else room
            prefixes[name] = f"({min(most, room) // size})"
    return prefixes
