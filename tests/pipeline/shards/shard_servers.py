"""Shards on servers in memory: their changes, the rows that each had at every moment, and the result of merging them.

The oracle has no locks, arrivals and batches. It keeps each shard's rows and structure after every entry of its
server's log, takes each shard at one place of the log, and joins the shards' rows.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pidts.model import Kind, Lsn, Op, Table, TableName
from pidts.rules import AllowList, Extract, RouteRule, Routes, Rules
from pidts.schema import apply, classify, create_table

from .shard_source import Rename, Row, ShardSource, filled

LETTERS = ("t", "u")


def rules_of(source: str, *, keyed: bool = False) -> Rules:
    """Returns rules that route `shard_*.t_*` to `all.t`, and `shard_*.u_*` to `all.u`. Other tables are not merged.

    `keyed`: columns of the target's key have the name of the shard from which a row comes.
    """
    names = ("of_table", "of_schema", "of_source") if keyed else ()
    extracts = [Extract("(.*)", name) for name in names]
    routes = tuple(RouteRule("shard_*", f"{letter}_*", "all", letter, *extracts) for letter in LETTERS)
    return Rules(allow=AllowList(do_dbs=("shard_*", "alone")), routes=Routes(routes, source))


POOL = {"a": "INT", "b": "INT DEFAULT 2", "c": "INT NOT NULL DEFAULT 3", "d": "BIGINT DEFAULT 4", "e": "INT"}
"""Columns that shards add at any time."""

BASE = "CREATE TABLE {t} (id INT NOT NULL PRIMARY KEY, v INT, u INT, UNIQUE KEY uu (u))"


def created(text: str, name: TableName) -> Table:
    """Returns the structure of the table that a CREATE TABLE statement makes."""
    found = apply(classify(text.format(t=name), "shop"), {}, {})[name]
    assert found is not None
    return found


@dataclass
class Version:
    """A version of a shard group's structure, and the statement that makes it from the version before."""

    text: str
    table: Table
    """The structure, with the name of the group's target table."""
    renamed: Rename = field(default_factory=dict)


class Group:
    """The schema changes of all shards of one shard group, in one order. Each shard makes them at its own time."""

    def __init__(self, target: TableName, chance: random.Random) -> None:
        self.target, self._chance = target, chance
        self.versions = [Version("", created(BASE, target))]
        self._numbers = iter(range(1, 1000))
        self.is_strict = False
        """Whether no shard joins the group late. Only then the group's changes also change defaults, since the rows of
        a late shard would have got other values.
        """

    def next(self) -> None:
        """Adds a random version."""
        self.say(*self._drawn(self.versions[-1].table))

    def say(self, text: str, renamed: Rename | None = None) -> None:
        """Adds the version that this statement makes."""
        before = self.versions[-1].table
        after = apply(classify(text.format(t=self.target), "all"), {self.target: before}, {})[self.target]
        assert after is not None
        self.versions.append(Version(text, after, renamed or {}))

    def is_new(self, version: int) -> bool:
        """Returns whether no version before this one had the same structure."""
        tables = [one.table for one in self.versions[: version + 1]]
        return tables[-1] not in tables[:-1]

    def _drawn(self, table: Table) -> tuple[str, Rename]:
        chance, number = self._chance, next(self._numbers)
        own = [column for column in table.columns if column.name not in ("id", "v", "u")]
        kinds = ["add", "add", "add default", "add demanded", "add first", "two", "key"]
        if own:
            kinds += ["drop", "drop", "change", "after"]
        some = chance.choice(own).name if own else ""
        keys = [key.name for key in table.keys if key.name.startswith("k")]
        if self.is_strict:
            kinds += ["add both"] + ["drop key"] * bool(keys) + ["default", "default", "swap"] * bool(own)
        narrow = [column.name for column in own if column.type.kind is Kind.INT]
        kinds += ["modify"] * bool(narrow)
        name = f"c{number}"
        match chance.choice(kinds):
            case "add":
                return f"ALTER TABLE {{t}} ADD COLUMN {name} INT", {}
            case "add default":
                return f"ALTER TABLE {{t}} ADD COLUMN {name} INT DEFAULT {number}", {}
            case "add demanded":
                return f"ALTER TABLE {{t}} ADD COLUMN {name} INT NOT NULL DEFAULT {number}", {}
            case "add first":
                return f"ALTER TABLE {{t}} ADD COLUMN {name} INT FIRST", {}
            case "after":
                return f"ALTER TABLE {{t}} ADD COLUMN {name} INT AFTER {some}", {}
            case "two":
                return f"ALTER TABLE {{t}} ADD COLUMN {name} INT, ADD COLUMN {name}b INT DEFAULT {number}", {}
            case "key":
                return f"ALTER TABLE {{t}} ADD INDEX k{number} (v)", {}
            case "drop":
                return f"ALTER TABLE {{t}} DROP COLUMN {some}", {}
            case "add both":
                return f"ALTER TABLE {{t}} ADD COLUMN {name} INT DEFAULT {number}, ADD INDEX k{number} ({name}, v)", {}
            case "drop key":
                return f"ALTER TABLE {{t}} DROP INDEX {chance.choice(keys)}", {}
            case "default":
                return f"ALTER TABLE {{t}} ALTER COLUMN {some} SET DEFAULT {number}", {}
            case "swap":
                return f"ALTER TABLE {{t}} DROP COLUMN {some}, ADD COLUMN {name} INT DEFAULT {number}", {}
            case "modify":
                return f"ALTER TABLE {{t}} MODIFY COLUMN {chance.choice(narrow)} BIGINT", {}
            case _:
                return f"ALTER TABLE {{t}} CHANGE COLUMN {some} {name} BIGINT", {name: some}


