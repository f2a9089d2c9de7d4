"""Checks and keys over expressions are created if both servers understand them in the same way."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from pidts.model import Column, ColumnType, Kind, Table, TableName
from pidts.source.uncarried_objects import UncarriedObject
from pidts.task.config.task_file import load_task
from pidts.task.tables.constraints import fitting_check, fitting_expression_key

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
    found = UncarriedObject("check", "c", "shop", "t", clause=clause)
    assert (fitting_check(load_task(path), found, TABLE, (), alike=alike) is not None) is is_made


@pytest.mark.parametrize(
    ("kind", "parts", "unique", "alike", "made"),
    [
        ("mysql", ("(lower(`v`))",), False, True, ("(lower(`v`))",)),
        ("mysql", ("(lower(`v`))",), False, False, None),
        ("postgresql", ("(lower(`v`))",), False, False, ('lower("v"::text)',)),
        ("postgresql", ("(lower(`v`))",), True, False, None),
        ("postgresql", ("(lower(`long`))",), False, False, None),
        ("postgresql", ("((`n` + 1))", "`v`"), False, False, ('(("n"::numeric + 1::numeric))', '"v"')),
        ("postgresql", ("((`n` + 1))", "`v`"), True, False, None),
        ("postgresql", ("((`n` + 1))", "`n`"), True, False, ('(("n"::numeric + 1::numeric))', '"n"')),
        ("postgresql", ("(year(`day`))",), False, False, ('(extract(year FROM "day")::integer)',)),
        ("postgresql", ("(year(`day`))",), True, False, None),
        ("postgresql", ("(json_extract(`v`,'$.a'))",), False, False, None),
        ("postgresql", (), False, False, None),
    ],
)
def test_keys_over_expressions(
    tmp_path: Path, kind: str, parts: tuple[str, ...], unique: bool, alike: bool, made: tuple[str, ...] | None
) -> None:
    target = {"type": kind, "host": "h", "user": "u"} | ({"database": "d"} if kind == "postgresql" else {})
    path = tmp_path / "t.yaml"
    path.write_text(yaml.safe_dump({**TASK, "target-database": target}))
    table = Table(
        NAME,
        (
            *TABLE.columns,
            Column("long", ColumnType(Kind.VARCHAR, length=1000)),
            Column("n", ColumnType(Kind.INT)),
            Column("day", ColumnType(Kind.DATE)),
        ),
        (),
    )
    found = UncarriedObject("functional key", "k", "shop", "t", parts=parts, unique=unique)
    key = fitting_expression_key(load_task(path), found, table, (), alike=alike)
    assert (key.parts if key is not None else None) == made
    assert key is None or key.name == ("t_k" if kind == "postgresql" else "k")
    assert fitting_expression_key(load_task(path), found, table, {NAME}, alike=alike) is None, "a merged table"
