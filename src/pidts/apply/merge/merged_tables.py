"""Records on the target which tables are merged.

When a table is dropped or emptied, the task must find out whether other tables have, or had, rows in the same target
table. These other tables may have been dropped on the source a year ago. So the commit that makes a table shared
records this, and the record stays.
"""

from __future__ import annotations

from collections.abc import Mapping

from pidts.apply.port import TargetSession
from pidts.model import Lsn, MergedTablesKey, SourceTablesKey, Table, TableName


def record_shared_tables(
    session: TargetSession, task: str, lsn: Lsn, shared: Mapping[TableName, Table], *, anew: bool = False
) -> None:
    """Records, in the open transaction, that these tables of the target are shared.

    Existing entries stay, since the shard group may have written newer ones. `anew`: existing entries come from an
    earlier task with this name, so they are removed.
    """
    if not (shared or anew):
        return
    known = session.meta.structures.load(task, MergedTablesKey())
    old: Mapping[TableName, Table | None] = dict.fromkeys(known) if anew else {}
    for its, key, name in session.meta.structures.tables() if anew else ():
        if its == task and not isinstance(key, SourceTablesKey | MergedTablesKey):
            session.meta.structures.save(task, key, lsn, {name: None})
    new = {name: table for name, table in shared.items() if anew or name not in known}
    session.meta.structures.save(task, MergedTablesKey(), lsn, {**old, **new})