@dataclass(eq=False)
class Shard:
    """One of the merged tables."""

    source: ShardSource
    name: TableName
    group: Group
    base: int
    """The shard's keys and unique values are this number or a little larger. No other shard has the same number."""
    version: int = 0
    ends: dict[int, Lsn] = field(default_factory=dict)
    """For each version of the shard's structure, the place of the log up to which the shard had this version."""
    names: list[TableName] = field(default_factory=list)
    """All names that the shard has had."""
    is_gone: bool = False
    is_late: bool = False
    """Whether the shard began with a structure that other shards may not have reached.

    It waits for no other shard while its rows fit.
    """
    had: set[str] = field(default_factory=set)
    """All columns that the shard has had."""
    has_unique: bool = True
    """Whether the shard's rows have values that no other shard has."""

    @property
    def table(self) -> Table:
        return self.source.structures[self.name]

    @property
    def rows(self) -> list[Row]:
        return self.source.rows(self.name)

    def alter(self) -> None:
        """Alters the shard to the group's next version, which may be a new one."""
        if self.version + 1 == len(self.group.versions):
            self.group.next()
        self.ends[self.version] = self.source.received
        self.version += 1
        version = self.group.versions[self.version]
        self.source.say(version.text.format(t=self.name), version.renamed)

    def tinker(self, chance: random.Random, others: Collection[str]) -> None:
        """Makes a random schema change of only this shard.

        A former column can be added again when no shard has it any more.
        """
        own = [column.name for column in self.table.columns if column.name not in ("id", "v", "u")]
        new = [name for name in POOL if name not in own and (name not in self.had or name not in others)]
        made = [f"ADD COLUMN {name} {POOL[name]}" for name in new] * 2
        made += [f"DROP COLUMN {name}" for name in own]
        made += ["MODIFY COLUMN v BIGINT"]
        made += [f"ADD INDEX {name} (v)" for name in ("k1", "k2") if name not in {key.name for key in self.table.keys}]
        self.source.say(f"ALTER TABLE {self.name} {chance.choice(made)}")
        self.had.update(column.name for column in self.table.columns)

    def changes(
        self, chance: random.Random, others: Collection[int] = ()
    ) -> Iterator[tuple[Op, Row | None, Row | None]]:
        """Returns the changes of one transaction: of one to three rows."""
        rows = {row["id"]: row for row in self.rows}
        plain = [column.name for column in self.table.columns if column.name not in {"id", "u"}]
        for _ in range(chance.randrange(1, 4)):
            key = self.base + chance.randrange(6)
            old = rows.get(key)
            if key in others:
                continue
            if old is None:
                rows[key] = self._row(key, rows, chance)
                yield Op.INSERT, None, rows[key]
            elif (kind := chance.randrange(6)) == 0:
                del rows[key]
                yield Op.DELETE, old, None
            elif kind == 1 and (free := key % 10 + self.base + 50) not in {*rows, *others}:
                rows[free] = {**rows.pop(key), "id": free}
                yield Op.UPDATE, old, rows[free]
            elif kind == 2 and len(rows) > 1:
                yield from self._swapped(old, rows, chance)
            else:
                new = self._row(key, rows, chance)
                rows[key] = new if kind == 3 or not plain else {**old, (name := chance.choice(plain)): new[name]}
                yield Op.UPDATE, old, rows[key]

    def _row(self, key: int, rows: Mapping[int, Row], chance: random.Random) -> Row:
        made = {column.name: chance.randrange(1000) for column in self.table.columns}
        taken = {row["u"] for one, row in rows.items() if one != key}
        unique = self.base + chance.randrange(4)
        return made | {"id": key, "u": unique if self.has_unique and unique not in taken else None}

    def _swapped(self, old: Row, rows: dict[int, Row], chance: random.Random) -> Iterator[Any]:
        """Lets two rows swap a unique value: one of them gets a third value in between."""
        other = rows[chance.choice([key for key in rows if key != old["id"]])]
        aside = {**old, "u": None}
        yield Op.UPDATE, old, aside
        rows[other["id"]] = {**other, "u": old["u"]}
        yield Op.UPDATE, other, rows[other["id"]]
        rows[old["id"]] = {**aside, "u": other["u"]}
        yield Op.UPDATE, aside, rows[old["id"]]


