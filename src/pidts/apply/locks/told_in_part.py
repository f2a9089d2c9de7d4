"""Between zones, finds changes of which the log holds only a part of a row: they are set aside.

Zones compare rows by their values. A session of the source may set `binlog_row_image` at any time, so a task whose
server has FULL may meet changes that name a row by its key alone. Such a change goes on with whatever row is there:

    a    UPDATE 1: v = 5, logged as (id 1) -> (v 5)        b has it: v = 5
    b    UPDATE 1: v = 6, logged as (id 1) -> (v 6)        a has it: v = 6, and no zone has a lock

It is not enough to set aside what crosses another zone's change, as far as the target can see that. Here zone b logs
whole rows, zone a has parts, and the row is as before when the change of b comes:

    a    UPDATE 1: v = 5, UPDATE 1: v = 4                  b has both, behind its own: v = 4
    b    UPDATE 1: v = 4 -> 7                              a finds v = 4, and has v = 7

So each such change is set aside, with all later ones of its key. What has to be known:

    INSERT             the row, with the defaults of columns that no value was given for
    UPDATE             the row before
    UPDATE 5 -> 6      the row before, at 5; at 6 the row, which has what it had at 5 where the log says nothing else
    DELETE             the row before

Each key is judged by its own change, as everywhere in this folder. So it makes no difference to which worker it
belongs, but where a log has whole images before changes and others behind them (MariaDB's FULL_NODUP): with several
workers, the half of an UPDATE at the new key lacks what the other half has, and is held. Elsewhere the values that a
row has at its new key are completed from the target's row of the old one; here that one may be another row. So both
keys are held, with what the log holds (`KnownColumns.apart`).

Where versions decide (`pidts.conflict: version`), such a change halts its table (`pidts.apply.prepare`). Where owners
do, it counts as far as the log holds it: a row has one zone that writes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from pidts.apply.locks.key_events import KeyEvents
from pidts.apply.locks.presence import KnownColumns
from pidts.apply.rows.key_numbers import Mask
from pidts.model import ChangeBatch, Op, Table

_WHY = (
    "the log has only a part of the row (a session of its zone did not have binlog_row_image=FULL): what another zone "
    "has made of it cannot be seen"
)


def with_parts_apart(batch: ChangeBatch, known: KnownColumns) -> KnownColumns:
    """Returns the same, with the changes of which the log does not hold all that has to be known."""
    plain = _plain(batch.table)
    inserted = batch.rows.column("op").to_numpy() == Op.INSERT
    whole = np.where(inserted, known.after[:, plain].all(axis=1), known.before[:, plain].all(axis=1))
    return replace(known, apart=~whole)


def events_in_part(events: KeyEvents, known: KnownColumns) -> Mapping[int, str]:
    """Returns the events that are set aside, with the reason; `known` has the changes that are apart."""
    asked = np.nonzero(known.apart[events.change])[0]
    change, arrives, plain = events.change[asked], events.arrives[asked], _plain(events.batch.table)
    before = known.before[change][:, plain].all(axis=1)
    behind = known.of(change, "after")[:, plain].all(axis=1)
    return dict.fromkeys(asked[np.where(arrives, ~behind, ~before)].tolist(), _WHY)


def _plain(table: Table) -> Mask:
    return np.array([not column.generated for column in table.columns])
