"""The planner gets the right meaning of a statement in the log: nothing, or a schema change of these tables."""

import pytest

from pidts.batch.relevance import Meaning
from pidts.model import Extent, LogEntry, Lsn, TableName, Transaction
from pidts.plan import Work, WorkKind
from pidts.rules import AllowList
from pidts.schema import Dialect

A, B, X = (TableName("shop", name) for name in "abx")
NOTHING, DDL = Work(WorkKind.NOTHING), Work(WorkKind.DDL)


def meaning(sql: str, allow: AllowList | None = None) -> Work:
    at = Lsn(0, 1, 100)
    transaction = Transaction(lsn=at, prev_lsn=Lsn(0, 1, 4), begin=Lsn(0, 1, 4), ddl=sql, ddl_schema="shop")
    return Meaning(allow or AllowList(do_dbs=("shop",)), Dialect())(LogEntry(transaction, Extent(1, 4, 96)))


@pytest.mark.parametrize(
    ("sql", "work"),
    [
        ("FLUSH TABLES", NOTHING),
        ("ALTER TABLE other.t ADD c INT", NOTHING),
        ("CREATE DATABASE other", NOTHING),
        ("ALTER TABLE a ADD c INT", DDL),
        ("TRUNCATE a", DDL),
        ("CREATE TABLE a (id INT)", DDL),
        ("CREATE TABLE IF NOT EXISTS a (id INT)", DDL),
        ("CREATE OR REPLACE TABLE a (id INT)", Work(WorkKind.DDL, gone=(A,))),
        ("DROP TABLE a, other.t", Work(WorkKind.DDL, gone=(A, TableName("other", "t")))),
        ("DROP DATABASE shop", Work(WorkKind.DDL, gone_schemas=("shop",))),
        ("CREATE OR REPLACE DATABASE shop", Work(WorkKind.DDL, gone_schemas=("shop",))),
        ("ALTER TABLE a DROP PRIMARY KEY, ADD PRIMARY KEY (code)", Work(WorkKind.DDL, recopied=(A,))),
        ("ALTER TABLE a MODIFY id BIGINT", Work(WorkKind.DDL, recopied=(A,))),
        ("ALTER TABLE a RENAME TO b", Work(WorkKind.DDL, renamed=((A, B),))),
        ("RENAME TABLE a TO x, b TO a, x TO b", Work(WorkKind.DDL, renamed=((B, A), (A, B)))),
        ("INSERT INTO a VALUES (1)", DDL),
        ("INSERT INTO other.t VALUES (1)", NOTHING),
        ("this is nobody's statement", DDL),
    ],
)
def test_a_statement_means(sql, work):
    found = meaning(sql)
    assert (found.kind, set(found.gone), found.gone_schemas, set(found.renamed), found.recopied) == (
        work.kind,
        set(work.gone),
        work.gone_schemas,
        set(work.renamed),
        work.recopied,
    )


def test_a_table_that_leaves_the_task_is_gone():
    only = AllowList(do_tables=(("shop", "a"), ("shop", "b")))
    expected = Work(WorkKind.DDL, frozenset({A, B}), gone=(A,), renamed=((B, A),))
    assert meaning("RENAME TABLE a TO old, b TO a", only) == expected


def test_names_in_double_quotes_are_seen():
    assert meaning('DROP TABLE "shop"."a"').gone == (A,)
