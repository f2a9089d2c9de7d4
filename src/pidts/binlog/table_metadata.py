"""Parses the optional metadata of a TABLE_MAP event: unsigned columns, charsets, names, labels, the primary key.

By default, MySQL 8 logs the charsets and which columns are unsigned, and MariaDB logs no metadata. With
`binlog_row_metadata=FULL`, both servers log all metadata. MySQL servers before version 8 log none.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from pidts.binlog.cursor import Cursor, text
from pidts.binlog.values import charsets, decimals
from pidts.binlog.values.temporal import UNKNOWN_DIGITS
from pidts.binlog.wire import Wire, WireType
from pidts.model.errors import DecodeError, Halted
from pidts.model.table import Column, Key, Table, TableName
from pidts.model.types import BLOBS, TEXTS, UNKNOWN_CHARSET, ColumnType, Kind

_SIGNEDNESS, _DEFAULT_CHARSET, _COLUMN_CHARSET, _NAMES, _SET_LABELS, _ENUM_LABELS = 1, 2, 3, 4, 5, 6
_PRIMARY_KEY, _PRIMARY_KEY_PREFIX, _LABEL_DEFAULT_CHARSET, _LABEL_CHARSET, _VECTOR = 8, 9, 10, 11, 13

_BINARY = 63

_PLAIN = {
    WireType.TINY: Kind.TINYINT,
    WireType.SHORT: Kind.SMALLINT,
    WireType.INT24: Kind.MEDIUMINT,
    WireType.LONG: Kind.INT,
    WireType.LONGLONG: Kind.BIGINT,
    WireType.FLOAT: Kind.FLOAT,
    WireType.DOUBLE: Kind.DOUBLE,
    WireType.DECIMAL: Kind.DECIMAL,
    WireType.YEAR: Kind.YEAR,
    WireType.BIT: Kind.BIT,
    WireType.DATE: Kind.DATE,
    WireType.TIME: Kind.TIME,
    WireType.TIME2: Kind.TIME,
    WireType.DATETIME: Kind.DATETIME,
    WireType.DATETIME2: Kind.DATETIME,
    WireType.TIMESTAMP: Kind.TIMESTAMP,
    WireType.TIMESTAMP2: Kind.TIMESTAMP,
    WireType.JSON: Kind.JSON,
    WireType.GEOMETRY: Kind.GEOMETRY,
    WireType.VECTOR: Kind.VECTOR,
    WireType.ENUM: Kind.ENUM,
    WireType.SET: Kind.SET,
}
_NUMERIC = frozenset(list(_PLAIN)[:9])
_BLOBS = frozenset(
    {WireType.BLOB, WireType.TINY_BLOB, WireType.MEDIUM_BLOB, WireType.LONG_BLOB, WireType.BLOB_COMPRESSED}
)
_VARYING = frozenset({WireType.VARCHAR, WireType.VAR_STRING, WireType.VARCHAR_COMPRESSED})
_CHARACTER = _BLOBS | _VARYING | {WireType.STRING}
_OLD_TIMES = frozenset({WireType.TIME, WireType.DATETIME, WireType.TIMESTAMP})
_AS_TEXT = {**dict(zip(BLOBS, TEXTS, strict=True)), Kind.BINARY: Kind.CHAR, Kind.VARBINARY: Kind.VARCHAR}


@dataclass(slots=True)
class Metadata:
    """The fields as they are in the event. A list about a kind of columns has one item for each column of this kind."""

    mariadb: bool
    unsigned: list[bool] = field(default_factory=list)
    collations: list[int] = field(default_factory=list)
    label_collations: list[int] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    set_labels: list[list[bytes]] = field(default_factory=list)
    enum_labels: list[list[bytes]] = field(default_factory=list)
    primary_key: list[int] = field(default_factory=list)
    dimensions: list[int] = field(default_factory=list)


def to_table(
    name: TableName, wires: tuple[Wire, ...], nullable: tuple[bool, ...], metadata: Metadata, *, placeholders: bool
) -> Table | None:
    """Returns the table. If the event lacks the columns' names: None, or with `placeholders` names such as `@1`."""
    if metadata.names and len(metadata.names) != len(wires):
        raise DecodeError("bad-table-map", f"a table map of {name} names {len(metadata.names)} of {len(wires)} columns")
    if not metadata.names:
        if not placeholders:
            return None
        metadata.names = [f"@{number}" for number in range(1, len(wires) + 1)]
    if any(place >= len(wires) for place in metadata.primary_key):
        raise DecodeError(
            "bad-table-map", f"a table map of {name} has a primary key over columns that the table does not have"
        )
    key = tuple(metadata.names[place] for place in metadata.primary_key)
    types = _types(wires, metadata)
    return Table(
        name=name,
        columns=tuple(
            Column(column, kind, can_be_null)
            for column, kind, can_be_null in zip(metadata.names, types, nullable, strict=True)
        ),
        keys=(Key("PRIMARY", key, unique=True, primary=True),) if key else (),
    )


