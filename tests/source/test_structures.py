"""The structures of tables are read as real servers show them."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import pytest

from pidts.model import ColumnType, Key, Kind, PrecheckFailed, TableName
from pidts.schema import classify
from pidts.schema.computed import of_the_counter
from pidts.schema.dialect import Dialect
from pidts.source import connect, query, read_structure, read_structures, schema_charsets, server_info, structures
from pidts.source.structures import default_text, quoted, quoted_table, table_names

OF_ALL = """CREATE TABLE {}.t (
  id INT UNSIGNED NOT NULL AUTO_INCREMENT COMMENT 'the key',
  a VARCHAR(10) NOT NULL DEFAULT 'it''s \\\\ x', b VARCHAR(10) DEFAULT '', c VARCHAR(4) DEFAULT 'NULL', d INT DEFAULT 5,
  e DECIMAL(10,2) DEFAULT 1.50, f BIT(4) DEFAULT b'101', g DATETIME(3) DEFAULT CURRENT_TIMESTAMP(3),
  h TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP, i DATE DEFAULT '2020-01-02', j ENUM('a','b''c') DEFAULT 'b''c',
  k CHAR(3) CHARACTER SET latin1 DEFAULT 'e', l TEXT, m VARCHAR(9), n YEAR DEFAULT 2020, o DOUBLE,
  PRIMARY KEY (id), UNIQUE KEY uf (a), UNIQUE KEY up (a(3)), UNIQUE KEY un (m), KEY kd (d, e)
) COMMENT 'all sorts' DEFAULT CHARSET utf8mb4"""


def test_columns_keys_and_defaults(mysql_like, open_session, database):
    session = open_session(mysql_like)
    query(session, OF_ALL.format(database))
    table = read_structure(session, TableName(database, "t"))
    assert table is not None
    assert (table.charset, table.comment, table.identity) == ("utf8mb4", "all sorts", ("id",))
    assert {column.name: column.default for column in table.columns if column.default is not None} == {
        "a": "'it''s \\\\ x'",
        "b": "''",
        "c": "'NULL'",
        "d": "5",
        "e": "1.50",
        "f": "b'101'",
        "g": "current_timestamp(3)",
        "h": "current_timestamp",
        "i": "'2020-01-02'",
        "j": "'b''c'",
        "k": "'e'",
        "n": "2020",
    }
    assert [column.name for column in table.columns if not column.nullable] == ["id", "a", "h"]
    key = table.column("id")
    assert (key.auto_increment, key.type.unsigned, key.comment) == (True, True, "the key")
    assert table.column("j").type.labels == ("a", "b'c")
    assert table.column("k").type == ColumnType(Kind.CHAR, length=3, charset="latin1", collation="latin1_swedish_ci")


def test_a_unique_key_on_a_prefix_names_no_row(mysql_like, open_session, database):
    session = open_session(mysql_like)
    query(session, OF_ALL.format(database))
    table = read_structure(session, TableName(database, "t"))
    assert table is not None
    assert table.keys == (
        Key("PRIMARY", ("id",), unique=True, primary=True),
        Key("uf", ("a",), unique=True),
        Key("up", ("a",)),
        Key("un", ("m",), unique=True),
        Key("kd", ("d", "e")),
    )


def test_keys_have_the_same_attributes_from_the_catalog_and_from_the_statement(mysql_like, open_session, database):
    """Otherwise the order of keys would be unknown after a statement that drops a key and adds it again."""
    session = open_session(mysql_like)
    made = (
        f"CREATE TABLE {database}.t (a INT NOT NULL, b INT NOT NULL, UNIQUE u (a) COMMENT 'it''s \\\\ x', "
        "UNIQUE v USING BTREE (b), UNIQUE w (a, b) KEY_BLOCK_SIZE = 4, UNIQUE x (b, a) USING HASH)"
    )
    query(session, made)
    table = read_structure(session, TableName(database, "t"))
    assert table is not None
    dialect = Dialect.of(server_info(session).version)
    assert {key.name: key.options for key in table.keys} == {
        key.name: key.options for key in classify(made, database, dialect=dialect).structure.keys
    }
    assert (table.keys[1].options, table.keys[0].options) == (
        "USING BTREE",
        "" if mysql_like.kind == "mysql56" else "COMMENT it's \\ x",
    )


def test_the_first_unique_key_without_null_is_the_identity(mysql_like, open_session, database):
    session = open_session(mysql_like)
    query(
        session,
        f"CREATE TABLE {database}.t (a INT, b INT NOT NULL, c INT NOT NULL, UNIQUE z (a), UNIQUE y (c), UNIQUE x (b))",
    )
    table = read_structure(session, TableName(database, "t"))
    assert table is not None
    assert table.identity == ("c",)


@pytest.mark.parametrize("has_row", [True, False])
def test_a_default_of_bytes_is_known_in_full_or_not_at_all(mysql_like, open_session, database, has_row):
    session = open_session(mysql_like)
    with session.cursor() as cursor:
        cursor.execute(
            f"CREATE TABLE {database}.t (id INT PRIMARY KEY, `1` VARBINARY(9) NOT NULL DEFAULT X'FF0061',"
            f" b BINARY(2) DEFAULT 'b', c VARBINARY(9) NOT NULL, d VARBINARY(9))"
        )
        if has_row:
            cursor.execute(f"INSERT INTO {database}.t (id, c) VALUES (1, '')")
    (table,) = read_structures(session, lambda name: name.schema == database).values()
    known = "x'FF0061'" if has_row else "(bytes)"
    assert [column.default for column in table.columns[1:]] == [known, "x'6200'", None, None]


def test_generated_columns_and_expression_defaults(mysql97, open_session, database):
    session = open_session(mysql97)
    query(
        session,
        f"CREATE TABLE {database}.t (a INT PRIMARY KEY, b VARCHAR(36) DEFAULT (UUID()), c JSON DEFAULT (JSON_ARRAY('x')), "
        "d INT GENERATED ALWAYS AS (a + 1) VIRTUAL, e INT AS (a * 2) STORED, f INT INVISIBLE, UNIQUE KEY fx ((a + f)))",
    )
    table = read_structure(session, TableName(database, "t"))
    assert table is not None
    assert [column.generated for column in table.columns] == [False, False, False, True, True, False]
    assert table.column("b").default == "(uuid())"
    assert table.column("c").default == "(json_array(_utf8mb4'x'))"
    assert table.column("d").default is None
    assert table.keys == (Key("PRIMARY", ("a",), unique=True, primary=True),)


def test_mariadb_shows_generated_columns_and_expressions_too(mariadb, open_session, database):
    session = open_session(mariadb)
    query(
        session,
        f"CREATE TABLE {database}.t (a INT PRIMARY KEY, b VARCHAR(36) DEFAULT (UUID()), c JSON, "
        "d INT GENERATED ALWAYS AS (a + 1) VIRTUAL, e INT AS (a * 2) STORED, f TEXT DEFAULT 'x')",
    )
    table = read_structure(session, TableName(database, "t"))
    assert table is not None
    assert [column.generated for column in table.columns] == [False, False, False, True, True, False]
    assert [column.default for column in table.columns] == [None, "uuid()", None, None, None, "'x'"]
    assert table.column("c").type.kind is Kind.LONGTEXT


def test_a_column_that_is_computed_from_the_counter_is_known(mariadb, open_session, database):
    session = open_session(mariadb)
    query(
        session,
        f"CREATE TABLE {database}.t (id INT AUTO_INCREMENT PRIMARY KEY, `a` INT, "
        "code VARCHAR(20) AS (CONCAT('N', `id`)) VIRTUAL, other INT AS (a + 1) VIRTUAL)",
    )
    table = read_structure(session, TableName(database, "t"))
    assert table is not None
    assert of_the_counter(table) == {"code"}


def test_only_selected_tables_are_read_and_never_views_or_the_servers_own(mysql_like, open_session, database):
    session = open_session(mysql_like)
    for name in ("t1", "t2", "weird`name"):
        query(session, f"CREATE TABLE {database}.{quoted(name)} (a INT PRIMARY KEY)")
    query(session, f"CREATE VIEW {database}.v AS SELECT 1 AS a")
    asked = []

    def select(name: TableName) -> bool:
        asked.append(name.schema)
        return name.schema == database and name.name != "t2"

    assert [name.name for name in read_structures(session, select)] == ["t1", "weird`name"]
    assert not {"mysql", "information_schema", "performance_schema", "sys"} & set(asked)
    assert read_structure(session, TableName(database, "v")) is None


def test_names_that_differ_only_in_case_or_accents_are_tables_of_their_own(mysql_like, open_session, database):
    session = open_session(mysql_like)
    names = ["AB", "Ab", "ab", "e", "é"]
    for number, name in enumerate(names):
        query(session, f"CREATE TABLE {database}.{quoted(name)} (id INT PRIMARY KEY, c{number} INT)")

    def columns(*some: str) -> dict[str, list[str]]:
        found = read_structures(session, lambda name: name.schema == database and name.name in some)
        return {name.name: [column.name for column in table.columns] for name, table in found.items()}

    for some in (["ab", "AB"], ["Ab", "AB"], ["e", "é"], names):
        assert columns(*some) == {name: ["id", f"c{names.index(name)}"] for name in some}


_KEYS = ("", ", KEY v (v), UNIQUE KEY u (u), KEY a (a)", ", UNIQUE KEY p (t(3)), KEY vt (v, t(2))")


def test_many_tables_are_read_by_few_queries(mysql_like, open_session, database):
    """A task may have 20,000 tables; its start reads their structures while the source is in use."""
    session = open_session(mysql_like)
    columns = "v INT, u INT NOT NULL, a INT, t TEXT"
    for number in range(60):
        key = "PRIMARY KEY (id)" if number % 10 else "KEY plain (id)"
        more = _KEYS[number % 3] if number < 6 else ""
        query(session, f"CREATE TABLE {database}.t{number} (id INT NOT NULL, {columns}, {key}{more})")
    query(session, f"CREATE TABLE {database}.keyless (id INT)")

    def counted() -> tuple[int, int]:
        rows = dict(query(session, "SHOW SESSION STATUS WHERE variable_name IN ('Com_show_keys', 'Com_select')"))
        return int(rows["Com_show_keys"]), int(rows["Com_select"])

    before = counted()
    found = read_structures(session, lambda name: name.schema == database)
    alone, selects = (now - then for now, then in zip(counted(), before, strict=True))
    server = server_info(session)
    shows_order = server.is_mariadb or server.number < (8, 0, 0)
    assert alone == (1 if shows_order else 5), "a table without keys, or with several"
    assert selects <= 4
    dialect = Dialect.of(server.version)
    for name, table in found.items():
        shown = structures.named(session, f"SHOW INDEX FROM {quoted_table(name)}")
        keys = structures._with_options(session, name, list(structures._keys(shown, dialect)), dialect)
        assert list(map(repr, table.keys)) == list(map(repr, keys)), "in the same order, with all fields"
    assert table_names(session, lambda name: name.schema == database) == found.keys()


def test_a_table_that_is_altered_between_two_queries_has_keys_over_its_columns(mysql_like, open_session, database):
    session, name = open_session(mysql_like), TableName(database, "t")
    query(session, f"CREATE TABLE {database}.t (id INT PRIMARY KEY, v INT NOT NULL, UNIQUE KEY v (v))")
    server, about = server_info(session), {"table_collation": None, "table_comment": ""}
    keys = structures._keys_of_many(session, database, ["t"], server).get("t")
    query(session, f"ALTER TABLE {database}.t DROP PRIMARY KEY, CHANGE v w INT NOT NULL")
    columns = structures._columns(session, database, ["t"])["t"]
    table = structures._table(session, name, about, columns, keys, Dialect.of(server.version))
    assert table.identity == ("w",)


def test_a_table_whose_columns_the_account_may_not_see_is_no_table_without_columns(
    mysql_like, open_session, config_of, database
):
    session = open_session(mysql_like)
    for name in ("seen", "unseen"):
        query(session, f"CREATE TABLE {database}.{name} (id INT PRIMARY KEY)")
    user = "narrow"
    # MySQL 5.6 has an account without a name for localhost, which has priority over `narrow@'%'`.
    host = "localhost" if mysql_like.kind == "mysql56" else "%"
    query(session, f"CREATE USER {user}@'{host}' IDENTIFIED BY 'x'")
    try:
        query(session, f"GRANT SELECT ON {database}.seen TO {user}@'{host}'")
        query(session, f"GRANT DELETE ON {database}.unseen TO {user}@'{host}'")
        with closing(connect(replace(config_of(mysql_like), user=user, password="x"))) as narrow:
            hidden: dict[TableName, str] = {}
            found = read_structures(narrow, lambda name: name.schema == database, hidden)
            assert all(table.arrow.names == ["id"] for table in found.values())
            assert {*found, *hidden} == {TableName(database, "seen"), TableName(database, "unseen")}
            assert read_structure(narrow, TableName(database, "none")) is None
            if mysql_like.kind == "mysql56":  # MySQL 5.6 shows the columns to an account with DELETE.
                return
            assert set(hidden) == {TableName(database, "unseen")}
            with pytest.raises(PrecheckFailed, match="hides its columns") as caught:
                read_structure(narrow, TableName(database, "unseen"))
            assert (caught.value.code, caught.value.where.table) == ("missing-privilege", f"{database}.unseen")
            assert f"GRANT SELECT ON `{database}`.`unseen` TO '{user}'@'{host}'." in caught.value.todo
    finally:
        query(session, f"DROP USER {user}@'{host}'")


def test_schemas_have_charsets(mysql_like, open_session, database):
    session = open_session(mysql_like)
    query(session, f"ALTER DATABASE {database} CHARACTER SET latin1 COLLATE latin1_german1_ci")
    found = schema_charsets(session)
    assert found[database] == ("latin1", "latin1_german1_ci")
    assert "mysql" not in found


@pytest.mark.parametrize(
    ("default", "kind", "extra", "mariadb", "expected"),
    [
        ("CURRENT_TIMESTAMP(6)", Kind.TIMESTAMP, "DEFAULT_GENERATED", False, "current_timestamp(6)"),
        ("current_timestamp()", Kind.DATETIME, "", True, "current_timestamp"),
        ("CURRENT_TIMESTAMP", Kind.VARCHAR, "", False, "'CURRENT_TIMESTAMP'"),
        ("NULL", Kind.INT, "", True, None),
        ("concat(_utf8mb4\\'a\\\\\\'b\\')", Kind.VARCHAR, "DEFAULT_GENERATED", False, "(concat(_utf8mb4'a\\'b'))"),
        ("-1.5", Kind.FLOAT, "", False, "-1.5"),
        ("0x61", Kind.BINARY, "", False, "(bytes)"),
    ],
)
def test_defaults_become_sql(default, kind, extra, mariadb, expected):
    dialect = Dialect(mariadb=mariadb, version=(10, 11, 6) if mariadb else (9, 7, 0))
    assert default_text(default, ColumnType(kind), extra, dialect) == expected
