"""Any history in which rows move between shards that wait for each other ends with the rows of the shards."""

from __future__ import annotations

import itertools
import random

import pytest
from tests.examples import examples

from pidts.batch import applying
from pidts.model import Op, TableName
from pidts.plan import Limits

from . import shard_servers
from .shard_servers import Shards
from .task_in_memory import Settings, TaskInMemory, driven
from .test_moved_rows import check, moved


def history(seed: int) -> None:
    """Rows are written and moved, shards alter their structures and are renamed, and the process dies."""
    chance = random.Random(seed)
    layout = {"one": ("shard_1.t_1", "shard_1.t_2", "shard_2.t_3")}
    shards = Shards(layout | ({"two": ("shard_1.t_1",)} if chance.random() < 0.3 else {}), chance)
    limits = Limits(transactions=chance.randrange(1, 6), idle_entries=chance.choice((1, 3)))
    settings = Settings(workers=chance.choice((1, 1, 2, 3)), transactional_ddl=seed % 2 == 0, limits=limits)
    task = TaskInMemory(shards, settings, chance)
    task.interrupts = chance.random() < 0.3
    task.start()
    names = itertools.count(20)
    for _ in range(chance.randrange(10, 60)):
        shard = chance.choice(shards.everyone)
        match chance.randrange(10):
            case 0 | 1 if shard.version - shards.reached(shard.group) < 3:
                shard.alter()
            case 2 if chance.random() < 0.2:
                shards.rename(shard, TableName("shard_3", f"t_{next(names)}"))
            case 3 | 4 | 5 | 6:
                drawn_move(shards, chance)
            case _:
                beside = [one for one in shards.everyone if one.source is shard.source and one is not shard]
                shards.write(shard, *chance.sample(beside, min(len(beside), chance.randrange(3))))
        happens(task)
    task.crash_after(None)
    shards.level()
    for _ in range(5):
        drawn_move(shards, chance)
    task.finish()
    task.check_nobody_waits()
    check(task)
    task.close()


def drawn_move(shards: Shards, chance: random.Random) -> None:
    pairs = [(a, b) for a, b in itertools.permutations(shards.everyone, 2) if a.source is b.source and a.rows]
    if not pairs:
        return
    one, other = chance.choice(pairs)
    key = chance.choice(one.rows)["id"]
    taken = {old["id"] for shard in shards.everyone for old in shard.rows}
    free = [new for new in range(other.base, other.base + 60) if new not in taken]
    to = chance.choice(free) if chance.random() < 0.2 else None
    steps = moved(one, other, key, to, first=chance.choice(("insert", "delete", "delete")))
    if steps[0][1][0][0] is Op.DELETE and chance.random() < 0.5:
        for step in steps:
            one.source.commit(step)
    else:
        one.source.commit(*steps)


def happens(task: TaskInMemory) -> None:
    chance = task.chance
    match chance.randrange(16):
        case 0:
            task.crash_after(chance.randrange(30))
        case 1:
            task.begin_anew(chance.choice([*task.shards.sources]))
        case 2:
            task.take_over()
        case 3 | 4:
            task.finish()
        case _:
            task.go(chance.randrange(6))


@pytest.mark.parametrize("seed", range(examples(8)))
def test_any_history(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """If parts are small, shards that catch up are in a part of their own. Several workers divide the rows of tables
    that have only their own key.
    """
    if seed % 2:
        monkeypatch.setattr(shard_servers, "BASE", "CREATE TABLE {t} (id INT NOT NULL PRIMARY KEY, v INT, u INT)")
    if seed % 3:
        monkeypatch.setattr(applying, "_ORDINARY_BYTES", 1)
    with driven():
        history(seed)
