"""A history of shards that a test writes step by step. Between the steps, the task runs as long as the test wants."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Protocol

from pidts.model import CommandKind, DdlCommand, Halt, Lsn, ShardLock, TableName

from .shard_servers import Shard, Shards
from .task_in_memory import Settings, TaskInMemory, driven

ONE = {"one": ("shard_1.t_1", "shard_1.t_2", "alone.x")}
TWO = {"one": ("shard_1.t_1", "alone.x"), "two": ("shard_1.t_1", "alone.x")}
BOTH = {"one": ("shard_1.t_1", "shard_2.t_1"), "two": ("shard_1.t_1", "shard_2.t_1", "alone.x")}
T = TableName("all", "t")

C = "ALTER TABLE {t} ADD COLUMN c INT DEFAULT 7"
D = "ALTER TABLE {t} ADD COLUMN d INT NOT NULL DEFAULT 8"
INDEX = "ALTER TABLE {t} ADD INDEX c (c)"
E = "ALTER TABLE {t} ADD COLUMN e INT, ADD INDEX e (e)"
GONE = "ALTER TABLE {t} DROP COLUMN c"


class Story(TaskInMemory):
    """A history that a test writes step by step."""

    def __init__(self, shards: Shards, settings: Settings) -> None:
        super().__init__(shards, settings, shards.chance)
        self.looks = settings.mode == "pessimistic"
        self.write()
        self.start()

    def __getitem__(self, name: str) -> Shard:
        return self.shards.of(name)

    def plan(self, *texts: str, group: str = "t") -> None:
        """Plans the changes that the group's shards will make."""
        for text in texts:
            self.shards.groups[group].say(text)

    def write(self, *names: str, times: int = 1) -> None:
        """Makes one transaction for each of these shards, or for all shards."""
        for _ in range(times):
            for shard in [self[name] for name in names] or [*self.shards.shards, *self.shards.loners]:
                self.shards.write(shard)

    def alter(self, *names: str) -> None:
        """Makes the next planned change, and then writes rows with the new structure."""
        for name in names:
            self[name].alter()
            self.write(name)

    def finish_and_check(self) -> None:
        """Runs the task until there is nothing left to do, and checks that each table is at its right place."""
        self.finish()
        self.check_places()

    def waiting(self) -> list[str]:
        """Returns the shards that wait before a schema change."""
        return sorted(f"{source}: {name}" for source in self.shards.sources for name in self.place(source).exceptions)

    @property
    def names(self) -> list[str]:
        """Returns the names of all shards."""
        return [f"{shard.source.name}: {shard.name}" for shard in self.shards.everyone if shard in self.shards.shards]

    def locks(self) -> tuple[ShardLock, ...]:
        """Returns the shard locks of the process."""
        return self.groups.locks()

    def halts(self, source: str) -> list[Halt]:
        """Returns the halts of a source, as the target's records show them."""
        with closing(self.target.connect()) as session:
            return session.meta.halts.read("t", source)

    def command(self, name: str, kind: CommandKind, *statements: str) -> None:
        """Gives an operator's ddl command for the schema change at which a shard waits."""
        source, _, table = name.partition(": ")
        (halt,) = (halt for halt in self.halts(source) if table in map(str, halt.tables))
        self.give(source, halt.lsn, kind, *statements)

    def give(self, source: str, lsn: Lsn, kind: CommandKind, *statements: str) -> None:
        """Gives a ddl command, even if no shard waits for it."""
        with closing(self.target.connect()) as session:
            session.meta.ddl_commands.give("t", source, DdlCommand(lsn=lsn, kind=kind, statements=statements))

    def columns(self, name: TableName = T) -> list[str]:
        return [column.name for column in self.target.store.tables[name].table.columns]


class MakeStory(Protocol):
    """Begins a history: returns a new `Story`."""

    def __call__(
        self, layout: dict[str, tuple[str, ...]], *, seed: int = 1, keyed: bool = False, **settings: object
    ) -> Story: ...


@contextmanager
def stories(**given: object) -> Iterator[MakeStory]:
    """Yields the function with which a test begins its histories."""
    shown: list[Story] = []

    def make_story(
        layout: dict[str, tuple[str, ...]], *, seed: int = 1, keyed: bool = False, **settings: object
    ) -> Story:
        while shown:
            shown.pop().close()
        shards = Shards(layout, random.Random(seed), keyed=keyed)
        shown.append(Story(shards, Settings(**{**given, **settings})))
        return shown[-1]

    with driven():
        yield make_story
        for one in shown:
            one.close()
