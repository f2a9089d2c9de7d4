"""Finds writes of a zone to rows that another zone owns (`pidts.conflict: owner`).

Each key of a change is judged by the row that had the key before the change, and by the row that has it afterwards:

    INSERT 5           the row that arrives
    UPDATE 5           both rows: an UPDATE that moves a row into another zone's range is foreign in both zones
    UPDATE 5 -> 6      for key 5 the row that leaves it, and for key 6 the row that arrives
    DELETE 6           the row that leaves

Each key is judged separately, as everywhere in this folder. An example: a zone deletes another zone's row and inserts a
row of its own with the same key. The DELETE is foreign, and the INSERT is held after it.

If the owner of a row depends on columns, the log must have these columns, or the table halts. Values completed from the
target would say who owns the *target's* row.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from pidts.apply.locks.key_events import KeyEvents
from pidts.apply.locks.presence import KnownColumns
from pidts.model import Halted, Lsn, Where
from pidts.reduce.key_numbers import Mask, Numbers
from pidts.rules import Owners


def foreign_events(events: KeyEvents, owners: Owners, writer: str, known: KnownColumns | None) -> Mapping[int, str]:
    """Returns zone `writer`'s writes to rows that it does not own. `known`: each change's columns; None: all."""
    batch = events.batch
    if owners.sole(batch.table.name) == writer:
        return {}
    found: dict[int, str] = {}
    for side, has_image in (("before", ~events.arrives), ("after", ~events.leaves)):
        asked = np.nonzero(has_image)[0]
        if not len(asked):
            continue
        if known is not None:
            _demand_known(events, owners, known.of(events.change[asked], side), asked)
        owned = owners.owned(batch, side)
        mine = owned.zones.index(writer) if writer in owned.zones else None
        for event in asked[owned.places[events.change[asked]] != mine].tolist():
            owner = owned.names(int(events.change[event]))
            found.setdefault(event, f"zone {writer} has written a row that {owner}")
    return dict(sorted(found.items()))


def _demand_known(events: KeyEvents, owners: Owners, known: Mask, asked: Numbers) -> None:
    batch = events.batch
    names = owners.columns(batch.table.name)
    needed = [place for place, name in enumerate(batch.table.arrow.names) if name.lower() in names]
    lacks = ~known[:, needed].all(axis=1)
    if lacks.any():
        lsn = Lsn.from_bytes(batch.rows.column("lsn")[int(events.change[asked[np.argmax(lacks)]])].as_py())
        raise Halted(
            "partial-row-image",
            f"the log does not have the values of {', '.join(sorted(names))}, which decide which zone owns a row",
            where=Where(table=str(batch.table.name), position=str(lsn)),
            todo="Run SET GLOBAL binlog_row_image=FULL in the zone, and let its sessions reconnect. To get past this "
            "change, stop the task and remove the condition from pidts.owners",
        )
