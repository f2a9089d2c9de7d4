"""One table with a column of every ordinary type, values at the edges of each type, and a query that returns them as
text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from pidts.model import Column, ColumnType, Key, Kind, Table, TableName, calendar

NAME = TableName("zoo", "animals")
ALL = ("mariadb", "mysql97", "mysql56", "mariadb101", "mariadb102", "mariadb114", "mariadb118")
NEW_MARIADB = ("mariadb", "mariadb114", "mariadb118")
"""The versions of MariaDB from 10.10 on. They have all types that only MariaDB has, except vectors."""


@dataclass(frozen=True)
class Example:
    """A column: its declaration, its type in PiDTS, SQL values to try, and the servers that have the type."""

    ddl: str
    type: ColumnType
    values: Sequence[str]
    kinds: Sequence[str] = ALL


def whole(kind: Kind, bits: int) -> list[Example]:
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    return [
        Example(str(kind), ColumnType(kind), [str(low), "-1", "0", str(high)]),
        Example(f"{kind} unsigned", ColumnType(kind, unsigned=True), ["0", "1", str(2**bits - 1)]),
    ]


def decimal(precision: int, scale: int, *values: str) -> Example:
    return Example(f"decimal({precision},{scale})", ColumnType(Kind.DECIMAL, precision=precision, scale=scale), values)


def times(fsp: int) -> list[Example]:
    part = f".{'987654'[:fsp]}" if fsp else ""
    tiny = f".{'0' * (fsp - 1)}1" if fsp else ""
    suffix = f"({fsp})" if fsp else ""
    return [
        Example(
            f"time{suffix}",
            ColumnType(Kind.TIME, fsp=fsp),
            [f"'-838:59:58{part}'", f"'838:59:58{part}'", f"'-00:00:01{tiny}'", f"'-00:00:00{tiny}'", "'00:00:00'"],
        ),
        Example(
            f"datetime{suffix}",
            ColumnType(Kind.DATETIME, fsp=fsp),
            [
                f"'1000-01-01 00:00:00{part}'",
                f"'9999-12-31 23:59:59{part}'",
                "'0000-00-00 00:00:00'",
                f"'2024-00-15 10:11:12{part}'",
                f"'2023-11-00 10:11:12{tiny}'",
            ],
        ),
        Example(
            f"timestamp{suffix} null default null",
            ColumnType(Kind.TIMESTAMP, fsp=fsp),
            [
                "'1970-01-01 00:00:01'",
                f"'2038-01-19 03:14:07{part}'",
                "'0000-00-00 00:00:00'",
                f"'2024-03-31 01:30:00{tiny}'",
            ],
        ),
    ]


def text(ddl: str, kind: Kind, charset: str, *values: str, length: int | None = None) -> Example:
    return Example(f"{ddl} character set {charset}", ColumnType(kind, length=length, charset=charset), values)


def binary(ddl: str, kind: Kind, *values: str, length: int | None = None) -> Example:
    return Example(ddl, ColumnType(kind, length=length), values)


LABELS = tuple(f"l{number}" for number in range(300))
LABEL_LIST = ",".join(f"'{label}'" for label in LABELS)
JSONS = [
    "'{}'",
    "'[]'",
    "'null'",
    "'true'",
    "'[1, -1, 32767, 32768, -32769, 65536, 2147483648, -9223372036854775808, 18446744073709551615]'",
    "'[1.5, 1e10, 1e300, -1e-300, 0.1, 100.0, 1e15, 1e16, 123456789012345680, 0.0001, 1e-15, 1e-14, -0.0]'",
    """'{"b": 1, "a": [true, false, null, {"k": "v"}], "\\\\u00e9": "\\\\u20ac \\\\"q\\\\" \\\\\\\\ / \\\\n \\\\u0001 \\\\u001f"}'""",
    "json_array(cast('2015-01-15' as date), cast('-23:24:25.12' as time(2)), cast('2015-01-15 23:24:25.123456' as datetime(6)))",
    "json_array(cast(1.50 as decimal(10,2)), cast(-0.05 as decimal(3,2)), cast(7 as decimal(30,0)), x'cafe', b'101')",
    "json_object('large', repeat('x', 70000), 'n', 70000, 'o', json_object('deep', json_array(1, 'z')))",
    """concat('[', repeat('[', 90), repeat(']', 90), ']')""",
    "json_quote('x\\u0000y')",
]

EXAMPLES: list[Example] = [
    *whole(Kind.TINYINT, 8),
    *whole(Kind.SMALLINT, 16),
    *whole(Kind.MEDIUMINT, 24),
    *whole(Kind.INT, 32),
    *whole(Kind.BIGINT, 64),
    decimal(1, 0, "0", "9", "-9"),
    decimal(10, 2, "99999999.99", "-99999999.99", "-0.01", "1.5"),
    decimal(9, 9, "0.123456789", "-0.999999999"),
    decimal(18, 9, "123456789.987654321", "-1"),
    decimal(38, 10, "9" * 28 + "." + "9" * 10, "-" + "9" * 28 + "." + "9" * 10, "0.0000000001"),
    decimal(65, 30, "9" * 35 + "." + "9" * 30, "-" + "9" * 35 + "." + "9" * 30, "-1"),
    decimal(65, 0, "9" * 65, "-" + "9" * 65),
    Example("float", ColumnType(Kind.FLOAT), ["0", "-1.5", "3.4e38", "1.1754944e-38", "0.1", "16777216"]),
    Example("double", ColumnType(Kind.DOUBLE), ["0", "-1.5", "1.7976931348623157e308", "5e-324", "0.1"]),
    Example("bit(1)", ColumnType(Kind.BIT, length=1), ["b'0'", "b'1'"]),
    Example("bit(13)", ColumnType(Kind.BIT, length=13), ["b'1000000000001'", "0"]),
    Example("bit(64)", ColumnType(Kind.BIT, length=64), ["18446744073709551615", "1"]),
    Example("year", ColumnType(Kind.YEAR), ["1901", "2155", "0", "2024"]),
    Example(
        "date",
        ColumnType(Kind.DATE),
        ["'0000-00-00'", "'1000-01-01'", "'9999-12-31'", "'2024-02-29'", "'2024-00-15'", "'2023-02-31'", "'0001-01-01'"],
    ),
    *(example for fsp in (0, 1, 2, 3, 4, 5, 6) for example in times(fsp)),
    text("char(10)", Kind.CHAR, "utf8mb4", "''", "'a  '", "'äöü€😀'", length=10),
    text("char(255)", Kind.CHAR, "utf8mb4", "repeat('😀', 255)", "'x'", "repeat('y', 255)", length=255),
    text("char(100)", Kind.CHAR, "utf8", "repeat('€', 100)", "''", length=100),
    text("varchar(20)", Kind.VARCHAR, "latin1", "'€ÄÖÜß'", "x'818d8f909d'", "'a  '", length=20),
    text("varchar(255)", Kind.VARCHAR, "ascii", "repeat('~', 255)", "''", length=255),
    text("varchar(300)", Kind.VARCHAR, "utf8mb4", "repeat('ж', 300)", "''", "'😀'", length=300),
    text("varchar(20)", Kind.VARCHAR, "gbk", "'中文汉字'", "'plain'", length=20),
    text("varchar(20)", Kind.VARCHAR, "ucs2", "'Ωж'", length=20),
    text("varchar(20)", Kind.VARCHAR, "utf16", "'Ω😀'", length=20),
    text("varchar(20)", Kind.VARCHAR, "utf16le", "'Ω😀'", length=20),
    text("varchar(20)", Kind.VARCHAR, "utf32", "'Ω😀'", length=20),
    text("varchar(20)", Kind.VARCHAR, "koi8r", "'Привет'", length=20),
    text("varchar(20)", Kind.VARCHAR, "big5", "'中文'", length=20),
    text("varchar(20)", Kind.VARCHAR, "sjis", "'日本語ｱ'", length=20),
    text("varchar(20)", Kind.VARCHAR, "cp932", "'日本語①'", length=20),
    text("varchar(20)", Kind.VARCHAR, "ujis", "'日本語'", length=20),
    text("varchar(20)", Kind.VARCHAR, "euckr", "'한국어'", length=20),
    text("varchar(20)", Kind.VARCHAR, "armscii8", "'Ա'", length=20),
    text("tinytext", Kind.TINYTEXT, "latin1", "'é'", "''"),
    text("text", Kind.TEXT, "utf8mb4", "repeat('ü', 1000)", "''"),
    text("mediumtext", Kind.MEDIUMTEXT, "utf8mb4", "repeat('x', 70000)", "'a'"),
    text("longtext", Kind.LONGTEXT, "utf8mb4", "repeat('y', 300)", "'b'"),
    binary("binary(5)", Kind.BINARY, "x'0000000000'", "x'0100020000'", "''", "'abcde'", length=5),
    binary("binary(255)", Kind.BINARY, "repeat('z', 255)", length=255),
    binary("varbinary(10)", Kind.VARBINARY, "x'00ff00'", "''", "x'0100'", length=10),
    binary("varbinary(400)", Kind.VARBINARY, "repeat(x'fe', 400)", length=400),
    binary("tinyblob", Kind.TINYBLOB, "x'00'", "''"),
    binary("blob", Kind.BLOB, "repeat(x'ff', 1000)", "''"),
    binary("mediumblob", Kind.MEDIUMBLOB, "repeat(x'80', 70000)"),
    binary("longblob", Kind.LONGBLOB, "x'c3'"),
    binary("geometry", Kind.GEOMETRY, "st_geomfromtext('POINT(1 2)')", "st_geomfromtext('LINESTRING(0 0,1 1)', 4326)"),
    Example(
        "enum('','a','ö''\"') character set latin1",
        ColumnType(Kind.ENUM, charset="latin1", labels=("", "a", "ö'\"")),
        ["'a'", "'ö''\"'", "''", "'no such'"],
    ),
    Example(
        f"enum({LABEL_LIST}) character set utf8mb4",
        ColumnType(Kind.ENUM, charset="utf8mb4", labels=LABELS),
        ["'l0'", "'l299'"],
    ),
    Example(
        "set('x','y','ž') character set utf8mb4",
        ColumnType(Kind.SET, charset="utf8mb4", labels=("x", "y", "ž")),
        ["''", "'x,ž'", "'x,y,ž'"],
    ),
    Example(
        "set(" + ",".join(f"'{label}'" for label in LABELS[:64]) + ") character set utf8mb4",
        ColumnType(Kind.SET, charset="utf8mb4", labels=LABELS[:64]),
        ["'l0,l63'", "'l31,l32'"],
    ),
    Example(
        "set(" + ",".join(f"'{label}'" for label in LABELS[:33]) + ") character set utf8mb4",
        ColumnType(Kind.SET, charset="utf8mb4", labels=LABELS[:33]),
        ["'l0,l32'"],
    ),
    Example("json", ColumnType(Kind.JSON), JSONS, ["mysql97"]),
    Example("vector(3)", ColumnType(Kind.VECTOR, length=3), ["string_to_vector('[1,-2.5,0]')"], ["mysql97"]),
    Example("vector(3)", ColumnType(Kind.VECTOR, length=3), ["vec_fromtext('[1,-2.5,0]')"], ["mariadb118"]),
    Example(
        "longtext character set utf8mb4 check (json_valid(c))",
        ColumnType(Kind.LONGTEXT, charset="utf8mb4"),
        ["'{ \"a\":1 }'"],
        NEW_MARIADB,
    ),
    Example(
        "uuid",
        ColumnType(Kind.UUID),
        ["'123e4567-e89b-12d3-a456-426655440000'", "'00000000-0000-0000-0000-000000000000'", "uuid()"],
        NEW_MARIADB,
    ),
    Example("inet4", ColumnType(Kind.INET4), ["'1.2.3.4'", "'0.0.0.0'", "'10.0.0.0'"], NEW_MARIADB),
    Example(
        "inet6",
        ColumnType(Kind.INET6),
        [
            "'::'", "'::1'", "'::1.2.3.4'", "'::1:2345'", "'::ffff:1.2.3.4'", "'1:0:2:3:4:5:6:7'", "'1:0:0:2::3'",
            "'1:2:3:4:5:6::'", "'64:ff9b::1.2.3.4'", "'::ffff:0:1'", "'fe80::1:0:0:1'",
        ],
        NEW_MARIADB,
    ),
    Example(
        "varchar(2000) compressed character set utf8mb4",
        ColumnType(Kind.VARCHAR, length=2000, charset="utf8mb4"),
        ["repeat('ab', 800)", "'short'", "''"],
        NEW_MARIADB,
    ),
    Example("blob compressed", ColumnType(Kind.BLOB), ["repeat(x'00ff', 2000)", "x'01'", "''"], NEW_MARIADB),
]  # fmt: skip


def examples(kind: str) -> list[Example]:
    return [example for example in EXAMPLES if kind in example.kinds]


def table(kind: str) -> Table:
    """Returns the structure that is read from the server's catalog."""
    columns = [Column("id", ColumnType(Kind.INT), nullable=False)]
    columns += [Column(f"c{number}", example.type) for number, example in enumerate(examples(kind))]
    return Table(NAME, tuple(columns), (Key("PRIMARY", ("id",), unique=True, primary=True),))


