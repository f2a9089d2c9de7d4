"""Reads a source's table for a comparison: applies the rules to the rows, and looks rows up by the target's keys.

The target has the keys of the source, with two exceptions:

- A column mapping may have changed values of the key. The changed values are changed back. A value that the mapping
  cannot produce is not looked up.
- Extracted columns may be part of the key. A row with the extracted values of another table is not looked up either.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pidts.copy import highest, ranges, read_snapshot
from pidts.model import ColumnType, Table, TableName
from pidts.rules import Rules, mapping_of
from pidts.source.connection import Session, query, server_info
from pidts.source.position import row_lock
from pidts.source.rows import find_rows, row_sum, select_range
from pidts.source.structures import quoted_table, table_sizes
from pidts.task.compare.catch_up import TaskCatchUp
from pidts.task.config.task_file import TaskConfig
from pidts.verify import EstimatedSize, Key, KeySpan, Sum

_SPANS_AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class OpenPart:
    """One source of a task, with the connection on which its rows are read."""

    config: TaskConfig
    session: Session
    catch_up: TaskCatchUp


@dataclass(frozen=True, slots=True)
class SourceTable:
    """A table of one source. All tables of a source share a connection."""

    part: OpenPart
    rules: Rules
    """The task's rules, with the extracted columns that are in the keys of target tables."""
    whole: Table
    """The source's table."""
    table: Table
    """The source's table with only the compared columns."""
    label: str

    @property
    def name(self) -> TableName:
        """The table's name on the source."""
        return self.whole.name

    @property
    def catch_up(self) -> TaskCatchUp:
        """The object that waits until the target has caught up with the source."""
        return self.part.catch_up

    @property
    def extracted(self) -> dict[str, str]:
        """The values of the columns that the route adds."""
        return dict(self.rules.routes.destination(self.name).extracted)

    def size(self) -> EstimatedSize:
        """Returns the table's size, as the storage engine estimates it."""
        found = table_sizes(self.part.session, [self.name]).get(self.name)
        return EstimatedSize() if found is None else EstimatedSize(found.rows, found.bytes // max(found.rows, 1))

    def highest(self) -> Key | None:
        """Returns the highest key in the server's own order; None if the table is empty."""
        return self._target_key(highest(self.part.session, self.table))

    def spans(self, span: KeySpan, rows: int) -> Iterator[KeySpan]:
        """Splits a span into adjacent spans of about `rows` rows. The table is read only as far as the caller asks."""
        after, upto = self._own_key(span.after), self._own_key(span.upto)
        while True:
            for one in ranges(self.part.session, self.table, after, upto, rows, _SPANS_AT_ONCE):
                yield KeySpan(self._target_key(one.after), self._target_key(one.upto))
                if one.is_last:
                    return
                after = one.upto

    def sum(self, span: KeySpan) -> Sum | None:
        """Returns the checksum of a span's current rows; None if it cannot be computed, as with a column mapping."""
        if mapping_of(self.rules.mappings, self.name) is not None:
            return None
        floats = self.part.config.target.type != "postgresql"
        found = row_sum(self.part.session, self.table, span.after, span.upto, floats=floats, constants=self.extracted)
        return None if found is None else Sum(*found)

    def rows(self, span: KeySpan) -> pa.Table:
        """Returns the rows in the order of the key."""
        after, upto = self._own_key(span.after), self._own_key(span.upto)
        return self.rules.rows(self.table, select_range(self.part.session, self.table, after, upto))

    def find(self, keys: pa.Table) -> pa.Table:
        """Returns the rows of these keys as the log has them.

        A server may log a change before other sessions see it. Then this method waits until the change is visible.
        """
        lock = row_lock(server_info(self.part.session))
        found = find_rows(self.part.session, self.table, self.own_keys(keys), whole=True, lock=lock)
        return self.rules.rows(self.table, found)

    def count(self) -> int:
        """Returns the exact number of rows."""
        return int(query(self.part.session, f"SELECT COUNT(*) FROM {quoted_table(self.name)}")[0][0])

    def all(self) -> Iterator[pa.Table]:
        """Yields all rows of one snapshot, on a separate connection."""
        with read_snapshot(self.part.config.source.server, self.table) as snapshot:
            for rows in snapshot.batches:
                yield self.rules.rows(self.table, rows)

    def own_keys(self, keys: pa.Table) -> pa.Table:
        """Turns keys of the target into keys of this table; keys of other tables are left out."""
        for column, value in self.extracted.items():
            if column in keys.column_names:
                keys = keys.filter(pc.equal(keys.column(column), value))
        mapping, identity = mapping_of(self.rules.mappings, self.name), list(self.table.identity)
        columns = [
            mapping.unmapped(keys.column(name), self.table)
            if mapping is not None and mapping.target_column == name
            else _possible(keys.column(name), self.table.column(name).type)
            for name in identity
        ]
        kinds = pa.schema([self.table.arrow.field(name) for name in identity])
        return pa.table(columns, names=identity).drop_null().cast(kinds)

    def _own_key(self, key: Sequence[Any] | None) -> Key | None:
        return self._moved(key, -1)

    def _target_key(self, key: Sequence[Any] | None) -> Key | None:
        return self._moved(key, 1)

    def _moved(self, key: Sequence[Any] | None, sign: int) -> Key | None:
        """Returns the boundary of a span as a key of the target (`sign` is 1) or of the source (`sign` is -1).

        The two keys differ only if a mapping adds a number to the keys. None, an open end of the span, stays None.
        """
        mapping, identity = mapping_of(self.rules.mappings, self.name), self.table.identity
        if key is None or mapping is None or mapping.target_column not in identity:
            return key
        place = identity.index(mapping.target_column)
        if not self.table.column(identity[place]).type.is_integer:
            return key
        moved = list(key)
        moved[place] += sign * mapping.base(self.name)
        return moved


def _possible(values: pa.ChunkedArray, kind: ColumnType) -> pa.ChunkedArray:
    """Returns the values, with null for values that this column cannot have, such as keys of another shard."""
    if not kind.is_integer or values.type == kind.arrow:
        return values
    narrow = pc.cast(values, kind.arrow, safe=False)
    same = pc.equal(pc.cast(narrow, values.type), values)
    return pc.if_else(same, narrow, pa.scalar(None, kind.arrow))
