"""Tables that become one: which others land where a table does, also those of the task's other sources.

What another source has is on the target's record once it has begun; before that its own server is asked, since both may
begin at the same time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace

from pidts.apply import TargetSession
from pidts.apply.shard_keys import keyed_landings
from pidts.model import ConfigError, Table, TableName
from pidts.plan.shard_versions import same_version
from pidts.rules import Rules
from pidts.source import connect, read_structures
from pidts.task.compose import source_config
from pidts.task.config import TaskConfig


@dataclass(frozen=True, slots=True)
class Shard:
    """A table of the task that may land where others do."""

    table: Table
    rules: Rules
    source: str = ""
    """Another source than the one that is looked at."""
    begun: bool = False
    """Its rows may be on the target."""

    def __str__(self) -> str:
        return f"{self.source}: {self.table.name}" if self.source else str(self.table.name)

    @property
    def lands(self) -> TableName | None:
        """The name of the target's table; None where the rules do not tell."""
        return _lands(self.rules, self.table.name)

    @property
    def apart(self) -> tuple[tuple[str, str], ...]:
        """What the target's key holds of this table besides its own."""
        return self.rules.apart(self.table.name)

    @property
    def landed(self) -> Table:
        """What the target needs for its rows."""
        return self.rules.landed(self.table)


def own_shards(rules: Rules, tables: Iterable[Table], *, begun: bool) -> list[Shard]:
    """Tables of the source that is looked at."""
    return [Shard(table, rules, begun=begun) for table in tables]


def shards_beside(
    target: TargetSession, beside: Sequence[TaskConfig], rules: Rules, names: Iterable[TableName], *, asks: bool
) -> list[Shard]:
    """Tables of the task's other sources that land where those of `names` do.

    `asks`: a source that has not begun is asked; else it has no tables here yet.
    """
    wanted = {_lands(rules, name) for name in names}
    found = []
    for config in beside:
        source_id = config.source.source_id
        begun = bool(target.checkpoints(config.name, source_id))
        tables: Mapping[TableName, Table] = {}
        if begun:
            known = target.load_structures(config.name, source_id)
            tables = {name: table for name, table in known.items() if config.allow(name)}
        elif asks:
            with closing(connect(source_config(config))) as source:
                tables = read_structures(source, config.allow)
        shards = (Shard(table, config.rules, source_id, begun) for table in tables.values())
        found += [shard for shard in shards if shard.lands in wanted]
    return found


def with_keys(
    target: TargetSession, rules: Rules, tables: Iterable[Table], beside: Iterable[Shard] = ()
) -> tuple[Rules, list[Shard]]:
    """The rules, and those of the others, with the target's tables in which extracted columns are part of the key."""
    tables, beside = list(tables), list(beside)
    if not any(rule.extracts != (None, None, None) for rule in rules.routes.rules):
        return rules, beside
    clear = [table for table in tables if _lands(rules, table.name) is not None]
    own = {(shard.table.name if not shard.source else None) for shard in beside}
    lands = [_lands(rules, table.name) for table in clear if table.name not in own] + [shard.lands for shard in beside]
    shared = {name for name, count in Counter(lands).items() if name is not None and count > 1}
    keyed = keyed_landings(target, rules, clear, shared)
    found = [replace(shard, rules=replace(shard.rules, keyed=shard.rules.keyed | keyed)) for shard in beside]
    return replace(rules, keyed=keyed), found


def landed_anew(
    target: TargetSession, rules: Rules, known: Mapping[TableName, Table], read: Mapping[TableName, Table]
) -> dict[TableName, Table]:
    """Tables that have another structure than was known of them, as they land."""
    rules, _ = with_keys(target, rules, read.values())
    changed = (table for name, table in read.items() if name in known and not same_version(table, known[name]))
    return {table.name: rules.landed(table) for table in changed}


def _lands(rules: Rules, name: TableName) -> TableName | None:
    with suppress(ConfigError):  # told where the table itself is looked at
        return rules.landed_name(name)
    return None
