"""What `pidts ddl` reads and says; what it does is in tests/spark/test_halts.py."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pidts.cli.app import run_command
from pidts.cli.ddl import split
from pidts.cli.ddl_view import show_halt, show_order, show_standing, ways_out
from pidts.model import DdlJournal, DdlOrder, DdlState, Halt, Lsn, OrderKind, TableName
from pidts.task.orders import Standing

AT = Lsn(0, 1, 500)
CHANGE = Halt(
    tables=(TableName("shop", "a"),),
    lsn=AT,
    position="bin.000001:500",
    statement="ALTER TABLE a ADD x INT",
    code="target-refused",
    what="Duplicate column name 'x'",
    todo="Mend it.",
)
ROWS = Halt(tables=(TableName("shop", "b"),), lsn=AT, code="target-refused", what="Data too long")
STANDING = Standing(
    AT,
    CHANGE.statement,
    CHANGE,
    DdlOrder(lsn=AT, kind=OrderKind.REPLACE, statements=("ALTER TABLE a ADD x BIGINT",)),
    DdlJournal(task="t", source="s", lsn=AT, statement="", rendered=("one", "two"), step=1),
)


@pytest.mark.parametrize(
    ("texts", "statements"),
    [
        (["ALTER TABLE a ADD x INT;"], ("ALTER TABLE a ADD x INT",)),
        (["one; two ;", "three"], ("one", "two", "three")),
        (["INSERT INTO a VALUES (';', \";\", `;`); two"], ("INSERT INTO a VALUES (';', \";\", `;`)", "two")),
        (["INSERT INTO a VALUES ('it''s;'); two"], ("INSERT INTO a VALUES ('it''s;')", "two")),
        (["DO $$ BEGIN x; y; END $$;"], ("DO $$ BEGIN x; y; END $$",)),
        ([" ; "], ()),
    ],
)
def test_statements_are_told_apart(texts: list[str], statements: tuple[str, ...]) -> None:
    assert split(texts) == statements


def test_the_list_names_table_cause_place_and_ways_out(capsys: pytest.CaptureFixture[str]) -> None:
    show_standing("t", [CHANGE, ROWS], [STANDING], as_json=False)
    said = capsys.readouterr().out
    for words in ("shop.a: halted at bin.000001:500", "Duplicate column", "Mend it", "skip|replace", "ADD x BIGINT"):
        assert words in said
    show_standing("t", [CHANGE], [STANDING], as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert told["halted"] == [CHANGE.to_json()]
    (order,) = told["orders"]
    assert (order["order"], order["begun"], order["done"]) == ("replace", False, False)
    show_standing("t", [], [], as_json=False)
    assert "nothing waits" in capsys.readouterr().out


def test_a_halt_looks_like_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    show_halt(ROWS, Path("shop.yaml"))
    said = capsys.readouterr().err
    assert "error [target-refused] Data too long" in said
    assert "pidts run shop.yaml" in said
    assert "--at" in ways_out(CHANGE, "shop.yaml")


def test_the_preview_says_what_would_happen(capsys: pytest.CaptureFixture[str]) -> None:
    show_order(STANDING, OrderKind.SKIP, (), given=False, as_json=False)
    said = capsys.readouterr().out
    assert "of it the target has: one" in said
    assert "Nothing was done yet: add --yes" in said
    assert not STANDING.is_done
    assert Standing(AT, "", journal=_done()).is_done


def _done() -> DdlJournal:
    return DdlJournal(task="t", source="s", lsn=AT, statement="", rendered=(), step=0, state=DdlState.DONE)


@pytest.mark.parametrize("group", ["ddl", "binlog"])
def test_dmctl_s_words_are_understood(group: str, capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("list", "skip", "replace", "inject", "revert"):
        assert run_command([group, command, "--help"]) == 0
    assert "--binlog-pos" in capsys.readouterr().out
    assert run_command([group, "replace", "nowhere.yaml", " ; "]) == 2
    assert "no statement to run" in capsys.readouterr().err
