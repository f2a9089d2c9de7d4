"""All that a task of Spark needs to know; it travels with the job, not through files or arguments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path

from pidts.apply import ApplyRules, Committer, Target, TargetSession
from pidts.batch.moments import RelayMoments
from pidts.model import ChangeBatch, Table, TableName
from pidts.reduce import TWO_WORKERS, buckets, watched_columns
from pidts.rules import Rules, merged
from pidts.schema import Dialect
from pidts.source import SourceConfig


@dataclass(frozen=True, slots=True)
class JobContext:
    """The context of one run of a task; it changes when a DDL changes the structures, and `copying` with each batch."""

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
    """`pidts.split-transactions`: larger transactions are committed in parts."""
    watched: Mapping[TableName, tuple[str, ...]] = field(default_factory=dict)
    """The columns that the target's own keys make us watch, by the target's names; only for several workers."""

    rules: Rules = field(default_factory=Rules)
    """The rules that say which changes are taken, and what their target tables are.

    `structures` are those of the source; the target has them under the rules.
    """

    writing: ApplyRules = field(default_factory=ApplyRules)
    """The task's rules for writing."""

    copy_threads: int = 4
    """The number of chunks of the full copy that are read at the same time, where Spark has as many slots."""
    copy_rate: int = 0
    """The most rows a second that the full copy reads, over all of its tasks; 0: no limit."""

    copying: frozenset[TableName] = frozenset()
    """The source's tables whose copy is not complete at the end of the batch that is being decoded."""

    def dealt(self, batch: ChangeBatch) -> list[ChangeBatch | None]:
        """Returns each worker's part of these changes.

        Halts where one worker would get a row of which another one has the rest, unless the copy reads that row again.
        No worker has written anything of the batch then: they are at one place, and their number can be changed.
        """
        read_again = batch.origin in self.copying and self._writing.can_record(batch, self.copying)
        watched = self.watched.get(batch.table.name, ())
        return buckets(batch, self.workers, watched, None if read_again else TWO_WORKERS)

    @property
    def dealing(self) -> str:
        """Returns a text that is the same while rows go to the same workers, as far as the target's keys decide."""
        watched = sorted((str(name), columns) for name, columns in self.watched.items() if columns)
        keyed = self.rules.keyed and self.rules.keyed.intersection(map(self.rules.target_name, self.structures))
        decides = [*watched, *sorted(map(str, keyed))]
        return sha256(repr(decides).encode()).hexdigest()[:16] if decides else ""

    def committer(self) -> Committer:
        """Returns a committer with its own connection to the target, for as long as this context is valid."""
        writing = replace(self._writing, merged=merged(self.rules, self.structures))
        return Committer(self.target, self.task, self.source.source_id, self.epoch, rules=writing)

    @property
    def _writing(self) -> ApplyRules:
        moments = RelayMoments(self.relay, self.source.source_id)
        return replace(self.writing, task=self.task, filters=self.rules, moments=moments)


def watched_by(target: TargetSession, tables: Iterable[Table], workers: int) -> dict[TableName, tuple[str, ...]]:
    """Returns `JobContext.watched`; one worker needs none, since it asks the target when it writes.

    A table whose own unique keys already keep its rows on one worker needs none either. The target gets such keys only
    after the full copy, when rows have long been distributed by them.
    """
    if workers == 1:
        return {}
    return {table.name: () if watched_columns(table) else target.schema.collision_columns(table) for table in tables}
