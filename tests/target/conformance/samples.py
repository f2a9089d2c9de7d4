"""Tables and rows that the conformance tests share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from pidts.apply import TargetSession
from pidts.model import Checkpoint, Column, ColumnType, Key, Kind, Lsn, Table, TableName, calendar
from pidts.reduce import Counts, NetChange

_UTF8 = {"charset": "utf8mb4", "collation": "utf8mb4_bin"}
_MICROS = 1_000_000

INT = ColumnType(Kind.INT)


def text(length: int = 40) -> ColumnType:
    """Returns a varchar column in which all different strings are distinct."""
    return ColumnType(Kind.VARCHAR, length=length, **_UTF8)


def table(
    name: TableName, columns: Mapping[str, ColumnType], *, key: Sequence[str] = ("id",), unique: Sequence[str] = ()
) -> Table:
    """Returns a table whose columns are nullable except for the primary key.

    `unique` names columns with a unique key each.
    """
    keys = [Key("PRIMARY", tuple(key), unique=True, primary=True)]
    keys += [Key(f"u_{number}", (column,), unique=True) for number, column in enumerate(unique)]
    return Table(
        name,
        tuple(Column(column, kind, nullable=column not in key) for column, kind in columns.items()),
        tuple(keys),
        charset="utf8mb4",
        collation="utf8mb4_bin",
    )


def rows(structure: Table, *values: Sequence[Any]) -> pa.Table:
    """Returns rows in the table's own schema."""
    columns = list(zip(*values, strict=True)) if values else [()] * len(structure.columns)
    return pa.table(
        [array(v, kind) for v, kind in zip(columns, structure.arrow.types, strict=True)], schema=structure.arrow
    )


def array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Returns an array. Times may be given as numbers of Arrow: zero and partial dates have no other form."""
    if pa.types.is_temporal(kind):
        return pa.array(values, pa.int32() if pa.types.is_date32(kind) else pa.int64()).view(kind)
    return pa.array(values, kind)


def change(
    structure: Table, *, upserts: Sequence[Sequence[Any]] = (), deletes: Sequence[Sequence[Any]] = ()
) -> NetChange:
    """Returns a net change of these rows and identities."""
    schema = pa.schema([structure.arrow.field(name) for name in structure.identity])
    columns = list(zip(*deletes, strict=True)) if deletes else [()] * len(schema)
    removed = pa.table([array(v, kind) for v, kind in zip(columns, schema.types, strict=True)], schema=schema)
    return NetChange(structure, removed, rows(structure, *upserts), Counts(inserted=len(upserts), deleted=len(deletes)))


def lsn(offset: int) -> Lsn:
    """Returns a place in the source's log."""
    return Lsn(0, 1, offset)


def checkpoint(offset: int, **more: Any) -> Checkpoint:
    """Returns a checkpoint at this place; the committer adds task and worker."""
    return Checkpoint(**{"task": "", "source": "", "worker": 0, "lsn": lsn(offset), **more})


def every_type(name: TableName) -> Table:
    """Returns a table with one column of each type. The second half of a column's name is its type."""
    kinds: dict[str, ColumnType] = {"id": ColumnType(Kind.BIGINT)}
    for kind in (Kind.TINYINT, Kind.SMALLINT, Kind.MEDIUMINT, Kind.INT, Kind.BIGINT):
        kinds[f"c_{kind}"] = ColumnType(kind)
        kinds[f"c_{kind}_unsigned"] = ColumnType(kind, unsigned=True)
    kinds |= {
        "c_tinyint1": ColumnType(Kind.TINYINT, length=1),
        "c_decimal": ColumnType(Kind.DECIMAL, precision=20, scale=8),
        "c_decimal_wide": ColumnType(Kind.DECIMAL, precision=65, scale=30),
        "c_decimal_whole": ColumnType(Kind.DECIMAL, precision=30, scale=0),
        "c_float": ColumnType(Kind.FLOAT),
        "c_double": ColumnType(Kind.DOUBLE),
        "c_bit1": ColumnType(Kind.BIT, length=1),
        "c_bit12": ColumnType(Kind.BIT, length=12),
        "c_bit64": ColumnType(Kind.BIT, length=64),
        "c_year": ColumnType(Kind.YEAR),
        "c_date": ColumnType(Kind.DATE),
        "c_time": ColumnType(Kind.TIME),
        "c_time6": ColumnType(Kind.TIME, fsp=6),
        "c_datetime": ColumnType(Kind.DATETIME),
        "c_datetime6": ColumnType(Kind.DATETIME, fsp=6),
        "c_timestamp": ColumnType(Kind.TIMESTAMP),
        "c_timestamp6": ColumnType(Kind.TIMESTAMP, fsp=6),
        "c_char": ColumnType(Kind.CHAR, length=10, **_UTF8),
        "c_varchar": text(200),
        "c_latin1": ColumnType(Kind.VARCHAR, length=20, charset="latin1", collation="latin1_swedish_ci"),
        "c_tinytext": ColumnType(Kind.TINYTEXT, **_UTF8),
        "c_text": ColumnType(Kind.TEXT, **_UTF8),
        "c_mediumtext": ColumnType(Kind.MEDIUMTEXT, **_UTF8),
        "c_longtext": ColumnType(Kind.LONGTEXT, **_UTF8),
        "c_binary": ColumnType(Kind.BINARY, length=4),
        "c_varbinary": ColumnType(Kind.VARBINARY, length=40),
        "c_tinyblob": ColumnType(Kind.TINYBLOB),
        "c_blob": ColumnType(Kind.BLOB),
        "c_longblob": ColumnType(Kind.LONGBLOB),
        "c_enum": ColumnType(Kind.ENUM, labels=("small", "it's", 'q"\\', "größe"), **_UTF8),
        "c_set": ColumnType(Kind.SET, labels=("a", "b b", "c"), **_UTF8),
        "c_geometry": ColumnType(Kind.GEOMETRY),
        "c_vector": ColumnType(Kind.VECTOR, length=3),
        "c_uuid": ColumnType(Kind.UUID),
        "c_inet4": ColumnType(Kind.INET4),
        "c_inet6": ColumnType(Kind.INET6),
    }
    return table(name, kinds)


