"""The planner gets the right relevance of a statement in the log: nothing, or a schema change of these tables."""

import gc
import itertools

import pytest

from pidts.batch import transaction_classifier
from pidts.batch.transaction_classifier import TransactionClassifier
from pidts.model import Extent, LogEntry, Lsn, TableName, Transaction
from pidts.plan import Relevance, RelevanceKind
from pidts.relay.segments.index import decode_entry, encode_entry
from pidts.rules import AllowList
from pidts.schema import Dialect

A, B, X = (TableName("shop", name) for name in "abx")
NOTHING, DDL = Relevance(RelevanceKind.NOTHING), Relevance(RelevanceKind.DDL)


def entry_of(sql: str, schema: str = "shop") -> LogEntry:
    at = Lsn(0, 1, 100)
    transaction = Transaction(lsn=at, prev_lsn=Lsn(0, 1, 4), begin=Lsn(0, 1, 4), ddl=sql, ddl_schema=schema)
    return LogEntry(transaction, Extent(1, 4, 96))


def relevance(sql: str, allow: AllowList | None = None) -> Relevance:
    return TransactionClassifier(allow or AllowList(do_dbs=("shop",)), Dialect())(entry_of(sql))


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("FLUSH TABLES", NOTHING),
        ("ALTER TABLE other.t ADD c INT", NOTHING),
        ("CREATE DATABASE other", NOTHING),
        ("ALTER TABLE a ADD c INT", DDL),
        ("TRUNCATE a", DDL),
        ("CREATE TABLE a (id INT)", DDL),
        ("CREATE TABLE IF NOT EXISTS a (id INT)", DDL),
        ("CREATE OR REPLACE TABLE a (id INT)", Relevance(RelevanceKind.DDL, gone=(A,))),
        ("DROP TABLE a, other.t", Relevance(RelevanceKind.DDL, gone=(A, TableName("other", "t")))),
        ("DROP DATABASE shop", Relevance(RelevanceKind.DDL, gone_schemas=("shop",))),
        ("CREATE OR REPLACE DATABASE shop", Relevance(RelevanceKind.DDL, gone_schemas=("shop",))),
        ("ALTER TABLE a DROP PRIMARY KEY, ADD PRIMARY KEY (code)", Relevance(RelevanceKind.DDL, recopied=(A,))),
        ("ALTER TABLE a MODIFY id BIGINT", Relevance(RelevanceKind.DDL, recopied=(A,))),
        ("ALTER TABLE a RENAME TO b", Relevance(RelevanceKind.DDL, renamed=((A, B),))),
        ("RENAME TABLE a TO x, b TO a, x TO b", Relevance(RelevanceKind.DDL, renamed=((B, A), (A, B)))),
        ("INSERT INTO a VALUES (1)", DDL),
        ("INSERT INTO other.t VALUES (1)", NOTHING),
        ("this is nobody's statement", DDL),
    ],
)
def test_a_statement_means(sql, expected):
    found = relevance(sql)
    assert (found.kind, set(found.gone), found.gone_schemas, set(found.renamed), found.recopied) == (
        expected.kind,
        set(expected.gone),
        expected.gone_schemas,
        set(expected.renamed),
        expected.recopied,
    )


def test_a_table_that_leaves_the_task_is_gone():
    only = AllowList(do_tables=(("shop", "a"), ("shop", "b")))
    expected = Relevance(RelevanceKind.DDL, frozenset({A, B}), gone=(A,), renamed=((B, A),))
    assert relevance("RENAME TABLE a TO old, b TO a", only) == expected


def test_names_in_double_quotes_are_seen():
    assert relevance('DROP TABLE "shop"."a"').gone == (A,)


def test_a_statement_that_is_read_again_is_not_parsed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []
    parse = transaction_classifier.classify

    def counted(sql: str, *arguments: object, **named: object) -> object:
        parsed.append(sql)
        return parse(sql, *arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(transaction_classifier, "classify", counted)
    classifier = TransactionClassifier(AllowList(do_dbs=("shop",)), Dialect())
    statements = [f"ALTER TABLE t{number} ADD c INT" for number in range(50)]
    long = f"ALTER TABLE a ADD c INT COMMENT '{'x' * 5000}'"
    for _ in range(3):  # as many shards read the log after their own statements, each up to the end
        for sql, schema in itertools.product((*statements, long), ("shop", "other")):
            table = TableName(schema, sql.split()[2])
            expected = Relevance(RelevanceKind.DDL, frozenset({table})) if schema == "shop" else NOTHING
            assert classifier(entry_of(sql, schema)) == expected
    assert [parsed.count(sql) for sql in statements] == [2] * 50, "once for each schema in which the statement ran"
    assert parsed.count(long) == 6, "a long text is not kept in memory"


def test_tables_that_change_in_turn_stay_known(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[TableName] = []
    allow = AllowList(do_dbs=("shop",))
    monkeypatch.setattr(AllowList, "__call__", lambda _, table: asked.append(table) or True)
    classifier, at = TransactionClassifier(allow, Dialect()), Lsn(0, 1, 100)
    for number in range(2 * 20_000):
        table = TableName("shop", f"t{number % 20_000}")
        transaction = Transaction(lsn=at, prev_lsn=at, begin=at, row_events=1, tables=(table,))
        assert classifier(LogEntry(transaction, Extent(1, 4, 96))) == Relevance(RelevanceKind.ROWS, frozenset({table}))
    assert len(asked) == 20_000


@pytest.mark.parametrize(("tables", "transactions"), [(40, 4_960), (2_000, 100)])
def test_transactions_with_many_tables_each_do_not_fill_the_memory(tables: int, transactions: int) -> None:
    classifier, at = TransactionClassifier(AllowList(do_dbs=("shop",)), Dialect()), Lsn(0, 1, 100)
    names = [TableName("shop", f"table_{number:05d}") for number in range(5_000)]
    for first in range(transactions):
        changed = tuple(names[first : first + tables])
        transaction = Transaction(lsn=at, prev_lsn=at, begin=at, row_events=1, tables=changed)
        read = decode_entry(encode_entry(LogEntry(transaction, Extent(1, 4, 96))), 1, at)
        assert read.transaction.tables == changed
        assert classifier(read).tables == frozenset(changed)
    kept = sum(isinstance(one, TableName) for one in gc.get_objects())
    assert kept < 80_000, "most of the 200,000 names that were read are not kept"