@dataclass(frozen=True)
class Left:
    """Rows of a former shard that stay on the target, since no event removes them."""

    shard: Shard
    name: TableName
    lsn: Lsn
    """The rows stay on the target if the shard has reached this place."""
    version: int
    rows: list[Row]

    def carried(self) -> Iterator[Row]:
        """Yields the rows with the columns and values that the later versions of the table give them."""
        for row in self.rows:
            more = dict(row)
            for version in self.shard.group.versions[self.version + 1 :]:
                more |= filled(version.table, more, version.renamed)
            yield more


class Shards:
    """All servers and their histories."""

    def __init__(self, layout: Mapping[str, Sequence[str]], chance: random.Random, *, keyed: bool = False) -> None:
        """`layout` names each server's tables.

        Tables with the same letter are one group; `alone` tables belong to none.

        `keyed`: all shards have the same keys.
        """
        self.chance, self.keyed = chance, keyed
        self.groups = {letter: Group(TableName("all", letter), chance) for letter in LETTERS}
        self.sources: dict[str, ShardSource] = {}
        self.shards: list[Shard] = []
        self.loners: list[Shard] = []
        self.left: list[Left] = []
        self.creates = True
        """Whether tables are created in the course of time."""
        self._fresh = itertools.count(10)
        for source, names in layout.items():
            tables = [TableName(*name.split(".")) for name in names]
            self.sources[source] = ShardSource(source, [created(BASE, name) for name in tables])
            for name in tables:
                self._add(self.sources[source], name)

    def _add(self, source: ShardSource, name: TableName, version: int = 0) -> Shard:
        base = 0 if self.keyed else 100 * next(self._fresh)
        ends = dict.fromkeys(range(version), source.received)
        if name.schema == "alone":
            self.loners.append(Shard(source, name, Group(name, self.chance), base, names=[name]))
            return self.loners[-1]
        self.shards.append(Shard(source, name, self.groups[name.name[0]], base, version, ends, [name]))
        return self.shards[-1]

    @property
    def everyone(self) -> list[Shard]:
        """Returns all shards that exist."""
        return [shard for shard in (*self.shards, *self.loners) if not shard.is_gone]

    @property
    def all_groups(self) -> list[Group]:
        return [*self.groups.values(), *(shard.group for shard in self.loners)]

    def of(self, text: str) -> Shard:
        """Returns the shard of the name `source: schema.name`."""
        source, _, name = text.partition(": ")
        return next(one for one in (*self.shards, *self.loners) if (one.source.name, str(one.name)) == (source, name))

    def create(self, source: str, name: TableName, version: int) -> Shard:
        """Creates a new shard with one of its group's versions."""
        shard = self._add(self.sources[source], name, version)
        shard.is_late = version > 0
        self.sources[source].say(create_table(shard.group.versions[version].table, name))
        return shard

    def empty(self, shard: Shard) -> None:
        """Runs TRUNCATE. Later rows have other keys, so that they do not collide with the rows that stay on the
        target.
        """
        self._leave(f"TRUNCATE TABLE {shard.name}", shard)
        shard.base = 100 * next(self._fresh)

    def drop(self, *shards: Shard, text: str = "") -> None:
        """Runs DROP TABLE, or the statement `text`, which does the same."""
        self._leave(text or f"DROP TABLE {', '.join(str(shard.name) for shard in shards)}", *shards)
        for shard in shards:
            shard.is_gone = True

    def _leave(self, text: str, *shards: Shard) -> None:
        """Removes the shards' rows without an event, so the rows on the target stay."""
        rows = {shard: shard.rows for shard in shards}
        lsn = shards[0].source.say(text).transaction.lsn
        self.left += [Left(shard, shard.name, lsn, shard.version, rows[shard]) for shard in shards]

    def rename(self, shard: Shard, name: TableName, text: str = "RENAME TABLE {t} TO {new}") -> None:
        """Renames a shard within its group."""
        shard.source.say(text.format(t=shard.name, new=name))
        shard.name = name
        shard.names.append(name)

    def write(self, *shards: Shard) -> None:
        """Makes one transaction over tables of one server."""
        steps = [(shard.name, list(shard.changes(self.chance, self._elsewhere(shard)))) for shard in shards]
        if any(changes for _, changes in steps):
            shards[0].source.commit(*(step for step in steps if step[1]))

    def _elsewhere(self, shard: Shard) -> set[int]:
        """Returns the keys with which rows have moved to another shard."""
        others = [one for one in self.everyone if one.group is shard.group and one is not shard]
        return set() if self.keyed else {row["id"] for one in others for row in one.rows}

    def move(self) -> None:
        """Moves a row to another shard of the same server. Either the INSERT or the DELETE comes first."""
        pairs = [
            (one, other)
            for one, other in itertools.permutations(self.everyone, 2)
            if (one.source, one.group) == (other.source, other.group) and one.rows
        ]
        if pairs and not self.keyed:
            one, other = self.chance.choice(pairs)
            row = self.chance.choice(one.rows)
            steps = [(one.name, [(Op.DELETE, row, None)]), (other.name, [(Op.INSERT, None, {**row, "u": None})])]
            one.source.commit(*self.chance.sample(steps, 2))

    def step(self, ddl: float) -> None:
        """Makes a random change on one of the servers."""
        chance = self.chance
        shard = chance.choice(self.everyone)
        if chance.random() < ddl:
            # No shard stays far ahead of the others for ever, but some do for a while.
            if shard.version - self.reached(shard.group) < 3:
                shard.alter()
        elif chance.random() < ddl / 2:
            self._rare(shard)
        else:
            beside = [one for one in self.everyone if one.source is shard.source and one is not shard]
            self.write(shard, *chance.sample(beside, min(len(beside), chance.randrange(3))))

    def tinker(self) -> None:
        """Lets one shard make a change that the others do not make."""
        shard = self.chance.choice(self.everyone)
        others = {column.name for one in self.everyone if one.group is shard.group for column in one.table.columns}
        shard.tinker(self.chance, others)

    def _rare(self, shard: Shard) -> None:
        if shard in self.loners:
            return
        chance, letter = self.chance, shard.name.name[0]
        fresh = TableName(f"shard_{chance.randrange(1, 4)}", f"{letter}_{next(self._fresh)}")
        match chance.choice(("create", "create", "drop", "empty", "rename", "comment")):
            case "create":
                # The new shard's version is not before those of all other tables on its server: so it has no column
                # that the whole group may have dropped already. It also has no structure that equals an earlier
                # version, because nobody could say which of the two versions it has.
                mates = [one for one in self.everyone if (one.source, one.group) == (shard.source, shard.group)]
                last = max(one.version for one in self.everyone if one.group is shard.group)
                version = chance.randrange(min(one.version for one in mates), last + 1)
                if shard.group.is_new(version) and self.creates:
                    self.create(shard.source.name, fresh, version)
            case "drop" if sum(one.group is shard.group for one in self.everyone) > 2:
                self.drop(shard)
            case "empty":
                self.empty(shard)
            case "rename" if not self.keyed:
                self.rename(shard, fresh)
            case "comment":
                shard.source.say(f"ALTER TABLE {shard.name} COMMENT = 'x'")

    def reached(self, group: Group) -> int:
        """Returns the version that all existing shards of the group have reached."""
        found = [one.version for one in self.everyone if one.group is group]
        return min(found) if found else max(one.version for one in self.shards if one.group is group)

    def stands(self, shard: Shard) -> Lsn:
        """Returns the place where a shard has to wait for the others, or the end of the log."""
        return shard.ends.get(self.reached(shard.group), shard.source.received)

    def level(self) -> None:
        """Lets all shards make the changes that other shards of their group have made, in any order."""
        while behind := [one for one in self.everyone if one.version < len(one.group.versions) - 1]:
            self.chance.choice(behind).alter()
