"""What `pidts ddl` reads and says; what it does is in tests/spark/test_halts.py and tests/task/test_orders.py."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest

from pidts.cli.app import run_command
from pidts.cli.ddl_view import advice, show_halt, show_lifted, show_order, show_standing
from pidts.model import DdlJournal, DdlOrder, Halt, Lsn, OrderKind, TableName
from pidts.task.locks import OpenLock
from pidts.task.orders import Standing
from pidts.task.waiting import Backlog, Held

Output = pytest.CaptureFixture[str]
AT = Lsn(0, 1, 500)
TASK = Path("shop.yaml")
CHANGE = Halt(
    tables=(TableName("shop", "a"),),
    lsn=AT,
    position="bin.000001:500",
    statement="ALTER TABLE a ADD x INT",
    code="target-refused",
    what="Duplicate column name 'x'",
    todo="Mend it.",
)
ROWS = Halt(
    tables=(TableName("shop", "b"),), lsn=AT, code="target-refused", what="Data too long", todo="Compare the tables"
)
STANDING = Standing(
    AT,
    CHANGE.statement,
    CHANGE,
    DdlOrder(lsn=AT, kind=OrderKind.REPLACE, statements=("ALTER TABLE a ADD x BIGINT",)),
    DdlJournal(task="t", source="s", lsn=AT, statement="", rendered=("one", "two"), step=1),
    "s",
    Backlog(transactions=1203, own_bytes=1_200_000, log_bytes=5_000_000, since=1_700_000_000),
)
REFUSED_ROWS = Standing(AT, "", ROWS, source="s")
MERGED = TableName("shop", "orders")


def shard(source: str, number: int, *, code: str = "shard-awaits", statement: str = "") -> Standing:
    text = statement or f"ALTER TABLE t_{number} ADD c INT"
    halt = Halt(
        tables=(TableName("shop", f"t_{number}"),),
        lsn=Lsn(0, number, 500),
        position=f"bin.{number:06}:500",
        statement=text,
        code=code,
        what="it waits for 2 others",
        todo="Change the others, too",
        awaits=("s2: shop.t_9",),
        since=time.time() - 3720,
    )
    return Standing(halt.lsn, text, halt, source=source)


LOCK = OpenLock(target=MERGED, arrived=(shard("s1", 1), shard("s2", 2)), awaited=("s2: shop.t_9",))
APART = OpenLock(
    target=MERGED,
    arrived=(shard("s1", 1, code="shards-disagree"), shard("s2", 2, code="shards-disagree", statement="ALTER ... d")),
    awaited=(),
)


def said(capsys: Output) -> str:
    return capsys.readouterr().out


def test_the_list_names_table_cause_place_and_ways_out(capsys: Output) -> None:
    show_standing("t", TASK, [STANDING, REFUSED_ROWS], [], [Held("s", {TableName("shop", "a"): AT}, 42)], as_json=False)
    text = said(capsys)
    for words in (
        "shop.a: halted at bin.000001:500",
        "Duplicate column",
        "Mend it",
        "skip|replace",
        "ADD x BIGINT",
        "1,203 transactions (1.2 MB) wait, from 2023-11-14 22:13:20 UTC",
        f"pidts ddl retry {TASK} --table shop.b",
        f"pidts run {TASK} --resync shop.b",
        "s: 1 table held back, 42 B of log is kept",
        "order at Lsn",
        "replace (given)",
    ):
        assert words in text
    assert "restart" not in text
    show_standing("t", TASK, [], [], [Held("s", {}, 0)], as_json=False)
    assert "nothing waits" in said(capsys)


def test_the_same_for_machines(capsys: Output) -> None:
    show_standing("t", TASK, [STANDING, *LOCK.arrived], [LOCK], [Held("s", {}, 0)], as_json=True)
    told = json.loads(said(capsys))
    change, *shards = told["halted"]
    assert CHANGE.to_json().items() <= change.items()
    assert (change["source"], change["backlog"]["transactions"]) == ("s", 1203)
    assert [one["awaits"] for one in shards] == [["s2: shop.t_9"]] * 2
    (order,) = told["orders"]
    assert (order["order"], order["begun"], order["failed"], order["done"]) == ("replace", False, False, False)
    (lock,) = told["locks"]
    assert (lock["target"], lock["owner"], lock["awaited"]) == ("shop.orders", "s1", ["s2: shop.t_9"])
    assert [one["source"] for one in lock["arrived"]] == ["s1", "s2"]
    assert not lock["disagrees"]
    assert told["held"] == []


def test_an_order_that_fails_is_named_and_so_is_its_statement(capsys: Output) -> None:
    halt = replace(CHANGE, code="order-refused", what="the target refuses what was ordered: SELEC 1: syntax error")
    show_standing("t", TASK, [replace(STANDING, halt=halt)], [], [], as_json=False)
    text = said(capsys)
    assert "ordered    replace (failed): ALTER TABLE a ADD x BIGINT" in text
    assert "SELEC 1: syntax error" in text
    assert "statement  ALTER TABLE a ADD x INT" in text


def test_shards_that_wait_are_one_block(capsys: Output) -> None:
    arrived = (shard("s1", 1), shard("s2", 2))  # an hour before now, not before the import
    lock = replace(LOCK, arrived=arrived)
    show_standing("t", TASK, arrived, [lock], [Held("s1", {}, 0), Held("s2", {}, 0)], as_json=False)
    text = said(capsys)
    for words in (
        "shop.orders: its shards wait for each other, since ",
        "(1 h 2 min)",
        "arrived    s1: shop.t_1 at bin.000001:500",
        f"Lsn {LOCK.arrived[1].lsn}, since ",
        "awaited    s2: shop.t_9, since ",
        "ALTER TABLE t_2 ADD c INT",
        f"pidts ddl unlock {TASK} --table shop.orders\n",
    ):
        assert words in text
    assert "halted" not in text
    show_standing("t", TASK, APART.arrived, [APART], [], as_json=False)
    assert f"unlock {TASK} --table shop.orders --source s1 --at {APART.owner.lsn}" in said(capsys)


def test_a_halt_looks_like_an_error(capsys: Output) -> None:
    show_halt(ROWS, TASK)
    text = capsys.readouterr().err
    assert "error [target-refused] Data too long" in text
    assert f"pidts run {TASK} --resync shop.b" in text
    show_halt(CHANGE, TASK, "s1")
    assert f"pidts ddl retry {TASK} --source s1 --at {AT}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("halt", "words"),
    [
        (CHANGE, "Mend it. Then: pidts ddl retry t --at"),
        (replace(CHANGE, tables=()), "Then run the task again"),
        (
            replace(CHANGE, code="ddl-not-translatable"),
            "then have its rows read again: stop the task, pidts run t --res",
        ),
        (replace(CHANGE, code="shard-awaits"), "Mend it. See: pidts ddl list t"),
        (ROWS, "Compare the tables. Then: pidts ddl retry t --table shop.b"),
        (replace(ROWS, tables=()), "pidts run t"),
    ],
)
def test_advice_names_the_cure(halt: Halt, words: str) -> None:
    assert words in advice(halt, "t")


def test_the_preview_says_what_would_happen(capsys: Output) -> None:
    show_order(STANDING, OrderKind.SKIP, (), given=False, as_json=False)
    text = said(capsys)
    assert "of it the target has: one" in text
    assert "shop.a: 1,203 transactions" in text
    assert "pidts run TASK --resync shop.a" in text
    assert "Nothing was done yet: add --yes" in text
    show_lifted([REFUSED_ROWS], given=True, as_json=False)
    assert "shop.b: rows were refused; they are tried again\nOrdered" in said(capsys)
    show_lifted([REFUSED_ROWS], given=True, as_json=True)
    assert json.loads(said(capsys))["tables"] == ["shop.b"]


@pytest.mark.parametrize(
    ("kind", "lock", "words"),
    [
        (
            OrderKind.UNLOCK,
            LOCK,
            ["without the shards", "these go on, too: s2: shop.t_2", "not waited for: s2: shop.t_9"],
        ),
        (OrderKind.UNLOCK, APART, ["that want the same go on, too: s2: shop.t_2"]),
        (OrderKind.REPLACE, LOCK, ["these go on, too", "their own change passes when it comes"]),
        (OrderKind.SKIP, LOCK, ["shop.orders stays as it is", "the others go on waiting"]),
        (OrderKind.INJECT, LOCK, ["once all shards have come"]),
        (OrderKind.REVERT, LOCK, ["it waits for the others"]),
    ],
)
def test_the_preview_tells_what_becomes_of_other_shards(
    kind: OrderKind, lock: OpenLock, words: list[str], capsys: Output
) -> None:
    show_order(lock.owner, kind, (), given=False, as_json=False, lock=lock)
    text = said(capsys)
    assert [one for one in words if one not in text] == []
    assert "\n\n" not in text
    assert text.count(f"{lock.owner.source}: shop.t_1") == 0, "it is no other one"


@pytest.mark.parametrize("group", ["ddl", "binlog"])
def test_dmctl_s_words_are_understood(group: str, capsys: Output) -> None:
    for command in ("list", "skip", "replace", "inject", "revert"):
        assert run_command([group, command, "--help"]) == 0
    assert "--binlog-pos" in capsys.readouterr().out
    assert run_command([group, "replace", "nowhere.yaml", " ; "]) == 2
    assert "no statement to run" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "reads"),
    [
        (["show-ddl-locks", "nowhere.yaml"], True),
        (["shard-ddl-lock", "nowhere.yaml"], True),
        (["shard-ddl-lock", "list", "nowhere.yaml"], True),
        (["shard-ddl-lock", "unlock", "nowhere.yaml", "task-`shop`.`orders`"], True),
        (["unlock-ddl-lock", "nowhere.yaml", "task-`shop`.`orders`"], True),
        (["shard-ddl-lock", "unlock"], False),
        (["shard-ddl-lock", "list", "one", "two"], False),
    ],
)
def test_dmctl_s_words_for_locks_are_understood(words: list[str], reads: bool, capsys: Output) -> None:
    assert run_command(words) == 2
    assert ("unreadable-file" if reads else "usage") in capsys.readouterr().err
