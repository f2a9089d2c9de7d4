"""Finds triggers, and foreign keys that change rows, that would run when the task writes rows.

They are active only if the session's role cannot switch them off. A start then refuses tables that have them. Before
PostgreSQL 15, no grant lets a role that is not a superuser switch them off: then triggers are not refused. Users may
add them during a run, so each transaction looks for them again after it has written a table. From then on, its lock on
the table keeps them away until the transaction ends.
"""

from __future__ import annotations

from pidts.model import Halted, TableName, Where
from pidts.target.postgres.dialect import qualified

GRANTABLE = 150000
"""The first version in which a role that is not a superuser can be allowed to switch off triggers."""
MADE_HERE = "Made by PiDTS: ON UPDATE CURRENT_TIMESTAMP of column "
"""The beginning of the comments of PiDTS's own trigger functions. They leave a column alone that a statement sets."""

FIRES = (
    "(NOT tgisinternal AND tgenabled = 'O' AND pg_catalog.left(coalesce(pg_catalog.obj_description(tgfoid, 'pg_proc'), "
    f"''), {len(MADE_HERE)}) <> '{MADE_HERE}')"
)
"""Whether a trigger that a user has created fires. One with ENABLE ALWAYS fires in every session, as its user wants."""
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
"""Fails also if a trigger of the table or of one of its partitions fires."""


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
