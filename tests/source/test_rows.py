"""Rows are read exactly as they are stored, and each row is read once."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from pidts.model import Halted, Table, TableName, calendar
from pidts.model.errors import Transient
from pidts.source import Session, StructureChanged, highest_key, query, read_structure, select_range
from pidts.source.rows import boundary


def make(session: Session, database: str, columns: str, *inserts: str) -> Table:
    query(session, f"CREATE TABLE {database}.t ({columns}) DEFAULT CHARSET utf8mb4")
    query(session, "SET SESSION sql_mode = 'ALLOW_INVALID_DATES'")
    for values in inserts:
        query(session, f"INSERT INTO {database}.t VALUES {values}")
    return structure(session, database)


def structure(session: Session, database: str) -> Table:
    table = read_structure(session, TableName(database, "t"))
    assert table is not None
    return table


def column(session: Session, database: str, kind: str, *values: str) -> pa.ChunkedArray:
    rows = ", ".join(f"({number}, {value})" for number, value in enumerate(values))
    table = make(session, database, f"id INT PRIMARY KEY, v {kind}", rows)
    return select_range(session, table, None, None).column("v")


def numbers(array: pa.ChunkedArray, kind: pa.DataType) -> list[Any]:
    return list(array.cast(kind).to_pylist())


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        ("TINYINT", ("-128", "127", "NULL"), [-128, 127, None]),
        ("INT(8) ZEROFILL", ("42", "4294967295"), [42, 2**32 - 1]),
        ("BIGINT UNSIGNED", ("18446744073709551615", "0"), [2**64 - 1, 0]),
        (
            "DECIMAL(65,30)",
            ("-12345678901234567890123456789012345.123456789012345678901234567890", "0.1"),
            [
                Decimal("-12345678901234567890123456789012345.123456789012345678901234567890"),
                Decimal("0.100000000000000000000000000000"),
            ],
        ),
        ("DECIMAL(6,2) ZEROFILL", ("1.5",), [Decimal("1.50")]),
        (
            "FLOAT",
            ("0.1", "3.4028234e38", "1.17549435e-38", "16777216", "-1e-45"),
            [0.10000000149011612, 3.4028234663852886e38, 1.1754943508222875e-38, 16777216.0, -1.401298464324817e-45],
        ),
        ("FLOAT(7,3)", ("123.4567",), [123.45700073242188]),
        ("DOUBLE", ("0.1", "1.7976931348623157e308", "5e-324"), [0.1, 1.7976931348623157e308, 5e-324]),
        ("DOUBLE(20,2)", ("0.1", "1e17"), [0.1, 1e17]),
        ("BIT(64)", ("18446744073709551615", "0"), [2**64 - 1, 0]),
        ("BIT(1)", ("1", "0"), [1, 0]),
        ("YEAR", ("1901", "2155", "'0000'"), [1901, 2155, 0]),
        ("CHAR(5)", ("'a '", "''", "'☃'"), ["a", "", "☃"]),
        ("CHAR(5) CHARACTER SET latin1", ("'é€'", "_latin1 X'81'"), ["é€", "\x81"]),
        ("VARCHAR(9) CHARACTER SET utf16", ("'a☃'",), ["a☃"]),
        ("VARCHAR(9) CHARACTER SET gbk", ("'中'",), ["中"]),
        ("VARCHAR(9) CHARACTER SET utf8", ("'é '",), ["é "]),
        ("MEDIUMTEXT", ("REPEAT('x', 70000)", "REPEAT('y', 251)", "'😀'"), ["x" * 70000, "y" * 251, "😀"]),
        ("BINARY(4)", ("'ab'", "X'00ff'"), [b"ab\0\0", b"\0\xff\0\0"]),
        ("VARBINARY(9)", ("X'00fe00'", "''"), [b"\0\xfe\0", b""]),
        ("LONGBLOB", ("REPEAT(X'ff', 300)",), [b"\xff" * 300]),
        ("ENUM('é','b') CHARACTER SET latin1", ("'é'", "2", "'nonsense'"), ["é", "b", ""]),
        ("SET('x','y','z')", ("'z,x'", "''"), ["x,z", ""]),
    ],
)
def test_values_are_exact(mysql_like, open_session, database, kind, values, expected):
    found = column(open_session(mysql_like), database, kind, *values)
    assert found.to_pylist() == expected


def test_a_negative_zero_keeps_its_sign(mysql97, open_session, database):
    # MariaDB shows a negative zero only as `0`.
    found = column(open_session(mysql97), database, "DOUBLE", "-0e0", "0e0")
    assert [str(value) for value in found.to_pylist()] == ["-0.0", "0.0"]


def test_dates_may_be_unreal(mysql_like, open_session, database):
    session = open_session(mysql_like)
    real = column(session, database, "DATE", "'1000-01-01'", "'9999-12-31'", "NULL")
    assert [str(value) for value in real.to_pylist()] == ["1000-01-01", "9999-12-31", "None"]
    query(session, f"DROP TABLE {database}.t")
    found = column(
        session, database, "DATE", "'0000-00-00'", "'2024-00-15'", "'2023-02-31'", "'0000-01-01'", "'2024-02-29'"
    )
    assert [calendar.fields(day) for day in numbers(found, pa.int32())] == [
        (0, 0, 0), (2024, 0, 15), (2023, 2, 31), (0, 1, 1), (2024, 2, 29)
    ]  # fmt: skip


@pytest.mark.parametrize("kind", ["DATETIME(6)", "TIMESTAMP(6) NULL"])
def test_moments_are_read_to_the_microsecond_in_utc(mysql_like, open_session, database, kind):
    session = open_session(mysql_like)
    found = column(session, database, kind, "'2038-01-19 03:14:07.999999'", "'1970-01-01 00:00:01'", "NULL")
    assert numbers(found, pa.int64()) == [2_147_483_647_999_999, 1_000_000, None]
    query(session, f"DROP TABLE {database}.t")
    found = column(session, database, kind, "'0000-00-00 00:00:00'", "'2024-02-29 12:00:00.5'")
    zero, leap = numbers(found, pa.int64())
    assert calendar.fields(calendar.split(zero)[0]) == (0, 0, 0)
    assert leap == 1_709_208_000_500_000


def test_partial_moments(mysql_like, open_session, database):
    found = column(open_session(mysql_like), database, "DATETIME(2)", "'2024-00-15 01:02:03.25'")
    day, time_us = calendar.split(numbers(found, pa.int64())[0])
    assert (calendar.fields(day), time_us) == ((2024, 0, 15), 3_723_250_000)


def test_times_of_more_than_a_day_and_less_than_none(mysql_like, open_session, database):
    found = column(
        open_session(mysql_like), database, "TIME(6)", "'-838:59:59'", "'838:59:59'", "'-00:00:00.5'", "NULL"
    )
    assert numbers(found, pa.int64()) == [-3_020_399_000_000, 3_020_399_000_000, -500_000, None]


def test_json_is_the_servers_own_text(mysql97, open_session, database):
    found = column(open_session(mysql97), database, "JSON", """'{"b":1,"a":[2.50,"é"]}'""", "'null'", "NULL")
    assert found.to_pylist() == ['{"a": [2.5, "é"], "b": 1}', "null", None]


KEYS = [
    ("a INT, b INT, PRIMARY KEY (a, b)", "(1,1),(1,2),(1,-3),(2,0),(-5,9),(2,7),(3,3)"),
    ("a VARCHAR(9) COLLATE utf8mb4_general_ci, b INT, PRIMARY KEY (a, b)", "('a',1),('B',1),('A',2),('b',0),('é',1),('E',2),('',3)"),
    ("a VARCHAR(9) CHARACTER SET latin1 COLLATE latin1_german1_ci PRIMARY KEY", "('ä'),('b'),('z'),('Ö'),('''x')"),
    ("a VARCHAR(9) CHARACTER SET gbk PRIMARY KEY", "('中'),('文'),('a'),('字')"),
    ("a VARCHAR(9) CHARACTER SET utf8 COLLATE utf8_bin PRIMARY KEY", "('a'),('A'),('é'),('b')"),
    ("a VARBINARY(9) PRIMARY KEY", "(X'00'),(X'0000'),(X''),(X'ff'),(X'2700')"),
    ("a ENUM('z','a','m') NOT NULL PRIMARY KEY", "('z'),('a'),('m'),('')"),
    ("a SET('z','a','m') NOT NULL PRIMARY KEY", "('z'),('a'),('m'),('z,m'),('')"),
    ("a DATE NOT NULL PRIMARY KEY", "('0000-00-00'),('2024-00-15'),('2023-02-31'),('2023-03-01'),('9999-12-31')"),
    ("a DATETIME(6) NOT NULL PRIMARY KEY", "('2024-01-01 00:00:00.000001'),('2024-01-01'),('0000-00-00')"),
    ("a TIMESTAMP(3) NOT NULL DEFAULT '2000-01-01' PRIMARY KEY", "('2024-01-01 00:00:00.001'),('1971-01-01'),('0000-00-00')"),
    ("a TIME(3) NOT NULL PRIMARY KEY", "('-838:59:59'),('00:00:00.5'),('-00:00:00.5'),('838:59:59')"),
    ("a DECIMAL(40,10) PRIMARY KEY", "(-1.0000000001),(-1),(0.0000000001),(123456789012345678901234567890.5)"),
    ("a FLOAT PRIMARY KEY", "(0.1),(0.2),(-0.1),(1e30),(3)"),
    ("a DOUBLE PRIMARY KEY", "(0.1),(0.30000000000000004),(-1e300),(5e-324),(0)"),
    ("a BIT(64) PRIMARY KEY", "(0),(1),(18446744073709551615),(9223372036854775808)"),
    ("a YEAR PRIMARY KEY", "('0000'),(1901),(2000),(2155)"),
    ("a BIGINT UNSIGNED PRIMARY KEY", "(0),(18446744073709551615),(9223372036854775808)"),
    ("a INT, b INT NOT NULL, UNIQUE KEY (a), UNIQUE KEY u (b)", "(NULL,3),(NULL,1),(2,2)"),
]  # fmt: skip


@pytest.mark.parametrize(("columns", "values"), KEYS)
def test_pages_of_one_row_bring_every_row_once(mysql_like, open_session, database, columns, values):
    session = open_session(mysql_like)
    table = make(session, database, columns, values)
    whole = select_range(session, table, None, None)
    pages, key = [], None
    highest = highest_key(session, table)
    while (end := boundary(session, table, key, 1, highest=highest)) is not None:
        pages.append(select_range(session, table, key, end))
        assert pages[-1].num_rows == 1
        assert len(pages) <= whole.num_rows
        key = end
    assert key == highest
    assert pa.concat_tables(pages).combine_chunks() == whole.combine_chunks()
    assert whole.num_rows == query(session, f"SELECT COUNT(*) FROM {database}.t")[0][0]


def test_paging_reads_by_the_key_and_not_the_whole_table(mysql_like, open_session, database):
    session = open_session(mysql_like)
    values = ",".join(f"({number // 10},'k{number}')" for number in range(2000))
    table = make(session, database, "a INT, b VARCHAR(9) CHARACTER SET latin1, PRIMARY KEY (a, b)", values)
    query(session, f"ANALYZE TABLE {database}.t")
    query(session, "FLUSH STATUS")
    end = boundary(session, table, [100, "k1003"], 10, highest=None)
    assert select_range(session, table, [100, "k1003"], end).num_rows == 10
    read = {name: int(value) for name, value in query(session, "SHOW SESSION STATUS LIKE 'Handler_read%'")}
    assert sum(read.values()) - read["Handler_read_rnd_next"] < 100
    assert read["Handler_read_rnd_next"] < 1500


def test_a_table_without_a_key_cannot_be_paged(mysql_like, open_session, database):
    session = open_session(mysql_like)
    table = make(session, database, "a INT")
    with pytest.raises(Halted) as refused:
        select_range(session, table, None, None)
    assert refused.value.code == "no-key"


def test_a_table_that_changed_is_recognized(mysql_like, open_session, database):
    session = open_session(mysql_like)
    table = make(session, database, "id INT PRIMARY KEY, v INT", "(1, 2)")
    query(session, f"ALTER TABLE {database}.t MODIFY v VARCHAR(9)")
    query(session, f"UPDATE {database}.t SET v = 'two'")
    with pytest.raises(StructureChanged, match="column v is no longer of type int") as changed:
        select_range(session, table, None, None)
    assert (changed.value.code, changed.value.where.table) == ("structure-changed", f"{database}.t")
    query(session, f"ALTER TABLE {database}.t DROP v")
    with pytest.raises(StructureChanged, match="Unknown column 'v'") as changed:
        select_range(session, table, None, None)
    assert (changed.value.code, changed.value.where.table) == ("structure-changed", f"{database}.t")


def test_the_session_stays_usable_after_a_page(mysql_like, open_session, database):
    session = open_session(mysql_like)
    table = make(session, database, "id INT PRIMARY KEY, v VARCHAR(9)", "(1, 'é')")
    select_range(session, table, None, None)
    assert query(session, f"SELECT v FROM {database}.t") == [("é",)]


def test_a_lost_connection_may_be_tried_again(mysql_like, open_session, database):
    session, other = open_session(mysql_like), open_session(mysql_like)
    table = make(session, database, "id INT PRIMARY KEY")
    query(other, f"KILL {session.thread_id()}")
    with pytest.raises(Transient) as lost:
        select_range(session, table, None, None)
    assert lost.value.code == "source-lost"
