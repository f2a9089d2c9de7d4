"""A source in memory: its log, its rows and its positions, for tests of a whole pipeline without a server.

Transactions are given as plain Python rows and placed in an imaginary log, with one event for each table and step of a
transaction. So Lsns, extents and the chain of `prev_lsn` are like those of a server. `entries` returns what the relay's
reader returns for a real source, and `decode` what the decoder returns.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from pidts.model import ChangeBatch, Extent, LogEntry, Lsn, Op, Position, Table, TableName, Transaction
from pidts.source.keys import last_key

Row = Mapping[str, Any]
Change = tuple[Op, Row | None, Row | None]
"""A change of a row: op, before, after."""

Step = tuple[TableName, Sequence[Change]]

_EVENT = 100
"""The size of every event in the imaginary log."""

_FIRST_OFFSET = 4


@dataclass(frozen=True, slots=True)
class _Event:
    lsn: Lsn
    table: Table
    changes: tuple[Change, ...]


class ValuesSource:
    """One source's history, which grows by `commit`, `ddl` and `rotate`."""

    def __init__(
        self, tables: Sequence[Table] = (), *, change_no: int = 0, log_base: str = "values", gtids: str = "0-1"
    ) -> None:
        self.log_base = log_base
        self._gtids = gtids
        self._change_no = change_no
        self._log_index = 1
        self._offset = _FIRST_OFFSET
        self._structures = {table.name: table for table in tables}
        self._rows: dict[TableName, dict[tuple[Any, ...], dict[str, Any]]] = {table.name: {} for table in tables}
        self._entries: list[LogEntry] = []
        self._events: list[_Event] = []
        self._start = self._lsn()

    @property
    def start(self) -> Lsn:
        """Returns the place before the first transaction."""
        return self._start

    @property
    def received(self) -> Lsn:
        """Returns the end of the log."""
        return self._entries[-1].transaction.lsn if self._entries else self._start

    @property
    def position(self) -> Position:
        """Returns the end of the log as a position: log file and byte."""
        return self.received.position(self.log_base)

    @property
    def structures(self) -> dict[TableName, Table]:
        """Returns the current structures."""
        return dict(self._structures)

    def commit(self, *steps: Step) -> LogEntry:
        """Makes one transaction; each step is one rows event."""
        begin = self._lsn()
        self._offset += _EVENT
        for name, changes in steps:
            for change in changes:
                self._change(name, *change)
            self._events.append(_Event(self._lsn(), self._structures[name], tuple(changes)))
            self._offset += _EVENT
        self._offset += _EVENT
        tables = tuple(dict.fromkeys(name for name, _ in steps))
        return self._append(begin, row_events=len(steps), tables=tables)

    def insert(self, name: TableName, *rows: Row) -> LogEntry:
        """Inserts rows into one table, in one transaction."""
        return self.commit((name, [(Op.INSERT, None, row) for row in rows]))

    def delete(self, name: TableName, *keys: Sequence[Any]) -> LogEntry:
        """Deletes rows of one table by their identity, in one transaction."""
        return self.commit((name, [(Op.DELETE, self._rows[name][tuple(key)], None) for key in keys]))

    def update(self, name: TableName, key: Sequence[Any], **values: Any) -> LogEntry:
        """Changes one row, in one transaction."""
        before = dict(self._rows[name][tuple(key)])
        return self.commit((name, [(Op.UPDATE, before, {**before, **values})]))

    def ddl(self, statement: str, structures: Mapping[TableName, Table | None], schema: str = "") -> LogEntry:
        """Runs a statement. `structures` are the structures after it; None for a table that is gone.

        Rows keep the values of columns that stay; new columns are NULL.
        """
        begin = self._lsn()
        for name, table in structures.items():
            rows = self._rows.pop(name, {})
            self._structures.pop(name, None)
            if table is None:
                continue
            self._structures[name] = table
            kept = [{column.name: row.get(column.name) for column in table.columns} for row in rows.values()]
            self._rows[name] = {_identity(table, row): row for row in kept}
        self._offset += 2 * _EVENT
        schema = schema or next((name.schema for name in structures), "")
        return self._append(begin, tables=tuple(structures), ddl=statement, ddl_schema=schema)

    def rotate(self) -> LogEntry:
        """Begins the next log file."""
        begin = self._lsn()
        self._log_index += 1
        self._offset = _FIRST_OFFSET
        return self._append(begin)

    def entries(self, after: Lsn | None = None, until: Lsn | None = None) -> Iterator[LogEntry]:
        """Returns the log's index after an Lsn, up to and including another Lsn."""
        begin, end = (
            default if lsn is None else bisect_right(self._entries, lsn, key=lambda entry: entry.transaction.lsn)
            for lsn, default in ((after, 0), (until, len(self._entries)))
        )
        return iter(self._entries[begin:end])

    def decode(self, after: Lsn, until: Lsn, structures: Mapping[TableName, Table] | None = None) -> list[ChangeBatch]:
        """Returns the changes of (after, until]: one batch for each table and structure, in log order.

        If `structures` is given, only its tables are decoded.
        """
        grouped: dict[tuple[TableName, int], tuple[Table, list[tuple[Lsn, Change]]]] = {}
        begin = bisect_right(self._events, after, key=lambda event: event.lsn)
        end = bisect_left(self._events, until, key=lambda event: event.lsn)
        for event in self._events[begin:end]:
            name = event.table.name
            if structures is not None and name not in structures:
                continue
            _, rows = grouped.setdefault((name, id(event.table)), (event.table, []))
            rows += [(event.lsn.at_row(number), change) for number, change in enumerate(event.changes)]
        return [_batch(table, rows) for table, rows in grouped.values()]

    def select_rows(self, table: Table, where_after: Sequence[Any] | None, limit: int) -> pa.Table:
        """Returns up to `limit` current rows after a key, in the order of the identity."""
        ordered = sorted(self._rows[table.name].items())
        found = [row for key, row in ordered if where_after is None or key > tuple(where_after)]
        return pa.Table.from_pylist([dict(row) for row in found[:limit]], schema=table.arrow)

    def last_key(self, rows: pa.Table, table: Table) -> list[Any] | None:
        """Returns the last key as a server's source does."""
        return last_key(rows, table)

    def rows(self, name: TableName) -> list[dict[str, Any]]:
        """Returns the current rows of a table, by identity."""
        return [dict(row) for _, row in sorted(self._rows[name].items())]

    def _lsn(self) -> Lsn:
        return Lsn(self._change_no, self._log_index, self._offset)

    def _append(
        self,
        begin: Lsn,
        *,
        row_events: int = 0,
        tables: tuple[TableName, ...] = (),
        ddl: str | None = None,
        ddl_schema: str = "",
    ) -> LogEntry:
        number = len(self._entries) + 1
        is_empty = ddl is None and not row_events
        transaction = Transaction(
            lsn=self._lsn(),
            prev_lsn=self.received,
            begin=begin,
            gtid="" if is_empty else f"{self._gtids}-{number}",
            timestamp=1_700_000_000 + number,
            row_events=row_events,
            tables=tables,
            ddl=ddl,
            ddl_schema=ddl_schema,
        )
        size = 0 if begin.log_index != self._log_index else self._offset - begin.offset
        entry = LogEntry(transaction, Extent(begin.log_index, begin.offset, size))
        self._entries.append(entry)
        return entry

    def _change(self, name: TableName, op: Op, before: Row | None, after: Row | None) -> None:
        table, rows = self._structures[name], self._rows[name]
        if before is not None:
            found = rows.pop(_identity(table, before), None)
            if found != _complete(table, before):
                raise ValueError(f"{op.name} of a row that is not there: {name} {before}, there is {found}")
        if after is not None:
            key = _identity(table, after)
            if key in rows:
                raise ValueError(f"{op.name} of a row that is there already: {name} {key}")
            rows[key] = _complete(table, after)


def _complete(table: Table, row: Row) -> dict[str, Any]:
    if unknown := row.keys() - {column.name for column in table.columns}:
        raise ValueError(f"{table.name} has no column {min(unknown)}")
    return {column.name: row.get(column.name) for column in table.columns}


def _identity(table: Table, row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in table.identity)


def _batch(table: Table, rows: Sequence[tuple[Lsn, Change]]) -> ChangeBatch:
    image = pa.struct(list(table.arrow))
    return ChangeBatch.of(
        table,
        pa.array([lsn.to_bytes() for lsn, _ in rows], pa.binary(Lsn.SIZE)),
        pa.array([int(op) for _, (op, _, _) in rows], pa.int8()),
        pa.array([None if before is None else _complete(table, before) for _, (_, before, _) in rows], image),
        pa.array([None if after is None else _complete(table, after) for _, (_, _, after) in rows], image),
    )
