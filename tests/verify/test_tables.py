"""Tables of every kind are compared on real servers: with sums that both servers compute equally, with keys of any
type, without a key.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from tests.forked_programs import loaded_programs

from pidts.cli.app import run_command
from pidts.cli.findings import show_report
from pidts.cli.repair import repaired, show_repairs
from pidts.cli.verify import grants_in_advice, verified
from pidts.model import Checkpoint, Halt, Halted, Lsn, PidtsError, Position, SourceTablesKey, TableName
from pidts.plan import CopyState, PlanState
from pidts.plan.state import held_at
from pidts.relay import Origin, RelayWriter
from pidts.rules import ColumnMapping, EventFilter, FilterRule, Rules
from pidts.sandbox import Server
from pidts.source import connect, event_at, log_end, server_info
from pidts.task.compare.catch_up import TaskCatchUp
from pidts.task.compare.repair import Repairs
from pidts.task.compare.target import target_rows
from pidts.task.compare.wiring import ShownTable, compare_task, opened_comparison
from pidts.task.operate.presence import show_presence
from pidts.verify import ANYBODY, ComparisonInterrupted, DifferenceKind, KeySpan, NotCaughtUp, Report, Sum, UnequalKeys

from .conftest import Pair
from .test_planted import zoo

MakePair = Callable[[Server, Server], Pair]

KEYS = (
    ("folded", "k VARCHAR(10) COLLATE utf8mb4_general_ci", "('a'), ('B'), ('é'), ('ss')", "'q'"),
    ("exact", "k VARCHAR(10) COLLATE utf8mb4_bin", "('a'), ('A'), ('b'), ('é')", "'q'"),
    ("bytes", "k VARBINARY(4)", "(x'00'), (x'ff'), (x'0001'), (x'7f')", "x'7e'"),
    ("label", "k ENUM('z', 'y', 'x', 'w')", "('z'), ('y'), ('x')", "'w'"),
    ("number", "k DECIMAL(20,4)", "(-1.5), (0), (10), (9.5)", "7.25"),
    ("moment", "k DATETIME(6)", "('2024-01-01 00:00:00.000001'), ('2024-01-01'), ('1000-01-01')", "'2025-01-01'"),
    ("bits", "k BIT(20)", "(1), (70000), (0)", "5"),
    ("day", "k DATE", "('2024-01-01'), ('0001-01-01'), ('9999-12-31')", "'2025-01-01'"),
    ("clock", "k TIME(6)", "('-838:59:59'), ('-00:00:00.000001'), ('00:00'), ('838:59:59')", "'-01:30:00.5'"),
    ("calendar_year", "k YEAR", "(1901), (2155), (0)", "2024"),
    ("fraction", "k DOUBLE", "(-1.5e300), (0), (0.1)", "7.25"),
    ("instant", "k TIMESTAMP(6)", "('2024-01-01 00:00:00.000001'), ('2038-01-19 03:14:07')", "'2025-01-01'"),
)
ON_POSTGRES = {"x'7e'": r"'\x7e'", "5": "5::bit(20)"}


def sums(pair: Pair) -> set[tuple[Sum | None, Sum | None]]:
    with opened_comparison([pair.config], lambda _: True) as comparison:
        merged_tables = comparison.merged_tables()
        here = target_rows(comparison.target, lambda: merged_tables)
        return {
            (merged.members[0].sum(KeySpan()), here.sum(merged.table, KeySpan())) for merged in merged_tables.values()
        }


@pytest.mark.usefixtures("mysql97", "mariadb", "postgres")
@pytest.mark.parametrize(
    ("one", "other", "floats"),
    [("mysql97", "postgres", False), ("mariadb", "other_mariadb", True), ("mysql97", "mariadb", True)],
)
def test_servers_agree_on_the_sum_of_equal_rows(
    request: pytest.FixtureRequest, pair_of: MakePair, one: str, other: str, *, floats: bool
) -> None:
    pair = pair_of(request.getfixturevalue(one), request.getfixturevalue(other))
    zoo(pair, floats=floats)
    pair.copy()
    ((there, here),) = sums(pair)
    assert there == here
    assert there is not None
    assert there.rows == 61


ONLY_THERE = (
    ("dt", "DATETIME", "timestamp(6)", "'2024-02-29 12:34:56'", "'2024-02-29 12:34:56.7'"),
    (
        "dtm",
        "DATETIME(3)",
        "timestamp(6)",
        "'2024-02-29 12:34:56.700'",
        "'2024-02-29 12:34:56.7000001'::timestamp(6) + interval '1 us'",
    ),
    ("ts", "TIMESTAMP", "timestamptz(6)", "'2024-02-29 12:34:56'", "'2024-02-29 12:34:56.000001+00'"),
    ("tm", "TIME", "interval(6)", "'-12:34:56'", "'-12:34:56.7'"),
    ("tmm", "TIME(3)", "interval(6)", "'-12:34:56.700'", "'-12:34:56.700001'"),
    ("moment", "DATETIME(3)", "timestamp(3)", "'0001-01-01 00:00:00.5'", "'0001-01-01 00:00:00.5 BC'"),
    ("day", "DATE", "date", "'0001-01-01'", "'0001-01-01 BC'"),
    ("six", "INET6", "inet", "'2001:db8::1'", "'2001:db8::1/64'"),
    ("four", "INET4", "inet", "'10.0.0.1'", "'10.0.0.1/24'"),
    ("labels", "SET('a','b')", "text[]", "'a'", "'{a,NULL}'"),
    ("list", "SET('a','b')", "text[]", "'a,b'", "'{\"a,b\"}'"),
    ("none", "SET('a','b')", "text[]", "''", "'{\"\"}'"),
)
"""What a column made by hand on PostgreSQL can store and the source's column cannot: its type, its value, the target's
value.
"""


def test_values_that_only_the_target_can_store_differ(pair_of: MakePair, mariadb: Server, postgres: Server) -> None:
    pair = pair_of(mariadb, postgres)
    schema = pair.config.name
    for name, kind, made, value, _ in ONLY_THERE:
        pair.on_source(
            f"CREATE TABLE {name}_ (id INT PRIMARY KEY, v {kind})", f"INSERT INTO {name}_ VALUES (1, {value})"
        )
        pair.on_target(
            f"CREATE SCHEMA IF NOT EXISTS {schema}", f"CREATE TABLE {schema}.{name}_ (id INT PRIMARY KEY, v {made})"
        )
    pair.copy(made=True)
    report = compare_task(pair.config)
    assert (differences_of(report), report.equal) == (set(), True)
    assert all(there == here for there, here in sums(pair))
    for name, _, _, _, other in ONLY_THERE:
        pair.on_target(f"UPDATE {schema}.{name}_ SET v = {other}")
    assert not any(there == here for there, here in sums(pair))
    assert differences_of(compare_task(pair.config)) == {(f"{name}_", "different") for name, *_ in ONLY_THERE}
    repaired([pair.config], "", apply=True, stop=threading.Event(), show=print)
    assert compare_task(pair.config).equal


def differences_of(report: Report) -> set[tuple[str, str]]:
    return {(one.table.name, one.kind.value) for one in report.examples}


DOCUMENTS = (
    '{"x":5}',
    '{"b":1,"a":2}',
    "1.0",
    "[1,2]",
    '{"a":1,"a":{"c":[1.50,"\\\\u00e9"],"b":null}}',
    "null",
    '"1"',
    "-0.0",
    "1e20",
)
"""JSON documents, many of which a server with a JSON type prints in another way than they were written."""


@pytest.mark.usefixtures("postgres", "mysql97")
@pytest.mark.parametrize(("other", "document"), [("postgres", "jsonb"), ("postgres", "json"), ("mysql97", "json")])
def test_json_that_only_the_source_has_as_text_is_compared_by_its_value(
    request: pytest.FixtureRequest, pair_of: MakePair, mariadb: Server, other: str, document: str
) -> None:
    pair = pair_of(mariadb, request.getfixturevalue(other))
    schema = pair.config.name
    if other == "postgres":
        pair.on_target(f"CREATE SCHEMA IF NOT EXISTS {schema}")
    values = ", ".join(f"({id_}, '{text}', {id_})" for id_, text in enumerate(DOCUMENTS, 1))
    for name, key in (("keyed", " PRIMARY KEY"), ("bag", "")):
        pair.on_source(
            f"CREATE TABLE {name} (id INT{key}, j JSON, k INT)",
            f"INSERT INTO {name} VALUES {values}, (99, NULL, 99)",
        )
        pair.on_target(f"CREATE TABLE {schema}.{name} (id INT{key}, j {document}, k INT)")
    pair.copy(made=True)
    report = compare_task(pair.config)
    assert (report.examples, report.equal) == ((), True)
    pair.on_source(
        """UPDATE keyed SET j = '{"x":6}' WHERE id = 1""",
        "UPDATE keyed SET j = '1' WHERE id = 7",
        "UPDATE keyed SET j = 'null' WHERE id = 99",
        "UPDATE bag SET j = '[2,1]' WHERE id = 4",
    )
    report = compare_task(pair.config)
    assert [(one.kind, one.key, one.columns) for one in report.examples] == [
        (DifferenceKind.DIFFERENT, {"id": id_}, ("j",)) for id_ in (1, 7, 99)
    ]
    assert [(one.missing, one.extra) for one in report.tables if one.table.name == "bag"] == [(1, 1)]
    work = repaired([pair.config], f"{schema}.keyed", apply=True, stop=threading.Event(), show=print)
    assert work.written == 3
    assert [(one.table.name, one.equal) for one in compare_task(pair.config).tables] == [
        ("bag", False),
        ("keyed", True),
    ]


def test_json_that_both_servers_have_as_text_is_compared_as_text(
    pair_of: MakePair, mariadb: Server, other_mariadb: Server
) -> None:
    pair = pair_of(mariadb, other_mariadb)
    pair.on_source("CREATE TABLE t (id INT PRIMARY KEY, j JSON)", """INSERT INTO t VALUES (1, '{"x":5}'), (2, '1')""")
    pair.copy()
    assert compare_task(pair.config).equal
    pair.on_target(f"""UPDATE {pair.config.name}.t SET j = '{{"x": 5}}' WHERE id = 1""")
    assert [(one.kind, one.columns) for one in compare_task(pair.config).examples] == [
        (DifferenceKind.DIFFERENT, ("j",))
    ]


def test_a_text_key_is_no_document_on_the_target(pair_of: MakePair, mariadb: Server, postgres: Server) -> None:
    pair = pair_of(mariadb, postgres)
    schema = pair.config.name
    pair.on_source(
        "CREATE TABLE t (j VARCHAR(99) COLLATE utf8mb4_bin PRIMARY KEY, n INT)",
        """INSERT INTO t VALUES ('{"x":5}', 1), ('[1,2]', 2)""",
    )
    pair.on_target(f"CREATE SCHEMA IF NOT EXISTS {schema}", f"CREATE TABLE {schema}.t (j jsonb PRIMARY KEY, n INT)")
    problem = "of its key, column j treats different texts as equal"
    with pytest.raises(Halted, match=problem):
        pair.copy(made=True)
    assert [one.problem for one in compare_task(pair.config).tables] == [problem]


@pytest.mark.usefixtures("postgres")
@pytest.mark.parametrize("other", ["postgres", "other_mariadb"])
def test_keys_of_any_type_are_compared_and_repaired(
    request: pytest.FixtureRequest, pair_of: MakePair, mariadb: Server, other: str
) -> None:
    pair = pair_of(mariadb, request.getfixturevalue(other))
    for name, key, values, _ in KEYS:
        pair.on_source(
            f"CREATE TABLE {name} ({key} PRIMARY KEY, n INT DEFAULT 1)", f"INSERT INTO {name} (k) VALUES {values}"
        )
    pair.on_source(
        "CREATE TABLE pair (a VARCHAR(9) COLLATE utf8mb4_bin, b INT, n INT, PRIMARY KEY (a, b))",
        "INSERT INTO pair VALUES ('x', 1, 1), ('x', 2, 1), ('y', 1, 1)",
        "CREATE TABLE bag (a INT, b VARCHAR(9), d DATE)",
        "INSERT INTO bag VALUES (1, 'x', '0000-00-00'), (1, 'x', '0000-00-00'), (2, NULL, NULL)",
    )
    pair.copy()
    report = compare_task(pair.config)
    assert (report.examples, report.equal) == ((), True)
    schema = pair.config.name
    for name, _, _, value in KEYS:
        extra = ON_POSTGRES.get(value, value) if other == "postgres" else value
        pair.on_target(
            f"UPDATE {schema}.{name} SET n = 2",
            f"INSERT INTO {schema}.{name} (k, n) VALUES ({extra}, 1)",
        )
    pair.on_target(
        f"DELETE FROM {schema}.pair WHERE a = 'x' AND b = 2",
        f"INSERT INTO {schema}.pair VALUES ('z', 1, 1)",
        f"DELETE FROM {schema}.bag WHERE a = 2",
    )
    found = compare_task(pair.config)
    assert differences_of(found) == {(name, kind) for name, *_ in KEYS for kind in ("different", "extra")} | {
        ("pair", "missing"),
        ("pair", "extra"),
    }
    numbers = {one.table.name: one for one in found.tables}
    assert (numbers["bag"].missing, numbers["bag"].extra, numbers["bag"].has_key) == (1, 0, False)
    work = repaired([pair.config], "", apply=True, stop=threading.Event(), show=print)
    assert work.report is not None
    assert [str(one.table.name) for one in work.report.tables if not one.equal] == ["bag"]


def test_a_key_in_another_case_is_a_difference_and_is_repaired(
    pair_of: MakePair, mariadb: Server, other_mariadb: Server
) -> None:
    pair = pair_of(mariadb, other_mariadb)
    pair.on_source(
        "CREATE TABLE t (k VARCHAR(10) COLLATE utf8mb4_general_ci PRIMARY KEY, n INT)",
        "INSERT INTO t VALUES ('a', 1), ('b', 1)",
    )
    pair.copy()
    pair.on_target(f"UPDATE {pair.config.name}.t SET k = 'A' WHERE k = 'a'")
    assert differences_of(compare_task(pair.config)) == {("t", "missing"), ("t", "extra")}
    repaired([pair.config], "", apply=True, stop=threading.Event(), show=print)
    assert pair.run_sql(pair.target, f"SELECT k, n FROM {pair.config.name}.t ORDER BY k") == [("a", 1), ("b", 1)]
    assert compare_task(pair.config).equal


def test_a_repair_that_is_to_stop_writes_no_more(pair_of: MakePair, mariadb: Server, other_mariadb: Server) -> None:
    pair = pair_of(mariadb, other_mariadb)
    pair.on_source("CREATE TABLE t (id INT PRIMARY KEY, u INT UNIQUE)", "INSERT INTO t VALUES (1, 1), (2, 2)")
    pair.copy()
    pair.on_target(f"DELETE FROM {pair.config.name}.t")
    (table,) = pair.tables().values()
    rows = table.arrow.empty_table().from_pylist([{"id": 1, "u": 1}, {"id": 2, "u": 2}], table.arrow)
    settled = UnequalKeys(rows.select(["id"]), ((DifferenceKind.MISSING, ()),) * 2, ((0,),) * 2, (ANYBODY,) * 2)
    stop = threading.Event()
    with (
        opened_comparison([pair.config], lambda _: True) as comparison,
        closing(pair.config.target.server.connect()) as target,
    ):
        work = Repairs(pair.config.name, target, stop, print, apply=True)
        (merged,) = comparison.merged_tables().values()
        stop.set()
        with pytest.raises(ComparisonInterrupted):
            work.differ(merged, settled)
        assert target.count(table.name) == 0
        stop.clear()
        assert work.differ(merged, settled)
        assert target.count(table.name) == 2


def test_a_task_that_follows_another_server_has_reached_no_place_of_this_one(
    pair_of: MakePair, mariadb: Server, other_mariadb: Server
) -> None:
    pair = pair_of(mariadb, other_mariadb)
    name, relay = pair.config.name, pair.config.relay
    with closing(connect(pair.config.source.server)) as source, closing(pair.config.target.server.connect()) as target:
        target.meta.prepare()
        far = Checkpoint(task=name, source="one", worker=0, lsn=Lsn(3, 900, 4))
        target.meta.checkpoints.claim(name, "one", 1, far)
        catch_up = TaskCatchUp(pair.config, source, target)
        assert catch_up.place() < far.lsn
        format_event = event_at(pair.config.source.server, Position(log_end(source).file, 4))
        for server, change_no in (("another", 5), (server_info(source).identity, 6)):
            shutil.rmtree(relay, ignore_errors=True)
            with closing(RelayWriter.open(relay, "one")) as writer:
                writer.begin(Origin(server, "bin", change_no), Lsn(change_no, 1, 4), "")
                writer.start_segment(format_event)
            assert (catch_up.change_no, catch_up.place() > far.lsn) == (6, True)


MAPPED = 1 << 59
"""The result of `partition id` for 0 on instance 1."""


def test_rows_that_rules_have_changed_or_kept_are_distinguished_and_stay(
    pair_of: MakePair, mariadb: Server, other_mariadb: Server
) -> None:
    pair = pair_of(mariadb, other_mariadb)
    name = pair.config.name
    for table in ("kept", "mapped", "plain"):
        pair.on_source(
            f"CREATE TABLE {table} (id INT PRIMARY KEY, n INT)", f"INSERT INTO {table} VALUES (1, 1), (2, 2)"
        )
    pair.copy()
    pair.on_target(f"ALTER TABLE {name}.mapped MODIFY n BIGINT")
    pair.on_source("DELETE FROM kept WHERE id = 1", "DELETE FROM plain WHERE id = 1")
    rules = Rules(
        allow=pair.config.allow,
        events=EventFilter((FilterRule(name, "kept", ("delete",), (), "Ignore"),)),
        mappings=(ColumnMapping(name, "mapped", "n", "partition id", ("1", "", "")),),
    )
    config = replace(pair.config, rules=rules)
    found = {one.table.name: one for one in compare_task(config).tables}
    assert [(one, report.extra, report.different, report.filtered) for one, report in sorted(found.items())] == [
        ("kept", 1, 0, True),
        ("mapped", 0, 2, False),
        ("plain", 1, 0, False),
    ]
    work = repaired([config], "", apply=True, stop=threading.Event(), show=print)
    assert (work.filtered, work.kept, work.removed) == (set(), {("one", TableName(name, "kept"))}, 1)
    rows = {table: len(pair.run_sql(pair.target, f"SELECT id FROM {name}.{table}")) for table in found}
    assert rows == {"kept": 2, "mapped": 2, "plain": 1}
    assert pair.run_sql(pair.target, f"SELECT id, n FROM {name}.mapped ORDER BY id") == [
        (1, MAPPED + 1),
        (2, MAPPED + 2),
    ]
    assert [one.equal for one in compare_task(config).tables if one.table.name != "kept"] == [True, True]


DROPS = ("drop table", "truncate table")


@pytest.mark.usefixtures("postgres")
@pytest.mark.parametrize("target", ["postgres", "other_mariadb"])
@pytest.mark.parametrize("events", [("delete",), DROPS], ids=["no-deletes", "no-drops"])
def test_only_extra_rows_of_a_table_that_keeps_rows_stay_until_their_removal_is_requested(
    request: pytest.FixtureRequest,
    pair_of: MakePair,
    mariadb: Server,
    target: str,
    events: tuple[str, ...],
    capsys: pytest.CaptureFixture[str],
) -> None:
    pair = pair_of(mariadb, request.getfixturevalue(target))
    schema = pair.config.name
    pair.on_source("CREATE TABLE t (id INT PRIMARY KEY, n INT)", "INSERT INTO t VALUES (1, 1), (2, 2), (3, 3), (4, 4)")
    pair.copy()
    pair.on_source("DELETE FROM t WHERE id IN (1, 2)")
    pair.on_target(f"DELETE FROM {schema}.t WHERE id = 3", f"UPDATE {schema}.t SET n = 0 WHERE id = 4")
    filters = EventFilter((FilterRule(schema, "t", events, (), "Ignore"),))
    config = replace(pair.config, rules=Rules(allow=pair.config.allow, events=filters))

    def said(*, apply: bool, removes: bool = False) -> tuple[str, str]:
        """Returns the SQL of a repair, and what the command says about it."""
        sql: list[str] = []
        work = repaired([config], "", apply=apply, removes=removes, stop=threading.Event(), show=sql.append)
        capsys.readouterr()
        show_repairs(config, work, as_json=False)
        shown = capsys.readouterr()
        return "\n".join(sql), shown.err + shown.out

    stay = f"-- {schema}.t: 2 extra rows are left, since its filters leave out changes that remove rows"
    sql, text = said(apply=False)
    assert "1 missing, 1 different" in sql
    assert "DELETE" not in sql
    assert f"{stay}: --remove-extra deletes them" in text
    assert "4 rows are not equal; --apply repairs 2 of them" in text
    _, text = said(apply=True)
    assert stay in text
    assert "2 rows written, 0 extra rows deleted, 2 rows are still not equal" in text
    now = f"SELECT id, n FROM {schema}.t ORDER BY id"
    assert pair.run_sql(pair.target, now, database=pair.database) == [(1, 1), (2, 2), (3, 3), (4, 4)]
    show_report(schema, report := compare_task(config), as_json=False)
    assert "2 extra; its filters leave out changes that remove rows, so extra rows may be intended" in (
        capsys.readouterr().out
    )
    assert (report.tables[0].filtered, report.tables[0].extra) == (True, 2)
    sql, text = said(apply=False, removes=True)
    assert "DELETE" in sql
    assert f"-- {schema}.t: 2 extra rows that its filters may have kept would be deleted" in text
    _, text = said(apply=True, removes=True)
    assert "0 rows written, 2 extra rows deleted, all rows are equal now" in text
    assert pair.run_sql(pair.target, now, database=pair.database) == [(3, 3), (4, 4)]


def test_a_row_that_the_source_deletes_before_its_repair_stays_if_filters_keep_rows(
    pair_of: MakePair, mariadb: Server, other_mariadb: Server
) -> None:
    pair = pair_of(mariadb, other_mariadb)
    schema = pair.config.name
    pair.on_source("CREATE TABLE t (id INT PRIMARY KEY, n INT)", "INSERT INTO t VALUES (1, 1)")
    pair.copy()
    pair.on_source("DELETE FROM t")
    (table,) = pair.tables().values()
    keys = table.arrow.empty_table().from_pylist([{"id": 1, "n": 1}], table.arrow).select(["id"])
    filters = EventFilter((FilterRule(schema, "t", ("delete",), (), "Ignore"),))
    config = replace(pair.config, rules=Rules(allow=pair.config.allow, events=filters))
    found = UnequalKeys(keys, ((DifferenceKind.DIFFERENT, ("n",)),), ((0,),), (ANYBODY,))
    not_read = UnequalKeys(keys, ((DifferenceKind.UNSETTLED, ()),), ((),), (ANYBODY,))
    sql: list[str] = []
    with (
        opened_comparison([config], lambda _: True) as comparison,
        closing(config.target.server.connect()) as target,
    ):
        (merged,) = comparison.merged_tables().values()
        for settled in (found, not_read):
            for applies in (False, True):
                Repairs(schema, target, threading.Event(), sql.append, apply=applies).differ(merged, settled)
        assert target.count(table.name) == 1
        assert "DELETE" not in "\n".join(sql)
        removal = Repairs(schema, target, threading.Event(), sql.append, apply=True, removes=True)
        assert removal.differ(merged, found)
        assert target.count(table.name) == 0


@pytest.mark.parametrize("event", ["insert", "update"])
def test_a_table_of_which_a_filter_leaves_out_rows_or_values_is_not_repaired(
    pair_of: MakePair, mariadb: Server, other_mariadb: Server, capsys: pytest.CaptureFixture[str], event: str
) -> None:
    pair = pair_of(mariadb, other_mariadb)
    schema = pair.config.name
    pair.on_source("CREATE TABLE t (id INT PRIMARY KEY, n INT)", "INSERT INTO t VALUES (1, 1)")
    pair.copy()
    pair.on_source("INSERT INTO t VALUES (2, 2)", "UPDATE t SET n = 3 WHERE id = 1")
    filters = EventFilter((FilterRule(schema, "t", (event,), (), "Ignore"),))
    config = replace(pair.config, rules=Rules(allow=pair.config.allow, events=filters))
    work = repaired([config], "", apply=True, removes=True, stop=threading.Event(), show=print)
    assert f"{schema}.t is not repaired: its filters leave out inserts or updates" in capsys.readouterr().err
    assert work.filtered == {ShownTable("", TableName(schema, "t"))}
    assert pair.run_sql(pair.target, f"SELECT id, n FROM {schema}.t") == [(1, 1)]


def test_a_table_that_is_not_there_or_does_not_fit_is_not_equal(
    pair_of: MakePair, mariadb: Server, other_mariadb: Server
) -> None:
    pair = pair_of(mariadb, other_mariadb)
    pair.on_source(
        "CREATE TABLE gone (id INT PRIMARY KEY)",
        "INSERT INTO gone VALUES (1), (2)",
        "CREATE TABLE odd (id INT PRIMARY KEY, n INT)",
    )
    pair.copy()
    pair.on_target(f"DROP TABLE {pair.config.name}.gone", f"ALTER TABLE {pair.config.name}.odd DROP COLUMN n")
    report = compare_task(pair.config)
    assert not report.equal
    assert {one.table.name: (one.missing, bool(one.problem)) for one in report.tables} == {
        "gone": (2, True),
        "odd": (0, True),
    }


@pytest.mark.parametrize("kind", ["mariadb", "postgres"])
def test_a_table_whose_new_type_the_target_does_not_have_yet_is_not_compared(
    pair_of: MakePair, mariadb: Server, other_mariadb: Server, postgres: Server, kind: str
) -> None:
    """The target's values are not values of the new type. The other tables are compared."""
    pair = pair_of(mariadb, postgres if kind == "postgres" else other_mariadb)
    pair.on_source(
        "CREATE TABLE t (id INT PRIMARY KEY, v TIME(1))",
        "INSERT INTO t VALUES (1, '100:00:00.5')",
        "CREATE TABLE u (id INT PRIMARY KEY)",
        "INSERT INTO u VALUES (1)",
    )
    pair.copy()
    if kind == "postgres":
        pair.on_source("ALTER TABLE t MODIFY v INT")
    else:
        pair.on_target(f"ALTER TABLE {pair.config.name}.t MODIFY v VARCHAR(20)")
        pair.on_target(f"UPDATE {pair.config.name}.t SET v = 'late'")
    name, table = pair.config.name, TableName(pair.config.name, "t")
    with closing(connect(pair.config.source.server)) as source, closing(pair.config.target.server.connect()) as target:
        start = Lsn.at(log_end(source))
        copy = PlanState(start, {table: CopyState()}).copy_json()
        row = Checkpoint(task=name, source="one", worker=0, lsn=start, copy=copy)
        target.meta.checkpoints.claim(name, "one", 1, row)
    report = compare_task(pair.config)
    waiting, equal = report.tables
    assert (str(waiting.table), waiting.differences, len(waiting.waits)) == (f"{pair.config.name}.t", 0, 1)
    assert "until then its rows are not compared: the target has a value that the source's column" in waiting.waits[0]
    assert (str(equal.table), equal.equal) == (f"{pair.config.name}.u", True)


