"""`pidts check` and the start report the right findings about tables whose versions decide between zones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pidts.model import Column, ColumnType, Halted, Key, Kind, Table, TableName
from pidts.task.checks.version_column import convergence_findings
from pidts.task.config.task_file import TaskConfig, load_task
from pidts.task.run.locked_rows import demand_unlocked

FILE = """\
name: t
task-mode: incremental
target-database: {host: h, user: u}
mysql-instances: [{source-id: s, from: {host: h, user: u}, syncer-thread: 4}]
pidts: {zone: a, target-zone: b, version-column: v, conflict: CONFLICT}
"""
FINE = Table(
    TableName("shop", "fine"),
    (Column("id", ColumnType(Kind.INT), nullable=False), Column("v", ColumnType(Kind.BIGINT))),
    (Key("PRIMARY", ("id",), unique=True, primary=True),),
)
NO_COLUMN = replace(FINE, name=TableName("shop", "none"), columns=FINE.columns[:1])
TEXT = replace(FINE, name=TableName("shop", "text"), columns=(FINE.columns[0], Column("v", ColumnType(Kind.TEXT))))
UNIQUE = replace(FINE, name=TableName("shop", "two"), keys=(*FINE.keys, Key("u", ("v",), unique=True)))


@pytest.mark.parametrize(
    ("tables", "message", "fix"),
    [
        ([NO_COLUMN, UNIQUE], "shop.none: it has no column v", "Correct the name"),
        ([UNIQUE, NO_COLUMN], "shop.two: it has a unique key", "Change the key in all zones"),
        ([TEXT, UNIQUE], "shop.text: v has type", "Name a column of a date"),
    ],
)
def test_the_reason_and_the_fix_are_those_of_the_table_that_is_named(
    tables: list[Table], message: str, fix: str
) -> None:
    (found,) = convergence_findings("v", tables, "FULL")
    assert not found.ok
    assert message in found.message
    assert found.fix.startswith(fix)


def config(path: Path, conflict: str) -> TaskConfig:
    path.write_text(FILE.replace("CONFLICT", conflict))
    return load_task(path, {})


def test_locked_rows_are_resolved_before_versions_decide(tmp_path: Path) -> None:
    """A DELETE of a locked row would be held, and the new row would still overwrite the locked row."""
    version, lock = (config(tmp_path / f"{rule}.yaml", rule) for rule in ("version", "lock"))
    counts = {FINE.name: 2, UNIQUE.name: 3}
    with pytest.raises(Halted, match=r"\[rows-locked\] 2 rows of shop\.fine are locked"):
        demand_unlocked(version, counts, [FINE, UNIQUE])
    demand_unlocked(version, {UNIQUE.name: 3}, [FINE, UNIQUE])
    demand_unlocked(lock, counts, [FINE, UNIQUE])


def test_one_worker_writes_where_gaps_are_locked(tmp_path: Path) -> None:
    assert [config(tmp_path / "t.yaml", rule).workers for rule in ("version", "lock")] == [1, 4]
