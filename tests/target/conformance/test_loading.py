"""Rows that the target does not have are loaded unchanged, all of them or none."""

from __future__ import annotations

import random
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from tests.target.conformance.samples import write

from pidts.apply import Target, TargetSession
from pidts.model import Column, ColumnType, Halted, Key, Kind, Table, TableName, calendar
from pidts.reduce import NetChange
from pidts.target import PostgresTarget
from pidts.target.mysql import MySqlSession

from .conftest import KINDS
from .samples import EXTREMES, INT, change, create, every_type, load, rows, table, text


def content(session: TargetSession, structure: Table) -> pa.Table:
    return session.read_rows(structure).sort_by([(name, "ascending") for name in structure.identity])


SERVERS = [kind for kind in KINDS if not kind.startswith(("values", "iceberg"))]
CASES = [*KINDS, *(f"{kind} by statement" for kind in SERVERS if kind != "postgres")]


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> str:
    """Returns the settings of a server: on MySQL and MariaDB, they decide which of two ways of loading is used."""
    return str(request.param)


@pytest.fixture
def kind(case: str) -> str:
    return case.split(maxsplit=1)[0]


@pytest.fixture
def either(session: TargetSession, case: str) -> TargetSession:
    if case.endswith("by statement"):
        session._loader._takes_files = False
    elif isinstance(session, MySqlSession) and not session.server.takes_files:
        session.execute("SET GLOBAL local_infile = ON")
        session._loader._takes_files = True
    return session


def test_loaded_rows_equal_written_rows(either: TargetSession, name: TableName) -> None:
    structure = every_type(name)
    other = structure.renamed(TableName(name.schema, name.name + "_w"))
    create(either, structure)
    create(either, other)
    nulls = [None] * len(EXTREMES)
    low, high = ([pair[side] for pair in EXTREMES.values()] for side in (0, 1))
    values = [[1, *low], [2, *high], [3, *nulls], [4, *high], [5, *low]]
    assert load(either, structure, *values)
    either.begin()
    wanted = rows(other, *values)
    either.write(NetChange(other, change(other).deletes, wanted, change(other).counts))
    either.commit()
    assert content(either, structure).equals(content(either, other))
    assert content(either, structure).num_rows == 5


LATIN = {"charset": "latin1", "collation": "latin1_swedish_ci"}
UTF8MB3 = {"charset": "utf8", "collation": "utf8_general_ci"}


@pytest.mark.parametrize("odd", ["", "é", "€"])
def test_text_of_older_charsets_is_loaded_as_it_is_written(either: TargetSession, name: TableName, odd: str) -> None:
    structure = table(
        name,
        {
            "id": INT,
            "c": ColumnType(Kind.CHAR, length=120, **LATIN),
            "t": ColumnType(Kind.TEXT, **UTF8MB3),
            "u": text(),
            "e": ColumnType(Kind.ENUM, labels=("a", "0"), **LATIN),
            "b": ColumnType(Kind.VARBINARY, length=300),
            "d": ColumnType(Kind.DATETIME, fsp=3),
            "n": ColumnType(Kind.DECIMAL, precision=9, scale=3),
            "z": ColumnType(Kind.BIT, length=9),
            "f": ColumnType(Kind.DOUBLE),
        },
    )
    other = structure.renamed(TableName(name.schema, name.name + "_w"))
    create(either, structure)
    create(either, other)
    values = [
        [1, "x\t\\N" + odd, "\n" + odd, "🙂é", "0", bytes(range(256)), 1_234_000, Decimal("-1.250"), 257, 1e-9],
        [2, "", "", "", "", b"", 0, Decimal(0), 0, -0.1],
        [3, *[None] * 9],
    ]
    assert load(either, structure, *values)
    write(either, NetChange(other, change(other).deletes, rows(other, *values), change(other).counts))
    assert content(either, structure).equals(content(either, other))
    assert content(either, structure)["c"].to_pylist() == [values[0][1], "", None]


HOSTILE = [
    "\\N",
    "NULL",
    "\t",
    "\n",
    "\r\n",
    "\\",
    "\\\\",
    "\\t",
    "'",
    '"',
    "a\\",
    "\\.",
    "",
    " ",
    "🙂\t🙂",
    "\x1a",
    "é\\",
    "x\x7f",
]


def test_text_and_bytes_of_every_kind_come_through(either: TargetSession, name: TableName, target: Target) -> None:
    kinds = {"id": INT, "t": text(), "b": ColumnType(Kind.VARBINARY, length=300), "g": ColumnType(Kind.LONGBLOB)}
    structure = table(name, {**kinds, "u": text()})
    create(either, structure)
    hostile = HOSTILE if isinstance(target, PostgresTarget) else [*HOSTILE, "\0", "a\0b"]
    values = [[at, each, each.encode("utf-16"), bytes(range(at, 256)), each] for at, each in enumerate(hostile)]
    values += [[1000, None, None, None, None], [1001, "x", b"\xc3\t\xf0\x9f\\\n\\", b"\xe2\x82\n", "y"]]
    assert load(either, structure, *values)
    assert content(either, structure).equals(rows(structure, *values))


