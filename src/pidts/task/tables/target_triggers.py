"""Finds triggers of the target's tables that fire for the rows that the task writes.

The source's log already contains what its own triggers have changed. If the target has the same triggers, as after a
load of a schema dump, or on the old server of a way back, these changes are made twice. PostgreSQL does not need this
check: its sessions switch off triggers, or the table does not fit (`misfits`).
"""

from __future__ import annotations

from collections.abc import Iterable

from pidts.apply import TargetSession
from pidts.model import TableName
from pidts.model.errors import listed, plural
from pidts.source.finding import Finding
from pidts.target.mysql import MySqlSession
from pidts.target.mysql.dialect import qualified


def trigger_hints(target: TargetSession, names: Iterable[TableName]) -> list[Finding]:
    """Returns a hint for each of these tables of a MySQL or MariaDB target that has triggers.

    Without the privilege TRIGGER, the server shows none of them.
    """
    wanted = set(names)
    if not wanted or not isinstance(target, MySqlSession):
        return []
    schemas = sorted({name.schema for name in wanted})
    rows = target.rows(
        "SELECT event_object_schema, event_object_table, trigger_name FROM information_schema.triggers "
        f"WHERE event_object_schema IN ({', '.join(['%s'] * len(schemas))}) ORDER BY 1, 2, 3",
        tuple(schemas),
    )
    found: dict[TableName, list[str]] = {}
    for schema, table, trigger in rows:
        name = TableName(str(schema), str(table))
        if name in wanted:
            found.setdefault(name, []).append(str(trigger))
    return [_hint(name, triggers) for name, triggers in found.items()]


def _hint(name: TableName, triggers: list[str]) -> Finding:
    fires = plural("trigger", len(triggers), "fires", "fire")
    drops = "; ".join(f"DROP TRIGGER {qualified(TableName(name.schema, one))}" for one in triggers)
    return Finding(
        "target_tables",
        ok=True,
        message=f"{fires} when the task writes rows into the target's table {name}: {listed(triggers)}",
        fix="The source's log already has the changes of the source's triggers. If the target has the same triggers, "
        f"keep their text (SHOW CREATE TRIGGER) for a cutover, and run: {drops}",
    )
