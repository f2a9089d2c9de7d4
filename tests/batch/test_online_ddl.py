"""Statements of online schema changes keep their places among a task's changes; shadow and trash tables are skipped."""

from __future__ import annotations

import pytest

from pidts.batch.transaction_classifier import TransactionClassifier
from pidts.model import Extent, LogEntry, Lsn, TableName, Transaction
from pidts.plan import Relevance, RelevanceKind
from pidts.rules import AllowList
from pidts.schema import Dialect
from pidts.schema.online.names import SHADOW, TRASH

LONG = "t" * 59
A, B, T, U = (TableName("shop", name) for name in ("a", "b", "_a", "u"))
NOTHING = Relevance(RelevanceKind.NOTHING)
ONLINE = AllowList(do_dbs=("shop",), shadow=SHADOW, trash=TRASH)
ONLY_A = AllowList(do_tables=(("shop", "a"),), shadow=SHADOW, trash=TRASH)


def relevance(sql: str, allow: AllowList, rows: tuple[TableName, ...] = ()) -> Relevance:
    at = Lsn(0, 1, 100)
    transaction = Transaction(
        lsn=at,
        prev_lsn=Lsn(0, 1, 4),
        begin=Lsn(0, 1, 4),
        ddl=sql or None,
        ddl_schema="shop",
        tables=rows,
        row_events=len(rows),
    )
    return TransactionClassifier(allow, Dialect())(LogEntry(transaction, Extent(1, 4, 96)))


def ddl(*tables: TableName, recopied: tuple[TableName, ...] = ()) -> Relevance:
    return Relevance(RelevanceKind.DDL, tables=frozenset(tables) or None, recopied=recopied)


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("CREATE TABLE _a_new (id INT)", ddl(A)),
        ("CREATE TABLE _a_gho LIKE a", ddl(A)),
        ("ALTER TABLE _a_new ADD c INT", ddl(A)),
        ("ALTER TABLE __a_new ADD c INT", ddl(A, T)),
        ("ALTER TABLE _a_new FROBNICATE", ddl(A)),
        ("DROP TABLE IF EXISTS _a_new, _b_gho", ddl(A, B)),
        ("RENAME TABLE a TO _a_old, _a_new TO a", ddl(A, recopied=(A,))),
        ("RENAME TABLE a TO _a_old, _x_new TO a, u TO b", ddl(A, B, U, TableName("shop", "x"), recopied=(A,))),
        ("ALTER TABLE _a_gho RENAME TO a", ddl(A, recopied=(A,))),
        ("RENAME TABLE a TO _a_old", NOTHING),
        ("DROP TABLE _a_old", NOTHING),
        ("CREATE TABLE _a_ghc (id INT)", NOTHING),
        ("ALTER TABLE _a_old FROBNICATE", NOTHING),
        ("TRUNCATE TABLE _a_del", NOTHING),
        (f"ALTER TABLE _{LONG}_gho ADD c INT", ddl()),
        ("ALTER TABLE other._a_new ADD c INT", NOTHING),
        ("ALTER TABLE a ADD c INT", ddl(A)),
    ],
)
def test_statements_on_a_shadow_table_keep_their_place_among_those_on_the_table(sql: str, expected: Relevance) -> None:
    found = relevance(sql, ONLINE)
    assert (found.kind, found.tables, found.recopied) == (expected.kind, expected.tables, expected.recopied)


def test_a_table_continues_after_its_shadow_table_replaces_it() -> None:
    found = relevance("RENAME TABLE a TO _a_old, _a_new TO a", ONLINE)
    assert (found.gone, found.renamed) == ((), ())
    off = relevance("RENAME TABLE a TO _a_old, _a_new TO a", AllowList(do_dbs=("shop",)))
    assert len(off.renamed) == 2
    assert off.recopied == ()


@pytest.mark.parametrize("sql", ["ALTER TABLE _b_new ADD c INT", "RENAME TABLE b TO _b_old, _b_new TO b"])
def test_shadow_tables_of_tables_outside_the_task_are_skipped(sql: str) -> None:
    assert relevance(sql, ONLY_A) == NOTHING


def test_rows_of_shadow_and_trash_tables_are_skipped() -> None:
    shadow, trash = TableName("shop", "_a_new"), TableName("shop", "_a_ghc")
    assert relevance("", ONLINE, (shadow, trash)) == NOTHING
    assert relevance("", ONLINE, (A, shadow)).tables == {A}
    assert relevance("", AllowList(do_dbs=("shop",)), (A, shadow)).tables == {A, shadow}


def test_an_allow_list_leaves_out_shadow_and_trash_tables() -> None:
    assert ONLINE(TableName("shop", "a"))
    for name in ("_a_new", "_a_gho", "_a_old", "_a_del", "_a_ghc", "_A_GHO"):
        assert not ONLINE(TableName("shop", name)), name
    sensitive = AllowList(shadow=SHADOW, trash=TRASH, case_sensitive=True)
    assert sensitive(TableName("shop", "_A_GHO"))
    assert AllowList(shadow=("^x|y_(.+)$",))(TableName("shop", "xy"))
