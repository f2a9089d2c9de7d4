"""The ranges of a table include each row exactly once, whatever its key consists of, and only the server compares keys."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.examples import examples

from pidts.copy import Range, highest, ranges, read_range
from pidts.model import Table, TableName
from pidts.source import Session, connect, query, read_structure
from pidts.source.keys import all_keys
from pidts.source.rows import find_rows, select_range
from pidts.source.structures import quoted, quoted_table

LABELS = ",".join(f"'s{number}'" for number in range(64))
KEYS = {
    "int": ("k INT PRIMARY KEY", "(1),(2),(3),(-5),(0),(7)"),
    "huge gaps": ("k BIGINT PRIMARY KEY", "(-9223372036854775808),(-1),(0),(1),(9223372036854775807),(9223372036854775806)"),
    "unsigned": ("k BIGINT UNSIGNED PRIMARY KEY", "(0),(18446744073709551615),(9223372036854775808),(9223372036854775807),(1)"),
    "one row": ("k MEDIUMINT UNSIGNED PRIMARY KEY", "(5)"),
    "none": ("k SMALLINT PRIMARY KEY", ""),
    "constant first": ("k INT, l INT, PRIMARY KEY (k, l)", "(7,1),(7,-9),(7,2000000000),(7,3),(7,4)"),
    "three columns": ("k INT, l VARCHAR(9), m DATE, PRIMARY KEY (m, k, l)", "(1,'a','2024-01-01'),(1,'b','2024-01-01'),(1,'B ','0000-00-00'),(2,'','2024-01-01'),(0,'z','2024-01-02')"),
    "case folded": ("k VARCHAR(9) COLLATE utf8mb4_general_ci, l INT, PRIMARY KEY (k, l)", "('a',1),('B',1),('A',2),('b',0),('é',1),('E',2),('',3),('a ',9),('a\x01',1),('ß',1),('ss',1)"),
    "by bytes": ("k VARCHAR(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PRIMARY KEY", "('a'),('A'),('é'),('b'),(''),('a\x01'),('😀'),('￿'),('''\\\\')"),
    "latin1": ("k VARCHAR(9) CHARACTER SET latin1 COLLATE latin1_german1_ci PRIMARY KEY", "('ä'),('b'),('z'),('Ö'),('''x'),(_latin1 X'81'),('€')"),
    "char": ("k CHAR(5) CHARACTER SET latin1 PRIMARY KEY", "('b '),('a'),('ab'),(''),('B1')"),
    "gbk": ("k VARCHAR(9) CHARACTER SET gbk PRIMARY KEY", "('中'),('文'),('a'),('字')"),
    "utf16": ("k VARCHAR(9) CHARACTER SET utf16 PRIMARY KEY", "('中'),('😀'),('a'),('￿')"),
    "prefix": ("k VARCHAR(300) CHARACTER SET latin1, v INT, PRIMARY KEY (k(3))", "('abcdef',1),('abd',2),('ab',3),('zzzzzz',4)"),
    "blob": ("k BLOB, PRIMARY KEY (k(9))", "(X'00'),(X'0000'),(X''),(X'ff'),(X'2700')"),
    "varbinary": ("k VARBINARY(9) PRIMARY KEY", "(X'00'),(X'0000'),(X''),(X'ff'),(X'2700'),(X'5c27')"),
    "binary": ("k BINARY(3) PRIMARY KEY", "(X'00'),(X'01'),(X'ffffff'),('a'),('a ')"),
    "enum": ("k ENUM('z','','a','m') NOT NULL PRIMARY KEY", "(1),(2),(3),(4),('nonsense')"),
    "set": (f"k SET({LABELS}) NOT NULL PRIMARY KEY", "('s0'),('s63'),(''),('s0,s63'),('s62'),('s1,s5'),('s52,s53')"),
    "bit": ("k BIT(64) PRIMARY KEY", "(0),(1),(18446744073709551615),(9223372036854775808)"),
    "decimal": ("k DECIMAL(65,30) PRIMARY KEY", "(-1.000000000000000000000000000001),(-1),(0.000000000000000000000000000001),(12345678901234567890123456789012345.5),(0)"),
    "float": ("k FLOAT PRIMARY KEY", "(0.1),(0.2),(-0.1),(1e30),(3),(1e-45),(16777216)"),
    "double": ("k DOUBLE PRIMARY KEY", "(0.1),(0.30000000000000004),(0.3),(-1e300),(5e-324),(0),(1.7976931348623157e308)"),
    "year": ("k YEAR PRIMARY KEY", "('0000'),(1901),(2000),(2155)"),
    "date": ("k DATE NOT NULL PRIMARY KEY", "('0000-00-00'),('2024-00-15'),('2023-02-31'),('2023-03-01'),('9999-12-31')"),
    "datetime": ("k DATETIME(6) NOT NULL PRIMARY KEY", "('2024-01-01 00:00:00.000001'),('2024-01-01'),('0000-00-00'),('2024-02-30')"),
    "timestamp": ("k TIMESTAMP(3) NOT NULL DEFAULT '2000-01-01' PRIMARY KEY", "('2024-01-01 00:00:00.001'),('1971-01-01'),('0000-00-00'),('2024-01-01')"),
    "time": ("k TIME(3) NOT NULL PRIMARY KEY", "('-838:59:59'),('00:00:00.5'),('-00:00:00.5'),('838:59:59'),('00:00:00')"),
    "unique": ("k INT, l INT NOT NULL, UNIQUE KEY (k), UNIQUE KEY u (l)", "(NULL,3),(NULL,1),(2,2)"),
}  # fmt: skip
OWN = {
    "mariadb": {
        "uuid": ("k UUID PRIMARY KEY", "('123e4567-e89b-12d3-a456-426655440000'),('00000000-0000-0000-0000-000000000000'),('ffffffff-ffff-ffff-ffff-ffffffffffff'),('123e4567-e89b-42d3-a456-426655440001'),('023e4567-e89b-12d3-b456-426655440000')"),
        "inet4": ("k INET4 PRIMARY KEY", "('10.0.0.0'),('255.255.255.255'),('0.0.0.0'),('9.255.0.1')"),
        "inet6": ("k INET6 PRIMARY KEY", "('::'),('::1'),('ff02::1'),('::ffff:10.0.0.1'),('1:0:2:3:4:5:6:7')"),
    },
    "mysql97": {
        "accents": ("k VARCHAR(9) COLLATE utf8mb4_0900_ai_ci, l INT, PRIMARY KEY (k, l)", "('a',1),('á',2),('A ',1),('b',1),('',1),('ä',0),('😀',1)"),
        "falling": ("k INT, l INT, PRIMARY KEY (k DESC, l)", "(1,1),(1,2),(2,1),(2,2),(3,0)"),
    },
    "mysql56": {},
}  # fmt: skip


def make(session: Session, database: str, columns: str, values: str, name: str = "t") -> Table:
    table = TableName(database, name)
    query(session, "SET SESSION sql_mode = 'ALLOW_INVALID_DATES'")
    query(session, f"DROP TABLE IF EXISTS {quoted_table(table)}")
    query(session, f"CREATE TABLE {quoted_table(table)} ({columns}) DEFAULT CHARSET utf8mb4")
    if values:
        query(session, f"INSERT INTO {quoted_table(table)} VALUES {values}")
    found = read_structure(session, table)
    assert found is not None
    return found


def sorted_rows(rows: pa.Table, table: Table) -> list[str]:
    return sorted(map(repr, all_keys(rows, table)))


def test_ranges_bring_every_row_once_in_the_servers_order_and_rows_are_found_by_their_keys(
    mysql_like, open_session, database
):
    session = open_session(mysql_like)
    for name, (columns, values) in (KEYS | OWN[mysql_like.kind]).items():
        table = make(session, database, columns, values)
        everything = select_range(session, table, None, None)
        assert everything.num_rows == query(session, f"SELECT COUNT(*) FROM {database}.t")[0][0], name
        for size in (1, 2, 100):
            check_ranges(session, table, everything, size, name)
        check_finding(session, table, everything, name)


def check_ranges(session: Session, table: Table, everything: pa.Table, size: int, name: str) -> None:
    upto = highest(session, table)
    if upto is None:
        assert not everything.num_rows
        assert ranges(session, table, None, None, size, 4) == [Range(None, None, is_last=True)]
        return
    found: list[Range] = []
    while not found or not found[-1].is_last:
        found += ranges(session, table, found[-1].upto if found else None, upto, size, 2)
        assert len(found) <= everything.num_rows, name
    assert (found[0].after, found[-1].upto) == (None, upto), name
    assert all(one.upto == other.after for one, other in itertools.pairwise(found)), name
    pieces = [select_range(session, table, one.after, one.upto) for one in found]
    assert all(0 < piece.num_rows <= size for piece in pieces), name
    assert pa.concat_tables(pieces).combine_chunks() == everything.combine_chunks(), name


def check_finding(session: Session, table: Table, everything: pa.Table, name: str) -> None:
    assert sorted_rows(find_rows(session, table, everything, whole=False), table) == sorted_rows(everything, table), (
        name
    )
    if not everything.num_rows:
        return
    half = everything.take(list(range(0, everything.num_rows, 2)))
    found = find_rows(session, table, half, whole=True)
    assert found.schema == everything.schema
    if name == "enum":  # An invalid value and an empty label have the same text.
        assert set(half.column("k").to_pylist()) == set(found.column("k").to_pylist())
        return
    assert sorted_rows(found, table) == sorted_rows(half, table), name
    query(session, f"DELETE FROM {quoted_table(table.name)}")
    assert find_rows(session, table, half, whole=False).num_rows == 0, name


def test_a_label_that_the_column_does_not_have_finds_nothing(mysql_like, open_session, database):
    session = open_session(mysql_like)
    table = make(session, database, "k ENUM('a') NOT NULL, l SET('x') NOT NULL, PRIMARY KEY (k, l)", "('none','none')")
    unknown = pa.table([pa.array(["b", "a", "b"]), pa.array(["", "y", "x"])], schema=table.arrow)
    assert find_rows(session, table, unknown, whole=False).num_rows == 0
    assert (
        find_rows(session, table, pa.table([pa.array([""]), pa.array([""])], schema=table.arrow), whole=False).num_rows
        == 1
    )


def test_more_keys_than_one_statement_holds(mysql_like, open_session, database):
    session = open_session(mysql_like)
    table = make(session, database, "k INT, l INT, v INT, PRIMARY KEY (k, l)", "")
    values = ",".join(f"({number % 7},{number},{number})" for number in range(3000))
    query(session, f"INSERT INTO {database}.t VALUES {values}")
    keys = select_range(session, table, None, None)
    assert find_rows(session, table, keys, whole=True).sort_by("l") == keys.sort_by("l").combine_chunks()


SOUGHT = [
    ("k INT, l INT, PRIMARY KEY (k, l)", "1, {n}"),
    ("k VARCHAR(9) CHARACTER SET latin1, l INT, PRIMARY KEY (k, l)", "'é', {n}"),
    ("k CHAR(30) COLLATE utf8mb4_bin PRIMARY KEY", "'k{n:09}'"),
    ("k BINARY(16) PRIMARY KEY", "X'{n:032x}'"),
    ("k DECIMAL(20,5), l DATETIME(3), PRIMARY KEY (l, k)", "{n}.5, '2024-01-01 00:00:00.5'"),
    ("k BIGINT UNSIGNED, l DOUBLE, PRIMARY KEY (k, l)", "184467440737095{n:04}, 0.1"),
]


@pytest.mark.parametrize(("columns", "row"), SOUGHT)
def test_boundaries_are_found_without_reading_what_comes_before_them(mysql_like, open_session, database, columns, row):
    session = open_session(mysql_like)
    table = make(session, database, columns, ",".join(f"({row.format(n=number)})" for number in range(3000)))
    edges = [one.upto for one in ranges(session, table, None, highest(session, table), 500, 9)]
    assert len(edges) == 6
    query(session, "FLUSH STATUS")
    found = ranges(session, table, edges[3], edges[4], 200, 9)
    pieces = [select_range(session, table, one.after, one.upto).num_rows for one in found]
    assert pieces == [200, 200, 100]
    some = select_range(session, table, found[1].after, found[1].upto).slice(0, 50)
    assert find_rows(session, table, some, whole=False).num_rows == 50
    read = {name: int(value) for name, value in query(session, "SHOW SESSION STATUS LIKE 'Handler_read%'")}
    assert sum(read.values()) - read["Handler_read_rnd_next"] < 1500
    # SHOW SESSION STATUS itself reads its rows one by one.
    assert read["Handler_read_rnd_next"] < 1500


HOSTILE = ["we`ird; DROP TABLE x --", "a'b\"c\\", "ÄöЖ中", "%s %d {x}", " lead", "select"]


@pytest.mark.parametrize("name", HOSTILE)
def test_names_are_only_names(mysql_like, open_session, database, config_of, name):
    session = open_session(mysql_like)
    key = quoted(name + "k")
    table = make(
        session,
        database,
        f"{key} VARCHAR(20), {quoted(name)} INT, PRIMARY KEY ({key})",
        "('''; --',1),('\\\\',2),('%s',3)",
        name,
    )
    upto = highest(session, table)
    pieces = [read_range(config_of(mysql_like), table, one).rows for one in ranges(session, table, None, upto, 2, 9)]
    rows = pa.concat_tables(pieces)
    assert rows.column(name).to_pylist().__len__() == 3
    assert sorted_rows(find_rows(session, table, rows, whole=False), table) == sorted_rows(rows, table)


TEXTS = st.text("aAbBäÄé ß\x01'\\_%中😀", max_size=6)


@given(rows=st.lists(st.tuples(TEXTS, st.integers(-3, 3)), max_size=25), size=st.integers(1, 6), gone=st.data())
@settings(max_examples=examples(15), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.parametrize("collation", ["utf8mb4_general_ci", "utf8mb4_bin"])
def test_rows_that_stay_are_in_one_range_whatever_else_happens(
    mariadb, config_of, database, collation, rows, size, gone
):
    """Rows between two boundaries are inserted and deleted meanwhile.

    Each row that exists all the time is read exactly once.
    """
    session = connect(config_of(mariadb))
    try:
        table = make(session, database, f"k VARCHAR(9) COLLATE {collation}, l INT, PRIMARY KEY (k, l)", "")

        def put(some: list[tuple[str, int]]) -> None:
            for text, number in some:
                query(session, f"INSERT IGNORE INTO {database}.t VALUES (_utf8mb4 X'{text.encode().hex()}', {number})")

        put(rows)
        before = sorted_rows(select_range(session, table, None, None), table)
        upto, after, pieces, removed = highest(session, table), None, [], set()
        for _ in range(200):
            (one,) = ranges(session, table, after, upto, size, 1)
            pieces.append(select_range(session, table, one.after, one.upto))
            after = one.upto
            if one.is_last:
                break
            put(gone.draw(st.lists(st.tuples(TEXTS, st.integers(-3, 3)), max_size=2)))
            for text, number in gone.draw(st.lists(st.sampled_from(rows), max_size=2)):
                query(session, f"DELETE FROM {database}.t WHERE k = _utf8mb4 X'{text.encode().hex()}' AND l = {number}")
                removed.add((text, number))
        after_all = sorted_rows(select_range(session, table, None, None), table)
        found = [repr(key) for piece in pieces for key in all_keys(piece, table)]
        stayed = (set(before) & set(after_all)) - {repr(list(row)) for row in removed}
        assert stayed <= set(found)
        assert all(found.count(key) == 1 for key in stayed)
    finally:
        session.close()
