"""Says which foreign keys of the sources the target can have, by the target's names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from pidts.model import ForeignKey, TableName
from pidts.task.config.task_file import TaskConfig


@dataclass(frozen=True, slots=True)
class Unfit:
    """A foreign key that the target does not get, and why."""

    key: ForeignKey
    why: str

    def __str__(self) -> str:
        return f"{self.key}: {self.why}"


def merged_targets(parts: Sequence[TaskConfig], tables: Mapping[str, Collection[TableName]]) -> frozenset[TableName]:
    """Returns the target tables of several source tables; `tables` has those of each source id."""
    counts = Counter(part.rules.target_name(name) for part in parts for name in tables[part.source.source_id])
    return frozenset(name for name, count in counts.items() if count > 1)


def fitting_key(
    part: TaskConfig, key: ForeignKey, tables: Collection[TableName], merged: Collection[TableName]
) -> ForeignKey | Unfit:
    """Returns the foreign key as the target can have it; `tables` are those of the same source."""
    if key.parent not in tables:
        return Unfit(key, f"{key.parent} is not part of the task")
    there = replace(key, table=part.rules.target_name(key.table), parent=part.rules.target_name(key.parent))
    shared = [name for name in (there.table, there.parent) if name in merged]
    return Unfit(there, f"{shared[0]} is merged from several tables") if shared else there
