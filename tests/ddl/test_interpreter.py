"""The rules turn a statement of the log into a statement with the target's names, or into none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.values_target import ValuesTarget

from pidts.apply import ApplyRules
from pidts.batch.context import JobContext
from pidts.batch.transaction_classifier import TransactionClassifier
from pidts.binlog import Query
from pidts.ddl.due_change import DueChange
from pidts.ddl.interpreter import DueStatement, Interpreter
from pidts.ddl.outcome import ChangeWaits
from pidts.ddl.shards.coordinator import ShardGroups
from pidts.ddl.shards.protected_rows import SharedTables
from pidts.model import (
    Column,
    ColumnType,
    CommandKind,
    DdlCommand,
    Extent,
    Halted,
    Key,
    Kind,
    LogEntry,
    Lsn,
    Table,
    TableName,
    Transaction,
    Where,
)
from pidts.model.advice import RESYNC
from pidts.rules import (
    AllowList,
    ColumnMapping,
    EventFilter,
    Extract,
    FilterRule,
    OwnedRange,
    Owners,
    RouteRule,
    Routes,
    Rules,
)
from pidts.schema import AlterTable, CreateTable, Dialect, DropTable, RenameTable, classify
from pidts.schema.statement_time import StatementTime
from pidts.source import SourceConfig

AT = Lsn(0, 1, 100)


COLUMN = Column("id", ColumnType(Kind.INT), nullable=False)
KEYS = (Key("PRIMARY", ("id",), unique=True, primary=True),)


def found(
    sql: str,
    rules: Rules,
    *names: str,
    command: DdlCommand | None = None,
    keys: tuple[Key, ...] = KEYS,
    is_ours: Callable[[TableName], bool] | None = None,
    shared_tables: SharedTables | None = None,
) -> DueStatement | None:
    said = interpreted(sql, rules, *names, command=command, keys=keys, is_ours=is_ours, shared_tables=shared_tables)
    assert not isinstance(said, ChangeWaits)
    return said


def interpreted(
    sql: str,
    rules: Rules,
    *names: str,
    command: DdlCommand | None = None,
    keys: tuple[Key, ...] = KEYS,
    is_ours: Callable[[TableName], bool] | None = None,
    shared_tables: SharedTables | None = None,
    writing: ApplyRules | None = None,
    query: Query | None = None,
) -> DueStatement | ChangeWaits | None:
    return Interpreter(
        due=due_change(sql, rules, *names, keys=keys, is_ours=is_ours, writing=writing, query=query),
        command=command,
        shared_tables=shared_tables or SharedTables(ShardGroups(), "s", rules),
        shadows=dict,
        keyed_by=lambda _: frozenset(),
    ).found()


def due_change(
    sql: str,
    rules: Rules,
    *names: str,
    keys: tuple[Key, ...] = KEYS,
    is_ours: Callable[[TableName], bool] | None = None,
    writing: ApplyRules | None = None,
    query: Query | None = None,
) -> DueChange:
    structures = {one.name: one for one in (Table(TableName("shop", name), (COLUMN,), keys) for name in names)}
    context = JobContext(
        task="t",
        source=SourceConfig("127.0.0.1", 1, source_id="s"),
        relay=Path(),
        staging=Path(),
        target=ValuesTarget("never asked"),
        workers=1,
        epoch=1,
        change_no=0,
        structures=structures,
        dialect=Dialect(),
        charsets={},
        rules=rules,
        writing=writing or ApplyRules(),
    )
    transaction = Transaction(lsn=AT, prev_lsn=Lsn(0, 1, 4), begin=Lsn(0, 1, 4), ddl=sql, ddl_schema="shop")
    relay: Any = SimpleNamespace(position=lambda _: "bin.000001:100")
    entry = LogEntry(transaction, Extent(1, 4, 96))
    due = DueChange(context, TransactionClassifier(rules.allow, Dialect()), relay, entry, is_ours or rules.allow)
    vars(due)["query"] = query or Query("shop", sql)
    return due


def test_a_halt_between_zones_advises_no_copy_of_the_table() -> None:
    error = Halted("ddl-moves-rows", "no", where=Where(table="shop.t_1"), todo=f"Copy the table again: {RESYNC}")
    sql, rules = "ALTER TABLE t_1 ADD c INT", Rules(allow=AllowList(do_dbs=("shop",)))
    assert due_change(sql, rules, "t_1").failed_halt(error).todo == (
        "Copy the table again: pidts run TASK --resync s:shop.t_1"
    )
    between = due_change(sql, rules, "t_1", writing=ApplyRules(zone="a", into_zone="b")).failed_halt(error)
    assert between.into_zone == "b"
    assert between.todo.startswith("Copy the table again: pidts zones return FILE b, which copies all tables")


ONE = Rules(routes=Routes((RouteRule("shop", "t_*", "all", "t"),)))
"""A route from every table of the pattern to one target table."""
LANDED = TableName("all", "t")
ONE_SCHEMA = replace(ONE, allow=AllowList(do_dbs=("shop",)))


def test_the_target_is_described_by_its_own_names() -> None:
    what = found("ALTER TABLE t_1 ADD c INT", ONE, "t_1")
    assert what is not None
    assert isinstance(what.change.statement, AlterTable)
    assert what.change.statement.table == LANDED
    after = what.change.after[LANDED]
    assert after is not None
    assert [column.name for column in after.columns] == ["id", "c"]
    assert set(what.change.structures) == {TableName("shop", "t_1")}


def test_a_change_has_the_time_of_its_statement_with_microseconds() -> None:
    query = Query("shop", "ALTER TABLE t_1 ADD c INT", 0, 0, "+02:00", seconds=1_700_000_000, micros=987_654)
    what = interpreted(query.sql, ONE, "t_1", query=query)
    assert isinstance(what, DueStatement)
    assert what.change.executed_at == StatementTime(1_700_000_000, 987_654, is_in_utc=False)


def test_a_rename_that_ends_where_it_began_is_nothing_to_the_target() -> None:
    what = found("RENAME TABLE t_1 TO t_2", ONE, "t_1")
    assert what is not None
    assert what.change.statement is None
    both = found("ALTER TABLE t_1 ADD c INT, RENAME TO t_2", ONE, "t_1")
    assert both is not None
    assert isinstance(both.change.statement, AlterTable)
    assert len(both.change.statement.actions) == 1, "the rest of the statement runs"
    before, after = both.change.before[LANDED], both.change.after[LANDED]
    assert before is not None
    assert after is not None
    assert (len(before.columns), len(after.columns)) == (1, 2)


def test_a_view_that_is_renamed_halts_under_its_name_and_may_be_skipped() -> None:
    """The log has the same statement for a view and for a table, and nothing else shows which of them it is."""
    with pytest.raises(Halted, match="ddl-does-not-fit") as caught:
        found("RENAME TABLE v TO w", ONE, "t_1")
    assert (caught.value.where.table, "pidts ddl skip" in caught.value.todo) == ("shop.v", True)
    assert found("RENAME TABLE v TO w", ONE, "t_1", command=DdlCommand(lsn=AT, kind=CommandKind.SKIP)) is not None


def test_after_a_skip_a_partition_made_a_table_is_recorded_and_a_table_made_a_partition_is_not() -> None:
    skip = DdlCommand(lsn=AT, kind=CommandKind.SKIP)
    made = found("ALTER TABLE p CONVERT PARTITION p1 TO TABLE t", Rules(), "p", command=skip)
    assert made is not None
    p, t = (made.change.structures[TableName("shop", name)] for name in "pt")
    assert p is not None
    assert p.renamed(TableName("shop", "t")) == t
    sql = "ALTER TABLE p CONVERT TABLE t TO PARTITION p1 VALUES LESS THAN (9)"
    gone = found(sql, Rules(), "p", "t", command=skip)
    assert gone is not None
    assert gone.change.structures == {TableName("shop", "p"): p, TableName("shop", "t"): None}
    relevance = TransactionClassifier(AllowList(), Dialect()).of_statement(classify(sql, "shop"))
    assert relevance.gone == (TableName("shop", "t"),)


def shared(*others: str, mode: str = "") -> SharedTables:
    """Returns the rules for a case in which tables of another source are routed to the same target table."""
    groups = ShardGroups(mode)
    groups.register("z", {TableName("shop", name): Table(LANDED, (COLUMN,), KEYS) for name in others})
    return SharedTables(groups, "s", ONE)


@pytest.mark.parametrize(
    "sql",
    [
        "TRUNCATE TABLE t_1",
        "DROP TABLE t_1",
        "DROP DATABASE shop",
        "RENAME TABLE t_1 TO gone.t_1",
        "ALTER TABLE t_1 ADD c INT, RENAME TO gone.t_1",
    ],
)
@pytest.mark.parametrize("shared_tables", [shared("t_9"), shared(mode="pessimistic")])
def test_a_shard_does_not_take_the_others_rows_with_it(sql: str, shared_tables: SharedTables) -> None:
    """The rows stay even if the shard is the only one so far, in a task with a `shard-mode`. In a task without it, the
    only table takes its rows with it.
    """
    what = found(sql, ONE_SCHEMA, "t_1", shared_tables=shared_tables)
    assert what is not None
    assert what.change.statement is None
    assert shared_tables.left
    shared_tables.left.clear()
    alone = found("TRUNCATE TABLE t_1", ONE, "t_1", shared_tables=shared())
    assert alone is not None
    assert alone.change.statement is not None


@pytest.mark.parametrize(
    "sql",
    [
        "TRUNCATE TABLE t_1",
        "DROP TABLE t_1, a",
        "DROP DATABASE shop",
        "RENAME TABLE t_1 TO gone.t_1",
        "CREATE OR REPLACE TABLE t_1 (id INT PRIMARY KEY, c INT)",
    ],
)
def test_tables_that_leave_their_rows_are_recorded(sql: str) -> None:
    shared_tables = shared("t_9")
    what = found(sql, ONE_SCHEMA, "t_1", "a", shared_tables=shared_tables)
    assert what is not None
    known = {TableName("shop", name): Table(TableName("shop", name), (COLUMN,), KEYS) for name in ("t_1", "a")}
    statement = classify(sql, "shop")
    names = {str(name) for name in shared_tables.leaves_rows(statement, what.change.structures, known)}
    assert "shop.t_1" in names
    ordered = shared("t_9").leaves_rows(statement, what.change.structures, known)
    assert "OR REPLACE" in sql or set(map(str, ordered)) >= {"shop.t_1"}, (
        "what an operator ordered need not remove them"
    )
    other = shared("t_9")
    altered = found("ALTER TABLE t_1 ADD c INT", ONE_SCHEMA, "t_1", "a", shared_tables=other)
    assert altered is not None
    assert not other.leaves_rows(classify("ALTER TABLE t_1 ADD c INT", "shop"), altered.change.structures, known)


def test_statements_that_concern_no_other_source_are_run() -> None:
    what = found("DROP TABLE t_1, a", ONE, "t_1", "a", shared_tables=shared("t_9"))
    assert what is not None
    assert isinstance(what.change.statement, DropTable)
    assert what.change.statement.tables == (TableName("shop", "a"),)
    assert set(what.change.structures) == {TableName("shop", "t_1"), TableName("shop", "a")}
    renamed = found("RENAME TABLE t_1 TO gone.t, a TO b", ONE_SCHEMA, "t_1", "a", shared_tables=shared("t_9"))
    assert renamed is not None
    assert isinstance(renamed.change.statement, RenameTable)
    assert renamed.change.statement.pairs == ((TableName("shop", "a"), TableName("shop", "b")),)


def test_a_table_created_anew_replaces_nothing_of_others() -> None:
    what = found("CREATE OR REPLACE TABLE t_1 (id INT PRIMARY KEY, c INT)", ONE, "t_1", shared_tables=shared("t_9"))
    assert what is not None
    assert isinstance(what.change.statement, CreateTable)
    assert not what.change.statement.or_replace
    after = what.change.after[LANDED]
    assert after is not None
    assert [column.name for column in after.columns] == ["id", "c"]


def test_rows_do_not_move_with_a_name() -> None:
    with pytest.raises(Halted) as raised:
        found("RENAME TABLE a TO t_2, t_1 TO b", ONE, "t_1", "a", shared_tables=shared("t_9"))
    assert (raised.value.code, raised.value.where.table) == ("rename-moves-rows", "shop.a")
    of_a, of_t_1 = f"the rows of shop.a from shop.a to {LANDED}", f"the rows of shop.t_1 from {LANDED} to shop.b"
    assert raised.value.todo.startswith(f"On the target, move {of_a}; {of_t_1}. Then run pidts ddl skip TASK ")


def test_sources_that_have_not_begun_may_have_rows_there() -> None:
    shared_tables = SharedTables(ShardGroups(expected=["s", "z"]), "s", ONE)
    shared_tables.groups.register("s", {})
    waits = interpreted("TRUNCATE TABLE t_1", ONE, "t_1", shared_tables=shared_tables)
    assert isinstance(waits, ChangeWaits)
    still = shared_tables.groups.still(waits)
    assert still is not None
    assert waits.wait.absent == still.wait.absent == ("z",)
    shared_tables.groups.register("z", {})
    assert shared_tables.groups.still(waits) is None


def test_a_rename_does_not_give_rows_other_values() -> None:
    rules = Rules(mappings=(ColumnMapping("shop", "t_*", "id", "partition id", ("", "", "t", "_")),))
    with pytest.raises(Halted) as raised:
        found("RENAME TABLE t_1 TO t_2", rules, "t_1")
    assert raised.value.code == "rename-moves-rows"
    skipped = found("RENAME TABLE t_1 TO t_2", rules, "t_1", command=DdlCommand(lsn=AT, kind=CommandKind.SKIP))
    assert skipped is not None
    assert isinstance(skipped.change.statement, RenameTable)
    same = Rules(mappings=(ColumnMapping("shop", "t_*", "id", "partition id", ("1", "", "")),))
    assert found("RENAME TABLE t_1 TO t_2", same, "t_1") is not None


def test_a_table_whose_name_another_takes_is_moved_only_where_it_is_ours() -> None:
    """The table is renamed through an intermediate name, which an allow-list may exclude."""
    swap = "RENAME TABLE in_c TO in_tmp, out_c TO in_c, in_tmp TO out_c"
    rules = Rules(AllowList(do_tables=(("shop", "in_*"),)))
    joined = found(swap, rules, "in_c", is_ours=lambda name: rules.allow(name) and name.name != "in_c")
    assert joined is None or joined.change.statement is None, "in_c came later, and stays"
    both = found("RENAME TABLE a TO tmp, b TO a, tmp TO b", Rules(), "a", "b")
    assert both is not None
    assert isinstance(both.change.statement, RenameTable)
    assert len(both.change.statement.pairs) == 3


def test_rows_without_a_key_are_found_by_what_was_extracted() -> None:
    extract = RouteRule("shop", "t_*", "all", "", Extract("t_(.*)", "shard"))
    rules = Rules(routes=Routes((extract,)))
    assert found("RENAME TABLE t_1 TO t_2", rules, "t_1") is not None
    with pytest.raises(Halted) as raised:
        found("RENAME TABLE t_1 TO t_2", rules, "t_1", keys=())
    assert raised.value.code == "rename-moves-rows"


def test_a_rule_that_cannot_be_applied_to_what_the_log_brings_halts_the_table_alone() -> None:
    two = Rules(routes=Routes((RouteRule("shop", "n*", "x", "y"), RouteRule("shop", "?ew", "x", "z"))))
    with pytest.raises(Halted) as raised:
        found("CREATE TABLE new (id INT PRIMARY KEY)", two, "t")
    assert (raised.value.code, raised.value.where.table) == ("ambiguous-route", "shop.new")


def test_filtered_statements_are_recorded_and_do_not_run() -> None:
    rules = Rules(events=EventFilter((FilterRule("shop", "", ("drop column",), (), "Ignore"),)))
    what = found("ALTER TABLE t ADD c INT, ADD d INT", rules, "t")
    assert what is not None
    part = found("ALTER TABLE t ADD c INT, DROP COLUMN id", rules, "t")
    assert part is not None
    assert isinstance(part.change.statement, AlterTable)
    assert len(part.change.statement.actions) == 1
    name = TableName("shop", "t")
    record, there = part.change.structures[name], part.change.after[name]
    assert record is not None
    assert there is not None
    assert [column.name for column in record.columns] == ["c"]
    assert [column.name for column in there.columns] == ["id", "c"]


def test_records_follow_a_renamed_table_even_if_a_ddl_command_replaces_the_statement() -> None:
    command = DdlCommand(lsn=AT, kind=CommandKind.REPLACE, statements=("ALTER TABLE b COMMENT 'done by hand'",))
    renames = "ALTER TABLE a DROP COLUMN missing, RENAME TO b"
    with pytest.raises(Halted, match="missing"):
        found(renames, Rules(), "a")
    what = found(renames, Rules(), "a", command=command)
    assert isinstance(what, DueStatement)
    assert what.change.renamed == {TableName("shop", "a"): TableName("shop", "b")}


def owned(zone: str, *ranges: tuple[str, str]) -> ApplyRules:
    found = (OwnedRange(schema="shop", table="t_1", zone=owner, where=where) for owner, where in ranges)
    return ApplyRules(zone=zone, owners=Owners(tuple(found)))


@pytest.mark.parametrize(
    "sql",
    [
        "TRUNCATE TABLE t_1",
        "DROP TABLE t_1",
        "DROP DATABASE shop",
        "CREATE OR REPLACE TABLE t_1 (id INT PRIMARY KEY)",
        "ALTER TABLE t_1 TRUNCATE PARTITION p0",
    ],
)
def test_a_zone_removes_all_rows_of_a_table_only_where_it_owns_all(sql: str) -> None:
    """The task halts at the statement: it has no row events, so no row could be set aside."""
    plain = Rules(allow=AllowList(do_dbs=("shop",)))
    for writing in (owned("b", ("a", "")), owned("b", ("a", "id < 5"), ("b", ""))):
        with pytest.raises(Halted, match=r"zone b has removed rows of shop\.t_1") as caught:
            interpreted(sql, plain, "t_1", writing=writing)
        assert caught.value.code == "foreign-write"
        skip = DdlCommand(lsn=AT, kind=CommandKind.SKIP)
        assert interpreted(sql, plain, "t_1", writing=writing, command=skip) is not None
    if "PARTITION" not in sql:
        assert interpreted(sql, plain, "t_1", writing=owned("a", ("a", ""))) is not None
    assert interpreted("ALTER TABLE t_1 ADD c INT", plain, "t_1", writing=owned("b", ("a", ""))) is not None


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("RENAME TABLE t_1 TO t_9", r"renamed shop\.t_1"),
        ("RENAME TABLE t_1 TO t_9, t_2 TO t_1", r"renamed shop\.t_1"),
        ("RENAME TABLE t_1 TO x, t_2 TO t_1, x TO t_2", r"renamed shop\.t_1"),
        ("RENAME TABLE t_2 TO t_1", r"renamed another table to shop\.t_1"),
        ("ALTER TABLE t_1 ADD c INT, RENAME TO t_9", r"renamed shop\.t_1"),
    ],
)
def test_a_zone_renames_a_table_only_where_it_owns_all(sql: str, said: str) -> None:
    """After the rename, the table's former name leads to other rows or to none, and no row event shows this."""
    plain = Rules(allow=AllowList(do_dbs=("shop",)))
    names = ("t_2",) if sql == "RENAME TABLE t_2 TO t_1" else ("t_1", "t_2")
    more = tuple(OwnedRange(schema="shop", table="t_2", zone=zone) for zone in "b")
    for ranges in ((("a", ""),), (("a", "id < 5"), ("b", ""))):
        writing = owned("b", *ranges)
        writing = replace(writing, owners=Owners((*writing.owners.ranges, *more)))
        with pytest.raises(Halted, match=f"a statement of zone b has {said}") as caught:
            interpreted(sql, plain, *names, writing=writing)
        assert caught.value.code == "foreign-write"
        skip = DdlCommand(lsn=AT, kind=CommandKind.SKIP)
        assert interpreted(sql, plain, *names, writing=writing, command=skip) is not None
    writing = replace(writing, owners=Owners((*owned("b", ("b", "")).owners.ranges, *more)))
    assert interpreted(sql, plain, *names, writing=writing) is not None
    back = "RENAME TABLE t_1 TO x, x TO t_1"
    assert interpreted(back, plain, "t_1", writing=owned("b", ("a", ""))) is not None
