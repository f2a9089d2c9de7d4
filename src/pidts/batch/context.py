"""Everything a task of Spark needs to know; it travels with the job, not through files or arguments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pidts.apply import Committer, Target
from pidts.model import Table, TableName
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

    def committer(self) -> Committer:
        """A connection of its own to the target."""
        return Committer(self.target, self.task, self.source.source_id, self.epoch)
