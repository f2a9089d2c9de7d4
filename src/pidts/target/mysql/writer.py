"""Writes net changes to MySQL, MariaDB and TiDB: DELETE by lists of keys, then INSERT ... ON DUPLICATE KEY UPDATE.

ON DUPLICATE KEY UPDATE applies to *any* unique key. If another row had a new row's value in a secondary unique key, the
statement would overwrite that other row, and silently lose the new row. So a column of the identity is set to `IF(the
whole identity equals the new identity, the new value, <an error>)`. If the server has found a row with another
identity, the statement fails.

The error is a subquery of two rows. NULL would not always cause an error in a NOT NULL column: an AUTO_INCREMENT column
would become 0, a TIMESTAMP of MariaDB the current time, and the other row would be lost. But TiDB computes subqueries
before it reads rows. So on TiDB the value is a number outside of every integer column's range, or NULL.

A key's collation on the target may treat more texts as equal than the source's collation (accents, case, or `a` and
`a ` under PAD SPACE). So the IF compares text byte by byte. Otherwise two rows of the source would become one row, and
only the later row would stay.

TiDB reverses the bytes of a wide BIT that the statement names as VALUES(column). On TiDB, tables with such a column are
written by DELETE and INSERT.

Columns that the target computes itself are not written. But if the key contains such a column, the statement sets the
column to DEFAULT, so that the condition can name the column's new value.

Many rows are written to MariaDB as events of a log instead (`row_events`), if the server and the table allow it.

With `NetChange.is_new`, new rows are inserted, and an existing row is an error. The caller then computes the change
again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from pidts.model import Halted, Key, Kind, Table, TableName, Where, byte_size
from pidts.model.advice import OTHER_ROW_TODO
from pidts.prefetch import ahead
from pidts.reduce import NetChange
from pidts.target.mysql.conflicts import conflicts
from pidts.target.mysql.dialect import identifier, qualified
from pidts.target.mysql.encode import FEW, StatementLimits, joined, literals, statements, tuples, wrapped
from pidts.target.mysql.errors import TWO_ROWS, StatementRefused
from pidts.target.mysql.exact import rows_exactly
from pidts.target.mysql.few_rows import few_literals, few_statements, few_tuples
from pidts.target.mysql.keyless import CopyRemover, ReadNear
from pidts.target.mysql.prepared_tables import PreparedTable, PreparedTables, target_only_columns, would_lose
from pidts.target.mysql.row_events.copies import CopiesLeft
from pidts.target.mysql.row_events.writer import EventWriter
from pidts.target.mysql.server import TargetServer
from pidts.target.mysql.statement_pipeline import ResultCheck, StatementPipeline
from pidts.target.refusals import index_todo
from pidts.target.text import combined

_NOT_NULL = 1048
_OUT_OF_RANGE = (1264, 1690)
_ROWS = 1000
_KEYS = 1000
_COMPOSITE_KEYS = 200
_SIZE = 4 << 20
_PART_ROWS = 8_000
_PART = 16 << 20
"""The largest number of rows, and of bytes of Arrow data, that are converted to text at once."""

_T = TypeVar("_T")

Warnings = Callable[[], list[tuple[int, str]]]


class _Collision(Halted):
    """Raised if a row would overwrite another row."""

    @property
    def is_duplicate(self) -> bool:
        """Whether another row has one of the row's unique values."""
        return True


@dataclass(frozen=True, slots=True)
class _Text:
    """Rows as SQL text, which is cut into statements."""

    head: bytes
    rows: pa.Array | list[bytes]
    tail: bytes
    cut: int
    """The number of bytes of the separator between two rows."""
    most: int
    """The largest number of rows in one statement."""


