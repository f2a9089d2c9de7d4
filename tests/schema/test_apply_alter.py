"""The structures of tables after a statement are computed without a server."""

from __future__ import annotations

import pytest

from pidts.model import Column, ColumnType, Halted, Key, Kind, Table, TableName
from pidts.schema import Dialect, apply, apply_charset, classify

A, B, C = (TableName("d", name) for name in "abc")
LATIN = {"d": ("latin1", "latin1_swedish_ci")}


def after(sql, structures=None, charsets=None, dialect=None):
    dialect = dialect or Dialect()
    return apply(classify(sql, "d", dialect=dialect), structures or {}, charsets or {}, dialect=dialect)


def table(definition, name="a", charsets=None, dialect=None):
    return after(f"CREATE TABLE {name} {definition}", charsets=charsets, dialect=dialect)[TableName("d", name)]


def altered(definition, clauses, charsets=None):
    return after(f"ALTER TABLE a {clauses}", {A: table(definition, charsets=charsets)}, charsets)[A]


def names(table):
    return [column.name for column in table.columns]


def keys(table):
    return {key.name: key.columns for key in table.keys}


def test_a_created_table_is_whole() -> None:
    made = table(
        "(id int unsigned, name varchar(20) NOT NULL DEFAULT 'x' COMMENT 'who', PRIMARY KEY (ID)) COMMENT='people'"
    )
    assert made == Table(
        A,
        (
            Column("id", ColumnType(Kind.INT, unsigned=True), nullable=False),
            Column(
                "name",
                ColumnType(Kind.VARCHAR, length=20, charset="utf8mb4", collation="utf8mb4_0900_ai_ci"),
                nullable=False,
                default="'x'",
                comment="who",
            ),
        ),
        (Key("PRIMARY", ("id",), unique=True, primary=True),),
        "utf8mb4",
        "utf8mb4_0900_ai_ci",
        "people",
    )


def test_charsets_come_down_from_server_database_and_table() -> None:
    def charset(definition, charsets=None, dialect=None):
        [column] = table(definition, charsets=charsets, dialect=dialect).columns
        return column.type.collation

    assert charset("(x text)", dialect=Dialect(charset="latin2")) == "latin2_general_ci"
    assert charset("(x text)", LATIN, Dialect(charset="latin2")) == "latin1_swedish_ci"
    assert charset("(x text) CHARSET=utf8", LATIN) == "utf8mb3_general_ci"
    assert charset("(x text COLLATE gbk_bin) CHARSET=utf8", LATIN) == "gbk_bin"
    assert charset("(x varchar(3) BINARY) CHARSET=utf8", LATIN) == "utf8mb3_bin"
    assert charset("(x text) CHARSET=utf8mb4", dialect=Dialect.of("11.8.1-MariaDB")) == "utf8mb4_uca1400_ai_ci"
    assert charset("(x text COLLATE uca1400_as_cs) CHARSET=utf8mb4", dialect=Dialect.of("10.11.6-MariaDB")) == (
        "utf8mb4_uca1400_as_cs"
    )
    assert charset("(x text) CHARSET=utf8mb4", dialect=Dialect.of("5.7.44")) == "utf8mb4_general_ci"


def test_a_charset_named_alone_has_its_own_collation() -> None:
    binary = {"d": ("utf8mb4", "utf8mb4_bin")}
    assert table("(x text)", charsets=binary).collation == "utf8mb4_bin"
    for option in ("CHARSET=utf8mb4", "COLLATE=utf8mb4_0900_ai_ci"):
        made = table(f"(x text) {option}", charsets=binary)
        assert made.collation == made.columns[0].type.collation == "utf8mb4_0900_ai_ci"
    for charset in ("x text CHARSET utf8mb4", "x text CHARACTER SET 'utf8mb4'"):
        [column] = table(f"({charset})", charsets=binary).columns
        assert column.type.collation == "utf8mb4_0900_ai_ci"


