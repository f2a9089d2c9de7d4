"""Lets shards make any changes, even of defaults and keys, and be created anew, and checks what must be true then.

Some shards may have to wait. The target must have each row as its shard has it at the place that the shard has reached,
in all columns that the shard has there, and no other rows. Each waiting shard must be reported.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from random import Random
from typing import Any

from pidts.model import Lsn, Table, TableName
from pidts.schema import create_table

from .shard_servers import Shard, Shards
from .shard_source import Row, ShardSource
from .task_in_memory import TaskInMemory

POOL = {
    "a": ("INT", "INT DEFAULT 1", "INT DEFAULT 5"),
    "b": ("INT DEFAULT 2", "INT NOT NULL DEFAULT 2", "BIGINT DEFAULT 2"),
    "c": ("INT NOT NULL DEFAULT 3", "INT NOT NULL DEFAULT 9"),
    "d": ("BIGINT DEFAULT 4", "INT"),
    "e": ("INT",),
}
"""Columns that shards add, with their definitions. In most cases, a column's first definition is used."""
WAITING = (
    "shard-awaits",
    "shards-disagree",
    "shard-structure",
    "shard-no-place",
    "ddl-awaits-tables",
    "rename-moves-rows",
)
"""The events that may keep a shard from continuing."""


def tinkered(chance: Random, table: Table) -> str:
    """Returns a random action of an ALTER TABLE for a shard with this structure."""
    own = [column.name for column in table.columns if column.name in POOL]
    new = [name for name in POOL if name not in own]
    keys = [key.name for key in table.keys if not key.primary and key.name != "uu"]
    made = ["MODIFY COLUMN v BIGINT", "MODIFY COLUMN u INT COMMENT 'x'", *(f"DROP INDEX {key}" for key in keys)]
    made += ["ADD INDEX k1 (v)"] if "k1" not in keys else []
    for name in new:
        add = f"ADD COLUMN {name} {_form(chance, name)}"
        made += [add, add, f"{add} AFTER v", f"{add}, ADD INDEX k{name} ({name})"]
        made += [f"{add}, ADD COLUMN {other} {_form(chance, other)}" for other in new if other != name]
        made += [f"DROP COLUMN {other}, {add}" for other in own]
    for name in own:
        made += [f"DROP COLUMN {name}"] * 4
        made += [f"ALTER COLUMN {name} SET DEFAULT {chance.randrange(9)}", f"ALTER COLUMN {name} DROP DEFAULT"]
        made += [f"MODIFY COLUMN {name} {_form(chance, name)}"]
        made += [f"DROP INDEX k{name}, DROP COLUMN {name}"] if f"k{name}" in keys else [f"ADD INDEX k{name} ({name})"]
    return chance.choice(made)


def _form(chance: Random, name: str) -> str:
    return POOL[name][0] if chance.random() < 0.75 else chance.choice(POOL[name])


def happens_to_one(shards: Shards) -> None:
    """Changes, drops, creates anew or renames a shard, or creates another one."""
    chance, shard = shards.chance, shards.chance.choice(shards.everyone)
    kind = chance.choice(("change",) * 6 + ("create", "drop", "anew", "anew", "empty", "rename"))
    mates = [one for one in shards.everyone if one.group is shard.group]
    fresh = TableName(f"shard_{chance.randrange(1, 4)}", f"{shard.name.name[0]}_{next(shards._fresh)}")
    like = chance.choice([*(one.table for one in mates), shard.group.versions[0].table])
    if shard in shards.loners:
        return
    if kind == "change":
        shard.source.say(f"ALTER TABLE {shard.name} {tinkered(chance, shard.table)}")
    elif kind == "create":
        _made(shards, shard, fresh, like)
    elif kind == "anew" and len(mates) > 1:
        shards.drop(shard)
        _made(shards, shard, shard.name, like).base = shard.base
    elif kind == "drop" and len(mates) > 1:
        shards.drop(shard)
    elif kind == "empty":
        shards.empty(shard)
    elif kind == "rename" and not shards.keyed:
        shards.rename(shard, fresh)


def _made(shards: Shards, beside: Shard, name: TableName, like: Table) -> Shard:
    shard = shards._add(beside.source, name)
    shard.has_unique = False  # Rows that a former shard has left on the target may have the same values.
    beside.source.say(create_table(like, name))
    return shard


def check_rows(task: TaskInMemory) -> None:
    """Checks that each table of the target has the rows of its shards."""
    for name in task.target.store.tables:
        there = {task._key(row): row for row in task.content(name)}
        rows = {task._key(row): row for row in _rows(task, name)}
        left = {task._key(row): row for row in _left(task, name, certain=False)}
        certain = {task._key(row) for row in _left(task, name, certain=True)}
        assert rows.keys() | certain <= there.keys() <= rows.keys() | left.keys(), name
        for key, row in rows.items():
            assert row.items() <= there[key].items(), name


def _at(task: TaskInMemory, source: ShardSource, own: TableName) -> Lsn:
    return task.place(source.name).at(own)


def _rows(task: TaskInMemory, name: TableName) -> Iterator[Row]:
    for source in task.shards.sources.values():
        for own in source.moments:
            destination = task.rules[source.name].routes.destination(own)
            moment = source.at(own, _at(task, source, own))
            if destination.name == name and moment is not None and moment.table is not None:
                yield from (row | dict(destination.extracted) for row in moment.rows)


def _left(task: TaskInMemory, name: TableName, *, certain: bool) -> Iterator[Row]:
    """Returns the rows that former shards have left in this table of the target. With `certain`, rows are left out if a
    later transaction may have changed or removed them.
    """
    for left in task.shards.left:
        source, group = left.shard.source, left.shard.group
        destination = task.rules[source.name].routes.destination(left.name)
        if destination.name != name or _at(task, source, left.name) < left.lsn:
            continue
        names = {left.name} if task.shards.keyed else {own for one in _of(task, group) for own in one.names}
        touched: set[Any] = set()
        for event in source._events if certain else ():
            if event.table.name in names and left.lsn < event.lsn <= _at(task, source, event.table.name):
                touched |= {row["id"] for _, *images in event.changes for row in images if row is not None}
        yield from (row | dict(destination.extracted) for row in left.rows if row["id"] not in touched)


def _of(task: TaskInMemory, group: object) -> list[Shard]:
    return [shard for shard in task.shards.shards if shard.group is group]


def check_waits_are_recorded(task: TaskInMemory) -> None:
    """Checks that each shard that is not at the end of its log has a record that says what it waits for."""
    for name, source in task.shards.sources.items():
        place = task.place(name)
        with closing(task.target.connect()) as session:
            halts = session.meta.halts.read("t", name)
        found = {table for halt in halts if halt.code in WAITING for table in halt.tables}
        assert place.exceptions.keys() <= found, name
        assert found or place.needs == source.received, name