def test_a_table_whose_key_postgresql_cannot_store_is_named_and_the_others_are_compared(
    pair_of: MakePair, mariadb: Server, postgres: Server
) -> None:
    pair = pair_of(mariadb, postgres)
    for table in ("day", "other"):
        pair.on_source(f"CREATE TABLE {table} (k DATE PRIMARY KEY)", f"INSERT INTO {table} VALUES ('2024-01-01')")
    pair.copy()
    pair.on_source("INSERT INTO day VALUES ('0000-00-00')")
    bad, equal = compare_task(pair.config).tables
    assert "column k is part of the key and holds a zero or partial date" in bad.problem
    assert (str(equal.table), equal.equal) == (f"{pair.config.name}.other", True)


def test_what_the_account_may_not_do_is_named_with_its_grant(
    pair_of: MakePair, mariadb: Server, other_mariadb: Server
) -> None:
    pair = pair_of(mariadb, other_mariadb)
    pair.on_source("CREATE TABLE seen (id INT PRIMARY KEY)", "CREATE TABLE unseen (id INT PRIMARY KEY)")
    pair.copy()
    schema, user = pair.config.name, f"u_{pair.config.name[-8:]}"
    server = replace(pair.config.source.server, user=user, password="s3cret")
    config = replace(pair.config, source=replace(pair.config.source, server=server))
    with closing(config.target.server.connect()) as target:
        target.begin()
        target.meta.structures.save(
            config.name, SourceTablesKey(config.source.source_id), Lsn(0, 1, 4), dict(pair.tables())
        )
        target.commit()
    pair.on_source(
        f"CREATE USER '{user}'@'%' IDENTIFIED BY 's3cret'",
        f"GRANT SELECT ON {schema}.seen TO '{user}'@'%'",
    )
    try:
        with pytest.raises(PidtsError) as refused, grants_in_advice([config]):
            compare_task(config)
        assert refused.value.code == "missing-privilege"
        with pytest.raises(PidtsError, match="Correct the row"), grants_in_advice([config]):
            raise Halted("target-refused", "the target: a row (error 1366)", todo="Correct the row")
        pair.on_source(f"GRANT BINLOG MONITOR ON *.* TO '{user}'@'%'")
        (client,) = re.findall(r"GRANT [^;]*REPLICATION CLIENT ON \*\.\* TO [^;]*;", refused.value.todo)
        assert client.endswith(f" TO '{user}'@'%';")
        found = {one.table.name: one.problem for one in compare_task(config).tables}
        assert found["seen"] == ""
        (grant,) = re.findall("GRANT SELECT ON .* TO .*;", found["unseen"])
        pair.on_source(f"DROP TABLE {schema}.seen")
        assert {one.table.name for one in compare_task(config).tables} == {"unseen"}, "a dropped table is left out"
        pair.on_source(grant.rstrip(";"))
        assert [one.equal for one in compare_task(config).tables] == [True]
    finally:
        pair.on_source(f"DROP USER '{user}'@'%'")


