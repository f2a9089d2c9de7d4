"""Waiting shards are grouped by their changes, and a ddl command is for one group."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pidts.model import Halt, Lsn, TableName
from pidts.task.operate.ddl_commands import BlockedChange
from pidts.task.operate.shard_locks import OpenLock, by_statement, split_by_agreement


def shard(name: str, statement: str, *awaits: str, code: str = "shards-disagree", source: str = "s") -> BlockedChange:
    lsn = Lsn(0, 1, 500)
    halt = Halt(tables=(TableName("shop", name),), lsn=lsn, statement=statement, code=code, what="", awaits=awaits)
    return BlockedChange(lsn, statement, halt, source=source)


def lock(*arrived: BlockedChange) -> OpenLock:
    return OpenLock(target=TableName("shop", "orders"), arrived=arrived, awaited=())


def names(standing: list[BlockedChange]) -> list[str]:
    return [str(one.tables[0]) for one in standing]


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ("ALTER TABLE a ADD c INT", "ALTER TABLE b ADD c INT", True),
        ("ALTER TABLE `shop`.`a`\n ADD c INT", "alter table b ADD c INT", False),
        ("ALTER TABLE `shop`.`a`\n ADD c INT", "ALTER TABLE b ADD c INT", True),
        ("ALTER TABLE shop . a ADD c INT", "ALTER TABLE `B` ADD c INT", True),
        ("ALTER TABLE a ADD a INT", "ALTER TABLE b ADD b INT", False),
        ("ALTER TABLE aa ADD c INT", "ALTER TABLE bb ADD c INT", False),
        ("ALTER TABLE x.a ADD c INT", "ALTER TABLE y.b ADD c INT", False),
        ("ALTER TABLE a ADD c INT", "ALTER TABLE b ADD c BIGINT", False),
    ],
)
def test_statements_are_equal_except_for_the_table(one: str, other: str, alike: bool) -> None:
    assert (len(by_statement([shard("a", one), shard("b", other)])) == 1) is alike


def test_who_continues_is_decided_by_structures_and_not_by_words() -> None:
    a, b = shard("a", "ADD x INT", "s: shop.c"), shard("b", "ADD COLUMN x INT", "s: shop.c")
    c = shard("c", "ADD x INT", "s: shop.a", "s: shop.b")
    d = shard("d", "ADD x INT, ADD y INT")
    alike, apart = split_by_agreement(lock(a, b, c, d), a)
    assert (names(alike), names(apart)) == (["shop.a", "shop.b", "shop.d"], ["shop.c"])
    alike, apart = split_by_agreement(lock(a, b, c, d), c)
    assert (names(alike), names(apart)) == (["shop.c", "shop.d"], ["shop.a", "shop.b"])
    # The record of `a` may be older than the other shard's arrival.
    old = replace(a, halt=replace(a.halt, awaits=()) if a.halt else None)
    assert names(split_by_agreement(lock(old, b, c), old)[1]) == ["shop.c"]
    # On another source, the same name is another table.
    assert names(split_by_agreement(lock(a, replace(c, source="t", halt=b.halt)), a)[1]) == []


def test_a_shard_one_change_behind_does_not_continue_with_the_others() -> None:
    ahead = shard("a", "ALTER TABLE a ADD y INT", "s: shop.b", code="shard-awaits")
    behind = shard("b", "ALTER TABLE b ADD x INT", "s: shop.c", code="shard-awaits")
    follows = shard("c", "ALTER TABLE c ADD y INT", "s: shop.a", code="shard-awaits")
    alike, apart = split_by_agreement(lock(ahead, behind, follows), ahead)
    assert (names(alike), names(apart)) == (["shop.a", "shop.c"], ["shop.b"])
