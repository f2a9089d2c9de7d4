"""A history of shards that is told step by step, with the task going on in between for as long as one likes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Protocol

from pidts.model import DdlOrder, Halt, Lsn, OrderKind, ShardLock, TableName

from .shard_servers import Shard, Shards
from .task_in_memory import Settings, World, driven

ONE = {"one": ("shard_1.t_1", "shard_1.t_2", "alone.x")}
TWO = {"one": ("shard_1.t_1", "alone.x"), "two": ("shard_1.t_1", "alone.x")}
BOTH = {"one": ("shard_1.t_1", "shard_2.t_1"), "two": ("shard_1.t_1", "shard_2.t_1", "alone.x")}
T = TableName("all", "t")

C = "ALTER TABLE {t} ADD COLUMN c INT DEFAULT 7"
D = "ALTER TABLE {t} ADD COLUMN d INT NOT NULL DEFAULT 8"
INDEX = "ALTER TABLE {t} ADD INDEX c (c)"
E = "ALTER TABLE {t} ADD COLUMN e INT, ADD INDEX e (e)"
GONE = "ALTER TABLE {t} DROP COLUMN c"


class Story(World):
    """Told step by step."""

    def __init__(self, shards: Shards, settings: Settings) -> None:
        super().__init__(shards, settings, shards.chance)
        self.looks = settings.mode == "pessimistic"
        self.write()
        self.start()

    def __getitem__(self, name: str) -> Shard:
        return self.shards.of(name)

    def plan(self, *texts: str, group: str = "t") -> None:
        """What its shards will do."""
        for text in texts:
            self.shards.groups[group].say(text)

    def write(self, *names: str, times: int = 1) -> None:
        """One transaction for each of these, or for all."""
        for _ in range(times):
            for shard in [self[name] for name in names] or [*self.shards.shards, *self.shards.loners]:
                self.shards.write(shard)

    def alter(self, *names: str) -> None:
        """The next of what was planned; then rows of the new structure."""
        for name in names:
            self[name].alter()
            self.write(name)

    def rests(self) -> None:
        """And everything is where it has to be."""
        self.rest()
        self.check_standing()

    def waiting(self) -> list[str]:
        """Who stands before a schema change."""
        return sorted(f"{source}: {name}" for source in self.shards.sources for name in self.place(source).exceptions)

    @property
    def names(self) -> list[str]:
        """All shards."""
        return [f"{shard.source.name}: {shard.name}" for shard in self.shards.everyone if shard in self.shards.shards]

    def locks(self) -> tuple[ShardLock, ...]:
        """As the process knows them."""
        return self.groups.locks()

    def halts(self, source: str) -> list[Halt]:
        """As everybody can read them on the target."""
        with closing(self.target.connect()) as session:
            return session.meta.halts.read("t", source)

    def order(self, name: str, kind: OrderKind, *statements: str) -> None:
        """An operator's word about the schema change that a shard stands before."""
        source, _, table = name.partition(": ")
        (halt,) = (halt for halt in self.halts(source) if table in map(str, halt.tables))
        self.give(source, halt.lsn, kind, *statements)

    def give(self, source: str, lsn: Lsn, kind: OrderKind, *statements: str) -> None:
        """An order, whether anybody waits for it or not."""
        with closing(self.target.connect()) as session:
            session.meta.orders.give("t", source, DdlOrder(lsn=lsn, kind=kind, statements=statements))

    def columns(self, name: TableName = T) -> list[str]:
        return [column.name for column in self.target.store.tables[name].table.columns]


class Tell(Protocol):
    """Begins a story."""

    def __call__(
        self, layout: dict[str, tuple[str, ...]], *, seed: int = 1, keyed: bool = False, **settings: object
    ) -> Story: ...


@contextmanager
def stories(**given: object) -> Iterator[Tell]:
    """Those of one test."""
    told: list[Story] = []

    def tell(layout: dict[str, tuple[str, ...]], *, seed: int = 1, keyed: bool = False, **settings: object) -> Story:
        while told:
            told.pop().close()
        shards = Shards(layout, random.Random(seed), keyed=keyed)
        told.append(Story(shards, Settings(**{**given, **settings})))
        return told[-1]

    with driven():
        yield tell
        for one in told:
            one.close()
