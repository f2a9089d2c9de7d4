"""Merged tables of two real servers are compared and repaired, with their own keys and with made-up ones."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pidts.cli.findings import exit_code, show_report
from pidts.cli.repair import repaired, show_repairs
from pidts.cli.verify import verified
from pidts.model import Checkpoint, Halt, Lsn, MergedTablesKey, SourceTablesKey, TableName
from pidts.plan import PlanState
from pidts.plan.state import held_at
from pidts.sandbox import Server
from pidts.source import connect, log_end, read_structures
from pidts.task.compare.target import target_rows
from pidts.task.compare.wiring import chosen, compare_task, opened_comparison
from pidts.verify import KeySpan, Report

from .merged_tables import EXTRACTS, SOURCE_TOO, Shards, make_shards

RunSql = Callable[..., list[tuple[Any, ...]]]
MakeShards = Callable[..., Shards]
TARGETS = ("postgres", pytest.param("other_mariadb", marks=pytest.mark.long))
PURPOSE = "rows of dropped tables stay on purpose; --remove-extra also deletes them"


@pytest.fixture
def shards_of(
    request: pytest.FixtureRequest, tmp_path: Path, database: str, mariadb: Server, mysql97: Server, run_sql: RunSql
) -> Iterator[MakeShards]:
    """`shards_of(target, ...)` makes merged tables; MariaDB is source `a`, MySQL is source `b`."""
    made: list[Shards] = []

    def make(target: str, **more: Any) -> Shards:
        server = request.getfixturevalue(target)
        made.append(make_shards(tmp_path, database, {"a": mariadb, "b": mysql97}, server, run_sql, **more))
        return made[-1]

    yield make
    for shards in made:
        if shards.target.kind != "postgres":
            run_sql(shards.target, f"DROP DATABASE IF EXISTS `{database}`")


def filled(shards: Shards, kind: str, values: Callable[[str, int, int], str]) -> None:
    """Fills four tables with 40 rows each; `values(source, table, row)` is the key."""
    for source in ("a", "b"):
        for number in (1, 2):
            rows = ", ".join(f"({values(source, number, row)}, {row}, 'ü{row}')" for row in range(40))
            shards.on(
                source,
                f"CREATE TABLE t_{number} (id {kind} PRIMARY KEY, n INT, v VARCHAR(20)) DEFAULT CHARSET=utf8mb4",
                f"INSERT INTO t_{number} VALUES {rows}",
            )


def differences_of(report: Report) -> set[tuple[Any, ...]]:
    return {(one.key["id"], one.kind.value, one.columns, one.members) for one in report.examples}


def fix(shards: Shards, *, removes: bool = True) -> tuple[int, int, int, int]:
    done = repaired(shards.parts, "", apply=True, removes=removes, stop=threading.Event(), show=print)
    return done.written, done.removed, done.left.count, done.shared


def apart(source: str, table: int, row: int) -> int:
    """Returns a row's number. No two rows have the same number, whatever their tables are."""
    return row * 4 + (source == "b") * 2 + table - 1


@pytest.mark.usefixtures("postgres")
@pytest.mark.parametrize("target", TARGETS)
def test_tables_with_keys_of_their_own(shards_of: MakeShards, target: str) -> None:
    shards = shards_of(target, extracts=SOURCE_TOO)
    filled(shards, "INT", lambda *about: str(apart(*about)))
    shards.copy()
    with opened_comparison(shards.parts, lambda _: True) as comparison:
        (merged,) = comparison.merged_tables().values()
        here = target_rows(comparison.target, lambda: {shards.target_table: merged}).sum(
            merged.table, KeySpan(None, [90])
        )
        sums = [one.sum(KeySpan(None, [90])) for one in merged.members]
        assert here is not None
        assert here.rows == 91
        assert sum(one.digest for one in sums if one) == here.digest
        assert comparison.members(shards.target_table) == {one.label for one in merged.members}
    report = compare_task(*shards.parts)
    (one,) = report.tables
    assert (report.equal, report.rows, one.table) == (True, 160, shards.target_table)
    name = shards.name
    assert one.members == (f"a: {name}.t_1", f"a: {name}.t_2", f"b: {name}.t_1", f"b: {name}.t_2")
    shards.on_target(
        "UPDATE {} SET n = -1 WHERE id = 6",
        "UPDATE {} SET c_table = 't_9' WHERE id = 9",
        "DELETE FROM {} WHERE id = 15",
        "INSERT INTO {} (id, n) VALUES (1000, 1), (-4, 1)",
    )
    found = differences_of(compare_task(*shards.parts))
    assert found == {
        (6, "different", ("n",), (f"b: {name}.t_1",)),
        (9, "different", ("c_table",), (f"a: {name}.t_2",)),
        (15, "missing", (), (f"b: {name}.t_2",)),
        (1000, "extra", (), ()),
        (-4, "extra", (), ()),
    }
    assert fix(shards, removes=False) == (3, 0, 2, 0)
    assert {key for key, *_ in differences_of(compare_task(*shards.parts))} == {1000, -4}
    assert fix(shards) == (0, 2, 0, 0)
    assert compare_task(*shards.parts).equal


