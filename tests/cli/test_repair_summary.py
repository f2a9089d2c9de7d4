"""The summary of `pidts repair` names what was not repaired: rows that wait, and tables without comparison."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from unittest.mock import Mock

import pytest

from pidts.apply import TargetSession
from pidts.cli.repair import show_repairs
from pidts.model import TableName
from pidts.task.compare.repair import Repairs
from pidts.task.compare.wiring import ShownTable
from pidts.task.config.task_file import load_task
from pidts.verify import Report, TableReport

TASK = """\
name: shop
task-mode: all
target-database: {type: postgresql, host: h, database: shop, user: u}
mysql-instances: [{source-id: a, from: {host: h, user: u}, block-allow-list: all}]
block-allow-list: {all: {do-dbs: [shop]}}
"""


@pytest.mark.parametrize(
    ("missing", "waiting", "code", "says"),
    [
        (0, 3, 5, "3 unequal rows wait and are not repaired; see: pidts ddl list {}"),
        (2, 1, 4, "2 rows are still not equal, 1 unequal row waits and is not repaired; see: pidts ddl list {}"),
        (2, 0, 4, "2 rows are still not equal"),
        (0, 0, 0, "all rows are equal now"),
    ],
)
def test_the_summary(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], missing: int, waiting: int, code: int, says: str
) -> None:
    path = tmp_path / "shop.yaml"
    path.write_text(TASK)
    waits = ("shop.t waits",) if waiting else ()
    table = TableReport(TableName("shop", "t"), rows=9, missing=missing, waiting=waiting, waits=waits)
    work = Repairs("shop", Mock(spec=TargetSession), threading.Event(), print, apply=True)
    work.report = Report((table,), ())
    assert show_repairs(load_task(path), work, as_json=False) == code
    assert capsys.readouterr().out == f"shop: 0 rows written, 0 extra rows deleted, {says.format(path)}\n"


@pytest.mark.parametrize(
    ("missing", "waiting", "locked", "says"),
    [
        (0, 3, 0, "3 unequal rows wait and are not repaired; see: pidts ddl list {}"),
        (0, 0, 1, "1 row is locked and is not repaired; see: pidts locks list {}"),
        (2, 0, 0, "2 rows are not equal; --apply would not change them"),
        (0, 0, 0, "0 rows are not equal"),
    ],
)
def test_the_summary_of_a_dry_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], missing: int, waiting: int, locked: int, says: str
) -> None:
    path = tmp_path / "shop.yaml"
    path.write_text(TASK)
    table = TableReport(TableName("shop", "t"), rows=9, missing=missing, waiting=waiting, locked=locked)
    work = Repairs("shop", Mock(spec=TargetSession), threading.Event(), print, apply=False)
    work.report = Report((table,), ())
    show_repairs(load_task(path), work, as_json=False)
    assert capsys.readouterr().err.splitlines()[-1] == f"shop: {says.format(path)}"


T, U = TableName("shop", "t"), TableName("shop", "u")
EQUAL = TableReport(T, rows=9)


@pytest.mark.parametrize(
    ("tables", "filtered", "code", "says"),
    [
        ((EQUAL,), {U}, 0, "all rows that were compared are equal now, 1 table was not compared"),
        ((), {T, U}, 4, "2 tables were not compared"),
        ((), set(), 4, "no table was compared"),
        (
            (EQUAL, TableReport(U, problem="it lacks column c")),
            set(),
            4,
            "all rows that were compared are equal now, 1 table was not compared",
        ),
        ((TableReport(U, waits=("shop.u waits",)),), set(), 5, "1 table was not compared"),
        (
            (EQUAL, TableReport(U, missing=3, problem="there is no such table on the target")),
            set(),
            4,
            "3 rows are still not equal",
        ),
        (
            (TableReport(T, rows=9, locked=2),),
            set(),
            5,
            "2 rows are locked and are not repaired; see: pidts locks list",
        ),
    ],
)
@pytest.mark.parametrize("apply", [True, False])
def test_a_table_that_was_not_compared_does_not_count_as_equal(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    tables: tuple[TableReport, ...],
    filtered: set[TableName],
    code: int,
    says: str,
    *,
    apply: bool,
) -> None:
    path = tmp_path / "shop.yaml"
    path.write_text(TASK)
    work = Repairs("shop", Mock(spec=TargetSession), threading.Event(), print, apply=apply)
    work.report, work.filtered = Report(tables, ()), {ShownTable("", name) for name in filtered}
    assert show_repairs(load_task(path), work, as_json=False) == code
    shown = capsys.readouterr()
    if apply:
        assert f"0 extra rows deleted, {says}" in shown.out
    else:
        assert (" was compared" in says or " not compared" in says) == ("compared" in shown.err)


def test_tables_of_one_name_on_two_sources_are_counted_separately(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only the filters of source a leave out deletes, so the extra rows of b are rows like others."""
    path = tmp_path / "shop.yaml"
    path.write_text(TASK)
    tables = (
        TableReport(T, rows=9, extra=3, source="a"),
        TableReport(T, rows=9, extra=5, source="b"),
        TableReport(T, rows=9, extra=7, members=("a: x.t", "b: x.t")),
    )
    work = Repairs("shop", Mock(spec=TargetSession), threading.Event(), print, apply=True)
    work.report, work.kept = Report(tables, ()), {("a", T)}
    work.filtered = {ShownTable("a", U), ShownTable("b", U)}
    assert show_repairs(load_task(path), work, as_json=True) == 4
    found = json.loads(capsys.readouterr().out)
    assert (found["left_of_filtered"], found["left"], found["filtered"]) == (3, 3, ["shop.u"])
    assert show_repairs(load_task(path), work, as_json=False) == 4
    shown = capsys.readouterr()
    assert "-- a: shop.t: 3 extra rows are left, since its filters leave out changes" in shown.err
    assert shown.err.count("extra rows are left") == 1
    assert "2 tables were not compared" in shown.out
