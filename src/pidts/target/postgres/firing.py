"""Finds triggers, and foreign keys that change rows, that would run when the task writes rows.

Triggers and foreign keys run only if the session's role cannot switch them off. Then the start refuses tables that have
them. But before PostgreSQL 15, only a superuser can switch them off: there, tables with triggers are not refused.

Users may add triggers and foreign keys during a run. So each transaction looks for them again after it has written a
table. From then on, the transaction's lock on the table prevents anybody from adding one until the transaction ends.
"""

from __future__ import annotations

from pidts.model import Halted, TableName, Where
from pidts.target.postgres.dialect import qualified

GRANTABLE = 150000
"""The first version in which a role that is not a superuser can be allowed to switch off triggers."""
MADE_HERE = "Made by PiDTS: ON UPDATE CURRENT_TIMESTAMP of column "
"""The beginning of the comments of PiDTS's own trigger functions. They never change a column that a statement sets."""

FIRES = (
    "(NOT tgisinternal AND tgenabled = 'O' AND pg_catalog.left(coalesce(pg_catalog.obj_description(tgfoid, 'pg_proc'), "
    f"''), {len(MADE_HERE)}) <> '{MADE_HERE}')"
)
"""Whether a user's trigger fires. Triggers with ENABLE ALWAYS do not count: their user wants them in every session."""
_PARTS = (
    "tgrelid = ANY (%s::pg_catalog.regclass::oid || "
    "ARRAY(SELECT relid::oid FROM pg_catalog.pg_partition_tree(%s::pg_catalog.regclass)))"
)
_ACTIONS = ", ".join(
    f"'pg_catalog.\"RI_FKey_{action}_{event}\"'::pg_catalog.regproc"
    for action in ("cascade", "setnull", "setdefault")
    for event in ("del", "upd")
)
_DEMAND = f"SELECT 1 / (NOT EXISTS (SELECT FROM pg_catalog.pg_trigger WHERE {_PARTS} AND {{}}))::integer"

DEMAND_NO_ACTIONS = _DEMAND.format(f"tgfoid IN ({_ACTIONS})")
"""Fails if a foreign key changes rows of other tables together with the rows of a table or of one of its partitions.

The foreign keys are found by their triggers: the catalog has no index on the tables that foreign keys refer to.
"""
DEMAND_NOTHING_FIRES = _DEMAND.format(f"(tgfoid IN ({_ACTIONS}) OR {FIRES})")
"""Fails as `DEMAND_NO_ACTIONS` does, and also if a trigger of the table or of one of its partitions fires."""


def fires(name: TableName, grant: str) -> Halted:
    """Returns the error for a table to which somebody has added a trigger, or a foreign key that changes rows.

    `grant` lets the task switch them off; it is empty if no grant allows it.
    """
    drop = f"drop the trigger or the foreign key (in psql, `\\d {qualified(name)}` shows them)"
    return Halted(
        "target-shape",
        "a trigger of the target's table, or a foreign key with CASCADE, SET NULL or SET DEFAULT that now refers to "
        "it, would run when the task writes to the table",
        where=Where(table=str(name)),
        todo=f"{f'Let the task switch them off: {grant}; or {drop}' if grant else drop.capitalize()}. Then run: pidts "
        "ddl retry TASK --source SOURCE --table TABLE --yes",
    )