def test_odd_dates_labels_and_documents_are_loaded_as_they_are_written(either: TargetSession, name: TableName) -> None:
    structure = table(
        name,
        {
            "id": INT,
            "d": ColumnType(Kind.DATE),
            "t": ColumnType(Kind.DATETIME, fsp=6),
            "e": ColumnType(Kind.ENUM, labels=("a", "1"), charset="utf8mb4", collation="utf8mb4_bin"),
            "s": ColumnType(Kind.SET, labels=("a", '{"', "\\x", "NULL"), charset="utf8mb4", collation="utf8mb4_bin"),
            "j": ColumnType(Kind.JSON),
        },
    )
    other = structure.renamed(TableName(name.schema, name.name + "_w"))
    create(either, structure)
    create(either, other)
    zero, partial = calendar.days(0, 0, 0), calendar.days(2024, 0, 15)
    moment = calendar.microseconds(calendar.days(2023, 2, 31), 12_345_678)
    values = [
        [1, zero, moment, "", "", '{"a": "\\t\\\\ \\" é"}'],
        [2, partial, 0, "1", '{",\\x', "[1, 2.50, null]"],
        [3, 0, calendar.microseconds(zero, 0), "a", "NULL", '"x\\ny"'],
        [4, None, None, "", "a", None],
        [5, None, None, "a", "a", '{"p": 12345678901234567890.12}'],
    ]
    assert load(either, structure, *values)
    write(either, NetChange(other, change(other).deletes, rows(other, *values), change(other).counts))
    assert content(either, structure).equals(content(either, other))
    assert "12345678901234567890.12" in content(either, structure)["j"][4].as_py()


@pytest.mark.parametrize("place", ["first", "last"])
@pytest.mark.parametrize("by", ["identity", "unique value"])
def test_a_row_that_is_there_keeps_all_out(
    either: TargetSession, name: TableName, by: str, place: str, kind: str
) -> None:
    if kind == "iceberg" and by == "unique value":
        pytest.skip("an Iceberg table has no unique keys besides its identity")
    structure = table(name, {"id": INT, "u": text(), "v": INT}, unique=["u"])
    create(either, structure)
    assert load(either, structure, (500, "there", 1), (501, None, 1))
    new = [(number, f"u{number}", 2) for number in range(100)]
    taken = (500, "new", 2) if by == "identity" else (400, "there", 2)
    either.begin()
    assert either.load(structure, rows(structure, (200, "before", 3)))
    assert not either.load(structure, rows(structure, *([taken, *new] if place == "first" else [*new, taken])))
    assert either.load(structure, rows(structure, (201, "behind", 3), (202, None, 3)))
    either.commit()
    assert content(either, structure)["v"].to_pylist() == [3, 3, 3, 1, 1]


def test_a_row_twice_in_one_load_keeps_all_out(either: TargetSession, name: TableName) -> None:
    structure = table(name, {"id": INT, "v": INT})
    create(either, structure)
    assert not load(either, structure, (1, 1), (2, 2), (1, 3))
    assert content(either, structure).num_rows == 0


def test_a_label_that_is_there_already_leaves_the_session_as_it_was(
    either: TargetSession, name: TableName, kind: str
) -> None:
    structure = table(
        name,
        {
            "id": INT,
            "e": ColumnType(Kind.ENUM, labels=("a", "b"), charset="utf8mb4", collation="utf8mb4_bin"),
            "v": text(3),
        },
    )
    create(either, structure)
    assert load(either, structure, (1, "", "x"))
    assert not load(either, structure, (1, "", "y"), (2, "a", "y"))
    if not kind.startswith(("values", "iceberg")):
        either.begin()
        with pytest.raises(Halted):
            either.load(structure, rows(structure, (3, "a", "four")))
        either.rollback()
    assert content(either, structure)["v"].to_pylist() == ["x"]


@pytest.mark.parametrize(
    ("kind_of", "value"),
    [(text(3), "four"), (ColumnType(Kind.VARBINARY, length=2), b"abc"), (INT, None)],
    ids=["text", "bytes", "null"],
)
@pytest.mark.parametrize("case", [case for case in CASES if not case.startswith(("values", "iceberg"))])
def test_a_value_that_does_not_fit_is_an_error_and_not_cut(
    either: TargetSession, name: TableName, kind_of: ColumnType, value: Any, kind: str
) -> None:
    columns = (Column("id", INT, nullable=False), Column("v", kind_of, nullable=value is not None))
    structure = Table(name, columns, (Key("PRIMARY", ("id",), unique=True, primary=True),))
    create(either, structure)
    if kind == "postgres" and kind_of.is_bytes:
        assert load(either, structure, (1, value))  # A column of type bytea has no maximum length.
        return
    either.begin()
    with pytest.raises(Halted, match="target-refused") as error:
        either.load(structure, rows(structure, (1, value)))
    either.rollback()
    assert name.name in str(error.value.where)
    assert either.count(name) == 0