@pytest.mark.usefixtures("postgres")
@pytest.mark.parametrize("target", TARGETS)
def test_rows_with_equal_keys_side_by_side(shards_of: MakeShards, target: str) -> None:
    shards = shards_of(target, extracts=SOURCE_TOO)
    filled(shards, "INT", lambda source, table, row: str(row))
    shards.copy(keyed=True)
    report = compare_task(*shards.parts, takes=chosen(f"{shards.name}.t_1"))
    assert (report.equal, report.rows) == (True, 160)
    here = "c_source = 'b' AND c_table = 't_2'"
    shards.on_target(
        f"DELETE FROM {{}} WHERE id = 5 AND {here}",
        f"UPDATE {{}} SET n = 0 WHERE id = 7 AND {here}",
        "UPDATE {} SET c_table = 't_9' WHERE id = 8 AND c_source = 'a' AND c_table = 't_1'",
        "INSERT INTO {} (id, n, c_table, c_source) VALUES (39, 0, '', ''), (40, 0, 't_1', 'a')",
    )
    name = shards.name
    assert differences_of(compare_task(*shards.parts)) == {
        (5, "missing", (), (f"b: {name}.t_2",)),
        (7, "different", ("n",), (f"b: {name}.t_2",)),
        (8, "missing", (), (f"a: {name}.t_1",)),
        (8, "extra", (), ()),
        (39, "extra", (), ()),
        (40, "extra", (), ()),
    }
    assert fix(shards) == (3, 3, 0, 0)
    assert verified(shards.parts, "", examples=9, restart=False, stop=threading.Event()).equal


@pytest.mark.usefixtures("postgres")
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("keyed", [True, False])
def test_a_lost_delete_is_distinguished_from_rows_of_a_dropped_shard(
    shards_of: MakeShards, target: str, capsys: pytest.CaptureFixture[str], *, keyed: bool
) -> None:
    shards = shards_of(target, extracts=SOURCE_TOO)
    filled(shards, "INT", (lambda _, __, row: str(row)) if keyed else (lambda *about: str(apart(*about))))
    shards.copy(keyed=keyed)
    name = shards.name
    assert said(shards, capsys) == [f"{name}: 0 rows are not equal"]
    shards.on_target(
        "INSERT INTO {} (id, n, c_table, c_source) VALUES (500, 0, 't_1', 'b'), (501, 0, 't_2', 'a'), (502, 0, 't_9', 'a')"
    )
    report = compare_task(*shards.parts)
    assert {(one.key["id"], one.kind.value, one.shard) for one in report.examples} == {
        (500, "extra", f"b: {name}.t_1"),
        (501, "extra", f"a: {name}.t_2"),
        (502, "extra", None),
    }
    assert (report.tables[0].extra, report.tables[0].of_no_shard, exit_code(report)) == (3, 1, 4)
    show_report("task", report, as_json=False)
    assert "rows  3 extra (1 belongs to no existing shard)" in capsys.readouterr().out
    assert said(shards, capsys) == [
        "-- 2 extra rows of merged tables are left: --remove-extra deletes them",
        f"-- 1 row that belongs to no existing shard is left: {PURPOSE}",
        f"{name}: 3 rows are not equal; --apply would not change them",
    ]
    assert said(shards, capsys, removes=True) == [
        "-- 2 extra rows of merged tables would be deleted",
        "-- 1 row that belongs to no existing shard (of dropped tables, or written by other programs) would be deleted",
        f"{name}: 3 rows are not equal; --apply repairs them",
    ]
    shards.on_target(
        "DELETE FROM {} WHERE id = 3 AND c_table = 't_1' AND c_source = 'a'" if keyed else "DELETE FROM {} WHERE id = 3"
    )
    assert said(shards, capsys)[-1] == f"{name}: 4 rows are not equal; --apply repairs 1 of them"
    assert shards.on_target("SELECT COUNT(*) FROM {}") == [(162,)], "nobody has said --apply"
    assert fix(shards, removes=False) == (1, 0, 3, 0)
    assert fix(shards) == (0, 3, 0, 0)
    assert compare_task(*shards.parts).equal