def statements(kind: str) -> list[str]:
    """Returns statements that create and fill the table. Row 0 has only NULLs, the other rows have the values in turn."""
    found = examples(kind)
    declared = ",\n".join(
        f"c{number} {example.ddl.replace('json_valid(c)', f'json_valid(c{number})')}"
        for number, example in enumerate(found)
    )
    loose = "" if kind == "mysql56" else ",ALLOW_INVALID_DATES"
    rows = [f"INSERT INTO {NAME} (id) VALUES (0)"]
    for number in range(max(len(example.values) for example in found)):
        values = ", ".join(example.values[number % len(example.values)] for example in found)
        rows.append(f"INSERT INTO {NAME} VALUES ({number + 1}, {values})")
    return [
        f"CREATE DATABASE IF NOT EXISTS {NAME.schema}",
        f"SET sql_mode='{'ALLOW_INVALID_DATES' if not loose else loose[1:]}'",
        "SET time_zone='+00:00'",
        f"CREATE TABLE {NAME} (id int not null primary key, {declared})",
        *rows,
        f"UPDATE {NAME} SET c0 = 5 WHERE id IN (0, 1, 2)",
        f"UPDATE {NAME} SET id = -2 WHERE id = 2",
        f"DELETE FROM {NAME} WHERE id = 3",
    ]


