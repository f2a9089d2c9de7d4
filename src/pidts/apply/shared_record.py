"""Which tables of the target are several tables', on the target's record.

Whoever drops or empties a table has to know that others have, or had, rows in it: also in a year, when these are gone
from the source. So it is put on record by the commit that makes a table shared, and stays.
"""

from __future__ import annotations

from collections.abc import Mapping

from pidts.apply.port import TargetSession
from pidts.apply.schema_change import SHARED
from pidts.model import Lsn, Table, TableName


def put_on_record(
    session: TargetSession, task: str, lsn: Lsn, shared: Mapping[TableName, Table], *, anew: bool = False
) -> None:
    """In the open transaction, by the target's names; what is there stays, for the group may have come further.

    `anew`: what is there is of an earlier task of this name.
    """
    if not (shared or anew):
        return
    known = session.load_structures(task, SHARED)
    old: Mapping[TableName, Table | None] = dict.fromkeys(known) if anew else {}
    for its, record, name in session.known() if anew else ():
        if its == task and record.startswith(SHARED) and record != SHARED:
            session.save_structures(task, record, lsn, {name: None})
    new = {name: table for name, table in shared.items() if anew or name not in known}
    session.save_structures(task, SHARED, lsn, {**old, **new})
