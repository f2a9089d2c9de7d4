"""Column types of MySQL and MariaDB, and the Arrow type that represents each exactly."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any

import pyarrow as pa


class Kind(StrEnum):
    """One name per family of values; sizes and signs are fields of `ColumnType`."""

    TINYINT = "tinyint"
    SMALLINT = "smallint"
    MEDIUMINT = "mediumint"
    INT = "int"
    BIGINT = "bigint"
    DECIMAL = "decimal"
    FLOAT = "float"
    DOUBLE = "double"
    BIT = "bit"
    YEAR = "year"
    DATE = "date"
    TIME = "time"
    DATETIME = "datetime"
    TIMESTAMP = "timestamp"
    CHAR = "char"
    VARCHAR = "varchar"
    TINYTEXT = "tinytext"
    TEXT = "text"
    MEDIUMTEXT = "mediumtext"
    LONGTEXT = "longtext"
    BINARY = "binary"
    VARBINARY = "varbinary"
    TINYBLOB = "tinyblob"
    BLOB = "blob"
    MEDIUMBLOB = "mediumblob"
    LONGBLOB = "longblob"
    ENUM = "enum"
    SET = "set"
    JSON = "json"
    GEOMETRY = "geometry"
    VECTOR = "vector"
    UUID = "uuid"
    INET4 = "inet4"
    INET6 = "inet6"


LOB_BYTES = {
    Kind.TINYTEXT: 2**8 - 1,
    Kind.TINYBLOB: 2**8 - 1,
    Kind.TEXT: 2**16 - 1,
    Kind.BLOB: 2**16 - 1,
    Kind.MEDIUMTEXT: 2**24 - 1,
    Kind.MEDIUMBLOB: 2**24 - 1,
    Kind.LONGTEXT: 2**32 - 1,
    Kind.LONGBLOB: 2**32 - 1,
}
"""The most bytes that a value of each type may have."""
TEXTS = (Kind.TINYTEXT, Kind.TEXT, Kind.MEDIUMTEXT, Kind.LONGTEXT)
BLOBS = (Kind.TINYBLOB, Kind.BLOB, Kind.MEDIUMBLOB, Kind.LONGBLOB)
INTEGER_BITS = {Kind.TINYINT: 8, Kind.SMALLINT: 16, Kind.MEDIUMINT: 24, Kind.INT: 32, Kind.BIGINT: 64}
INTEGERS = tuple(INTEGER_BITS)
"""The types of whole numbers, the smallest first, as in `TEXTS` and `BLOBS`."""
FRACTIONS = frozenset({Kind.DECIMAL, Kind.FLOAT, Kind.DOUBLE})
DATED = frozenset({Kind.DATE, Kind.DATETIME, Kind.TIMESTAMP})
"""The types whose values have a day."""
WITH_FSP = frozenset({Kind.TIME, Kind.DATETIME, Kind.TIMESTAMP})
"""The types whose values may have fractional seconds."""
LABELED = frozenset({Kind.ENUM, Kind.SET})
IDENTIFIERS = frozenset({Kind.UUID, Kind.INET4, Kind.INET6})
"""The types that only MariaDB has."""
UNKNOWN_CHARSET = "unknown"
"""Stands for the charset of a text column that inherits it from a database with an unknown charset."""
_ARROW_BITS = {Kind.TINYINT: 8, Kind.SMALLINT: 16, Kind.MEDIUMINT: 32, Kind.INT: 32, Kind.BIGINT: 64}
_TEXTUAL = frozenset({Kind.CHAR, Kind.VARCHAR, *TEXTS, *LABELED})
_BYTES = frozenset({Kind.BINARY, Kind.VARBINARY, *BLOBS, Kind.GEOMETRY, Kind.VECTOR})
_FIXED_ARROW: dict[Kind, pa.DataType] = {
    Kind.FLOAT: pa.float32(),
    Kind.DOUBLE: pa.float64(),
    Kind.BIT: pa.uint64(),
    Kind.YEAR: pa.int16(),
    Kind.DATE: pa.date32(),
    Kind.TIME: pa.duration("us"),
    Kind.DATETIME: pa.timestamp("us"),
    Kind.TIMESTAMP: pa.timestamp("us", "UTC"),
}


@dataclass(frozen=True, slots=True)
class ColumnType:
    """A column's type as its server declares it.

    `length` counts characters for char and varchar, bytes for binary and varbinary, bits for bit, and elements for
    vector. For integers it is the display width (or None), since `tinyint(1)` is used for booleans.
    """

    kind: Kind
    unsigned: bool = False
    length: int | None = None
    precision: int | None = None
    scale: int | None = None
    fsp: int = 0
    charset: str | None = None
    collation: str | None = None
    labels: tuple[str, ...] = ()
    chosen: str = field(default="", compare=False)
    """The type that the task file chooses for the target; see `type_map`."""
    refuses_unreal: bool = field(default=False, compare=False)
    """Whether the target refuses zero and partial dates."""
    zerofill: bool | None = field(default=None, compare=False)
    """Whether the server shows unsigned numbers of this column with zeros before them. None: unknown, since an older
    version has recorded the structure, or only the log's metadata shows it.
    """

    @property
    def is_text(self) -> bool:
        """Whether the type is character data with a charset (including enum and set)."""
        return self.kind in _TEXTUAL

    @property
    def has_unknown_charset(self) -> bool:
        """Whether the column has text, or labels, in an unknown charset. The real type may have another size."""
        return self.charset == UNKNOWN_CHARSET

    @property
    def is_bytes(self) -> bool:
        """Whether the type is bytes without a charset."""
        return self.kind in _BYTES

    @property
    def is_integer(self) -> bool:
        """Whether this is one of the five integer types."""
        return self.kind in _ARROW_BITS

    @property
    def may_have_zeros(self) -> bool:
        """Whether the server may turn the column's numbers into texts with zeros before them, such as 00007."""
        is_number = self.is_integer or self.kind in (Kind.DECIMAL, Kind.FLOAT, Kind.DOUBLE)
        return is_number and self.unsigned and self.zerofill is not False

    @property
    def arrow(self) -> pa.DataType:
        """Returns the Arrow type that can represent every value of this column.

        Zero and partial dates are reserved values of the same type, see `pidts.model.calendar`.
        """
        if self.kind in _ARROW_BITS:
            bits = _ARROW_BITS[self.kind]
            return pa.type_for_alias(f"uint{bits}" if self.unsigned else f"int{bits}")
        if self.kind is Kind.DECIMAL:
            precision, scale = self.precision or 10, self.scale or 0
            return pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)
        if self.kind in _FIXED_ARROW:
            return _FIXED_ARROW[self.kind]
        return pa.binary() if self.is_bytes else pa.string()

    def to_json(self) -> dict[str, Any]:
        """Returns only fields that differ from the defaults."""
        plain = ColumnType(self.kind)
        values = ((each.name, getattr(self, each.name)) for each in fields(self))
        return {name: value for name, value in values if name == "kind" or value != getattr(plain, name)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> ColumnType:
        """The inverse of `to_json`."""
        return cls(**{**data, "kind": Kind(data["kind"]), "labels": tuple(data.get("labels", ()))})