def query(kind: str) -> str:
    """Returns a query that shows every bit of the table as text."""
    return (
        "SELECT id, "
        + ", ".join(_expression(f"c{number}", example.type) for number, example in enumerate(examples(kind)))
        + f" FROM {NAME} ORDER BY id"
    )


def _expression(name: str, kind: ColumnType) -> str:
    if kind.is_bytes:
        return f"hex({name})"
    if kind.is_text:
        return f"hex(convert({name} using utf8mb4))"
    if kind.kind is Kind.BIT:
        return f"{name}+0"
    return f"{name}*1e0" if kind.kind in (Kind.FLOAT, Kind.DOUBLE) else f"cast({name} as char)"


def as_server(row: Sequence[Any], kind: str) -> list[Any]:
    """Returns a row of `query` in plain JSON values."""
    found: list[Any] = [row[0]]
    for value, example in zip(row[1:], examples(kind), strict=True):
        if value is not None and example.type.is_text:
            found.append(bytes.fromhex(value).decode())
        elif isinstance(value, float):
            found.append(value.hex())
        else:
            found.append(value.decode() if isinstance(value, bytes) else value)
    return found


def as_decoded(images: pa.StructArray, structure: Table) -> list[list[Any]]:
    """Returns decoded images in the form that `as_server` returns."""
    columns = [as_text(images.field(place), column.type) for place, column in enumerate(structure.columns)]
    columns[0] = images.field(0).to_pylist()
    return [list(row) for row in zip(*columns, strict=True)]


