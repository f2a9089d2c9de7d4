"""A table's structure at one place of the log is computed if the log allows it, otherwise unknown, never guessed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest

from pidts.model import Column, ColumnType, Halted, Key, Kind, Lsn, Table, TableName, Transaction
from pidts.schema import Dialect
from pidts.schema.evolve.known_structures import KnownStructures, refined
from pidts.schema.parse.lexer import split

MYSQL = Dialect.of("8.4.0")
T, U = TableName("a", "t"), TableName("a", "u")
UTF8 = {"a": ("utf8mb4", "utf8mb4_0900_ai_ci")}
STRANGE = "ALTER TABLE t FROBNICATE COLUMN id"


def ddl(text: str, place: int = 100, schema: str = "a") -> Transaction:
    return Transaction(lsn=Lsn(0, 1, place), prev_lsn=Lsn(0, 1, 4), begin=Lsn(0, 1, 4), ddl=text, ddl_schema=schema)


def log(*texts: str) -> list[Transaction]:
    return [ddl(text, 100 * number) for number, text in enumerate(texts, 1)]


def followed(history: KnownStructures, changes: Iterable[Transaction], dialect: Dialect = MYSQL) -> KnownStructures:
    for change in changes:
        history = history.after(change, dialect)
    return history


def columns(history: KnownStructures, name: TableName) -> list[str] | None:
    table = history.table(name)
    return table and [column.name for column in table.columns]


def made(*texts: str, complete: bool = True) -> KnownStructures:
    return followed(KnownStructures(charsets=UTF8, complete=complete), log(*texts))


def statement_of(history: KnownStructures, name: TableName) -> str:
    with pytest.raises(Halted) as caught:
        history.table(name)
    assert (caught.value.code, caught.value.where.table) == ("structure-unknown", str(name))
    assert "give the structure" in caught.value.todo
    assert "binlog_row_metadata=FULL" in caught.value.todo
    return caught.value.what.partition(": ")[2]


@pytest.mark.parametrize(
    ("texts", "name", "expected"),
    [
        (["CREATE TABLE t (id INT)"], T, ["id"]),
        (
            ["CREATE TABLE t (id INT)", "ALTER TABLE t ADD b INT, ADD c INT FIRST", "ALTER TABLE t DROP id"],
            T,
            ["c", "b"],
        ),
        (["CREATE TABLE t (id INT)", "RENAME TABLE t TO u"], T, None),
        (["CREATE TABLE t (id INT)", "RENAME TABLE t TO u, u TO v, v TO t"], T, ["id"]),
        (
            ["CREATE TABLE t (x INT)", "CREATE TABLE u (y INT)", "RENAME TABLE t TO w, u TO t, w TO u"],
            T,
            ["y"],
        ),
        (["CREATE TABLE t (id INT)", "ALTER TABLE t ADD b INT, RENAME TO u"], U, ["id", "b"]),
        (["CREATE TABLE t (id INT)", "CREATE TABLE u LIKE t", "ALTER TABLE t ADD b INT"], U, ["id"]),
        (["CREATE TABLE t (id INT, s VARCHAR(9)) START TRANSACTION"], T, ["id", "s"]),
        (["CREATE TABLE t (id INT)", "DROP TABLE t"], T, None),
        (["CREATE TABLE t (id INT)", "DROP TABLE u, t", "CREATE TABLE t (n INT)"], T, ["n"]),
        (["CREATE TABLE t (id INT)", "DROP DATABASE a"], T, None),
        (["CREATE TABLE t (id INT)", "TRUNCATE t", "INSERT INTO t VALUES (1)", "GRANT ALL ON *.* TO x"], T, ["id"]),
        (["CREATE TABLE t (id INT)", "CREATE TABLE IF NOT EXISTS t (n INT)"], T, ["id"]),
        (["CREATE TABLE t (id INT)", "ALTER TABLE t ADD b INT;\nALTER TABLE t ADD c INT"], T, ["id", "b", "c"]),
        (["CREATE TABLE t (id INT)", 'ALTER TABLE "t" ADD "b" INT'], T, ["id", "b"]),
    ],
)
def test_statements_are_followed(texts: Sequence[str], name: TableName, expected: list[str] | None) -> None:
    assert columns(made(*texts), name) == expected


def test_a_create_proves_that_nothing_was_there() -> None:
    assert columns(made("CREATE TABLE t (id INT)", "CREATE TABLE t (n INT)"), T) == ["n"]


@pytest.mark.parametrize(
    ("texts", "name"),
    [
        (["CREATE TABLE t (id INT)", STRANGE], T),
        (["CREATE TABLE t (id INT)", STRANGE, "ALTER TABLE t ADD b INT"], T),
        (["CREATE TABLE t (id INT)", STRANGE, "RENAME TABLE t TO u"], U),
        (["CREATE TABLE t (id INT)", STRANGE, "ALTER TABLE t RENAME TO u"], U),
        (["CREATE TABLE t (id INT)", STRANGE, "CREATE TABLE u LIKE t"], U),
        (["CREATE TABLE t (id INT)", "ALTER TABLE t DROP no_such_column"], T),
        (["ALTER TABLE t ADD b INT"], T),
        (["RENAME TABLE t TO u"], U),
        (["CREATE TABLE u AS SELECT * FROM t"], U),
        (["CREATE TABLE u LIKE t"], U),
        (["CREATE TABLE t (id INT)", "MANGLE THE TABLES t, u"], T),
        (["MANGLE THE TABLES t, u"], U),
        (["CREATE TABLE t (id INT)", "DROP DATABASE a WITH PASSION"], T),
    ],
)
def test_a_structure_that_cannot_be_followed_is_unknown_and_names_the_statement(
    texts: list[str], name: TableName
) -> None:
    assert statement_of(made(*texts), name) in texts


def test_other_tables_do_not_suffer() -> None:
    history = made("CREATE TABLE t (id INT)", "CREATE TABLE tt (id INT)", "CREATE TABLE b.t (id INT)", STRANGE)
    assert columns(history, TableName("a", "tt")) == ["id"]


def test_a_new_table_of_an_unknown_ones_name_is_known() -> None:
    assert columns(made("CREATE TABLE t (id INT)", STRANGE, "DROP TABLE t", "CREATE TABLE t (n INT)"), T) == ["n"]


def test_nothing_new_is_the_same_object() -> None:
    history = made("CREATE TABLE t (id INT)")
    assert history.after(replace(ddl("x"), ddl=None), MYSQL) is history
    assert history.after(ddl("TRUNCATE TABLE t"), MYSQL) is history
    assert history.after(ddl("CREATE VIEW v AS SELECT 1"), MYSQL) is history


@pytest.mark.parametrize(
    ("texts", "charset"),
    [
        (["CREATE DATABASE b CHARACTER SET latin1"], "latin1"),
        (["CREATE DATABASE b CHARACTER SET latin1", "ALTER DATABASE b COLLATE gbk_chinese_ci"], "gbk"),
        (["CREATE DATABASE b CHARACTER SET gbk", "CREATE DATABASE IF NOT EXISTS b CHARACTER SET latin1"], "gbk"),
        (["CREATE DATABASE b CHARACTER SET gbk", "DROP DATABASE b", "CREATE DATABASE b"], "utf8mb4"),
    ],
)
def test_a_new_table_inherits_the_charset_that_its_database_has_by_then(texts: list[str], charset: str) -> None:
    history = made(*texts, "CREATE TABLE b.t (s VARCHAR(9))", "ALTER DATABASE b CHARACTER SET ascii")
    table = history.table(TableName("b", "t"))
    assert table is not None
    assert table.columns[0].type.charset == charset


@pytest.mark.parametrize(
    "text", ["CREATE TABLE t (id INT, s VARCHAR(9) CHARACTER SET latin1)", "CREATE TABLE t (s TEXT) CHARSET latin1"]
)
def test_a_database_nobody_has_named_matters_only_where_it_is_inherited_from(text: str) -> None:
    table = KnownStructures(complete=False).after(ddl(text), MYSQL).table(T)
    assert table is not None
    assert table.columns[-1].type.charset == "latin1"
    inherits = KnownStructures(complete=False).after(ddl("CREATE TABLE t (id INT, s VARCHAR(9))"), MYSQL)
    assert charsets(inherits, T) == {"s": "unknown"}


def charsets(history: KnownStructures, name: TableName) -> dict[str, str | None]:
    table = history.table(name)
    assert table is not None
    return {column.name: column.type.charset for column in table.columns if column.type.is_text}


ALL_KINDS = (
    "CREATE TABLE t (id INT UNSIGNED PRIMARY KEY, at DATETIME(3) NOT NULL, s VARCHAR(9), t TEXT(100), d DECIMAL(9,2), "
    "e ENUM('ü', 'b'), l VARCHAR(9) CHARACTER SET latin1, KEY k (t(5)), UNIQUE u (s))"
)


def test_in_a_database_of_unknown_charset_only_inherited_charsets_are_unknown() -> None:
    for dialect in (MYSQL, Dialect.of("10.1.48-MariaDB")):
        history = KnownStructures(complete=False).after(ddl(ALL_KINDS), dialect)
        known = KnownStructures(charsets=UTF8).after(ddl(ALL_KINDS), dialect)
        assert charsets(history, T) == {"s": "unknown", "t": "unknown", "e": "unknown", "l": "latin1"}
        table, exact = history.tables[T], known.tables[T]
        assert table.keys == exact.keys
        assert [column.name for column in table.columns] == [column.name for column in exact.columns]
        assert [column.nullable for column in table.columns] == [column.nullable for column in exact.columns]
        same = [one for one, other in zip(table.columns, exact.columns, strict=True) if one == other]
        assert [column.name for column in same] == ["id", "at", "d", "l"]
        assert table.column("e").type.labels == ("ü", "b")
        assert KnownStructures.from_json(json.loads(json.dumps(history.to_json()))) == history


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["ALTER TABLE t ADD n INT"], {"s": "unknown"}),
        (["ALTER TABLE t ADD x TEXT"], {"s": "unknown", "x": "unknown"}),
        (["ALTER TABLE t ADD x TEXT CHARACTER SET gbk"], {"s": "unknown", "x": "gbk"}),
        (["ALTER TABLE t CHARACTER SET gbk", "ALTER TABLE t ADD x TEXT"], {"s": "unknown", "x": "gbk"}),
        (["ALTER TABLE t CHANGE s z VARCHAR(3) CHARACTER SET latin1"], {"z": "latin1"}),
        (["ALTER TABLE t CHANGE s z VARCHAR(3)"], {"z": "unknown"}),
        # A database may have the charset `binary`. Its columns have bytes, and no statement makes them text.
        (["ALTER TABLE t CONVERT TO CHARACTER SET utf8mb4"], {"s": "unknown"}),
        (["ALTER TABLE t DROP s"], {}),
        (["CREATE DATABASE b CHARACTER SET gbk", "RENAME TABLE t TO b.t, b.t TO t"], {"s": "unknown"}),
        (["ALTER DATABASE a CHARACTER SET gbk", "ALTER TABLE t ADD x TEXT"], {"s": "unknown", "x": "unknown"}),
        (["CREATE TABLE c LIKE t", "DROP TABLE t", "RENAME TABLE c TO t"], {"s": "unknown"}),
        (["DROP TABLE t", "CREATE DATABASE b CHARACTER SET gbk", "CREATE TABLE t (s TEXT) CHARSET gbk"], {"s": "gbk"}),
    ],
)
def test_a_table_of_unknown_charset_is_followed(texts: list[str], expected: dict[str, str]) -> None:
    made_first = "CREATE TABLE t (id INT, s VARCHAR(9))"
    assert charsets(followed(KnownStructures(complete=False), log(made_first, *texts)), T) == expected


def test_a_table_whose_labels_depend_on_an_unknown_charset_is_not_known() -> None:
    text = "CREATE TABLE t (e ENUM(0xC3A4))"
    assert statement_of(KnownStructures(complete=False).after(ddl(text), MYSQL), T) == text


S, S2 = TableName("a", "s"), TableName("a", "s2")
MARIADB = Dialect.of("11.8.2-MariaDB")


@pytest.mark.parametrize(
    ("texts", "names"),
    [
        (["CREATE SEQUENCE s"], {S}),
        (["CREATE OR REPLACE SEQUENCE a.s START WITH 1 CACHE 10", "ALTER SEQUENCE s RESTART 5"], {S}),
        (["CREATE SEQUENCE s", "CREATE SEQUENCE IF NOT EXISTS s"], {S}),
        (["CREATE SEQUENCE IF NOT EXISTS s"], {S}),
        (["CREATE TABLE s (id INT)", "CREATE SEQUENCE IF NOT EXISTS s"], set()),
        (["ALTER SEQUENCE s2 RESTART 5"], {S2}),
        (["ALTER SEQUENCE IF EXISTS s2 RESTART 5"], set()),
        (["CREATE SEQUENCE s", "RENAME TABLE s TO s2"], {S2}),
        (["CREATE SEQUENCE s", "CREATE TABLE t (id INT)", "RENAME TABLE s TO x, t TO s, x TO s2"], {S2}),
        (["CREATE SEQUENCE s", "ALTER TABLE s RENAME TO s2"], {S2}),
        (["CREATE SEQUENCE s", "ALTER TABLE s ENGINE = InnoDB"], {S}),
        (["CREATE SEQUENCE s", "CREATE TABLE s2 LIKE s"], {S, S2}),
        (["CREATE SEQUENCE s", "CREATE TABLE IF NOT EXISTS s (id INT)"], {S}),
        (["CREATE SEQUENCE s", "CREATE OR REPLACE TABLE s (id INT)"], set()),
        (["CREATE SEQUENCE s", "DROP TABLE s"], set()),
        (["CREATE SEQUENCE s", "CREATE SEQUENCE s2", "DROP SEQUENCE IF EXISTS s, other"], {S2}),
        (["CREATE SEQUENCE s", "DROP DATABASE a"], set()),
        (["CREATE SEQUENCE s", "MANGLE s"], set()),
        (["MANGLE s", "CREATE SEQUENCE s"], {S}),
    ],
)
def test_sequences_are_followed(texts: list[str], names: set[TableName]) -> None:
    history = followed(KnownStructures(charsets=UTF8), log(*texts), MARIADB)
    assert history.sequences == names
    assert all(history.is_sequence(name) and history.table(name) is None for name in names)
    assert not history.is_sequence(T)
    assert KnownStructures.from_json(json.loads(json.dumps(history.to_json()))) == history


def test_rows_that_look_like_a_sequence_are_one_only_where_there_is_certainly_no_table() -> None:
    history = made("CREATE TABLE t (id INT)")
    assert history.is_sequence(S, looks_like_one=True)
    assert not history.is_sequence(S)
    assert not history.is_sequence(T, looks_like_one=True)
    assert not replace(history, complete=False).is_sequence(S, looks_like_one=True)
    files = followed(KnownStructures(complete=False), log("CREATE SEQUENCE IF NOT EXISTS s"), MARIADB)
    assert not files.is_sequence(S, looks_like_one=True), "there may be a table of that name"


def test_without_a_catalog_silence_proves_nothing() -> None:
    nothing = KnownStructures(complete=False)
    assert nothing.table(T) is None
    assert columns(nothing.after(ddl("ALTER TABLE t ADD b INT"), MYSQL), T) is None
    assert "IF NOT EXISTS" in statement_of(nothing.after(ddl("CREATE TABLE IF NOT EXISTS t (id INT)"), MYSQL), T)
    assert columns(nothing.after(ddl("CREATE TABLE t (id INT)"), MYSQL), T) == ["id"]


NOW = made("CREATE TABLE t (now INT)", "CREATE TABLE u (now INT)", "CREATE TABLE still (id INT)")


@pytest.mark.parametrize(
    ("texts", "before"),
    [
        (["RENAME TABLE s TO s2"], {S}),
        (["CREATE SEQUENCE s2"], set()),
        (["CREATE SEQUENCE s", "ALTER TABLE s RENAME s2", "ALTER SEQUENCE s2 RESTART"], set()),
        (["DROP SEQUENCE s"], {S, S2}),
        (["RENAME TABLE s TO x, s2 TO s, x TO s2", "MANGLE s2"], {S}),
    ],
)
def test_a_later_catalog_shows_the_sequences_of_before(texts: list[str], before: set[TableName]) -> None:
    now = replace(NOW, sequences=frozenset({S2}))
    changes = log(*texts)
    then = now.before(changes, MARIADB)
    assert then.sequences == before
    assert followed(then, changes, MARIADB) == now
    assert KnownStructures.from_json(json.loads(json.dumps(then.to_json()))) == then
    assert now.doubting(changes, MARIADB).sequences == followed(now, changes, MARIADB).sequences


def test_a_later_catalog_is_believed_for_what_did_not_change_since() -> None:
    changes = log("ALTER TABLE t ADD now INT", "ALTER TABLE t DROP was", "RENAME TABLE was TO u")
    then = NOW.before(changes, MYSQL)
    assert columns(then, TableName("a", "still")) == ["id"]
    assert statement_of(then, T) == "ALTER TABLE t ADD now INT"
    assert statement_of(then, TableName("a", "was")) == "RENAME TABLE was TO u"
    assert then.table(U) is None
    behind_first = then.after(changes[0], MYSQL)
    assert statement_of(behind_first, T) == "ALTER TABLE t ADD now INT"
    behind_second = behind_first.after(changes[1], MYSQL)
    assert columns(behind_second, T) == ["now"]
    assert statement_of(behind_second, TableName("a", "was")) == "RENAME TABLE was TO u"
    end = behind_second.after(changes[2], MYSQL)
    assert columns(end, U) == ["now"]
    assert end.table(TableName("a", "was")) is None


@pytest.mark.parametrize(
    "texts",
    [
        ["CREATE TABLE t (id INT)", "ALTER TABLE t CHANGE id now INT"],
        ["RENAME TABLE t TO w, u TO t, w TO u"],
        ["DROP TABLE gone", "CREATE TABLE x (id INT)", "DROP TABLE x"],
        ["MANGLE t", "MANGLE nothing"],
        ["DROP DATABASE a", "CREATE DATABASE a", "CREATE TABLE t (now INT)", "CREATE TABLE u (now INT)"],
        ["ALTER DATABASE a CHARACTER SET utf8mb4", "CREATE DATABASE b", "DROP DATABASE b"],
        ["CREATE OR REPLACE TABLE t (now INT)", "CREATE TABLE IF NOT EXISTS u (now INT)"],
        [],
    ],
)
def test_going_back_and_forward_again_ends_at_the_catalog(texts: list[str]) -> None:
    changes = log(*texts)
    assert followed(NOW.before(changes, MYSQL), changes) == NOW


def test_between_two_changes_the_log_itself_may_show() -> None:
    changes = log("CREATE TABLE t (id INT)", "ALTER TABLE t CHANGE id now INT")
    then = NOW.before(changes, MYSQL)
    assert then.table(T) is None
    assert columns(then.after(changes[0], MYSQL), T) == ["id"]


def test_tables_changed_while_the_catalog_was_read_stay_unknown() -> None:
    changes = log("ALTER TABLE t ADD b INT", "ALTER TABLE t ADD c INT")
    doubted = NOW.doubting(changes[1:], MYSQL)
    assert statement_of(doubted, T) == "ALTER TABLE t ADD c INT"
    assert doubted.doubting([], MYSQL) is doubted
    assert statement_of(followed(doubted.before(changes, MYSQL), changes), T) == "ALTER TABLE t ADD c INT"
    assert columns(doubted, U) == ["now"]


def test_a_record_survives_json() -> None:
    changes = log("ALTER TABLE t ADD b INT", STRANGE, "DROP TABLE gone", "ALTER DATABASE a CHARACTER SET latin1")
    history = followed(NOW.before(changes, MYSQL), changes[:1])
    assert history.turns
    assert history.unknown
    assert KnownStructures.from_json(json.loads(json.dumps(history.to_json()))) == history


def table(*cells: Column, keys: tuple[Key, ...] = ()) -> Table:
    return Table(T, cells, keys)


def test_the_log_and_the_record_complete_each_other() -> None:
    found = table(Column("id", ColumnType(Kind.INT)), Column("u", ColumnType(Kind.BINARY, length=16)))
    key = (Key("k", ("id",), unique=True),)
    known = table(
        Column("id", ColumnType(Kind.INT, length=11), nullable=False), Column("u", ColumnType(Kind.UUID)), keys=key
    )
    assert refined(found, None) is found
    assert refined(found, known) is known
    older = table(Column("n", ColumnType(Kind.INT)), Column("u", ColumnType(Kind.UUID)), keys=key)
    assert refined(found, older) == table(found.columns[0], Column("u", ColumnType(Kind.UUID)))


def test_a_script_is_cut_at_its_semicolons() -> None:
    script = "CREATE TABLE `a;b` (x INT DEFAULT ';'); -- no; \n/*!40101 SET NAMES utf8mb4 */;\n\nUSE b;DROP TABLE t"
    assert [part.strip() for part in split(script, MYSQL)] == [
        "CREATE TABLE `a;b` (x INT DEFAULT ';')",
        "-- no; \n/*!40101 SET NAMES utf8mb4 */",
        "USE b",
        "DROP TABLE t",
    ]