_POINT = bytes.fromhex("e61000000101000000000000000000f83f0000000000000440")
_VECTOR = bytes.fromhex("0000803f000020c0cdcccc3d")
_ALL_BYTES = bytes(range(40))

EXTREMES: dict[str, tuple[Any, Any]] = {
    "c_tinyint": (-128, 127),
    "c_tinyint_unsigned": (0, 255),
    "c_smallint": (-(2**15), 2**15 - 1),
    "c_smallint_unsigned": (0, 2**16 - 1),
    "c_mediumint": (-(2**23), 2**23 - 1),
    "c_mediumint_unsigned": (0, 2**24 - 1),
    "c_int": (-(2**31), 2**31 - 1),
    "c_int_unsigned": (0, 2**32 - 1),
    "c_bigint": (-(2**63), 2**63 - 1),
    "c_bigint_unsigned": (0, 2**64 - 1),
    "c_tinyint1": (-128, 127),
    "c_decimal": (Decimal("-0.00000001"), Decimal("999999999999.99999999")),
    "c_decimal_wide": (Decimal("1E-30"), Decimal("-" + "9" * 35 + "." + "9" * 30)),
    "c_decimal_whole": (Decimal(0), Decimal("9" * 30)),
    "c_float": (-3.4028234663852886e38, 1.401298464324817e-45 * 2**23),
    "c_double": (-1.7976931348623157e308, 2.2250738585072014e-308),
    "c_bit1": (0, 1),
    "c_bit12": (0, 4095),
    "c_bit64": (1, 2**64 - 1),
    "c_year": (1901, 2155),
    "c_date": (calendar.days(1000, 1, 1), calendar.days(9999, 12, 31)),
    "c_time": (-(838 * 3600 + 59 * 60 + 59) * _MICROS, (838 * 3600 + 59 * 60 + 59) * _MICROS),
    "c_time6": (-1, 86_399_999_999),
    "c_datetime": (
        calendar.microseconds(calendar.days(1000, 1, 1), 0),
        calendar.microseconds(calendar.days(9999, 12, 31), 86_399 * _MICROS),
    ),
    "c_datetime6": (-1, calendar.microseconds(calendar.days(9999, 12, 31), 86_399_999_999)),
    "c_timestamp": (1 * _MICROS, (2**31 - 1) * _MICROS),
    "c_timestamp6": (1_000_001, (2**31 - 1) * _MICROS + 999_999),
    "c_char": ("", "é'\\\"\n🙂"),
    "c_varchar": ("", "\\N \\. NULL 'x' \"y\" `z` \r\n\t🙂 , ; \x1a %s %"),
    "c_latin1": ("", "Ä€ÿ"),
    "c_tinytext": ("NULL", "\n\\.\n"),
    "c_text": ('"', "''"),
    "c_mediumtext": (",", "\\"),
    "c_longtext": ("x" * 100_000, '""\n""'),
    "c_binary": (b"\x00\x00\x00\x00", b"\xff'\\\x00"),
    "c_varbinary": (b"", _ALL_BYTES),
    "c_tinyblob": (b"'", bytes(range(128, 255))),
    "c_blob": (b"\\x41", bytes(range(256))),
    "c_longblob": (b"\x00" * 70_000, b"\\'\"\x1a\xf0\x9f"),
    "c_enum": ("it's", 'q"\\'),
    "c_set": ("", "a,b b,c"),
    "c_geometry": (_POINT, _POINT),
    "c_vector": (_VECTOR, _VECTOR),
    "c_uuid": ("00000000-0000-0000-0000-000000000000", "123e4567-e89b-12d3-a456-426655440000"),
    "c_inet4": ("0.0.0.0", "255.255.255.255"),
    "c_inet6": ("::", "2001:db8::ff00:42:8329"),
}
"""Two values for each column of `every_type`, which are its extremes if its type has any."""


def create(session: TargetSession, structure: Table, *, before_copy: bool = False) -> Table:
    """Creates the table on the target, and returns it."""
    for sql in session.schema.create_statements(structure, before_copy=before_copy).statements:
        session.execute(sql)
    if before_copy:
        session.begin()
        session.meta.leave_unfinished(structure.name)
        session.commit()
    return structure


def write(session: TargetSession, *changes: NetChange) -> None:
    """Writes the changes in a transaction of their own."""
    session.begin()
    try:
        for each in changes:
            session.write(each)
        session.commit()
    except BaseException:
        session.rollback()
        raise


def load(session: TargetSession, structure: Table, *values: Sequence[Any]) -> bool:
    """Loads new rows in a transaction of their own."""
    session.begin()
    loaded = session.load(structure, rows(structure, *values))
    session.commit()
    return loaded