def test_an_account_that_only_reads_the_target_can_compare_tables_with_foreign_keys(
    pair_of: MakePair, mariadb: Server, postgres: Server
) -> None:
    """PostgreSQL needs a privilege to write such tables. A comparison and a repair without `apply` write nothing."""
    pair = pair_of(mariadb, postgres)
    schema, role = pair.config.name, f"r_{pair.config.name[-8:]}"
    pair.on_source(
        "CREATE TABLE p (id INT PRIMARY KEY)",
        "CREATE TABLE c (id INT PRIMARY KEY, p INT)",
        "INSERT INTO p VALUES (1)",
        "INSERT INTO c VALUES (1, 1)",
    )
    pair.copy()
    pair.on_target(
        f"ALTER TABLE {schema}.c ADD FOREIGN KEY (p) REFERENCES {schema}.p (id)",
        f"CREATE ROLE {role} LOGIN PASSWORD 's3cret'",
        f"GRANT USAGE ON SCHEMA {schema}, pidts_meta TO {role}",
        f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema}, pidts_meta TO {role}",
    )
    try:
        config = replace(pair.config, target=replace(pair.config.target, user=role, password="s3cret"))
        assert compare_task(config).equal
        pair.on_source("INSERT INTO c VALUES (2, 1)")
        lines: list[str] = []

        def repair(*, apply: bool) -> Repairs:
            return repaired([config], "", apply=apply, stop=threading.Event(), show=lines.append)

        assert repair(apply=False).repaired == 1
        refused = repair(apply=True)
        assert (refused.report is not None, refused.written) == (True, 0)
        (child,) = [one for one in refused.report.tables if one.table.name == "c"]
        assert "GRANT SET ON PARAMETER session_replication_role" in child.problem
    finally:
        pair.on_target(f"DROP OWNED BY {role}", f"DROP ROLE {role}")


