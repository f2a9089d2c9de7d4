"""Finds changes that need a unique value which another row of the target has.

Programs of two zones may give one unique value to two rows before the zones have exchanged these changes. Each zone
would refuse the other zone's row, and with it all later changes:

    zone a    INSERT (7, u = 5)                zone b    INSERT (3, u = 5), then INSERT (4, u = 6)
    zone a has row 7, so it sets row 3 aside, names both rows, and writes row 4; zone b sets row 7 aside

The target is asked for *rivals*, other rows with the needed unique value, only after it has refused a row. The target
itself decides which values are equal. If the batch changes the other row, too, that row is not a rival. Then either the
source has given it another value; or its key is locked, and so are all keys that need its value
(`pidts.apply.locks.unique_values`).

A rival may come between the query and the write. Then the target refuses the write, and the changes are prepared again.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from pidts.apply.locks.key_rows import KeyRows
from pidts.apply.locks.unique_values import holders, keys_of, unique_keys
from pidts.apply.port import TargetSession
from pidts.apply.rows.shown_values import shown_row


def rival_events(session: TargetSession, key_rows: KeyRows) -> Mapping[int, str]:
    """Returns the events that give a row a unique value of another row, with a reason that names that row."""
    events, batch = key_rows.events, key_rows.events.batch
    found = holders(session, batch, unique_keys(session, batch.table))
    is_rival = (keys_of(key_rows, found.keys) < 0)[found.row]
    arriving = np.nonzero(~events.leaves)[0]
    event_of = np.full(len(batch), -1)
    event_of[events.change[arriving]] = arriving
    reasons: dict[int, str] = {}
    for place in np.nonzero(is_rival)[0].tolist():
        change = int(found.change[place])
        after = batch.rows.column("after").slice(change, 1)
        value = pa.Table.from_arrays(after.flatten(), schema=batch.table.arrow).select(list(found.by[place]))
        row = shown_row(found.keys.slice(int(found.row[place]), 1))
        reason = f"it needs the unique value {shown_row(value)}, which row {row} of the target has"
        reasons.setdefault(int(event_of[change]), reason)
    return reasons