def complete(table: Table, wires: tuple[Wire, ...], metadata: Metadata, *, as_bytes: bool) -> Table:
    """Returns the table; columns of unknown charset get their types from the event.

    If the event also lacks a charset, the charset stays unknown; with `as_bytes`, the column becomes binary.
    """
    has_charsets, has_label_charsets = bool(metadata.collations), bool(metadata.label_collations)
    columns = []
    for column, wire, found in zip(table.columns, wires, _types(wires, metadata), strict=True):
        kind = column.type
        if kind.has_unknown_charset and kind.kind in (Kind.ENUM, Kind.SET):
            kind = replace(kind, charset=found.charset if has_label_charsets else kind.charset)
        elif kind.has_unknown_charset and wire.type in _CHARACTER:
            if has_charsets:
                kind = found
            elif as_bytes:
                kind = (
                    replace(found, length=0) if found.kind is Kind.BINARY else found
                )  # a CHAR is not padded with zeros
            else:
                kind = ColumnType(_AS_TEXT[found.kind], charset=UNKNOWN_CHARSET)
        columns.append(replace(column, type=kind))
    return replace(table, columns=tuple(columns))


def read(wires: tuple[Wire, ...], optional: bytes, *, mariadb: bool) -> Metadata:
    """Parses an event's optional metadata."""
    metadata = Metadata(mariadb)
    cursor = Cursor(optional, "a table map's optional metadata")
    characters = sum(_has_collation(wire, mariadb=mariadb) for wire in wires)
    labelled = sum(wire.type in (WireType.ENUM, WireType.SET) for wire in wires)
    while cursor.left:
        code = cursor.uint(1)
        part = Cursor(cursor.take(cursor.packed()), cursor.what)
        if code == _SIGNEDNESS:
            metadata.unsigned = [bool(byte >> bit & 1) for byte in part.rest() for bit in range(7, -1, -1)]
        elif code == _DEFAULT_CHARSET:
            metadata.collations = _with_default(part, characters)
        elif code == _COLUMN_CHARSET:
            metadata.collations = _numbers(part)
            if len(metadata.collations) != characters:
                raise DecodeError(
                    "bad-table-map",
                    f"a table map has {len(metadata.collations)} charsets, but {characters} text columns",
                )
        elif code == _LABEL_DEFAULT_CHARSET:
            metadata.label_collations = _with_default(part, labelled)
        elif code == _LABEL_CHARSET:
            metadata.label_collations = _numbers(part)
        elif code == _NAMES:
            while part.left:
                metadata.names.append(text(part.take(part.packed()), part.what))
        elif code in (_SET_LABELS, _ENUM_LABELS):
            labels = metadata.set_labels if code == _SET_LABELS else metadata.enum_labels
            while part.left:
                labels.append([part.take(part.packed()) for _ in range(part.packed())])
        elif code == _PRIMARY_KEY:
            metadata.primary_key = _numbers(part)
        elif code == _PRIMARY_KEY_PREFIX:
            metadata.primary_key = _numbers(part)[::2]
        elif code == _VECTOR:
            metadata.dimensions = _numbers(part)
    return metadata


def _numbers(part: Cursor) -> list[int]:
    numbers = []
    while part.left:
        numbers.append(part.packed())
    return numbers


def _with_default(part: Cursor, count: int) -> list[int]:
    collations = [part.packed()] * count
    while part.left:
        place, collation = part.packed(), part.packed()
        if place >= count:
            raise DecodeError(
                "bad-table-map",
                f"a table map has {count} columns with charsets, and names a charset for number {place + 1} of these",
            )
        collations[place] = collation
    return collations


def _has_collation(wire: Wire, *, mariadb: bool) -> bool:
    """Whether the event's list of collations has an item for this column: a text, a vector, or MariaDB's geometry."""
    return wire.type in _CHARACTER or wire.type is WireType.VECTOR or (mariadb and wire.type is WireType.GEOMETRY)


