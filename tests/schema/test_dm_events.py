"""Each part of a DDL statement has the kind that DM gives it, and an event filter may keep only some of the parts."""

from __future__ import annotations

import pytest

from pidts.model import TableName
from pidts.schema import Dialect, apply, classify
from pidts.schema.dm_events import kept_parts, statement_parts
from pidts.schema.statements import AlterTable, DropTable, RenameTable

MARIADB = Dialect.of("11.8.3-MariaDB")
T = TableName("s", "t")


def kinds(sql: str, table: str | None = None, dialect: Dialect = Dialect()) -> list[set[str]]:  # noqa: B008
    statement = classify(sql, "s", dialect=dialect)
    before = apply(classify(f"CREATE TABLE t {table}", "s", dialect=dialect), {}, {}, dialect=dialect) if table else {}
    return [set(part.events) for part in statement_parts(statement, sql, before, dialect)]


@pytest.mark.parametrize(
    ("sql", "kind"),
    [
        ("CREATE DATABASE d", "create database"),
        ("CREATE SCHEMA d", "create database"),
        ("DROP DATABASE IF EXISTS d", "drop database"),
        ("ALTER DATABASE d CHARSET latin1", "alter database, modify schema charset and collate"),
        ("CREATE TABLE t (a int)", "create table"),
        ("CREATE TABLE t LIKE u", "create table"),
        ("DROP TABLE t", "drop table"),
        ("TRUNCATE t", "truncate table"),
        ("RENAME TABLE t TO u", "rename table"),
        ("CREATE INDEX i ON t (a)", "create index"),
        ("/* why */ CREATE UNIQUE INDEX i ON t (a)", "create index"),
        ("DROP INDEX i ON t", "drop index"),
        ("ALTER TABLE t ADD a int", "alter table, add column"),
        ("ALTER TABLE t DROP a", "drop column"),
        ("ALTER TABLE t DROP COLUMN IF EXISTS a", "drop column"),
        ("ALTER TABLE t RENAME COLUMN a TO b", "rename column"),
        ("ALTER TABLE t RENAME INDEX a TO b", "rename index"),
        ("ALTER TABLE t RENAME TO u", "rename table"),
        ("ALTER TABLE t DROP INDEX i", "drop index"),
        ("ALTER TABLE t DROP PRIMARY KEY", "drop primary key"),
        ("ALTER TABLE t ADD INDEX i (a)", "modify constraint"),
        ("ALTER TABLE t ADD UNIQUE (a)", "modify constraint"),
        ("ALTER TABLE t ADD FULLTEXT KEY (a)", "modify constraint"),
        ("ALTER TABLE t ADD INDEX i ((a + 1))", "modify constraint"),
        ("ALTER TABLE t ADD PRIMARY KEY (a)", "modify constraint, add primary key"),
        ("ALTER TABLE t ADD FOREIGN KEY (a) REFERENCES u (b)", "modify constraint, add foreign key"),
        ("ALTER TABLE t ADD CHECK (a > 1)", "modify constraint"),
        ("ALTER TABLE t DROP FOREIGN KEY f", "alter table, drop foreign key"),
        ("ALTER TABLE t DROP CHECK c", "alter table"),
        ("ALTER TABLE t DROP CONSTRAINT c", "alter table"),
        ("ALTER TABLE t ALTER a SET DEFAULT 1", "modify default value, set default value"),
        ("ALTER TABLE t ALTER a DROP DEFAULT", "modify default value, set default value"),
        ("ALTER TABLE t ALTER INDEX i INVISIBLE", "alter table, alter index visibility"),
        ("ALTER TABLE t CONVERT TO CHARSET utf8mb4", "modify charset, modify table charset and collate"),
        ("ALTER TABLE t DEFAULT CHARSET latin1", "modify charset, modify table charset and collate"),
        ("ALTER TABLE t COLLATE latin1_bin", "modify collation, modify table charset and collate"),
        ("ALTER TABLE t ENGINE=InnoDB", "modify storage engine"),
        ("ALTER TABLE t COMMENT 'x'", "alter table, modify table comment"),
        ("ALTER TABLE t AUTO_INCREMENT=7", "alter table, rebase auto id"),
        ("ALTER TABLE t ROW_FORMAT=COMPACT", "alter table"),
        ("ALTER TABLE t FORCE", "alter table"),
        ("ALTER TABLE t ADD PARTITION (PARTITION p VALUES LESS THAN (9))", "alter table, add table partition"),
        ("ALTER TABLE t DROP PARTITION p", "drop table partition"),
        ("ALTER TABLE t TRUNCATE PARTITION p", "truncate table partition"),
        ("ALTER TABLE t REORGANIZE PARTITION p INTO (PARTITION q VALUES LESS THAN (9))", "reorganize table partition"),
        ("ALTER TABLE t REBUILD PARTITION p", "rebuild table partition"),
        ("ALTER TABLE t COALESCE PARTITION 2", "coalesce table partition"),
        ("ALTER TABLE t EXCHANGE PARTITION p WITH TABLE u", "exchange table partition"),
        ("ALTER TABLE t PARTITION BY HASH (a)", "alter table, alter table partitioning"),
        ("ALTER TABLE t REMOVE PARTITIONING", "alter table, remove table partitioning"),
        ("INSERT INTO t VALUES (1)", ""),
        ("CREATE VIEW v AS SELECT 1", ""),
        ("ALTER TABLE t DO SOMETHING NEW", ""),
    ],
)
def test_a_statement_has_a_kind(sql: str, kind: str) -> None:
    assert kinds(sql) == [{name.strip() for name in kind.split(",") if name}]


