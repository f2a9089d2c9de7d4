"""Columns that not all shards of a table have, as the record on the target tells it.

An optimistic task runs a new column for the first shard that has it, and a DROP for the last: in between nothing waits,
and nobody is told who still has to come. This says it, of any task: a pessimistic one may have shards that were let go
ahead or left behind.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pidts.apply import TargetSession
from pidts.model import Member, TableName
from pidts.plan.shard_versions import names_of
from pidts.task.config import TaskConfig
from pidts.task.shards import Shard


@dataclass(frozen=True, slots=True)
class UnevenColumn:
    """A column of a table of the target."""

    target: TableName
    column: str
    having: tuple[Member, ...]
    """Shards that have it."""
    lacking: tuple[Member, ...]
    """Those that have not got it yet, or have dropped it."""

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "target": str(self.target),
            "column": self.column,
            "having": list(map(str, self.having)),
            "lacking": list(map(str, self.lacking)),
        }


def uneven_columns(target: TargetSession, parts: Sequence[TaskConfig]) -> tuple[UnevenColumn, ...]:
    """By table and column; each shard as it is where its checkpoint stands."""
    if len(parts) == 1 and not parts[0].rules.routes.rules:
        return ()
    groups: dict[TableName, list[tuple[Member, Shard]]] = {}
    for part in parts:
        source = part.source.source_id
        for name, table in sorted(target.load_structures(part.name, source).items()):
            shard = Shard(table, part.rules, source)
            if part.allow(name) and shard.lands is not None:
                groups.setdefault(shard.lands, []).append((Member(source, name), shard))
    found = []
    for lands, members in sorted(groups.items()):
        own = [(member, names_of(shard.table)) for member, shard in members]
        for column in sorted(frozenset[str]().union(*(names for _, names in own))):
            having = tuple(member for member, names in own if column in names)
            if len(having) < len(own):
                lacking = tuple(member for member, names in own if column not in names)
                found.append(UnevenColumn(lands, column, having, lacking))
    return tuple(found)
