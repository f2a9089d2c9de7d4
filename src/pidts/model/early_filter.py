"""Early filters, which decide which of a table's changes are wanted. The decoder applies them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, reduce

import pyarrow as pa
import pyarrow.compute as pc

from pidts.model.batch import ChangeBatch
from pidts.model.event import Op
from pidts.model.table import Table


@dataclass(frozen=True)
class KeptRows:
    """Some rows of a batch, which a filter has chosen."""

    mask: pa.BooleanArray

    @cached_property
    def count(self) -> int:
        """Returns how many changes are kept."""
        return int(self.mask.true_count)

    @cached_property
    def piece(self) -> slice | None:
        """Returns the kept changes as a slice; None if dropped changes are between them."""
        first = max(0, pc.index(self.mask, value=True).as_py())
        is_one = self.mask.slice(first, self.count).true_count == self.count
        return slice(first, first + self.count) if is_one else None

    def of(self, values: pa.Array) -> pa.Array:
        """Returns the values of the kept rows.

        Filtering a struct column by column is a third faster: Arrow copies the rows of a struct one by one, but
        neighbouring values of a column at once.
        """
        if self.piece is not None:
            return values.slice(self.piece.start, self.count)
        if values.null_count == len(values):
            return pa.nulls(self.count, values.type)
        if not pa.types.is_struct(values.type):
            return values.filter(self.mask)
        columns = [self.of(values.field(place)) for place in range(values.type.num_fields)]
        mask = values.is_null().filter(self.mask) if values.null_count else None
        return pa.StructArray.from_arrays(columns, fields=list(values.type), mask=mask)


TimesOf = Callable[[pa.Array], pa.Array]
"""Returns the times of the changes at these Lsns, as microseconds since 1970."""


@dataclass(frozen=True, slots=True)
class EarlyFilter:
    """The early filter of one table."""

    unwanted: frozenset[Op]
    """Kinds of changes that are all dropped. The images of such changes are not read."""
    dropped: Callable[[ChangeBatch], pa.BooleanArray | None]
    """Marks the changes to drop, besides changes of an `unwanted` kind. Returns None if there are none."""
    dropped_at: Callable[[ChangeBatch, pa.Array], pa.BooleanArray | None] | None = None
    """Set if the decision depends on the time of each change, in microseconds since 1970. Then `dropped` may be called
    only on the filter that `at` returns.
    """

    def at(self, times: TimesOf) -> EarlyFilter:
        """Returns the early filter with the times of the changes; the same filter if it does not use them."""
        ask = self.dropped_at
        if ask is None:
            return self
        return replace(self, dropped=lambda batch: ask(batch, times(batch.rows.column("lsn"))), dropped_at=None)

    def kept(self, batch: ChangeBatch) -> KeptRows | None:
        """Returns the kept changes; None if all are kept."""
        if not len(batch):
            return None
        dropped = self.dropped(batch)
        if self.unwanted:
            # Comparing with each operation is six times as fast as Arrow's search in a set.
            ops = batch.rows.column("op")
            unwanted = reduce(pc.or_, (pc.equal(ops, pa.scalar(op, ops.type)) for op in self.unwanted))
            dropped = unwanted if dropped is None else pc.or_kleene(unwanted, dropped)
        if dropped is None:
            return None
        kept = KeptRows(pc.invert(pc.fill_null(dropped, fill_value=False)))
        return None if kept.count == len(batch) else kept

    def of(self, batch: ChangeBatch) -> ChangeBatch:
        """Returns the batch without dropped changes. Kept changes are copied if dropped changes are between them."""
        kept = self.kept(batch)
        if kept is None:
            return batch
        columns = [kept.of(column) for column in batch.rows.columns]
        return replace(batch, rows=pa.RecordBatch.from_arrays(columns, schema=batch.rows.schema))


EarlyFilterOf = Callable[[Table], EarlyFilter | None]
"""Returns a table's early filter; None if all changes of the table are wanted."""
