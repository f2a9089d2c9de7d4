"""Everything a task of Spark needs to know; it travels with the job, not through files or arguments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path

from pidts.apply import ApplyRules, Committer, Target, TargetSession
from pidts.model import ChangeBatch, Table, TableName
from pidts.reduce import buckets, watched_columns
from pidts.rules import Rules, merged
from pidts.schema import Dialect
from pidts.source import SourceConfig


@dataclass(frozen=True, slots=True)
class JobContext:
    """One run of a task: it changes only when a DDL changes the structures."""

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
    """How the source reads its own statements."""
    clock_is_utc: bool
    """Whether the source's sessions have UTC unless they say otherwise."""
    charsets: Mapping[str, tuple[str, str]]
    """Each schema's default charset and collation, which a CREATE TABLE inherits."""

    split_rows: int | None = None
    """`pidts.split-transactions`: larger transactions are committed in parts."""
    watched: Mapping[TableName, tuple[str, ...]] = field(default_factory=dict)
    """What the target's own keys have watched, by the target's names; only where several workers must know it."""

    rules: Rules = field(default_factory=Rules)
    """Which changes are taken, and where they land: `structures` are the source's, the target has them as landed."""

    writing: ApplyRules = field(default_factory=ApplyRules)
    """What the task asks of its writing."""

    copy_threads: int = 4
    """So many chunks of the full copy are read at the same time, where Spark has as many slots."""
    copy_rate: int = 0
    """The full copy reads no more rows a second than this, over all of its tasks; 0: as many as it can."""

    def dealt(self, batch: ChangeBatch) -> list[ChangeBatch | None]:
        """Each worker's part of these changes."""
        return buckets(batch, self.workers, self.watched.get(batch.table.name, ()))

    @property
    def dealing(self) -> str:
        """Says the same as long as rows go to the same workers, as far as the target's own keys decide that."""
        watched = sorted((str(name), columns) for name, columns in self.watched.items() if columns)
        keyed = self.rules.keyed and self.rules.keyed.intersection(map(self.rules.landed_name, self.structures))
        decides = [*watched, *sorted(map(str, keyed))]
        return sha256(repr(decides).encode()).hexdigest()[:16] if decides else ""

    def committer(self) -> Committer:
        """A connection of its own to the target, for as long as this context is the one that holds."""
        writing = replace(self.writing, task=self.task, filters=self.rules, merged=merged(self.rules, self.structures))
        return Committer(self.target, self.task, self.source.source_id, self.epoch, rules=writing)


def watched_by(target: TargetSession, tables: Iterable[Table], workers: int) -> dict[TableName, tuple[str, ...]]:
    """`JobContext.watched`; one worker needs none, it asks the target when it writes.

    Nor does a table whose own unique keys already keep it together: the target gets those of its keys that come after
    the full copy when others have been dealt for long.
    """
    if workers == 1:
        return {}
    return {table.name: () if watched_columns(table) else target.watched(table) for table in tables}
