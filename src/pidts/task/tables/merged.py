"""Finds the shards that share a target table, over all sources of a task.

If the task has begun with a source, the target's records name the source's tables. Otherwise the source's server is
queried, because several sources may begin at the same time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace

from pidts.apply import TargetSession
from pidts.apply.merge.discriminating_keys import keyed_targets
from pidts.model import ConfigError, SourceTablesKey, Table, TableName
from pidts.rules import Rules
from pidts.shards.structures import same_version
from pidts.source import connect, read_structures
from pidts.task.config.task_file import TaskConfig


@dataclass(frozen=True, slots=True)
class Shard:
    """A table of the task that may share its target table with other tables."""

    table: Table
    rules: Rules
    source: str = ""
    """The source's id; empty for the source that is being checked."""
    begun: bool = False
    """Whether rows of this table may be on the target."""

    def __str__(self) -> str:
        return f"{self.source}: {self.table.name}" if self.source else str(self.table.name)

    @property
    def target_name(self) -> TableName | None:
        """The name of the shard's target table; None if the rules are in conflict."""
        return target_name_of(self.rules, self.table.name)

    @property
    def discriminators(self) -> tuple[tuple[str, str], ...]:
        """The extracted columns in the target's key, with the values of this table's rows."""
        return self.rules.apart(self.table.name)

    @property
    def target_table(self) -> Table:
        """The structure that the target needs for the shard's rows."""
        return self.rules.target_table(self.table)


def own_shards(rules: Rules, tables: Iterable[Table], *, begun: bool) -> list[Shard]:
    """Returns a shard for each of these tables of the source that is being checked."""
    return [Shard(table, rules, begun=begun) for table in tables]


def by_target(shards: Iterable[Shard]) -> dict[TableName | None, list[Shard]]:
    """Returns the shards of each target table.

    A task may have 20,000 tables. With this mapping, a check of one table examines only the shards of its target table.
    """
    found: dict[TableName | None, list[Shard]] = {}
    for shard in shards:
        if (name := shard.target_name) is not None:
            found.setdefault(name, []).append(shard)
    return found


def shards_of_other_sources(
    target: TargetSession, other_parts: Sequence[TaskConfig], rules: Rules, names: Iterable[TableName], *, asks: bool
) -> list[Shard]:
    """Returns the tables of the task's other sources that share a target table with tables of `names`.

    If the task has not begun with a source, `asks` decides: the source's server is queried, or the source counts as one
    without tables.
    """
    wanted = {target_name_of(rules, name) for name in names}
    found = []
    for config in other_parts:
        source_id = config.source.source_id
        begun = bool(target.meta.checkpoints.read(config.name, source_id))
        tables: Mapping[TableName, Table] = {}
        if begun:
            known = target.meta.structures.load(config.name, SourceTablesKey(source_id))
            tables = {name: table for name, table in known.items() if config.allow(name)}
        elif asks:
            with closing(connect(config.source.server)) as source:
                tables = read_structures(source, config.allow)
        shards = (Shard(table, config.rules, source_id, begun) for table in tables.values())
        found += [shard for shard in shards if shard.target_name in wanted]
    return found


def with_extracted_keys(
    target: TargetSession, rules: Rules, tables: Iterable[Table], other_shards: Iterable[Shard] = ()
) -> tuple[Rules, list[Shard]]:
    """Returns the rules and the other shards, completed by the extracted columns in the target tables' keys."""
    tables, other_shards = list(tables), list(other_shards)
    if not any(rule.extracts != (None, None, None) for rule in rules.routes.rules):
        return rules, other_shards
    clear = [table for table in tables if target_name_of(rules, table.name) is not None]
    own = {(shard.table.name if not shard.source else None) for shard in other_shards}
    target_name = [target_name_of(rules, table.name) for table in clear if table.name not in own] + [
        shard.target_name for shard in other_shards
    ]
    shared = {name for name, count in Counter(target_name).items() if name is not None and count > 1}
    keyed = keyed_targets(target, rules, clear, shared)
    found = [replace(shard, rules=replace(shard.rules, keyed=shard.rules.keyed | keyed)) for shard in other_shards]
    return replace(rules, keyed=keyed), found


def changed_target_tables(
    target: TargetSession, rules: Rules, known: Mapping[TableName, Table], read: Mapping[TableName, Table]
) -> dict[TableName, Table]:
    """Returns the target structure of each table whose structure on the source is not the recorded one (`known`)."""
    rules, _ = with_extracted_keys(target, rules, read.values())
    changed = (table for name, table in read.items() if name in known and not same_version(table, known[name]))
    return {table.name: rules.target_table(table) for table in changed}


def target_name_of(rules: Rules, name: TableName) -> TableName | None:
    """Returns the name of a table's target table; None if the rules are in conflict."""
    with suppress(ConfigError):  # a check of the table reports this error
        return rules.target_name(name)
    return None