def said(shards: Shards, capsys: pytest.CaptureFixture[str], *, removes: bool = False) -> list[str]:
    """Returns what the dry run of a repair prints besides its SQL."""
    stop = threading.Event()
    done = repaired(shards.parts, "", apply=False, removes=removes, stop=stop, show=lambda _: None)
    capsys.readouterr()
    show_repairs(shards.parts[0], done, as_json=False)
    return capsys.readouterr().err.splitlines()


@pytest.mark.parametrize("extracts", [EXTRACTS, {}])
def test_rows_left_by_former_shards_are_not_extra(shards_of: MakeShards, extracts: dict[str, Any]) -> None:
    shards = shards_of("other_mariadb", extracts=extracts)
    filled(shards, "INT", lambda *about: str(apart(*about)))
    shards.copy()
    shards.on("a", "DROP TABLE t_2")
    shards.on("b", "DROP TABLE t_1", "DROP TABLE t_2")
    record = shards.parts[0]
    with closing(record.target.server.connect()) as target, closing(connect(record.source.server)) as source:
        (table,) = read_structures(source, record.allow).values()
        target.begin()
        target.meta.structures.save(
            record.name, MergedTablesKey(), Lsn(0, 1, 4), {shards.target_table: table.renamed(shards.target_table)}
        )
        target.commit()
    (one,) = compare_task(*shards.parts).tables
    assert (one.rows, one.extra, one.of_no_shard) == (40, 120, 80 if extracts else 0), "a and b have a t_1"
    shards.on_target("DELETE FROM {} WHERE id = 4")
    assert fix(shards, removes=False) == (1, 0, 120, 0)
    assert shards.on_target("SELECT COUNT(*) FROM {}") == [(160,)]
    assert fix(shards) == (0, 120, 0, 0)
    assert compare_task(*shards.parts).equal


@pytest.mark.parametrize(("mapping", "kind"), [("partition id", "BIGINT UNSIGNED"), ("add prefix", "VARCHAR(10)")])
def test_keys_that_a_mapping_makes(shards_of: MakeShards, mapping: str, kind: str) -> None:
    shards = shards_of("other_mariadb", mapping=mapping)
    by_number = mapping == "partition id"
    # A prefix distinguishes servers, but not the tables of one server.
    filled(shards, kind, lambda _, table, row: str(row) if by_number else f"'{table}-{row}'")
    shards.copy()
    report = compare_task(*shards.parts)
    assert (report.equal, report.rows) == (True, 160)

    def key(source: int, table: int, row: int) -> int | str:
        return (source << 59) + (table << 51) + row if by_number else f"{' ab'[source]}-{table}-{row}"

    lost, other, extra = key(2, 1, 3), key(1, 2, 4), key(1, 1, 4000)
    shards.on_target(
        f"DELETE FROM {{}} WHERE id = {lost!r}",
        f"UPDATE {{}} SET n = 0 WHERE id = {other!r}",
        f"INSERT INTO {{}} (id) VALUES ({extra!r}), ({1 if by_number else '0'!r})",
    )
    name = shards.name
    assert differences_of(compare_task(*shards.parts)) == {
        (lost, "missing", (), (f"b: {name}.t_1",)),
        (other, "different", ("n",), (f"a: {name}.t_2",)),
        (extra, "extra", (), ()),
        (1 if by_number else "0", "extra", (), ()),
    }
    assert fix(shards) == (2, 2, 0, 0)
    assert compare_task(*shards.parts).equal