def test_text_types_grow_with_their_charset() -> None:
    def kind(definition, clauses="FORCE", charsets=LATIN):
        made = table(definition, charsets=charsets)
        return after(f"ALTER TABLE a {clauses}", {A: made}, charsets).get(A, made).columns[0].type.kind

    assert kind("(x text(100))") is Kind.TINYTEXT
    assert kind("(x text(100)) CHARSET=utf8") is Kind.TEXT
    assert kind("(x blob(70000))") is Kind.MEDIUMBLOB
    assert kind("(x text)", "CONVERT TO CHARSET utf8") is Kind.MEDIUMTEXT
    assert kind("(x text)", "CONVERT TO CHARSET latin2") is Kind.TEXT
    assert kind("(x text)", "CONVERT TO CHARSET binary") is Kind.BLOB
    assert kind("(x char(3)) CHARSET=binary") is Kind.BINARY
    assert kind("(x varchar(30000)) CHARSET=utf8mb4") is Kind.MEDIUMTEXT
    assert kind("(x varchar(30000))") is Kind.VARCHAR


def test_clauses_of_one_statement_name_the_old_names() -> None:
    two = "(a int, b text, KEY ka (a), UNIQUE kb (b(5), a))"
    swapped = altered(two, "CHANGE a b int, CHANGE b a text")
    assert names(swapped) == ["b", "a"]
    assert keys(swapped) == {"ka": ("b",), "kb": ("a", "b")}
    assert keys(altered(two, "RENAME COLUMN a TO x, DROP KEY kb, ADD KEY kb (x)")) == {"ka": ("x",), "kb": ("x",)}
    assert names(altered(two, "DROP b, ADD b date FIRST")) == ["b", "a"]


def test_columns_move_where_the_statement_says() -> None:
    four = "(a int, b int, c int, d int)"
    assert names(altered(four, "ADD x int AFTER b, ADD y int AFTER x, ADD z int FIRST")) == list("zabxycd")
    assert names(altered(four, "MODIFY d int FIRST, CHANGE a e int AFTER c")) == list("dbce")
    assert names(altered(four, "MODIFY b int AFTER c, MODIFY a int AFTER b")) == list("cbad")
    assert names(altered(four, "ADD (x int, y int), DROP a")) == list("bcdxy")


def test_a_dropped_column_leaves_its_keys() -> None:
    assert keys(altered("(a int, b int, KEY ab (a, b), KEY one (b))", "DROP b")) == {"ab": ("a",)}


def test_a_column_dropped_and_added_at_once_stays_in_its_keys() -> None:
    assert keys(altered("(a int, b int, KEY ab (a, b))", "DROP b, ADD b int")) == {"ab": ("a", "b")}


def test_a_primary_key_takes_no_null_and_leaves_none_behind() -> None:
    made = altered("(a int, b int)", "ADD PRIMARY KEY (b)")
    assert [column.nullable for column in made.columns] == [True, False]
    gone = after("ALTER TABLE a DROP PRIMARY KEY", {A: made})[A]
    assert [column.nullable for column in gone.columns] == [True, False]
    assert gone.keys == ()
    assert not altered("(a int PRIMARY KEY)", "MODIFY a bigint NULL").columns[0].nullable


def test_a_definition_says_everything_anew() -> None:
    made = altered("(a int NOT NULL AUTO_INCREMENT UNIQUE COMMENT 'x')", "MODIFY a bigint")
    assert made.columns == (Column("a", ColumnType(Kind.BIGINT)),)
    assert keys(made) == {"a": ("a",)}


def test_keys_get_the_names_that_servers_give() -> None:
    assert keys(table("(Abc int, b int, KEY (ABC), KEY (abc, b), UNIQUE (aBC))")) == {
        "Abc": ("Abc",),
        "Abc_2": ("Abc", "b"),
        "Abc_3": ("Abc",),
    }
    assert set(keys(altered("(a int, KEY (a))", "ADD KEY (a), ADD KEY a_4 (a), ADD KEY (a)"))) == {
        "a",
        "a_2",
        "a_4",
        "a_3",
    }


def test_foreign_keys_bring_a_key_unless_there_is_one() -> None:
    reference = "FOREIGN KEY (x) REFERENCES b (x)"
    assert keys(table(f"(x int, y int, {reference})")) == {"x": ("x",)}
    assert keys(table(f"(x int, y int, CONSTRAINT f {reference})")) == {"f": ("x",)}
    assert keys(table(f"(x int, y int, {reference}, KEY xy (x, y))")) == {"xy": ("x", "y")}
    assert keys(table(f"(x int, y int, CONSTRAINT f {reference}, CONSTRAINT g {reference})")) == {"g": ("x",)}
    assert keys(table(f"(x int PRIMARY KEY, {reference})")) == {"PRIMARY": ("x",)}
    assert keys(table("(x int REFERENCES b (x))", dialect=Dialect.of("8.4.0"))) == {}
    assert keys(table("(x int REFERENCES b (x))", dialect=Dialect.of("9.0.1"))) == {"x": ("x",)}


