"""`pidts plan` of merged tables shows a note once if it is true for all of them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from pidts.cli.errors import remember_task
from pidts.cli.plan_view import show_plan
from pidts.model import TableName
from pidts.source.structures import TableSize
from pidts.task.checks.preview import ColumnPreview, FirstRunAction, TablePreview
from pidts.task.config.task_file import load_task

TASK = """
name: t
task-mode: all
target-database: {host: 127.0.0.1, port: 9, user: root}
mysql-instances: [{source-id: s1, from: {host: 127.0.0.1, port: 9, user: root}}]
"""
MADE = TablePreview(
    source=TableName("shop", "t"),
    target=TableName("shop", "all"),
    rules=(),
    way=FirstRunAction.CREATE,
    key=("id",),
    columns=(ColumnPreview("id", "int", "integer"),),
    statements=("CREATE TABLE shop.all (id integer)",),
    finish=("CREATE INDEX k",),
    notes=("no comment",),
    problems=(),
    size=TableSize(rows=1000, bytes=4096),
)
SHARDS = 288


def shards(source: str, other: str) -> list[TablePreview]:
    tables = [TableName("shop", f"t_{number}") for number in range(SHARDS)]
    beside = [f"{other}: {name}" for name in tables]
    return [
        replace(
            MADE,
            source=name,
            columns=(*MADE.columns, ColumnPreview("part", "", "text", value=name.name)),
            merged=(*(str(one) for one in tables if one != name), *beside),
        )
        for name in tables
    ]


def test_a_name_cannot_control_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "t.yaml"
    path.write_text(TASK)
    named = replace(MADE, source=TableName("shop", "a\x1b[2Jb"))
    show_plan(load_task(path), {"s1": [named]}, as_json=False, with_sql=False)
    text = capsys.readouterr().out
    assert "shop.a\\x1b[2Jb" in text
    assert "\x1b" not in text


def test_shards_are_shown_once_with_their_number(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "t.yaml"
    path.write_text(TASK)
    config = load_task(path)
    alone = replace(MADE, source=TableName("shop", "u"), target=TableName("shop", "u"), size=None)
    one, two = shards("s1", "s2"), shards("s2", "s1")
    one[7] = replace(one[7], way=FirstRunAction.REFUSED, problems=("no key",))
    assert show_plan(config, {"s1": [*one, alone], "s2": two}, as_json=False, with_sql=True) == 3
    text = capsys.readouterr().out
    assert text.count("CREATE TABLE") == 3
    for words in (
        "create  575 tables -> shop.all  about 575,000 rows, key (id)\n",
        "  of s1: shop.t_0, s1: shop.t_1, s1: shop.t_2, s1: shop.t_3, s1: shop.t_4 and 570 more\n",
        "extracted 't_0', 't_1' and 286 more",
        "shares its target with shop.t_7\n",
        "refused  s1: shop.t_7 -> shop.all  about 1,000 rows",
        "shares its target with shop.t_0, shop.t_1, shop.t_2, shop.t_3, shop.t_4 and 570 more\n",
        "create  s1: shop.u  size unknown",
        "t: 577 tables, about 576,000 rows in 2.4 MB; 1 refused",
    ):
        assert words in text, words
    assert len(text.splitlines()) < 40
    show_plan(config, {"s1": one, "s2": two}, as_json=True)
    assert len(json.loads(capsys.readouterr().out)["tables"]) == 2 * SHARDS


def test_a_brief_plan_is_a_line_a_table_and_a_note_that_many_have_is_reported_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "t.yaml"
    path.write_text(TASK)
    names = [TableName("shop", f"u_{number}") for number in range(25)]
    tables = [replace(MADE, source=name, target=name) for name in names]
    tables[3] = replace(tables[3], notes=("no comment", "its own"))
    assert show_plan(load_task(path), {"s1": tables}, as_json=False, brief=True) == 0
    text = capsys.readouterr().out
    assert len(text.splitlines()) == 25 + 5, text
    assert "note on 25 tables: no comment  (shop.u_0, shop.u_1, shop.u_2, shop.u_3, shop.u_4 and 20 more)\n" in text
    assert "  note: its own\n" in text
    assert f"to see the SQL that creates tables: pidts plan {path} --sql\n" in text
    show_plan(load_task(path), {"s1": tables}, as_json=False)
    whole = capsys.readouterr().out
    assert whole.count("integer") == 25, "each column is shown once, without the SQL"


def test_labels_are_wrapped_and_not_cut(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "t.yaml"
    path.write_text(TASK)
    labels = "enum('admin','editor','guest','subscriber','somebody_else_with_a_long_name','and_another_one')"
    table = replace(MADE, columns=(ColumnPreview("role", labels, labels),))
    show_plan(load_task(path), {"s1": [table]}, as_json=False)
    text = capsys.readouterr().out
    assert "…" not in text
    assert text.count("'") == 2 * labels.count("'"), "both sides are whole"


def test_a_command_in_a_note_has_the_path_of_the_task_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "my task.yaml"
    path.write_text(TASK)
    remember_task(path)
    try:
        for as_json in (False, True):
            show_plan(load_task(path), {"s1": [MADE]}, ["it waits (pidts locks list TASK)"], as_json=as_json)
            assert f"note: it waits (pidts locks list '{path}')" in capsys.readouterr().out.replace(
                '"notes": ["', "note: "
            )
    finally:
        remember_task(None)
