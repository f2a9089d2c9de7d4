"""Makes random tables with columns of every type that a server has, and random values for them as SQL.

A value need not fit the column: the servers are set to store the part that fits, and the log must have what they store.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from struct import pack
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from tests.binlog.logs.random_values import binaries, documents, floats, geometries, moments, texts, wholes

from pidts.model import Kind

NEW = ("mariadb", "mysql97")
CHARSETS = (
    "utf8mb4", "utf8", "latin1", "latin2", "latin5", "latin7", "ascii", "cp1250", "cp1251", "cp1256", "cp1257",
    "cp850", "cp852", "cp866", "dec8", "hp8", "swe7", "greek", "hebrew", "koi8r", "koi8u", "keybcs2", "macce",
    "macroman", "armscii8", "geostd8", "big5", "gbk", "gb2312", "euckr", "sjis", "cp932", "ujis", "eucjpms", "ucs2",
    "utf16", "utf16le", "utf32",
)  # fmt: skip
LENGTHS = (1, 2, 10, 63, 64, 85, 86, 127, 128, 255)
POINTS = ("point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon", "geometrycollection")


@dataclass(frozen=True)
class RandomColumn:
    """One column: its declaration, and values to choose from (none if the server computes the column)."""

    name: str
    kind: Kind
    ddl: str
    values: SearchStrategy[str] | None

    @property
    def quoted(self) -> str:
        return "`" + self.name.replace("`", "``") + "`"


@dataclass(frozen=True)
class RandomTable:
    """A table, its rows, and changed versions of some of them."""

    columns: tuple[RandomColumn, ...]
    engine: str
    rows: list[list[str]]
    later: list[list[str]]

    def __repr__(self) -> str:
        """Returns the table as SQL, which hypothesis shows if a test fails."""
        return "\n".join(self.statements("t")[:3])

    def statements(self, name: str) -> list[str]:
        """Returns CREATE, INSERT, UPDATE and DELETE statements."""
        filled = [column for column in self.columns if column.values is not None]
        declared = ", ".join(f"{column.quoted} {column.ddl}" for column in self.columns)
        names = ", ".join(["`i d`", *(column.quoted for column in filled)])
        rows = ", ".join(f"({', '.join([str(number), *row])})" for number, row in enumerate(self.rows))
        updates = []
        for number, row in enumerate(self.later):
            changes = ", ".join(f"{column.quoted} = {value}" for column, value in zip(filled, row, strict=True))
            updates.append(f"UPDATE {name} SET {changes or '`i d` = `i d` + 100'} WHERE `i d` = {number}")
        return [
            f"CREATE TABLE {name} (`i d` int NOT NULL PRIMARY KEY, {declared}) ENGINE={self.engine} CHARSET=utf8mb4",
            f"INSERT INTO {name} ({names}) VALUES {rows}",
            *updates,
            f"DELETE FROM {name}",
        ]


Family = Callable[[str], SearchStrategy[tuple[Kind, str, SearchStrategy[str] | None]]]


def _whole(_: str) -> SearchStrategy[Any]:
    bits = {Kind.TINYINT: 8, Kind.SMALLINT: 16, Kind.MEDIUMINT: 24, Kind.INT: 32, Kind.BIGINT: 64}

    def make(kind: Kind, sign: str) -> Any:
        low, high = (-(2 ** (bits[kind] - 1)), 2 ** (bits[kind] - 1) - 1) if not sign else (0, 2 ** bits[kind] - 1)
        return kind, f"{kind}{sign}", wholes(low, high)

    return st.builds(make, st.sampled_from(list(bits)), st.sampled_from(["", " unsigned", " zerofill"]))


def _decimal(_: str) -> SearchStrategy[Any]:
    def make(precision: int, scale: int, sign: str) -> Any:
        scale = min(scale, precision, 30)
        top = 10**precision - 1
        low = 0 if sign else -top
        values = wholes(low, top).map(lambda text: _pointed(int(text), scale))
        return Kind.DECIMAL, f"decimal({precision},{scale}){sign}", values

    return st.builds(make, st.integers(1, 65), st.integers(0, 30), st.sampled_from(["", "", " unsigned", " zerofill"]))


def _pointed(number: int, scale: int) -> str:
    digits = str(abs(number)).rjust(scale + 1, "0")
    return f"'{'-' if number < 0 else ''}{digits[: len(digits) - scale]}.{digits[len(digits) - scale :]}'"


def _float(_: str) -> SearchStrategy[Any]:
    return st.sampled_from(
        [
            (Kind.FLOAT, "float", floats(32)),
            (Kind.FLOAT, "float unsigned", floats(32)),
            (Kind.FLOAT, "float(7,2)", floats(32)),
            (Kind.DOUBLE, "double", floats(64)),
            (Kind.DOUBLE, "double(20,5) zerofill", floats(64)),
        ]
    )


def _bit(_: str) -> SearchStrategy[Any]:
    return st.integers(1, 64).map(lambda bits: (Kind.BIT, f"bit({bits})", wholes(0, 2**bits - 1)))


def _year(server: str) -> SearchStrategy[Any]:
    years = st.one_of(st.integers(1901, 2155), st.sampled_from([0, 1901, 1969, 1970, 2000, 2069, 2155])).map(str)
    short = [(Kind.YEAR, "year(2)", wholes(1970, 2069))] if server == "mariadb" else []
    return st.sampled_from([(Kind.YEAR, "year", years), *short])


def _moment(_: str) -> SearchStrategy[Any]:
    def make(kind: Kind, fsp: int) -> Any:
        size = f"({fsp})" if fsp and kind is not Kind.DATE else ""
        return kind, f"{kind}{size}", moments(kind)

    kinds = st.sampled_from([Kind.DATE, Kind.TIME, Kind.DATETIME, Kind.TIMESTAMP])
    return st.builds(make, kinds, st.integers(0, 6))


def _text(server: str) -> SearchStrategy[Any]:
    charsets = st.sampled_from([*CHARSETS, "gb18030"] if server == "mysql97" else CHARSETS)
    short = st.builds(
        lambda kind, length, charset: (kind, f"{kind}({length}) character set {charset}", texts(length)),
        st.sampled_from([Kind.CHAR, Kind.VARCHAR]),
        st.sampled_from(LENGTHS),
        charsets,
    )
    long = st.builds(
        lambda kind, charset: (kind, f"{kind} character set {charset}", texts(400)),
        st.sampled_from([Kind.TINYTEXT, Kind.TEXT, Kind.MEDIUMTEXT, Kind.LONGTEXT]),
        charsets,
    )
    wide = charsets.map(lambda charset: (Kind.VARCHAR, f"varchar(700) character set {charset}", texts(700)))
    return st.one_of(short, short, long, wide)


def _binary(_: str) -> SearchStrategy[Any]:
    short = st.builds(
        lambda kind, length: (kind, f"{kind}({length})", binaries(length)),
        st.sampled_from([Kind.BINARY, Kind.VARBINARY]),
        st.sampled_from(LENGTHS),
    )
    blobs = st.sampled_from([Kind.TINYBLOB, Kind.BLOB, Kind.MEDIUMBLOB, Kind.LONGBLOB])
    return st.one_of(short, blobs.map(lambda kind: (kind, str(kind), binaries(70_000))))


def _labels(server: str) -> SearchStrategy[Any]:
    """Returns labels that a parser of declarations may misread. A number makes them different in every collation."""
    hostile = ["", "'", "''", "\\", "\\'", '"', "`", "\n", "\t", "%s", "(", ")", "#1", "é", "ж", "NULL", " ", "- "]
    # Further characters are left out: catalogs show labels in three-byte UTF-8, and show characters that this
    # encoding lacks as question marks.
    hostile += ["€", "中"]
    prefixes = st.lists(st.sampled_from(hostile), min_size=1, max_size=4).map("".join)

    @st.composite
    def make(draw: Any) -> Any:
        kind = draw(st.sampled_from([Kind.ENUM, Kind.SET]))
        most = 64 if kind is Kind.SET else 300
        count = draw(st.one_of(st.integers(1, 9), st.sampled_from([8, 9, 16, 17, 24, 25, 32, 33, 64, 255, 256, 300])))
        spice = draw(st.lists(prefixes, min_size=1, max_size=5))
        comma = "," if kind is Kind.ENUM else ""
        labels = [f"{spice[number % len(spice)]}{comma}{number}" for number in range(min(count, most))]
        if kind is Kind.ENUM and draw(st.booleans()):
            labels[0] = ""
        quoted = ",".join("'" + label.replace("\\", "\\\\").replace("'", "''") + "'" for label in labels)
        top = len(labels) if kind is Kind.ENUM else 2 ** len(labels) - 1
        return kind, f"{kind}({quoted}) character set utf8mb4", wholes(0, top)

    return make()


def _geometry(server: str) -> SearchStrategy[Any]:
    plain = st.just((Kind.GEOMETRY, "geometry", geometries(server, "any")))
    exact = st.sampled_from(POINTS).map(lambda shape: (Kind.GEOMETRY, shape, geometries(server, shape)))
    return st.one_of(plain, exact)


def _json(_: str) -> SearchStrategy[Any]:
    return st.just((Kind.JSON, "json", documents()))


def _vector(_: str) -> SearchStrategy[Any]:
    def make(size: int) -> Any:
        numbers = st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=size)
        return (
            Kind.VECTOR,
            f"vector({size})",
            numbers.map(lambda values: f"x'{pack(f'<{len(values)}f', *values).hex()}'"),
        )

    return st.integers(1, 40).map(make)


def _identifier(_: str) -> SearchStrategy[Any]:
    uuids = st.one_of(st.uuids().map(lambda value: f"'{value}'"), st.just("'00000000-0000-0000-0000-000000000000'"))
    four = st.one_of(st.ip_addresses(v=4), st.sampled_from(["0.0.0.0", "10.0.0.0", "255.255.255.255"]))
    groups = st.lists(st.sampled_from(["0", "0", "1", "ffff", "a0", "64"]), min_size=8, max_size=8).map(":".join)
    six = st.one_of(st.ip_addresses(v=6).map(str), groups)
    return st.sampled_from(
        [
            (Kind.UUID, "uuid", uuids),
            (Kind.INET4, "inet4", four.map(lambda value: f"'{value}'")),
            (Kind.INET6, "inet6", six.map(lambda value: f"'{value}'")),
        ]
    )


def _compressed(_: str) -> SearchStrategy[Any]:
    return st.sampled_from(
        [
            (Kind.VARCHAR, "varchar(700) compressed character set utf8mb4", texts(700)),
            (Kind.VARCHAR, "varchar(40) compressed character set latin1", texts(40)),
            (Kind.VARBINARY, "varbinary(900) compressed", binaries(900)),
            (Kind.TINYTEXT, "tinytext compressed character set utf8mb4", texts(60)),
            (Kind.LONGTEXT, "longtext compressed character set ucs2", texts(400)),
            (Kind.BLOB, "blob compressed", binaries(60_000)),
            (Kind.MEDIUMBLOB, "mediumblob compressed", binaries(70_000)),
        ]
    )


def _computed(_: str) -> SearchStrategy[Any]:
    return st.sampled_from(
        [
            (Kind.BIGINT, "bigint AS (`i d` * 3) VIRTUAL", None),
            (Kind.INT, "int unsigned AS (`i d` + 1) STORED", None),
            (Kind.VARCHAR, "varchar(90) character set latin1 AS (concat(`i d`, 'é')) STORED", None),
            (Kind.INT, "int DEFAULT 5 INVISIBLE", wholes(-5, 5)),
        ]
    )


FAMILIES: list[tuple[Family, Sequence[str]]] = [
    *((family, ("mariadb", "mysql97", "mysql56")) for family in (_whole, _whole, _decimal, _float, _bit, _year)),
    *(
        (family, ("mariadb", "mysql97", "mysql56"))
        for family in (_moment, _moment, _moment, _text, _text, _text, _text)
    ),
    *((family, ("mariadb", "mysql97", "mysql56")) for family in (_binary, _binary, _labels, _labels, _geometry)),
    (_json, ["mysql97"]),
    (_vector, ["mysql97"]),
    (_identifier, ["mariadb"]),
    (_compressed, ["mariadb"]),
    (_computed, NEW),
]
_NAMES = st.text(st.sampled_from("ab`'\"\\ .%é中@#-\n"), max_size=12)


_WIDEST = 9
"""The largest number of columns of a table, so that every row fits."""


def tables(server: str) -> SearchStrategy[list[RandomTable]]:
    """Makes a few tables for a kind of server. Together they have columns of every kind, in any order."""
    families = [family(server) for family, servers in FAMILIES if server in servers]

    @st.composite
    def make(draw: Any) -> list[RandomTable]:
        drawn = [draw(family) for family in draw(st.permutations(families))]
        parts = [drawn[first : first + _WIDEST] for first in range(0, len(drawn), _WIDEST)]
        return [draw(_table(server, part)) for part in parts]

    return make()


def _table(server: str, drawn: Sequence[tuple[Kind, str, SearchStrategy[str] | None]]) -> SearchStrategy[RandomTable]:
    @st.composite
    def make(draw: Any) -> RandomTable:
        columns = tuple(_column(draw, number, *column) for number, column in enumerate(drawn))
        filled = [column for column in columns if column.values is not None]
        rows = draw(st.lists(_row(filled), min_size=1, max_size=4))
        later = draw(st.lists(_row(filled), min_size=1, max_size=len(rows)))
        # InnoDB stores the first bytes of long values in the row, and a row must fit into half a page.
        engine = "MyISAM" if server == "mysql56" else draw(st.sampled_from(["InnoDB", "InnoDB", "MyISAM"]))
        return RandomTable(columns, engine, rows, later)

    return make()


def _column(draw: Any, number: int, kind: Kind, ddl: str, values: SearchStrategy[str] | None) -> RandomColumn:
    name = f"{draw(_NAMES)}{number}"
    if values is None:
        return RandomColumn(name, kind, ddl, None)
    nullable = draw(st.booleans())
    ddl = f"{ddl} {'NULL' if nullable else 'NOT NULL'}" if "INVISIBLE" not in ddl else ddl
    return RandomColumn(name, kind, ddl, st.one_of(st.just("NULL"), values, values) if nullable else values)


def _row(columns: Sequence[RandomColumn]) -> SearchStrategy[list[str]]:
    return st.tuples(*(column.values for column in columns if column.values is not None)).map(list)