def _types(wires: tuple[Wire, ...], metadata: Metadata) -> list[ColumnType]:
    unsigned, dimensions = iter(metadata.unsigned), iter(metadata.dimensions)
    collations, label_collations = iter(metadata.collations), iter(metadata.label_collations)
    sets, enums = iter(metadata.set_labels), iter(metadata.enum_labels)
    types = []
    for wire in wires:
        collation = next(collations, _BINARY) if _has_collation(wire, mariadb=metadata.mariadb) else _BINARY
        if wire.type in _NUMERIC:
            types.append(_number(wire, unsigned=next(unsigned, False)))
        elif wire.type in _CHARACTER:
            types.append(_character(wire, collation))
        elif wire.type is WireType.ENUM:
            types.append(_labels(wire, next(enums, None), next(label_collations, 0)))
        elif wire.type is WireType.SET:
            types.append(_labels(wire, next(sets, None), next(label_collations, 0)))
        elif wire.type is WireType.VECTOR:
            types.append(ColumnType(Kind.VECTOR, length=next(dimensions, None)))
        elif wire.type is WireType.BIT:
            types.append(ColumnType(Kind.BIT, length=wire.size))
        elif wire.type in _OLD_TIMES:
            types.append(ColumnType(_PLAIN[wire.type], fsp=UNKNOWN_DIGITS if metadata.mariadb else 0))
        elif wire.type in _PLAIN:
            types.append(ColumnType(_PLAIN[wire.type], fsp=wire.scale))
        else:
            raise DecodeError(
                "unknown-type",
                f"a table map has a column {wire}, which is not known",
                todo="Leave the table out, and report the type",
            )
    return types


def _number(wire: Wire, *, unsigned: bool) -> ColumnType:
    kind = _PLAIN[wire.type]
    if kind is Kind.DECIMAL:
        decimals.layout(wire.size, wire.scale)
        return ColumnType(kind, unsigned=unsigned, precision=wire.size, scale=wire.scale)
    return ColumnType(kind, unsigned=unsigned and kind is not Kind.YEAR)


def _character(wire: Wire, collation: int) -> ColumnType:
    """Returns a text's type; bytes if the event lacks the charset, since bytes are better than wrong text."""
    charset = charsets.charset_of(collation)
    if charset is None:
        raise Halted(
            "unknown-charset",
            f"collation {collation} is not known",
            todo="Convert the column to utf8mb4: then later events can be read. Or leave the table out",
        )
    as_text = charset != "binary"
    if wire.type in _BLOBS:
        if not 1 <= wire.size <= len(TEXTS):
            raise DecodeError(
                "unknown-type",
                f"a table map has a column {wire}, which is not known",
                todo="Leave the table out, and report the type",
            )
        return ColumnType((TEXTS if as_text else BLOBS)[wire.size - 1], charset=charset if as_text else None)
    kinds = (Kind.CHAR, Kind.BINARY) if wire.type is WireType.STRING else (Kind.VARCHAR, Kind.VARBINARY)
    # The size of a compressed column includes the byte that says how a value is compressed.
    size = wire.size - (wire.type is WireType.VARCHAR_COMPRESSED)
    length = size // charsets.width(charset)
    return ColumnType(kinds[0], length=length, charset=charset) if as_text else ColumnType(kinds[1], length=size)


def _labels(wire: Wire, labels: list[bytes] | None, collation: int) -> ColumnType:
    """Returns a type with its labels; if the event lacks the labels, `#1`, `#2` and so on take their place."""
    kind = _PLAIN[wire.type]
    charset = charsets.charset_of(collation) or "utf8mb4"
    if labels is None:
        count = wire.size * 8 if kind is Kind.SET else min(2 ** (8 * wire.size), 2**16) - 1
        return ColumnType(kind, charset=charset, labels=tuple(f"#{number}" for number in range(1, count + 1)))
    decode = charsets.decoder(charset) if charset != "binary" else charsets.decoder("latin1")
    try:
        return ColumnType(kind, charset=charset, labels=tuple(map(decode, labels)))
    except UnicodeDecodeError as error:
        raise Halted(
            "undecodable-text",
            f"a label is not {charset} text: {error.object.hex()}",
            todo="Give the column labels that its charset has: then later events can be read. Or leave the table out",
        ) from error