def test_rows_without_a_key_are_added_as_often_as_they_are_loaded(either: TargetSession, name: TableName) -> None:
    structure = Table(name, (Column("a", INT), Column("b", text())), ())
    create(either, structure)
    assert load(either, structure, (1, "x"), (1, "x"), (None, None))
    assert load(either, structure, (1, "x"))
    assert either.count(name) == 4


def test_many_rows_are_loaded_at_once(either: TargetSession, name: TableName) -> None:
    structure = table(name, {"id": INT, "v": text()})
    create(either, structure)
    assert load(
        either, structure, *((number, f"v\t{number}" if number % 9000 == 1 else "v") for number in range(20_001))
    )
    assert either.count(name) == 20_001
    assert either.read_rows(structure, after=[18_000], limit=1).to_pylist() == [{"id": 18_001, "v": "v\t18001"}]
    assert load(either, structure)


PREMADE = {
    "postgres": "id bigint PRIMARY KEY, a boolean, b smallint, c numeric, d text, e numeric(30,4), f text, g bytea, h text",
    "mariadb": "id bigint PRIMARY KEY, a bit(1), b bit(12), c decimal(30), d varchar(40), e decimal(30,4), f text, g binary(3), h text",
    "mysql97": "id bigint PRIMARY KEY, a tinyint, b int, c decimal(30), d varchar(40), e decimal(30,4), f text, g text, h varchar(99)",
}
"""The columns of tables that another program has created. They can store the same values, though in other types."""


@pytest.mark.parametrize("case", [*PREMADE, "mariadb by statement"])
def test_a_table_of_other_types_is_loaded_as_it_is_written(either: TargetSession, name: TableName, kind: str) -> None:
    kinds = {
        "id": INT,
        "a": ColumnType(Kind.TINYINT),
        "b": ColumnType(Kind.SMALLINT, unsigned=True),
        "c": ColumnType(Kind.BIGINT, unsigned=True),
        "d": ColumnType(Kind.BIGINT),
        "e": ColumnType(Kind.DECIMAL, precision=20, scale=3),
        "f": ColumnType(Kind.UUID),
        "g": ColumnType(Kind.BINARY, length=3),
        "h": ColumnType(Kind.SET, labels=("x", "y"), charset="utf8mb4", collation="utf8mb4_bin"),
    }
    structure = table(name, kinds)
    other = structure.renamed(TableName(name.schema, name.name + "_w"))
    create(either, structure.renamed(TableName(name.schema, name.name + "_o")))
    quote = '"' if kind == "postgres" else "`"
    for each in (structure, other):
        place = f"{quote}{each.name.schema}{quote}.{quote}{each.name.name}{quote}"
        either.execute(f"CREATE TABLE {place} ({PREMADE[kind]})")
    uuid = "123e4567-e89b-12d3-a456-426655440000"
    values = [
        [1, 1, 4095, 2**64 - 1, -(2**63), Decimal("-12.345"), uuid, b"abc", "x,y"],
        [2, 0, 5, 0, 9, Decimal("0.001"), None, b"a\\\t", ""],
        [3, None, None, None, None, None, None, None, None],
    ]
    assert load(either, structure, *values)
    write(either, NetChange(other, change(other).deletes, rows(other, *values), change(other).counts))
    assert content(either, structure).equals(content(either, other))
    if kind == "postgres":
        assert not load(either, structure, [4, 1, 1, 1, 1, 1, None, None, None], [1, *[None] * 8])
        either.begin()
        with pytest.raises(Halted, match="out of range"):
            either.load(structure, rows(structure, [9, 1, 2**16 - 1, *[None] * 6]))
        either.rollback()


@pytest.mark.parametrize("case", ["postgres", "mariadb", "iceberg"])
def test_decimals_of_every_width_are_exact(session: TargetSession, name: TableName, kind: str) -> None:
    chance = random.Random(5)
    widths = [(1, 0), (3, 3), (4, 2), (9, 1), (15, 3), (18, 0), (18, 4), (19, 5), (30, 30), (38, 10), (39, 0), (65, 30)]
    structure = table(
        name,
        {"id": INT}
        | {f"d{p}_{s}": ColumnType(Kind.DECIMAL, precision=p, scale=s) for p, s in widths}
        | {"u": ColumnType(Kind.BIGINT, unsigned=True)},
    )
    create(session, structure)

    def made(precision: int, scale: int) -> Decimal | None:
        digits = chance.choice([0, 1, 9, 10**precision - 1, chance.randrange(10 ** chance.randint(1, precision)), None])
        sign = chance.choice([-1, 1])
        return None if digits is None else Decimal(f"{digits * sign}e-{scale}")

    values = [[at, *(made(*width) for width in widths), chance.randrange(2**64)] for at in range(300)]
    wanted = rows(structure, *values)
    session.begin()
    assert session.load(structure, wanted.slice(0, 7))
    assert session.load(structure, wanted.slice(7))
    session.commit()
    assert content(session, structure).equals(wanted)
