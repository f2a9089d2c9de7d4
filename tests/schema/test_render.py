"""The SQL that is written for MySQL and MariaDB has the same meaning as the statement that it was made from."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from pidts.model import Column, ColumnType, Halted, Key, Kind, Table, TableName
from pidts.schema import (
    AlterTable,
    Dialect,
    apply,
    classify,
    column_clause,
    create_table,
    quote,
    render_statement,
    retargeted,
)
from pidts.schema.altered_keys import in_order
from pidts.schema.stored_default import stored_default

A = TableName("d", "a")
MARIADB = Dialect.of("10.11.6-MariaDB")
words = st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]), min_size=1, max_size=9)
names = words.map(lambda word: word.strip() or "x")
CHARSETS = [
    ("utf8mb4", "utf8mb4_bin"),
    ("latin1", "latin1_swedish_ci"),
    ("gbk", "gbk_chinese_ci"),
    ("utf8mb3", "utf8mb3_bin"),
]


@st.composite
def types(draw) -> ColumnType:
    kind = draw(st.sampled_from(list(Kind)))
    base = ColumnType(kind)
    if base.is_integer:
        return replace(base, unsigned=draw(st.booleans()), length=draw(st.none() | st.integers(1, 20)))
    if kind is Kind.DECIMAL:
        precision = draw(st.integers(1, 65))
        return replace(
            base, precision=precision, scale=draw(st.integers(0, min(30, precision))), unsigned=draw(st.booleans())
        )
    if kind in (Kind.FLOAT, Kind.DOUBLE):
        precision, scale = draw(st.sampled_from([(None, None), (10, 4)]))
        return replace(base, precision=precision, scale=scale, unsigned=draw(st.booleans()))
    if kind in (Kind.TIME, Kind.DATETIME, Kind.TIMESTAMP):
        return replace(base, fsp=draw(st.integers(0, 6)))
    if kind is Kind.VECTOR or kind is Kind.BIT:
        return replace(base, length=draw(st.integers(1, 64)))
    if kind in (Kind.BINARY, Kind.VARBINARY):
        return replace(base, length=draw(st.integers(1, 255)))
    if base.is_text:
        charset, collation = draw(st.sampled_from(CHARSETS))
        base = replace(base, charset=charset, collation=collation)
        if kind in (Kind.CHAR, Kind.VARCHAR):
            return replace(base, length=draw(st.integers(1, 255)))
        if kind in (Kind.ENUM, Kind.SET):
            labels = st.lists(words.map(lambda word: word.rstrip(" ")), min_size=1, max_size=3)
            return replace(base, labels=tuple(draw(labels)))
    return base


DEFAULTS = [None, "'x'", "'it''s \\\\ \"'", "-3", "0.5", "current_timestamp(3)", "(uuid())", "b'101'"]


@st.composite
def tables(draw) -> Table:
    column_names = draw(st.lists(names, min_size=1, max_size=5, unique_by=str.lower))
    columns = [
        Column(
            name,
            draw(types()),
            nullable=draw(st.booleans()),
            default=draw(st.sampled_from(DEFAULTS)),
            comment=draw(words | st.just("")),
        )
        for name in column_names
    ]
    keyable = [
        column.name for column in columns if column.type.is_integer or column.type.kind in (Kind.DATE, Kind.CHAR)
    ]
    keys = []
    if keyable and draw(st.booleans()):
        keys.append(Key("PRIMARY", (keyable[0],), unique=True, primary=True))
        auto = draw(st.booleans())
        columns = [
            replace(column, nullable=False, auto_increment=auto) if column.name == keyable[0] else column
            for column in columns
        ]
    if keyable:
        key_names = draw(
            st.lists(names.filter(lambda name: name.upper() != "PRIMARY"), max_size=2, unique_by=str.lower)
        )
        keys += [Key(name, tuple(keyable), unique=draw(st.booleans())) for name in key_names]
    charset, collation = draw(st.sampled_from(CHARSETS))
    return Table(
        TableName(draw(names), draw(names)),
        tuple(columns),
        in_order(keys, {column.name.lower(): column for column in columns}),
        charset,
        collation,
        draw(words | st.just("")),
    )


@settings(max_examples=examples(60), deadline=None)
@given(tables())
def test_a_written_table_reads_as_itself(table) -> None:
    dialect = Dialect() if not {Kind.UUID, Kind.INET4, Kind.INET6} & kinds(table) else replace(Dialect(), mariadb=True)
    if dialect.mariadb and Kind.JSON in kinds(table):
        return  # MariaDB's JSON is a text
    statement = classify(create_table(table), "", dialect=dialect)
    columns = tuple(
        replace(column, default=stored_default(column.default, column.type) or column.default)
        for column in table.columns
    )
    assert apply(statement, {}, {}, dialect=dialect) == {table.name: replace(table, columns=columns)}


def kinds(table):
    return {column.type.kind for column in table.columns}


@given(words)
def test_a_quoted_name_is_one_name(name) -> None:
    statement = classify(f"DROP TABLE {quote(name)}.{quote(name)}", "d")
    assert statement.tables == (TableName(name, name),)


def made(definition, dialect=MARIADB):
    return apply(classify(f"CREATE TABLE a {definition}", "d", dialect=dialect), {}, {}, dialect=dialect)[A]


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE TABLE `d`.`a` (\n  `x` int NULL,\n  UNIQUE KEY `k` (`x`)\n)",
        "CREATE OR REPLACE TABLE `d`.`a` (\n  `x` int NOT NULL,\n  PRIMARY KEY (`x`)\n)",
        "CREATE TABLE IF NOT EXISTS `d`.`a` LIKE `d`.`b`",
        "DROP TABLE IF EXISTS `d`.`a`, `d`.`b`",
        "TRUNCATE TABLE `d`.`a`",
        "RENAME TABLE `d`.`a` TO `d`.`b`, `d`.`c` TO `e`.`c`",
        "RENAME TABLE IF EXISTS `d`.`a` TO `d`.`b`",
        "CREATE DATABASE IF NOT EXISTS `e` CHARACTER SET utf8mb3 COLLATE utf8mb3_bin",
        "ALTER DATABASE `e` COLLATE latin1_bin",
        "DROP DATABASE IF EXISTS `e`",
        "ALTER TABLE `d`.`a` ADD COLUMN IF NOT EXISTS `y` varchar(9) CHARACTER SET latin1 NOT NULL DEFAULT 'q' AFTER `x`",
        "ALTER TABLE `d`.`a` DROP COLUMN IF EXISTS `x`, RENAME COLUMN `y` TO `z`, ADD KEY (`u`(3), `v`)",
        "ALTER TABLE `d`.`a` MODIFY COLUMN `x` bigint unsigned NULL FIRST, CHANGE COLUMN `y` `z` date NULL",
        "ALTER TABLE `d`.`a` ALTER COLUMN `x` SET DEFAULT 3, ALTER COLUMN `y` DROP DEFAULT, COMMENT = 'it''s'",
        "ALTER TABLE `d`.`a` DROP PRIMARY KEY, DROP KEY `k`, RENAME KEY `l` TO `m`, ADD UNIQUE KEY `n` (`x`)",
        "ALTER TABLE `d`.`a` CONVERT TO CHARACTER SET gbk COLLATE gbk_bin, RENAME TO `d`.`b`",
        "ALTER TABLE `d`.`a` DEFAULT CHARACTER SET gbk",
    ],
)
def test_a_statement_is_written_as_it_was_read(sql) -> None:
    assert render_statement(classify(sql, "d", dialect=MARIADB)) == sql


def test_clauses_that_change_no_structure_are_left_out() -> None:
    for clauses in (
        "ENGINE = InnoDB",
        "ADD FOREIGN KEY (x) REFERENCES b (x), DROP FOREIGN KEY f",
        "REMOVE PARTITIONING",
    ):
        before = made("(x int, KEY (x))")
        statement = classify(f"ALTER TABLE a {clauses}", "d")
        assert render_statement(statement, before, before) == ""
    assert render_statement(classify("FLUSH TABLES", "d")) == ""


def test_rows_that_move_without_the_log_halt() -> None:
    with pytest.raises(Halted) as error:
        render_statement(classify("ALTER TABLE a TRUNCATE PARTITION p", "d"))
    assert error.value.code == "ddl-moves-rows"


def test_known_structures_decide_conditions() -> None:
    before = made("(x int, UNIQUE k (x), KEY f (x))")
    sql = (
        "ALTER TABLE a ADD COLUMN IF NOT EXISTS x int, ADD COLUMN IF NOT EXISTS y int, DROP COLUMN IF EXISTS z,"
        " DROP KEY IF EXISTS q, DROP CONSTRAINT k, DROP CONSTRAINT f, RENAME COLUMN x TO w"
    )
    statement = classify(sql, "d", dialect=MARIADB)
    after = apply(statement, {A: before}, {}, dialect=MARIADB)[A]
    assert render_statement(statement, before, after) == (
        "ALTER TABLE `d`.`a` ADD COLUMN `y` int NULL, DROP KEY `k`, CHANGE COLUMN `x` `w` int NULL"
    )


def test_a_unique_prefix_is_dropped_where_the_source_drops_its_constraint() -> None:
    """The target has had the unique key since `ADD UNIQUE`. With it, the target would still refuse rows, or write one
    over another.
    """
    before = made("(x varchar(9), UNIQUE k (x(3)))")
    statement = classify("ALTER TABLE a DROP CONSTRAINT k", "d", dialect=MARIADB)
    after = apply(statement, {A: before}, {}, dialect=MARIADB)[A]
    assert render_statement(statement, before, after) == "ALTER TABLE `d`.`a` DROP KEY `k`"


def test_columns_are_written_with_what_they_inherit() -> None:
    before = made("(x int) CHARSET=latin1")
    statement = classify("ALTER TABLE a ADD y text(100)", "d")
    after = apply(statement, {A: before}, {})[A]
    assert render_statement(statement, before, after) == (
        "ALTER TABLE `d`.`a` ADD COLUMN `y` tinytext CHARACTER SET latin1 COLLATE latin1_swedish_ci NULL"
    )


def test_a_statement_moves_to_other_names() -> None:
    def name_of(name):
        return TableName("t", name.name.upper())

    moved = retargeted(classify("ALTER TABLE a ADD x int, RENAME TO b", "d"), name_of)
    assert isinstance(moved, AlterTable)
    assert moved.tables == (TableName("t", "A"), TableName("t", "B"))
    texts = ["CREATE TABLE a (x int)", "CREATE TABLE a LIKE b", "DROP TABLE a, b", "TRUNCATE a", "RENAME TABLE a TO b"]
    for text in texts:
        statement = classify(text, "d")
        assert retargeted(statement, name_of).tables == tuple(map(name_of, statement.tables))


def test_collations_that_the_server_does_not_know_are_left_to_it() -> None:
    [column] = made("(x char(3) COLLATE latin1_bin)").columns
    assert column_clause(column, {"latin1_bin"}) == "`x` char(3) CHARACTER SET latin1 COLLATE latin1_bin NULL"
    assert column_clause(column, set()) == "`x` char(3) CHARACTER SET latin1 NULL"


def test_keys_over_long_columns_take_the_longest_prefix() -> None:
    def keys(definition):
        return [line.strip(" ,") for line in create_table(made(definition)).splitlines() if "KEY" in line]

    assert keys("(x text, KEY k (x(5))) CHARSET=utf8mb4") == ["KEY `k` (`x`(768))"]
    assert keys("(x tinyblob, PRIMARY KEY (x(5)))") == ["PRIMARY KEY (`x`(255))"]
    assert keys("(x varchar(2000), y int, KEY k (x, y)) CHARSET=latin1") == ["KEY `k` (`x`(1536), `y`)"]
    assert keys("(x text, UNIQUE k (x)) CHARSET=latin1") == ["KEY `k` (`x`(3072))"]
    assert keys("(g point NOT NULL, SPATIAL KEY k (g))") == []


def test_defaults_that_are_no_literals_are_in_parentheses() -> None:
    definition = (
        "(a text DEFAULT 'x', b date DEFAULT curdate(), c datetime DEFAULT now(), d int AS (1), e int DEFAULT (1 + 1))"
    )
    written = [column_clause(column) for column in made(definition).columns]
    assert [text.partition("NULL")[2].strip() for text in written] == [
        "DEFAULT ('x')",
        "DEFAULT (curdate())",
        "DEFAULT current_timestamp",
        "",
        "DEFAULT (1 + 1)",
    ]


def test_a_default_is_set_to_the_value_that_the_source_stores() -> None:
    dialect = MARIADB.under(0, "+02:00")
    before = made("(m TIMESTAMP NULL, y YEAR)")
    sql = "ALTER TABLE d.a ALTER m SET DEFAULT '2021-01-02 03:04:05', ALTER y SET DEFAULT 70"
    statement = classify(sql, "d", dialect=dialect)
    written = render_statement(statement, before, apply(statement, {A: before}, {}, dialect=dialect)[A])
    assert written.endswith("`m` SET DEFAULT '2021-01-02 01:04:05', ALTER COLUMN `y` SET DEFAULT 1970")