class Writer:
    """Writes the rows of one session."""

    def __init__(
        self,
        server: TargetServer,
        prepared: PreparedTables,
        pipeline: StatementPipeline,
        warnings: Warnings,
        events: EventWriter,
        read: ReadNear,
    ) -> None:
        self._read, self._crowded = read, set[TableName]()
        self._server, self._prepared, self._pipeline, self._warnings = server, prepared, pipeline, warnings
        self._events = events
        self._limits = StatementLimits(_ROWS, min(_SIZE, server.max_packet - 1024), server.max_packet - 16)

    def write(self, change: NetChange) -> None:
        """Writes a change. Deletes are written first, so that a unique value may move from one row to another."""
        prepared = self._prepared.of(change.table)
        if change.times is not None:
            self._write_copies(prepared, change, change.times)
            return
        self._run(prepared, each(partial(_removal, prepared), change.deletes))
        if self._events.write(prepared, change):
            return
        new, rows = change.parted()
        self.insert(change.table, new)
        if change.safe and prepared.rivalled:
            self._upsert_safely(prepared, rows)
        else:
            self._overwrite(prepared, rows)

    def insert(self, table: Table, rows: pa.Table) -> None:
        """Inserts new rows. A row that already exists is an error."""
        self._upsert(self._prepared.of(table), rows, b"")

    def _upsert_safely(self, prepared: PreparedTable, rows: pa.Table) -> None:
        """Writes rows in safe mode. Searches for colliding rows only after a collision, since this takes long."""
        if not self._server.tidb:  # TiDB may refuse a row for another reason, with the error of a collision
            self._pipeline.later(b"SAVEPOINT pidts_upsert")
            try:
                self._overwrite(prepared, rows)
                self._pipeline.flush()
            except (StatementRefused, _Collision) as error:
                if not error.is_duplicate:
                    raise
                self._pipeline.now(b"ROLLBACK TO SAVEPOINT pidts_upsert")
            else:
                return
        for texts in each(partial(_rivals, prepared), rows):
            self._run(prepared, texts)
        self._overwrite(prepared, rows)

    def _overwrite(self, prepared: PreparedTable, rows: pa.Table) -> None:
        """Writes rows that the target may have already."""
        if prepared.removes_first and rows.num_rows:
            keys = rows.select(list(prepared.table.identity))
            own = target_only_columns(prepared.table, prepared.found.table)
            if own and self._read(prepared.table, keys, 1).num_rows:
                raise would_lose(prepared.table.name, own)
            self._run(prepared, each(partial(_removal, prepared), keys))
            self._upsert(prepared, rows, b"")
        else:
            self._upsert(prepared, rows, prepared.update)

    def _write_copies(self, prepared: PreparedTable, change: NetChange, times: pa.Int64Array) -> None:
        """Writes a change of a table without a key."""
        events = self._events.copies(prepared, change)
        left = CopiesLeft(change.deletes, times, change.upserts)
        if events is not None:
            left = events.remove(left.deletes, left.times, left.upserts)
        self._remove_copies(prepared, left.deletes, left.times)
        if events is None or not events.add(left.upserts):
            self._upsert(prepared, left.upserts, b"")

    def _remove_copies(self, prepared: PreparedTable, rows: pa.Table, times: pa.Int64Array) -> None:
        name, first = str(prepared.table.name), 0
        remover = CopyRemover(
            prepared.table,
            prepared.found,
            prepared.written,
            self._limits,
            lambda sql: self._pipeline.now(sql, name),
            self._read,
            self._crowded,
        )
        for part in portions(rows):
            remover.remove(part, times.slice(first, part.num_rows))
            first += part.num_rows

    def _upsert(self, prepared: PreparedTable, rows: pa.Table, update: bytes) -> None:
        """Writes rows. `update` is the end of the statement: `prepared.update`, or nothing for new rows."""
        if not rows.num_rows:
            return
        prepared.demand_values(rows)
        odd = invalid_labels(prepared, rows)
        if odd is not None:
            self._upsert_invalid_labels(prepared, rows.filter(odd), update)
            rows = rows.filter(pc.invert(odd))
        for text in each(partial(_rows, prepared, update), rows):
            for sql in self._statements(text):
                self._upsert_later(prepared, sql, update)

    def _upsert_invalid_labels(self, prepared: PreparedTable, rows: pa.Table, update: bytes) -> None:
        """Writes few rows with an enum's index 0, which strict mode refuses; without this mode, warnings are read."""
        name = str(prepared.table.name)
        self._pipeline.later(b"SET @pidts_mode = @@SESSION.sql_mode", name)
        self._pipeline.later(
            b"SET SESSION sql_mode = 'NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES,NO_ENGINE_SUBSTITUTION'", name
        )
        try:
            self._each_label_watched(prepared, rows, update)
        except StatementRefused:
            # The caller may go back to a savepoint and continue, so the mode is restored after an error, too.
            self._pipeline.drop()
            self._pipeline.now(b"SET SESSION sql_mode = @pidts_mode", name)
            raise
        # The statement is not queued, since a rollback drops queued statements.
        self._pipeline.now(b"SET SESSION sql_mode = @pidts_mode", name)

    def _each_label_watched(self, prepared: PreparedTable, rows: pa.Table, update: bytes) -> None:
        enums = [column.name for column in prepared.written if column.type.kind is Kind.ENUM]
        warned: list[int] = []
        for sql in self._statements(replace(_rows(prepared, update, rows), most=_ROWS // 10)):
            warned.clear()
            self._upsert_later(prepared, sql, update, check=lambda done: warned.append(done.warnings))
            self._pipeline.flush()
            if any(warned):
                for number, text in self._warnings():
                    if number != 1265 or not any(f"'{enum}'" in text for enum in enums):
                        raise Halted(
                            "target-refused",
                            f"the target: {text} (warning {number})",
                            where=Where(table=str(prepared.table.name)),
                            todo="Give the target's column a type that holds the value",
                        )

    def _run(self, prepared: PreparedTable, texts: Iterable[_Text]) -> None:
        for text in texts:
            for sql in self._statements(text):
                self._pipeline.later(sql, str(prepared.table.name))

    def _statements(self, text: _Text) -> Iterator[bytes]:
        limits = StatementLimits(text.most, self._limits.size, self._limits.packet)
        if isinstance(text.rows, list):
            yield from few_statements(text.head, text.rows, text.tail, limits, cut=text.cut)
            return
        for sql, _, _ in statements(text.head, text.rows, text.tail, limits, cut=text.cut):
            yield sql

    def _upsert_later(
        self, prepared: PreparedTable, sql: bytes, update: bytes, check: ResultCheck | None = None
    ) -> None:
        def explain(error: StatementRefused) -> Halted | None:
            if error.is_duplicate and (own := _named_key(prepared, error.what)) is not None:
                error.todo = _index_todo(prepared, [own], sure=True)
            signs = (_NOT_NULL, *_OUT_OF_RANGE) if self._server.tidb else (TWO_ROWS,)
            if not update or error.number not in signs:
                return None
            return _collision(prepared, error, sure=not self._server.tidb)

        self._pipeline.later(sql, str(prepared.table.name), check=check, explain=explain)


def _rows(prepared: PreparedTable, update: bytes, rows: pa.Table) -> _Text:
    if rows.num_rows <= FEW:
        return _Text(prepared.insert, few_tuples(prepared.texts, rows, prepared.row_end), update, cut=1, most=_ROWS)
    values = tuples(prepared.literals(rows), prepared.row_end)
    return _Text(prepared.insert, values, update, cut=1, most=_ROWS)


def _removal(prepared: PreparedTable, keys: pa.Table) -> _Text:
    """Returns a DELETE by `(a=1 AND b=2) OR …`. For `(a, b) IN ((1, 2), …)`, some servers use no index.

    If the target's collation is not the source's, texts are also compared byte by byte. Without this, the DELETE would
    also remove rows whose keys are equal only by the target's collation.
    """
    table = prepared.table
    head = f"DELETE FROM {qualified(table.name)} WHERE "
    if prepared.is_loose:
        same = rows_exactly(map(table.column, table.identity), prepared.found, keys)
        return _Text(head.encode(), wrapped(same, b"(", b") OR "), b"", cut=4, most=_COMPOSITE_KEYS)
    if len(table.identity) == 1 and keys.num_rows <= FEW:
        (name,) = table.identity
        few = [value + b"," for value in few_literals(table.column(name))(combined(keys[name]))]
        return _Text(f"{head}{identifier(name)} IN (".encode(), few, b")", cut=1, most=_KEYS)
    values = [literals(table.column(name), keys[name]) for name in table.identity]
    if len(values) == 1:
        head += f"{identifier(table.identity[0])} IN ("
        return _Text(head.encode(), wrapped(values[0], b"", b","), b")", cut=1, most=_KEYS)
    equal = [wrapped(v, f"{identifier(name)}=".encode(), b"") for name, v in zip(table.identity, values, strict=True)]
    alternatives = wrapped(joined(equal, b" AND "), b"(", b") OR ")
    return _Text(head.encode(), alternatives, b"", cut=4, most=_COMPOSITE_KEYS)


def _rivals(prepared: PreparedTable, rows: pa.Table) -> list[_Text]:
    head = f"DELETE FROM {qualified(prepared.table.name)} WHERE ".encode()
    return [
        _Text(head, rivals, b"", cut=4, most=_COMPOSITE_KEYS)
        for rivals in conflicts(prepared.table, prepared.found, rows, respelled=prepared.is_respelled)
    ]


def each(made: Callable[[pa.Table], _T], rows: pa.Table) -> Iterator[_T]:
    """Yields the result of `made` for each part of the rows.

    If there are several parts, the next result is made while the caller uses the previous one.
    """
    found = portions(rows)
    return ahead(map(made, found)) if len(found) > 1 else map(made, found)


def _own_unique_keys(prepared: PreparedTable) -> list[Key]:
    """Returns the target's unique keys over columns in which rows of the source need not be unique."""
    of_source = [
        {name.lower() for name in key.columns} for key in prepared.table.keys if key.primary or key.declared_unique
    ]
    return [
        key
        for key in prepared.found.table.keys
        if key.unique and {name.lower() for name in key.columns} not in of_source
    ]


def _named_key(prepared: PreparedTable, said: str) -> Key | None:
    """Returns the unique key that an error about two equal rows names, if only the target has this key; else None."""
    return next(
        (
            key
            for key in _own_unique_keys(prepared)
            if f"'{key.name}'" in said or f"{prepared.table.name.name}.{key.name}'" in said
        ),
        None,
    )


def _index_todo(prepared: PreparedTable, own: Sequence[Key], *, sure: bool) -> str:
    """Returns the advice after a unique key of the target has refused a row.

    `own` are the unique keys that only the target has, and `sure` says that one of them has refused the row. The advice
    never names a primary key, since some servers cannot remove one.
    """
    table, removable = qualified(prepared.table.name), [key for key in own if not key.primary]
    remedies = [f"ALTER TABLE {table} DROP INDEX {identifier(key.name)}" for key in removable]
    if sure and len(own) == len(removable) == 1:
        return index_todo(f"{identifier(own[0].name)} of {table}", remedies[0])
    todo = f"Give the target's unique keys the source's columns and collations. {OTHER_ROW_TODO}"
    if not removable:
        return todo
    names = " or ".join(identifier(key.name) for key in removable)
    return (
        f"If the unique index {names} of {table} has refused the row, remove the index, since the rows of the source "
        f"need not differ in its columns: {' or '.join(remedies)}. Otherwise: {todo[0].lower()}{todo[1:]}"
    )


def _collision(prepared: PreparedTable, error: StatementRefused, *, sure: bool) -> Halted:
    what = "a row would overwrite another row, since the target treats both as equal in a unique key"
    return _Collision(
        "target-refused",
        what if sure else f"{what}, or a column of the target cannot hold the row's value: {error.what}",
        where=Where(table=str(prepared.table.name)),
        todo=_index_todo(prepared, _own_unique_keys(prepared), sure=sure),
    )


def portions(rows: pa.Table) -> list[pa.Table]:
    """Cuts the rows into parts that limit the memory, since rows as text are larger than the data."""
    if rows.num_rows == 0:
        return []
    count = max(-(-rows.num_rows // _PART_ROWS), -(-byte_size(rows) // _PART))
    size = -(-rows.num_rows // count)
    return [rows.slice(first, size) for first in range(0, rows.num_rows, size)]


def invalid_labels(prepared: PreparedTable, rows: pa.Table) -> pa.Array | None:
    """Returns a mask of the rows in which an enum has MySQL's index 0; None if there are none.

    Such a value is '', although no label of the enum is ''.
    """
    mask = None
    for column in prepared.written:
        if column.type.kind is not Kind.ENUM or "" in column.type.labels:
            continue
        hits = pc.fill_null(pc.equal(rows[column.name], ""), pa.scalar(value=False))
        if pc.any(hits).as_py():
            mask = hits if mask is None else pc.or_(mask, hits)
    return mask
