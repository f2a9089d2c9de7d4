"""Finds out whether the target's key has the columns that a route extracts. Such a key separates the tables' rows.

The target's table decides. An operator who has created it with `PRIMARY KEY (id, from_table)` wants to keep rows of
several tables that have equal ids. An operator who has created it with `PRIMARY KEY (id)` does not. A table that does
not exist yet is created with the longer key if several tables map to it, or may do so later.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from pidts.apply.port import TargetSession
from pidts.model import Table, TableName
from pidts.rules import Rules


def keyed_targets(
    session: TargetSession, rules: Rules, tables: Iterable[Table], shared: Collection[TableName] = ()
) -> frozenset[TableName]:
    """Returns the target tables whose key has extracted columns, and those of `shared` that will get such a key."""
    found = set()
    for table in tables:
        destination = rules.routes.destination(table.name)
        if not destination.extracted or not table.identity or destination.name in found:
            continue
        there = session.schema.structure(destination.name)
        if (
            destination.name in shared or rules.routes.may_merge(table.name)
            if there is None
            else _has_both(there, table, [name for name, _ in destination.extracted])
        ):
            found.add(destination.name)
    return frozenset(found)


def _has_both(there: Table, table: Table, extracted: Collection[str]) -> bool:
    keys = [{name.lower() for name in key.columns} for key in there.keys if key.unique or key.primary]
    own = {name.lower() for name in table.identity}
    return own not in keys and own | {name.lower() for name in extracted} in keys