@pytest.mark.timeout(120)
def test_a_comparison_that_is_killed_continues_where_it_was(
    pair_of: MakePair, mariadb: Server, other_mariadb: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    pair = pair_of(mariadb, other_mariadb)
    pair.on_source(
        "CREATE TABLE a (id INT PRIMARY KEY, n INT)",
        "INSERT INTO a SELECT seq, 0 FROM seq_1_to_1000",
        "CREATE TABLE b (id INT PRIMARY KEY, n INT)",
        "INSERT INTO b SELECT seq, 0 FROM seq_1_to_1000",
    )
    pair.copy()
    pair.on_target(
        f"UPDATE {pair.config.name}.a SET n = 1 WHERE id = 5", f"DELETE FROM {pair.config.name}.b WHERE id = 6"
    )
    # The second table cannot be read: the comparison waits there until it is killed.
    memory = pair.config.relay / "one" / "verify" / f"{pair.config.name}.json"
    with closing(connect(pair.config.source.server)) as blocker:
        blocker.query(f"LOCK TABLES `{pair.config.name}`.b WRITE")
        with Path(os.devnull).open("wb") as nowhere:
            process = loaded_programs().start(["verify", str(pair.config.path)], nowhere, nowhere)
        try:
            deadline = time.monotonic() + 60
            while not memory.exists():
                assert time.monotonic() < deadline
                time.sleep(0.05)
        finally:
            process.kill()
            process.wait()
    pair.on_target(f"UPDATE {pair.config.name}.a SET n = 0 WHERE id = 5")
    report = verified([pair.config], "", examples=9, restart=False, stop=threading.Event())
    assert "continuing the interrupted comparison" in capsys.readouterr().err
    assert differences_of(report) == {("a", "different"), ("b", "missing")}
    assert not memory.exists()
    assert differences_of(verified([pair.config], "", examples=9, restart=True, stop=threading.Event())) == {
        ("b", "missing")
    }


def test_each_table_with_differences_has_examples(pair_of: MakePair, mariadb: Server, other_mariadb: Server) -> None:
    pair = pair_of(mariadb, other_mariadb)
    for name in ("a", "b", "c"):
        pair.on_source(f"CREATE TABLE {name} (id INT PRIMARY KEY)", f"INSERT INTO {name} SELECT seq FROM seq_1_to_30")
    pair.copy()
    pair.on_target(f"DELETE FROM {pair.config.name}.a", f"DELETE FROM {pair.config.name}.c WHERE id > 28")
    report = compare_task(pair.config, examples=5)
    assert [(one.table.name, one.key["id"]) for one in report.examples] == [
        ("a", 1),
        ("a", 2),
        ("a", 3),
        ("c", 29),
        ("c", 30),
    ]
    assert [one.missing for one in report.tables] == [30, 0, 2]


@pytest.mark.timeout(120)
def test_a_comparison_that_is_stopped_prints_its_results_so_far(
    pair_of: MakePair, mariadb: Server, other_mariadb: Server, tmp_path: Path
) -> None:
    pair = pair_of(mariadb, other_mariadb)
    schema = pair.config.name
    for name in ("a", "b"):
        pair.on_source(f"CREATE TABLE {name} (id INT PRIMARY KEY)", f"INSERT INTO {name} SELECT seq FROM seq_1_to_9")
    pair.copy()
    pair.on_target(f"DELETE FROM {schema}.a WHERE id = 5")
    memory = pair.config.relay / "one" / "verify" / f"{schema}.json"
    with (
        closing(connect(pair.config.source.server)) as blocker,
        (tmp_path / "printed").open("wb") as printed,
        (tmp_path / "said").open("wb") as said,
    ):
        process = loaded_programs().start(["verify", str(pair.config.path), "--json"], printed, said)
        blocker.query(f"LOCK TABLES `{schema}`.b WRITE")
        deadline = time.monotonic() + 60
        while not memory.exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        blocker.query("UNLOCK TABLES")
        assert process.wait(60) == 1
    assert json.loads((tmp_path / "printed").read_text()) == {
        "task": schema,
        "stage": "stopped",
        "equal": False,
        "rows": 9,
        "tables": [{"name": f"{schema}.a", "rows": 9, "missing": 1, "extra": 0, "different": 0, "unsettled": 0}],
        "differences": [{"table": f"{schema}.a", "kind": "missing", "key": {"id": 5}, "columns": []}],
    }
    assert [line for line in (tmp_path / "said").read_text().splitlines() if line] == [
        "stopping the comparison; press Ctrl-C again to end at once",
        "stopped; the same command continues from here, and with --restart it compares from the beginning",
    ]


@pytest.mark.parametrize("applies", [True, False])
def test_a_repair_that_is_stopped_says_what_it_has_done(
    pair_of: MakePair, mariadb: Server, other_mariadb: Server, capsys: pytest.CaptureFixture[str], *, applies: bool
) -> None:
    pair = pair_of(mariadb, other_mariadb)
    schema = pair.config.name
    for name in ("a", "b"):
        pair.on_source(f"CREATE TABLE {name} (id INT PRIMARY KEY)", f"INSERT INTO {name} VALUES (1), (2)")
    pair.copy()
    pair.on_target(f"DELETE FROM {schema}.a WHERE id = 2")
    stop, sql = threading.Event(), list[str]()
    with closing(connect(pair.config.source.server)) as blocker:
        blocker.query(f"LOCK TABLES `{schema}`.b WRITE")

        def stop_after_the_first_table() -> None:
            deadline = time.monotonic() + 60
            while pair.run_sql(pair.target, f"SELECT COUNT(*) FROM {schema}.a") != [(2,)] if applies else not sql:
                assert time.monotonic() < deadline
                time.sleep(0.05)
            stop.set()
            blocker.query("UNLOCK TABLES")

        thread = threading.Thread(target=stop_after_the_first_table)
        thread.start()
        work = repaired([pair.config], "", apply=applies, stop=stop, show=sql.append)
        thread.join()
    capsys.readouterr()
    assert show_repairs(pair.config, work, sql, as_json=True) == 1
    shown = capsys.readouterr()
    assert shown.err == ("stopped; 1 row written, 0 extra rows deleted\n" if applies else "stopped\n")
    found = json.loads(shown.out)
    assert (found["stage"], found["equal"], found["applied"], found["written"]) == (
        "stopped",
        False,
        applies,
        int(applies),
    )
    assert bool(found["sql"]) is not applies


def test_a_task_that_is_stalled_is_waited_for_once(
    pair_of: MakePair, mariadb: Server, other_mariadb: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["pidts.task.compare.catch_up"], "_PATIENCE", 1.5)
    pair = pair_of(mariadb, other_mariadb)
    tables = [TableName(pair.config.name, name) for name in ("a", "b", "c")]
    with closing(connect(pair.config.source.server)) as source, closing(pair.config.target.server.connect()) as target:
        target.meta.prepare()
        start = Lsn.at(log_end(source))
        held = PlanState(start, {}, held_at({tables[1]: replace(start, offset=start.offset - 1)}, start))
        state = Checkpoint(task=pair.config.name, source="one", worker=0, lsn=start, copy=held.copy_json())
        target.meta.checkpoints.claim(pair.config.name, "one", 1, state)
        said: list[str] = []
        catch_up = TaskCatchUp(pair.config, source, target, say=said.append)
        place = replace(start, offset=start.offset + 9)
        begin = time.monotonic()
        found = [catch_up.await_target(name, place) for name in tables * 5]
        assert 1.5 < time.monotonic() - begin < 9
        assert all(one is not None and one.is_stopped and "PiDTS sees no run of the task" in one.waits for one in found)
        assert said[0] == (
            f"the target does not have all changes of {tables[0]} yet, and PiDTS sees no run of the task"
        ), "an LSN says nothing to most users"
        assert not any("does not move" in one for one in said)
        with closing(pair.config.target.server.connect()) as run:
            show_presence(run, pair.config.name, "one")
            assert catch_up.await_target(tables[0], place) == NotCaughtUp(), "it runs, and nobody knows why it stays"
        assert said[-1] == "the target does not move, although PiDTS sees a run of the task"


def test_a_wait_asks_about_a_run_once_a_second(pair_of: MakePair, mariadb: Server, other_mariadb: Server) -> None:
    """Each question costs queries on the target."""
    asked: list[float] = []

    def sees(*_: object) -> bool:
        asked.append(time.monotonic())
        return len(asked) < 3

    pair = pair_of(mariadb, other_mariadb)
    with closing(connect(pair.config.source.server)) as source, closing(pair.config.target.server.connect()) as target:
        target.meta.prepare()
        start = Lsn.at(log_end(source))
        state = Checkpoint(task=pair.config.name, source="one", worker=0, lsn=start)
        target.meta.checkpoints.claim(pair.config.name, "one", 1, state)
        later = replace(start, offset=start.offset + 9)
        catch_up = TaskCatchUp(pair.config, source, target, unseen_seconds=0.0, sees=sees)
        found = catch_up.await_target(TableName(pair.config.name, "a"), later)
    assert found is not None
    assert found.is_stopped
    assert len(asked) == 4, "three times while it waits, and once to say why it gives up"
    assert asked[2] - asked[0] >= 2.0


@pytest.mark.slow
def test_a_task_that_does_not_run_is_waited_for_once(pair_of: MakePair, mariadb: Server, other_mariadb: Server) -> None:
    """This machine has run the task, so it can tell that the task does not run."""
    pair = pair_of(mariadb, other_mariadb)
    name, relay = pair.config.name, pair.config.relay
    for table in ("a", "b", "c", "d"):
        pair.on_source(f"CREATE TABLE {table} (id INT PRIMARY KEY)")
    pair.copy()
    with closing(connect(pair.config.source.server)) as source, closing(pair.config.target.server.connect()) as target:
        start = Lsn.at(log_end(source))
        target.meta.checkpoints.claim(name, "one", 1, Checkpoint(task=name, source="one", worker=0, lsn=start))
        with closing(RelayWriter.open(relay, "one")) as writer:
            writer.begin(Origin(server_info(source).identity, "bin", 0), start, "")
            writer.start_segment(event_at(pair.config.source.server, Position(log_end(source).file, 4)))
    (relay / f"{name}.run").write_text("")
    for table in ("a", "b", "c", "d"):
        pair.on_source(f"INSERT INTO {table} VALUES (1)")
    begin = time.monotonic()
    report = compare_task(pair.config)
    assert time.monotonic() - begin < 12, "one wait of three seconds, not one for each table"
    assert [one.waiting for one in report.tables] == [1] * 4
    why = (
        "there are changes that are not applied, and PiDTS sees no run of the task. Start the task, and compare again: "
    )
    assert {one.waits for one in report.tables} == {(why + pair.config.run_command(),)}


def test_the_reason_why_a_copy_does_not_continue(pair_of: MakePair, mariadb: Server, other_mariadb: Server) -> None:
    pair = pair_of(mariadb, other_mariadb)
    name, table = pair.config.name, TableName(pair.config.name, "t")
    with closing(connect(pair.config.source.server)) as source, closing(pair.config.target.server.connect()) as target:
        target.meta.prepare()
        start = Lsn.at(log_end(source))
        copy = PlanState(start, {table: CopyState()}).copy_json()
        target.meta.checkpoints.claim(
            name, "one", 1, Checkpoint(task=name, source="one", worker=0, lsn=start, copy=copy)
        )
        catch_up = TaskCatchUp(pair.config, source, target)
        stopped = catch_up.await_target(table, start)
        assert stopped is not None
        assert stopped.is_stopped
        assert stopped.waits.startswith(
            "the copy is not finished, and PiDTS sees no run of the task. Start the task, and compare"
        )
        with closing(pair.config.target.server.connect()) as run:
            show_presence(run, name, "one")
            assert catch_up.await_target(table, start) == NotCaughtUp(), "a run copies the table"
        halt = Halt(tables=(table,), lsn=start, code="target-refused", what="no such value")
        target.begin()
        target.meta.halts.save(name, "one", halt)
        target.commit()
        halted = catch_up.await_target(table, start)
        assert halted is not None
        assert not halted.is_stopped
        assert halted.waits.startswith(f"the copy of {table} waits for a halt: [target-refused] no such value")
        assert halted.waits.endswith(f"; see: pidts ddl list {pair.config.path}")


def test_verify_says_that_a_task_has_not_begun(
    pair_of: Callable[[Server, Server], Pair],
    mariadb: Server,
    postgres: Server,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pair = pair_of(mariadb, postgres)
    config = pair.config
    pair.on_source("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    for command in ("verify", "repair"):
        assert run_command([command, str(config.path)]) == 4
        said = capsys.readouterr().err
        assert f"task {config.name} has not begun: the target has no record of the task" in said
        assert f"pidts run {config.path}" in said
    with closing(config.target.server.connect()) as target:
        target.meta.prepare()
        target.meta.checkpoints.claim(
            config.name, "one", 1, Checkpoint(task=config.name, source="one", worker=0, lsn=Lsn(0, 1, 4))
        )
    assert run_command(["verify", str(config.path)]) == 5, "the rows wait for a run"
    assert "has not begun" not in capsys.readouterr().err