def test_a_key_over_prefixes_is_not_unique_over_the_columns() -> None:
    made = table("(t text, v varchar(9), UNIQUE p (v(5)), UNIQUE w (v(9)), PRIMARY KEY (t(20)), UNIQUE f ((upper(v))))")
    assert {key.name: key.unique for key in made.keys} == {"PRIMARY": True, "w": True, "p": False}


def test_a_bare_timestamp_depends_on_the_server() -> None:
    old = table("(a timestamp, b timestamp(3), c timestamp NULL, d timestamp DEFAULT 0)", dialect=Dialect.of("5.6.24"))
    assert [(column.nullable, column.default) for column in old.columns] == [
        (False, "current_timestamp"),
        (False, "'0000-00-00 00:00:00.000'"),
        (True, None),
        (False, "'0000-00-00 00:00:00'"),
    ]
    [new] = table("(a timestamp)").columns
    assert (new.nullable, new.default) == (True, None)


@pytest.mark.parametrize(
    ("clause", "default"),
    [
        ("DEFAULT NULL", None),
        ("DEFAULT TRUE", "1"),
        ("DEFAULT - 3", "-3"),
        ("DEFAULT 'it''s' \" ok\"", "'it''s ok'"),
        ("DEFAULT now(6) ON UPDATE now(6)", "current_timestamp(6)"),
        ("DEFAULT CURRENT_TIMESTAMP()", "current_timestamp"),
        ("DEFAULT x'41'", "65"),
        ("DEFAULT _utf8mb4'x'", "_utf8mb4'x'"),
        ("DEFAULT ('x')", "'x'"),
        ("DEFAULT (a + ')' )", "(a + ')' )"),
        ("DEFAULT curdate()", "curdate()"),
        ("DEFAULT NEXT VALUE FOR s", "NEXT VALUE FOR s"),
    ],
)
def test_defaults_have_one_spelling(clause, default) -> None:
    [column] = table(f"(a int {clause} NOT NULL)").columns
    assert column.default == default


def test_tables_swap_over_a_third_name() -> None:
    one, two = table("(x int)", "a"), table("(y int)", "b")
    changed = after("RENAME TABLE a TO t, b TO a, t TO b", {A: one, B: two})
    assert changed == {A: two.renamed(A), B: one.renamed(B)}


def test_a_name_that_has_become_free_in_the_statement_is_taken_again() -> None:
    one, two = table("(x int)", "a"), table("(y int)", "b")
    x = TableName("d", "x")
    assert after("RENAME TABLE a TO x, b TO a, a TO c", {A: one, B: two}) == {
        A: None,
        B: None,
        x: one.renamed(x),
        C: two.renamed(C),
    }


def test_names_may_say_their_table_and_database() -> None:
    made = table("(a.x int, d.a.y int, .a.z int, PRIMARY KEY (x))")
    assert names(made) == ["x", "y", "z"]
    made = altered("(x int, y int, z int)", "DROP a.x, MODIFY a.y bigint, CHANGE a.z a.w int, ORDER BY a.y, a.w DESC")
    assert names(made) == ["y", "w"]
    assert altered("(x int, y int)", "ALTER a.x SET DEFAULT 3, ADD a.v int AFTER a.x").columns[0].default == "3"


def test_a_name_may_begin_with_a_digit() -> None:
    made = table("(1a int, 12b int, 1e int, 2ea int, 0xg int, 0X1 int, 1_2 int, 99bottles int, KEY 7k (12b))")
    assert names(made) == ["1a", "12b", "1e", "2ea", "0xg", "0X1", "1_2", "99bottles"]
    assert keys(made) == {"7k": ("12b",)}
    assert altered("(12ab int, x int)", "DROP 12ab, ADD 3f double DEFAULT 1e3").columns[1].default == "1000"