WIDE = """(id int AUTO_INCREMENT, u int, n int DEFAULT 0, d decimal(7,2), c char(10), v varchar(10), b binary(4), x text,
    e enum('a','b'), f float(7,3), g double, s datetime(3), big bigint, y year, m varchar(9) CHARSET latin1, bits bit(8),
    h int, i int, PRIMARY KEY (id), UNIQUE (u), UNIQUE two (h, i), KEY (n)) CHARSET utf8mb4"""


@pytest.mark.parametrize(
    ("clause", "kind"),
    [
        # Changes of the values that the column can store.
        ("MODIFY big int", "value range decrease"),
        ("MODIFY n bigint DEFAULT 0", "alter table"),
        ("MODIFY n int unsigned DEFAULT 0", "precision decrease"),
        ("MODIFY n bigint unsigned", "value range decrease"),
        ("MODIFY n varchar(10)", "modify column"),
        ("MODIFY n double", "modify column"),
        ("MODIFY d decimal(7,1)", "precision decrease"),
        ("MODIFY d decimal(9,2)", "precision decrease"),
        ("MODIFY d decimal(7,2)", "alter table"),
        ("MODIFY v varchar(5)", "value range decrease"),
        ("MODIFY v varchar(20)", "alter table"),
        ("MODIFY v char(20)", "modify column"),
        ("MODIFY c char(5)", "alter table"),
        ("MODIFY c char(20)", "alter table"),
        ("MODIFY b binary(8)", "precision decrease"),
        ("MODIFY v text", "alter table"),
        ("MODIFY x varchar(100)", "modify column"),
        ("MODIFY x mediumtext", "alter table"),
        ("MODIFY x tinytext", "modify column"),
        ("MODIFY e enum('a','b','c')", "alter table"),
        ("MODIFY e enum('b','a')", "value range decrease"),
        ("MODIFY e enum('a')", "value range decrease"),
        ("MODIFY e varchar(10)", "modify column"),
        ("MODIFY f float(7,2)", "value range decrease"),
        ("MODIFY f float", "value range decrease"),
        ("MODIFY f float(9,3)", "alter table"),
        ("MODIFY g float", "modify column"),
        ("MODIFY s datetime", "value range decrease"),
        ("MODIFY s datetime(6)", "alter table"),
        ("MODIFY s timestamp(3)", "modify column"),
        ("MODIFY bits bit(4)", "value range decrease"),
        # MODIFY removes what its definition omits.
        ("MODIFY id int", "remove auto increment"),
        ("MODIFY id bigint AUTO_INCREMENT", "drop primary key"),
        ("MODIFY id bigint AUTO_INCREMENT PRIMARY KEY", "alter table"),
        ("MODIFY u int", "drop unique key"),
        ("MODIFY u int UNIQUE", "alter table"),
        ("MODIFY h int", "alter table"),
        ("CHANGE u u int", "drop unique key"),
        # Changes of default, charset, collation, position and name.
        ("MODIFY n int DEFAULT 1", "modify default value"),
        ("MODIFY n int DEFAULT '0'", "alter table"),
        ("MODIFY n int", "modify default value"),
        ("MODIFY v varchar(10) CHARSET latin1", "modify charset"),
        ("MODIFY m varchar(9)", "modify charset"),
        ("MODIFY v varchar(10) COLLATE utf8mb4_bin", "modify collation"),
        ("MODIFY g double FIRST", "modify columns order"),
        ("MODIFY g double AFTER id", "modify columns order"),
        ("CHANGE g gg double", "rename column"),
        ("CHANGE g G double", "alter table"),
        ("CHANGE g gg double AFTER id", "modify columns order"),
        ("CHANGE v w varchar(5)", "value range decrease"),
        ("MODIFY g double COMMENT 'x'", "alter table"),
        ("MODIFY g double NOT NULL", "alter table"),
        ("MODIFY G double FIRST", "modify columns order"),
        ("MODIFY missing int", "alter table"),
    ],
)
@pytest.mark.parametrize("dialect", [Dialect(), MARIADB], ids=["mysql", "mariadb"])
def test_a_new_definition_is_what_it_changes(clause: str, kind: str, dialect: Dialect) -> None:
    assert kinds(f"ALTER TABLE t {clause}", WIDE, dialect)[0] == {kind}


