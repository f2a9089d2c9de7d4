"""A check with a regular expression is made where both servers read it alike."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from pidts.model import Column, ColumnType, Kind, Table, TableName
from pidts.source.left_behind import LeftBehind
from pidts.task.config.task_file import load_task
from pidts.task.tables.constraints import fitting_check

NAME = TableName("shop", "t")
TABLE = Table(NAME, (Column("v", ColumnType(Kind.VARCHAR, length=9)),), ())
TASK = {
    "name": "t",
    "task-mode": "all",
    "target-database": {"host": "h", "user": "u"},
    "mysql-instances": [{"source-id": "one", "from": {"host": "h", "user": "u"}}],
}


@pytest.mark.parametrize(
    ("clause", "alike", "is_made"),
    [
        ("`v` regexp '^a'", True, True),
        ("`v` regexp '^a'", False, False),
        ("`v` RLIKE '^a'", False, False),
        ("regexp_like(`v`,'^a')", False, False),
        ("`v` like 'a%'", False, True),
    ],
)
def test_regular_expressions(tmp_path: Path, clause: str, alike: bool, is_made: bool) -> None:
    path = tmp_path / "t.yaml"
    path.write_text(yaml.safe_dump(TASK))
    found = LeftBehind("check", "c", "shop", "t", clause=clause)
    assert (fitting_check(load_task(path), found, TABLE, (), alike=alike) is not None) is is_made
