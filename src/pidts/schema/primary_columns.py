"""The columns of a primary key, which take no NULL whatever their definitions say."""

from __future__ import annotations

from dataclasses import replace

from pidts.model.table import Column
from pidts.model.types import Kind
from pidts.schema.defaults import literal
from pidts.schema.dialect import Dialect

_ZEROS = {
    Kind.DATE: "'0000-00-00'",
    Kind.TIME: "'00:00:00'",
    Kind.DATETIME: "'0000-00-00 00:00:00'",
    Kind.TIMESTAMP: "'0000-00-00 00:00:00'",
    Kind.YEAR: "0000",
}
_NUMBERS = frozenset({Kind.DECIMAL, Kind.FLOAT, Kind.DOUBLE})
_WITHOUT_DEFAULT = frozenset(
    {
        Kind.TINYTEXT,
        Kind.TEXT,
        Kind.MEDIUMTEXT,
        Kind.LONGTEXT,
        Kind.TINYBLOB,
        Kind.BLOB,
        Kind.MEDIUMBLOB,
        Kind.LONGBLOB,
        Kind.GEOMETRY,
    }
)


def in_primary_key(column: Column, dialect: Dialect) -> Column:
    """The column without NULLs. Where it took them, MySQL before 5.7 gives it the zero of its type as default."""
    if not column.nullable:
        return column
    column = replace(column, nullable=False)
    gives_zero = not dialect.mariadb and dialect.version < (5, 7, 0)
    if not gives_zero or column.default is not None or column.auto_increment:
        return column
    return replace(column, default=_zero(column))


def _zero(column: Column) -> str | None:
    kind = column.type
    if kind.kind in _WITHOUT_DEFAULT:
        return None
    if kind.is_integer or kind.kind in _NUMBERS:
        return "0"
    if kind.kind is Kind.BIT:
        return "b'0'"
    if kind.kind is Kind.ENUM:
        return literal(kind.labels[0])
    return _ZEROS.get(kind.kind, "''")