def test_types_in_rare_spellings() -> None:
    def kind(text, dialect=None):
        return table(f"(x {text})", dialect=dialect).columns[0].type

    assert kind("SQL_TSI_YEAR") == kind("sql_tsi_year(4)") == ColumnType(Kind.YEAR)
    assert kind("decimal(19.5)") == ColumnType(Kind.DECIMAL, precision=19, scale=0)
    assert kind("varchar(10.7)").length == 10
    assert kind("int(5) COLLATE latin1_bin") == ColumnType(Kind.INT, length=5)
    assert kind("datetime(3) COLLATE utf8_bin") == ColumnType(Kind.DATETIME, fsp=3)
    mariadb = Dialect.of("10.11.6-MariaDB")
    assert kind("geometry(9,4) REF_SYSTEM_ID=101", mariadb) == ColumnType(Kind.GEOMETRY)
    assert kind("varchar(21845) CHARSET utf8", mariadb).kind is Kind.TEXT


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("enum(0xC3A4, x'42', b'01000011', 'd') CHARSET utf8", ("ä", "B", "C", "d")),
        ("enum(0xE49D) CHARSET latin1", ("ä\x9d",)),
        ("set(0x4142) CHARSET ucs2", ("䅂",)),
        ("enum(0x6120) CHARSET latin2", ("a",)),
        ("enum(0x41FF42)", ("A",)),
    ],
)
def test_labels_may_be_written_as_bytes(text, labels) -> None:
    assert table(f"(x {text})").columns[0].type.labels == labels
    if labels == ("A",):
        assert table(f"(x {text})", dialect=Dialect.of("10.11.6-MariaDB")).columns[0].type.labels == ("A?B",)


def test_convert_and_default_in_one_statement() -> None:
    definition = "(v varchar(9)) CHARSET=utf8"
    clauses = "DEFAULT CHARSET latin1, CONVERT TO CHARSET latin1 COLLATE latin1_bin, ADD w char(1) binary"
    for dialect, collation in ((Dialect(), "latin1_bin"), (Dialect.of("10.11.6-MariaDB"), "latin1_swedish_ci")):
        made = after(f"ALTER TABLE a {clauses}", {A: table(definition, dialect=dialect)}, dialect=dialect)[A]
        assert made.collation == collation
        assert [column.type.collation for column in made.columns] == ["latin1_bin", "latin1_bin"]
    made = altered(definition, "CONVERT TO CHARSET latin1, ADD w char(1) binary, ADD x char(1) CHARSET utf8 binary")
    assert [column.type.collation for column in made.columns] == [
        "latin1_swedish_ci",
        "latin1_bin",
        "latin1_swedish_ci",
    ]


def test_an_old_server_forgets_a_convert_that_rewrites_nothing() -> None:
    old = Dialect.of("5.6.24")
    made = {A: table("(x int) CHARSET=latin1", dialect=old)}
    assert after("ALTER TABLE a CONVERT TO CHARSET utf8", made, dialect=old)[A].charset == "latin1"
    assert after("ALTER TABLE a CONVERT TO CHARSET utf8, ADD y int", made, dialect=old)[A].charset == "utf8mb3"
    assert after("ALTER TABLE a CONVERT TO CHARSET utf8", made)[A].charset == "utf8mb3"


def test_labels_in_charset_binary_are_not_converted() -> None:
    made = altered("(e enum('x') CHARSET binary, t text)", "CONVERT TO CHARSET latin1")
    assert [column.type.charset for column in made.columns] == ["binary", "latin1"]


def test_a_renamed_table_has_no_entry_under_its_old_name() -> None:
    made = table("(x int)")
    other = TableName("e", "q")
    assert after("RENAME TABLE a TO e.q", {A: made}) == {A: None, other: made.renamed(other)}
    changed = after("ALTER TABLE a RENAME b, ADD y int", {A: made})
    assert changed[A] is None
    assert names(changed[B]) == ["x", "y"]


def test_dropping_and_creating() -> None:
    made = {A: table("(x int)", "a"), B: table("(y int)", "b")}
    assert after("DROP TABLE a, c", made) == {A: None}
    assert after("DROP DATABASE d", made) == {A: None, B: None}
    assert after("DROP DATABASE e", made) == {}
    assert after("CREATE TABLE c LIKE a", made) == {C: made[A].renamed(C)}
    assert after("CREATE TABLE IF NOT EXISTS a (z int)", made) == {}
    assert after("TRUNCATE a", made) == {}
    assert after("ALTER TABLE a ENGINE=InnoDB", made) == {A: made[A]}
    replaced = after("CREATE OR REPLACE TABLE a (z int)", made, dialect=Dialect.of("10.11.6-MariaDB"))
    assert names(replaced[A]) == ["z"]