def test_without_the_structure_a_new_definition_is_an_alter_table() -> None:
    assert kinds("ALTER TABLE t MODIFY a tinyint") == [{"alter table"}]


def test_the_kinds_of_a_statement_are_those_of_its_parts() -> None:
    sql = "ALTER TABLE t ADD a int, DROP b, MODIFY big int, ALGORITHM=COPY"
    assert set().union(*kinds(sql, WIDE)) == {"alter table", "add column", "drop column", "value range decrease"}
    assert set().union(*kinds("FLUSH LOGS")) == set()


def left(sql: str, without: str = "", tables: str = ""):
    """Returns what is left of a statement after a filter that drops one kind, or everything of some tables."""

    def takes(table: TableName, events: frozenset[str]) -> bool:
        asked.append(str(table))
        return without not in events and str(table) not in tables.split()

    asked: list[str] = []
    statement = classify(sql, "s")
    return statement, kept_parts(statement, sql, takes), asked


@pytest.mark.parametrize(
    "sql",
    [
        "ALTER TABLE t ADD a int, ADD b int",
        "DROP TABLE t, u",
        "RENAME TABLE t TO x, u TO t",
        "CREATE DATABASE d",
        "CREATE INDEX i ON t (a)",
        "ALTER TABLE t ALGORITHM=COPY",
        "INSERT INTO t VALUES (1)",
        "FLUSH LOGS",
        "NONSENSE",
    ],
)
def test_a_statement_that_passes_completely_is_the_same_object(sql: str) -> None:
    statement, rest, _ = left(sql, without="drop column")
    assert rest is statement


@pytest.mark.parametrize(
    ("sql", "kind"),
    [
        ("ALTER TABLE t DROP a, DROP b", "drop column"),
        ("ALTER TABLE t DROP a, LOCK=NONE", "drop column"),
        ("DROP TABLE t, u", "drop table"),
        ("RENAME TABLE t TO x, u TO t", "rename table"),
        ("DROP DATABASE d", "drop database"),
        ("DROP INDEX i ON t", "drop index"),
        ("CREATE TABLE t (a int)", "create table"),
    ],
)
def test_a_completely_filtered_statement_leaves_nothing(sql: str, kind: str) -> None:
    assert left(sql, without=kind)[1] is None


def test_the_clauses_of_an_alter_table_are_filtered_each_alone() -> None:
    statement, rest, _ = left("ALTER TABLE t ADD a int, DROP b, ADD c int, ALGORITHM=COPY", without="drop column")
    assert isinstance(statement, AlterTable)
    assert isinstance(rest, AlterTable)
    first, _, third, manner = statement.actions
    assert rest.actions == (first, third, manner)


def test_alike_clauses_stay_apart() -> None:
    _, rest, _ = left("ALTER TABLE t DROP KEY i, ADD KEY i (a), DROP KEY i", without="drop index")
    assert isinstance(rest, AlterTable)
    assert len(rest.actions) == 1


def test_the_tables_of_a_drop_are_filtered_each_alone() -> None:
    _, rest, _ = left("DROP TABLE IF EXISTS t, u, v", tables="s.u")
    assert rest == DropTable((TableName("s", "t"), TableName("s", "v")), if_exists=True)


def test_a_pair_of_a_rename_goes_where_one_of_its_names_does() -> None:
    _, rest, asked = left("RENAME TABLE t TO x, u TO v, w TO z", tables="s.x s.u")
    assert rest == RenameTable(((TableName("s", "w"), TableName("s", "z")),))
    assert asked == ["s.t", "s.x", "s.u", "s.w", "s.z"]


def test_both_tables_of_a_like_and_of_an_exchange_are_asked() -> None:
    assert left("CREATE TABLE t LIKE d.u")[2] == ["s.t", "d.u"]
    assert left("ALTER TABLE t EXCHANGE PARTITION p WITH TABLE d.u")[2] == ["s.t", "d.u"]


def test_after_a_rename_a_clause_is_of_the_new_name() -> None:
    assert left("ALTER TABLE t ADD a int, RENAME TO u, ADD b int")[2] == ["s.t", "s.t", "s.u", "s.u"]


def test_a_statement_on_a_schema_is_asked_for_without_a_table() -> None:
    assert left("DROP DATABASE d")[2] == ["d."]


@pytest.mark.parametrize("sql", ["ALTER TABLE t DO SOMETHING NEW", "DELETE FROM t", "NONSENSE"])
def test_unknown_statements_are_filtered_without_names(sql: str) -> None:
    assert left(sql)[2] == ["."]
    assert left(sql, tables=".")[1] is None