def test_keys_of_text_and_a_key_that_two_tables_have(shards_of: MakeShards) -> None:
    shards = shards_of("other_mariadb", extracts=EXTRACTS)
    kind = "VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
    filled(shards, kind, lambda source, table, row: f"'{source}{table}{row}'")
    shards.on("a", "INSERT INTO t_2 VALUES ('twice', 1, 'x')")
    shards.copy()
    assert compare_task(*shards.parts).equal
    shards.on("b", "INSERT INTO t_1 VALUES ('twice', 1, 'x')")
    shards.on_target("DELETE FROM {} WHERE id = 'b211'", "INSERT INTO {} (id) VALUES ('zzz')")
    name, members = shards.name, (f"a: {shards.name}.t_2", f"b: {shards.name}.t_1")
    left = {("twice", "different", ("c_table",), members)}
    assert differences_of(compare_task(*shards.parts)) == left | {
        ("b211", "missing", (), (f"b: {name}.t_2",)),
        ("zzz", "extra", (), ()),
    }
    assert fix(shards) == (1, 1, 0, 1)
    assert differences_of(compare_task(*shards.parts)) == left


def test_rows_of_a_table_that_the_account_may_not_see_are_not_repaired(shards_of: MakeShards) -> None:
    shards = shards_of("other_mariadb", extracts=SOURCE_TOO)
    filled(shards, "INT", lambda *about: str(apart(*about)))
    shards.copy(keyed=True)
    config, of_hidden = shards.parts[0], TableName(shards.name, "t_9")
    with closing(config.target.server.connect()) as target, closing(connect(config.source.server)) as source:
        table = next(iter(read_structures(source, config.allow).values()))
        target.begin()
        target.meta.structures.save(
            config.name, SourceTablesKey("a"), Lsn(0, 1, 4), {of_hidden: table.renamed(of_hidden)}
        )
        target.commit()
    shards.on_target("INSERT INTO {} (id, n, c_table, c_source) VALUES (5000, 0, 't_9', 'a')")
    (one,) = compare_task(*shards.parts).tables
    assert f"a: {of_hidden}: the task carries this table" in one.problem
    assert not compare_task(*shards.parts).equal
    assert fix(shards)[:2] == (0, 0)
    assert shards.on_target("SELECT COUNT(*) FROM {} WHERE id = 5000") == [(1,)]


def test_a_table_whose_rows_do_not_fit_keeps_no_other_from_being_compared(shards_of: MakeShards) -> None:
    shards = shards_of("other_mariadb", extracts=EXTRACTS)
    filled(shards, "INT", lambda *about: str(apart(*about)))
    shards.copy()
    shards.on("a", "CREATE TABLE alone (id INT PRIMARY KEY)", "ALTER TABLE t_1 ADD COLUMN c_table INT")
    shards.on_target(f"CREATE TABLE {shards.name}.alone (id INT PRIMARY KEY)")
    report = compare_task(*shards.parts)
    problems = {one.table.name: one.problem for one in report.tables}
    assert "alone" in problems
    assert not problems["alone"]
    assert (
        problems["t"]
        == f"a: {shards.name}.t_1: the route extracts a column c_table, but the table itself has a column of this name"
    )
    assert not report.equal