@pytest.mark.parametrize(
    "sql",
    [
        "ALTER TABLE c ADD x int",
        "ALTER TABLE a ADD X int",
        "ALTER TABLE a DROP y",
        "ALTER TABLE a MODIFY y int",
        "ALTER TABLE a ADD y int AFTER z",
        "ALTER TABLE a ADD KEY (y)",
        "ALTER TABLE a ADD UNIQUE u (x), ADD KEY u (x)",
        "CREATE TABLE a (x int)",
        "CREATE TABLE b LIKE c",
        "RENAME TABLE c TO b",
    ],
)
def test_a_statement_that_cannot_have_run_halts(sql) -> None:
    with pytest.raises(Halted) as error:
        after(sql, {A: table("(x int)")})
    assert error.value.code == "ddl-does-not-fit"


def test_a_dropped_key_needs_not_be_known() -> None:
    made = table("(x int)")
    assert after("ALTER TABLE a DROP KEY over_an_expression", {A: made}) == {A: made}


def test_clauses_that_are_not_understood_halt() -> None:
    with pytest.raises(Halted) as error:
        after("CREATE TABLE a SELECT 1", {})
    assert error.value.code == "ddl-not-understood"
    with pytest.raises(Halted) as error:
        after("INSERT INTO a VALUES (1)", {})
    assert error.value.code == "statement-format"


def test_databases_keep_their_charsets() -> None:
    def charsets(sql):
        return apply_charset(classify(sql, "d"), LATIN)

    assert charsets("CREATE DATABASE e") == {"e": ("utf8mb4", "utf8mb4_0900_ai_ci")}
    assert charsets("CREATE DATABASE e COLLATE utf8_bin") == {"e": ("utf8mb3", "utf8mb3_bin")}
    assert charsets("CREATE DATABASE IF NOT EXISTS d CHARSET gbk") == {}
    assert charsets("ALTER DATABASE CHARSET gbk") == {"d": ("gbk", "gbk_chinese_ci")}
    assert charsets("ALTER DATABASE d READ ONLY = 1") == {"d": LATIN["d"]}
    assert charsets("DROP DATABASE d") == {"d": None}
    assert charsets("DROP TABLE d") == {}


@pytest.mark.parametrize(
    ("clause", "default"),
    [
        ("varchar(9) CHARSET utf8mb4 DEFAULT x'C3A927'", "'é'''"),
        ("varchar(9) CHARSET utf8mb4 DEFAULT x'E9'", "x'E9'"),
        ("varchar(9) CHARSET latin1 DEFAULT x'C3A9'", "'Ã©'"),
        ("varchar(9) CHARSET koi8r DEFAULT x'C3A9'", "x'C3A9'"),
        ("varbinary(9) DEFAULT x'C3A9'", "x'C3A9'"),
        ("int DEFAULT x'41'", "65"),
    ],
)
def test_a_default_in_bytes_is_text_where_the_columns_charset_shows_it(clause: str, default: str) -> None:
    assert table(f"(a {clause})").columns[0].default == default


def test_a_default_in_bytes_does_not_change_its_charset_unseen() -> None:
    definition = "(a varchar(9) DEFAULT x'C3A9') CHARSET koi8r"
    with pytest.raises(Halted) as caught:
        altered(definition, "CONVERT TO CHARACTER SET utf8mb4")
    assert caught.value.code == "ddl-not-understood"
    assert altered(definition, "CONVERT TO CHARACTER SET koi8r").columns[0].default == "x'C3A9'"


def test_a_column_that_a_statement_adds_and_then_changes_in_a_way_that_is_not_followed_halts() -> None:
    mariadb, before = Dialect(mariadb=True, version=(10, 11, 6)), {A: table("(a int)")}
    for clauses in ("ADD IF NOT EXISTS e int, MODIFY e bigint", "ADD e int, ADD f int AFTER e, MODIFY e bigint"):
        with pytest.raises(Halted, match="adds column e, and then changes it") as caught:
            after(f"ALTER TABLE a {clauses}", before, dialect=mariadb)
        assert "pidts ddl replace" in caught.value.todo
