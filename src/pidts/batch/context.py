"""The context of a run: everything that carrying out a batch needs. A Spark task gets the context with its job."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Self

from pidts.apply import ApplyRules, Committer, Target, TargetSession
from pidts.batch.source_transactions import RelayTransactions
from pidts.model import ChangeBatch, Table, TableName
from pidts.reduce import TWO_WORKERS, buckets, spread_by, watched_columns
from pidts.rules import Rules, merged, together
from pidts.schema import Dialect
from pidts.source import SourceConfig


@dataclass(frozen=True, slots=True)
class JobContext:
    """The context of one run of a task. A schema change replaces `structures`, and each batch replaces `copying`."""

    task: str
    source: SourceConfig
    relay: Path
    staging: Path
    target: Target
    workers: int
    epoch: int
    change_no: int
    structures: Mapping[TableName, Table]
    dialect: Dialect
    """The dialect in which the source reads its own statements."""
    charsets: Mapping[str, tuple[str, str]]
    """Each schema's default charset and collation, which a CREATE TABLE inherits."""

    split_rows: int | None = None
    """Transactions with more rows than this are committed in parts (`pidts.split-transactions`); None: never."""
    watched: Mapping[TableName, tuple[str, ...]] = field(default_factory=dict)
    """The columns by which rows may collide because of the target's own keys, keyed by the target's table names. Only
    several workers need them.
    """
    undivided: frozenset[TableName] = frozenset()
    """The target tables whose rows all go to one worker, because their shards differ (`with_different_shards`)."""

    rules: Rules = field(default_factory=Rules)
    """The rules that select the changes and name their target tables.

    `structures` are the source's structures; the rules turn them into the target's structures.
    """

    writing: ApplyRules = field(default_factory=ApplyRules)

    copy_threads: int = 4
    """How many chunks of the full copy are read at the same time, if Spark has as many slots."""
    copy_rate: int = 0
    """How many rows per second the full copy may read, in all of its tasks together; 0: no limit."""

    copying: frozenset[TableName] = frozenset()
    """The source's tables whose copy is not complete at the end of the batch that is being decoded."""

    def dealt(self, batch: ChangeBatch) -> list[ChangeBatch | None]:
        """Returns each worker's part of these changes.

        An UPDATE may move a row to a key of another worker, and the log may lack some of the row's columns. Only the
        target's row has these columns, and another worker removes that row. So the method halts, unless the copy reads
        the row again. At such a halt, no worker has written anything of the batch. So all workers are at one place in
        the log, and an operator can change the number of workers.
        """
        if self.workers == 1:
            return buckets(batch, 1)
        read_again = batch.origin in self.copying and self._writing.can_record(batch, self.copying)
        name = batch.table.name
        watched = batch.table.arrow.names if name in self.undivided else self.watched.get(name, ())
        return buckets(batch, self.workers, watched, None if read_again else TWO_WORKERS)

    @property
    def dealing(self) -> str:
        """Returns a text that changes when the target's keys assign rows to other workers."""
        watched = sorted((str(name), columns) for name, columns in self.watched.items() if columns)
        keyed = self.rules.keyed and self.rules.keyed.intersection(map(self.rules.target_name, self.structures))
        decides = [*watched, *sorted(map(str, keyed)), *(("", str(name)) for name in sorted(self.undivided))]
        return sha256(repr(decides).encode()).hexdigest()[:16] if decides else ""

    def with_different_shards(self) -> Self:
        """Returns the context with the target tables whose shards would assign a row to different workers.

        Shards may differ in their unique keys, for example while they drop a key one after the other. If a row moves
        from one shard to another, one worker has to get both changes. Otherwise the worker with the DELETE may write
        last, and the row is lost.
        """
        if self.workers == 1 or not self.rules.routes.rules:
            return self
        shards = together(self.rules, self.structures).items()
        found = (name for name, members in shards if len(members) > 1 and len(set(map(self._spread_by, members))) > 1)
        return replace(self, undivided=frozenset(found))

    def _spread_by(self, name: TableName) -> tuple[tuple[str, str], ...]:
        return spread_by(self.rules.target_table(self.structures[name]))

    def committer(self) -> Committer:
        """Returns a committer with a connection of its own and this context's rules, for this context only."""
        writing = replace(self._writing, merged=merged(self.rules, self.structures))
        return Committer(self.target, self.task, self.source.source_id, self.epoch, rules=writing)

    @property
    def _writing(self) -> ApplyRules:
        find_transactions = RelayTransactions(self.relay, self.source.source_id)
        return replace(self.writing, task=self.task, filters=self.rules, find_transactions=find_transactions)


def watched_by(target: TargetSession, tables: Iterable[Table], workers: int) -> dict[TableName, tuple[str, ...]]:
    """Returns `JobContext.watched`. With one worker, the result is empty: that worker reads the target's keys itself.

    The result has no columns for a table whose unique keys on the source already assign all its rows to one worker. The
    target gets these keys only after the full copy, but rows are assigned by them from the beginning.
    """
    if workers == 1:
        return {}
    return {table.name: () if watched_columns(table) else target.schema.collision_columns(table) for table in tables}