def test_tables_of_different_structures_are_compared_by_what_all_have(shards_of: MakeShards) -> None:
    shards = shards_of("other_mariadb", extracts=EXTRACTS)
    name, far = shards.name, 1 << 40
    shards.on(
        "a",
        "CREATE TABLE t_1 (c INT NOT NULL, id INT PRIMARY KEY, n INT)",
        "INSERT INTO t_1 VALUES (5, 1, 10), (5, 2, 20)",
    )
    shards.on(
        "b",
        "CREATE TABLE t_1 (id BIGINT PRIMARY KEY, n BIGINT, v VARCHAR(10), n2 INT)",
        f"INSERT INTO t_1 VALUES (3, 30, 'x', 0), ({far}, {far}, 'y', 0)",
    )
    shards.on_target(
        f"CREATE DATABASE {name}",
        "CREATE TABLE {} (id BIGINT PRIMARY KEY, n BIGINT, c INT NOT NULL DEFAULT 7, v VARCHAR(20), n2 INT, c_table TEXT)",
    )
    shards.copy(made=True)
    report = compare_task(*shards.parts)
    assert (report.equal, report.rows) == (True, 4)
    without = f"these tables lack them: a: {name}.t_1, b: {name}.t_1"
    assert report.tables[0].note == f"columns c, v, n2 are not compared; {without}"
    shards.on_target(f"DELETE FROM {{}} WHERE id IN (1, {far})", "UPDATE {} SET n = 0 WHERE id = 3")
    assert differences_of(compare_task(*shards.parts)) == {
        (1, "missing", (), (f"a: {name}.t_1",)),
        (far, "missing", (), (f"b: {name}.t_1",)),
        (3, "different", ("n",), (f"b: {name}.t_1",)),
    }
    assert fix(shards) == (3, 0, 0, 0)
    assert shards.on_target("SELECT id, n, c, v FROM {} ORDER BY id") == [
        (1, 10, 5, None),
        (2, 20, 5, None),
        (3, 30, 7, "x"),
        (far, far, 7, "y"),
    ]


@pytest.mark.timeout(60)
def test_a_table_that_waits_for_the_others_is_reported_at_once_and_is_no_difference(
    shards_of: MakeShards, capsys: pytest.CaptureFixture[str]
) -> None:
    shards = shards_of("other_mariadb", extracts=EXTRACTS)
    filled(shards, "INT", lambda *about: str(apart(*about)))
    shards.copy()
    stand(shards)
    shards.on("a", "ALTER TABLE t_1 ADD c INT", "UPDATE t_1 SET n = n + 1, c = 1", "DELETE FROM t_1 WHERE id = 8")
    begin = time.monotonic()
    report = compare_task(*shards.parts)
    assert time.monotonic() - begin < 8
    (one,) = report.tables
    assert (one.waiting, one.differences, report.waits, exit_code(report)) == (40, 0, True, 5)
    name = shards.name
    without = f"a: {name}.t_2, b: {name}.t_1, b: {name}.t_2"
    assert one.note == f"column c is not compared; these tables lack it: {without}"
    show_report("task", report, as_json=False)
    shown = capsys.readouterr().out.splitlines()
    assert f"  merged from a: {name}.t_1, {without}" in shown
    assert (
        "task: no row is known to differ, but 40 rows are not equal now; their tables have changes that are not applied yet, "
        "which may or may not make the rows equal, 159 rows of 1 table compared"
    ) in shown
    assert one.waits[0].startswith(f"a: {name}.t_1 waits at ")
    assert "ALTER TABLE t_1 ADD c INT" in one.waits[0]
    shards.on_target("DELETE FROM {} WHERE id = 7", "UPDATE {} SET n = -1 WHERE id = 9")
    report = compare_task(*shards.parts)
    assert exit_code(report) == 4
    assert {(key, kind) for key, kind, *_ in differences_of(report) if kind != "waiting"} == {
        (7, "missing"),
        (9, "different"),
    }
    assert fix(shards) == (2, 0, 0, 0)
    assert compare_task(*shards.parts).waits


def stand(shards: Shards) -> None:
    """Records that both sources are at the end of their logs, except for a table that waits there."""
    with closing(shards.parts[0].target.server.connect()) as target:
        for part in shards.parts:
            with closing(connect(part.source.server)) as source:
                end = log_end(source)
            at, task, source_id = Lsn.at(end), part.name, part.source.source_id
            later = replace(at, offset=at.offset + (1 << 20))
            name = TableName(part.name, "t_1")
            state = PlanState(later, {}, held_at({name: at}, later)) if source_id == "a" else PlanState(later)
            start = Checkpoint(task=task, source=source_id, worker=0, lsn=later, copy=state.copy_json())
            target.meta.checkpoints.claim(task, source_id, 1, start)
            if source_id == "a":
                target.begin()
                halt = Halt(
                    tables=(name,),
                    lsn=replace(at, offset=at.offset + 100),
                    statement="ALTER TABLE t_1 ADD c INT",
                    code="shard-awaits",
                    what="it waits",
                )
                target.meta.halts.save(task, source_id, halt)
                target.commit()
