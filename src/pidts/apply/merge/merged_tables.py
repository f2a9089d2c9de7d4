"""Puts merged tables on the target's record.

An attempt that drops or empties a table has to know that other tables have, or had, rows in it: even a year
after these were dropped on the source. So the commit that makes a table shared records this, and the record stays.
"""

from __future__ import annotations

from collections.abc import Mapping

from pidts.apply.port import TargetSession
from pidts.model import Lsn, OfGroups, OfSource, Table, TableName


def put_on_record(
    session: TargetSession, task: str, lsn: Lsn, shared: Mapping[TableName, Table], *, anew: bool = False
) -> None:
    """Records tables as shared, by the target's names; in the open transaction.

    Existing entries stay: the group may have newer ones. `anew`: existing entries are of an earlier task of this
    name.
    """
    if not (shared or anew):
        return
    known = session.meta.structures.load(task, OfGroups())
    old: Mapping[TableName, Table | None] = dict.fromkeys(known) if anew else {}
    for its, key, name in session.meta.structures.tables() if anew else ():
        if its == task and not isinstance(key, OfSource | OfGroups):
            session.meta.structures.save(task, key, lsn, {name: None})
    new = {name: table for name, table in shared.items() if anew or name not in known}
    session.meta.structures.save(task, OfGroups(), lsn, {**old, **new})