def as_text(array: pa.Array, kind: ColumnType) -> list[Any]:
    """Returns decoded values as the server shows them, with every bit."""
    return [_text(value, kind) for value in _raw(array, kind)]


def _raw(array: pa.Array, kind: ColumnType) -> list[Any]:
    if kind.kind is Kind.DATE:
        return array.cast(pa.int32()).to_pylist()
    if kind.kind in (Kind.TIME, Kind.DATETIME, Kind.TIMESTAMP):
        return array.cast(pa.int64()).to_pylist()
    return array.to_pylist()


def _text(value: Any, kind: ColumnType) -> Any:
    if value is None:
        return None
    match kind.kind:
        case Kind.FLOAT | Kind.DOUBLE:
            return float(value).hex()
        case Kind.BIT:
            return value
        case Kind.DECIMAL:
            return f"{value:f}"
        case Kind.YEAR:
            return f"{value:04}"
        case Kind.DATE:
            return "{:04}-{:02}-{:02}".format(*calendar.fields(value))
        case Kind.DATETIME | Kind.TIMESTAMP:
            day, time = calendar.split(value)
            return "{:04}-{:02}-{:02} ".format(*calendar.fields(day)) + _time(time, kind.fsp)
        case Kind.TIME:
            return ("-" if value < 0 else "") + _time(abs(value), kind.fsp)
    if kind.is_bytes:
        return value.hex().upper()
    return str(value)


def _time(microseconds: int, fsp: int) -> str:
    seconds, fraction = divmod(microseconds, 1_000_000)
    text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{text}.{fraction:06}"[: len(text) + 1 + fsp] if fsp else text
