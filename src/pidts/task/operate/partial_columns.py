"""Columns that only some shards of a target table have, read from the target's records.

An optimistic task adds a column for the first shard that has it, and drops it after the last shard. In between nothing
waits, and no lock names the shards that still lack the change; this list does. A pessimistic task may have such
columns, too, after an operator has let shards continue, or has skipped some.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pidts.apply import TargetSession
from pidts.model import Member, OfSource, TableName
from pidts.shards.structures import names_of
from pidts.task.config.task_file import TaskConfig
from pidts.task.tables.merged import Shard


@dataclass(frozen=True, slots=True)
class PartialColumn:
    """A column of a target table that only some shards have."""

    target: TableName
    column: str
    having: tuple[Member, ...]
    """The shards that have it."""
    lacking: tuple[Member, ...]
    """The shards that do not have it yet, or have dropped it."""

    def to_json(self) -> dict[str, Any]:
        """Returns plain values for JSON."""
        return {
            "target": str(self.target),
            "column": self.column,
            "having": list(map(str, self.having)),
            "lacking": list(map(str, self.lacking)),
        }


def partial_columns(target: TargetSession, parts: Sequence[TaskConfig]) -> tuple[PartialColumn, ...]:
    """Returns the partial columns by table and column; each shard counts with its structure at its checkpoint."""
    if len(parts) == 1 and not parts[0].rules.routes.rules:
        return ()
    groups: dict[TableName, list[tuple[Member, Shard]]] = {}
    for part in parts:
        source = part.source.source_id
        for name, table in sorted(target.meta.structures.load(part.name, OfSource(source)).items()):
            shard = Shard(table, part.rules, source)
            if part.allow(name) and shard.target_name is not None:
                groups.setdefault(shard.target_name, []).append((Member(source, name), shard))
    found = []
    for lands, members in sorted(groups.items()):
        own = [(member, names_of(shard.table)) for member, shard in members]
        for column in sorted(frozenset[str]().union(*(names for _, names in own))):
            having = tuple(member for member, names in own if column in names)
            if len(having) < len(own):
                lacking = tuple(member for member, names in own if column not in names)
                found.append(PartialColumn(lands, column, having, lacking))
    return tuple(found)
