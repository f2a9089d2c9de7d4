"""Writes many rows to MariaDB as row events (`statements`), which takes about half of the time that SQL takes.

Row events are strict: an update needs the row, an insert must not find the row. So they are used only if the log shows
which rows the target has (`NetChange.likely_new`). If the target refuses an event, for whatever reason, the transaction
is rolled back to a savepoint before the events. Then the caller writes the same rows as SQL. After that, the table's
next changes (`_PAUSE`) are written as SQL.

For row events, the server leaves out some checks and actions. So they are used only if the result is the same:

- The target has exactly the columns of the source, with the same types. Row events name columns by their numbers. So
  before its first event, each transaction locks the table's definition. Then it compares SHOW CREATE TABLE with the
  text from which the layout was made.
- BINLOG does not check the account's privileges for the table. So the definition is locked by a statement for which the
  server does check them: it is refused if the account may not insert and update rows.
- Row events fire no triggers (by default) and check no constraints. So tables with triggers or with CHECK constraints,
  except those of JSON columns, are written as SQL. The server shows triggers only to an account with the privilege
  TRIGGER.
- With `slave_exec_mode = IDEMPOTENT`, the server would silently skip a row that it does not find. So each transaction
  reads this variable.
- Values that SQL would refuse, or store differently, are written as SQL. Examples are NULL in a NOT NULL column, zero
  dates, texts that are too long, and texts beyond ASCII in latin1.

In a table without a key (`copies`), rows are found by all of their columns.

Crash points: the events are statements of the committer's transaction, between the statement that locks the checkpoint
and COMMIT, like the SQL that they replace. None of them ends the transaction; the server's answer says whether a
transaction is open, and this is verified after the last event.

1. The connection is lost, or the process dies, before or between events: the server rolls back, as with SQL.
2. The server refuses an event: the statement has no effect, and ROLLBACK TO SAVEPOINT removes the effects of earlier
   events. If the server has rolled back the whole transaction (deadlock), the savepoint is gone: ROLLBACK TO SAVEPOINT
   is an error, and the attempt ends. Nothing is written after that, since each statement's error ends the attempt.
   Each event is a text of its own: after a BINLOG, MariaDB does not say that more answers follow.
3. After the events, before COMMIT: as with SQL.
4. In a table without a key, after events have updated or removed some rows, and before SQL removes the others: the
   server rolls back, too.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc
import structlog

from pidts.binlog.events import EventType
from pidts.login.privileges import Privilege, Privileges, current_grants, privileges_of
from pidts.model import Column, ColumnType, Halted, Kind, TableName, Where
from pidts.prefetch import ahead
from pidts.reduce import NetChange
from pidts.target.mysql.dialect import identifier, qualified
from pidts.target.mysql.errors import StatementRefused
from pidts.target.mysql.prepared_tables import PreparedTable
from pidts.target.mysql.row_events.cells import cell_type
from pidts.target.mysql.row_events.copies import CopyEvents
from pidts.target.mysql.row_events.statements import RowLayout, Unencoded, encoded, format_statement, portions
from pidts.target.mysql.server import TargetServer
from pidts.target.mysql.shape import MyTable
from pidts.target.mysql.statement_pipeline import StatementPipeline

_log = structlog.get_logger(__name__)

LEAST = 256
"""The fewest rows that are written as events: a transaction with events takes two more round trips."""
_SIZE = 1 << 20
_PRIVILEGES_SECONDS = 10.0
"""The seconds after which privileges are read again. Without TRIGGER, the account would not see a new trigger."""
_PAUSE = 100
"""The number of a table's changes that are written as SQL after a refusal."""
_OTHER_WORK = re.compile(
    r"CHECK|GENERATED|PERIOD|VERSIONING|INVISIBLE|COMPRESSED|PARTITION|FOREIGN|USING HASH", re.IGNORECASE
)
"""Words in SHOW CREATE TABLE with which rows are written as SQL, since the server may do more than store the rows."""
_JSON_CHECK = re.compile(r" CHECK \(json_valid\(`(?:[^`]|``)+`\)\)")
_QUOTED = re.compile(r"`(?:[^`]|``)*`|'(?:[^'\\]|\\.|'')*'", re.DOTALL)


class EventWriter:
    """Writes the row events of one session."""

    def __init__(
        self,
        server: TargetServer,
        pipeline: StatementPipeline,
        shape: Callable[[TableName], MyTable | None],
        fingerprint: Callable[[TableName], str | None],
        *,
        is_off: bool,
    ) -> None:
        """`shape` reads a table's structure from the server each time, and `fingerprint` a text that changes with it.

        If `is_off` is true, no events are written.
        """
        self._server, self._pipeline, self._shape, self._fingerprint = server, pipeline, shape, fingerprint
        self._is_off = is_off or not server.replays_events
        self._privileges: Privileges | None = None
        """The session's privileges; None before the first event."""
        self._privileges_end = 0.0
        """The time from which the privileges are read again, since somebody may have changed them."""
        self._layouts: dict[TableName, tuple[PreparedTable, str, RowLayout | None]] = {}
        self._pauses: Counter[TableName] = Counter()
        """For each table whose events were refused, how many more changes are written as SQL."""
        self._slow: Counter[TableName] = Counter()
        """Tables without a key in which the server reads many rows to find one. For each, the number of its next
        changes whose rows SQL removes.
        """

    def forget(self) -> None:
        """Forgets all layouts; called after DDL."""
        self._layouts.clear()

    def write(self, prepared: PreparedTable, change: NetChange) -> bool:
        """Writes `change.upserts`; False if they have to be written as SQL. `change.deletes` are already removed."""
        name, is_new = change.table.name, change.likely_new
        if (
            self._is_off
            or is_new is None
            or change.safe
            or len(is_new) < LEAST
            or not prepared.update
            or prepared.is_loose
        ):
            return False
        if self._pauses[name] > 0:
            self._pauses[name] -= 1
            return False
        if not self._may_replay(name):
            return False
        layout = self._layout(prepared)
        if layout is None:
            return False
        return self._executed(layout.table, ahead(_made(layout, change.upserts, is_new, self._size)))

    def copies(self, prepared: PreparedTable, change: NetChange) -> CopyEvents | None:
        """Returns the writer of a change of a table without a key; None if the change has to be written as SQL."""
        name, gone = change.table.name, 0 if change.times is None else pc.sum(change.times).as_py() or 0
        if self._is_off or max(gone, change.upserts.num_rows) < LEAST or not self._may_replay(name):
            return None
        if self._pauses[name] > 0:
            self._pauses[name] -= 1
            return None
        layout = self._layout(prepared)
        if layout is None:
            return None
        may_update = self._privileges is not None and self._privileges.has(Privilege("UPDATE", name.schema, name.name))
        indexed = _indexed(prepared) if may_update else ()
        return CopyEvents(self._pipeline, self._executed, self._size, layout, indexed, self._slow)

    def _may_replay(self, name: TableName) -> bool:
        """Whether the session may execute row events (`BINLOG`) and sees the table's triggers."""
        if self._privileges is None:
            self._pipeline.flush()
            try:
                self._pipeline.now(format_statement(self._server.version))
            except StatementRefused as error:
                _log.debug("the target's rows are written as SQL", cause=error.what)
                self._is_off = True
                return False
            self._demand_open(name)
        if self._privileges is None or time.monotonic() >= self._privileges_end:
            self._pipeline.flush()
            grants = current_grants(lambda sql: self._pipeline.now(sql.encode()).rows, names_roles=False)
            self._privileges, self._privileges_end = privileges_of(grants), time.monotonic() + _PRIVILEGES_SECONDS
        return self._privileges.has(Privilege("TRIGGER", name.schema, name.name))

    def _layout(self, prepared: PreparedTable) -> RowLayout | None:
        """Returns the table's layout, and locks it for the transaction; None if rows have to be written as SQL."""
        name = prepared.table.name
        for sql in _nothing_written(prepared):
            self._pipeline.later(sql, str(name))
        self._pipeline.flush()
        text = self._fingerprint(name) or ""
        known = self._layouts.get(name)
        if known is None or known[0] is not prepared or known[1] != text:
            made = layout(prepared, text) if self._shape(name) == prepared.found else None
            known = self._layouts[name] = prepared, text, made
        return None if known[2] is None or self._does_more(name) else known[2]

    def _does_more(self, name: TableName) -> bool:
        """Whether triggers would not fire, or the server would skip rows that it does not find."""
        sql = (
            "SELECT @@GLOBAL.slave_exec_mode, (SELECT COUNT(*) FROM information_schema.TRIGGERS "
            "WHERE EVENT_OBJECT_SCHEMA = %s AND EVENT_OBJECT_TABLE = %s)"
        )
        ((mode, triggers),) = self._pipeline.now(self._pipeline.text(sql, (name.schema, name.name)), str(name)).rows
        return str(mode) != "STRICT" or int(triggers) > 0

    @property
    def _size(self) -> int:
        """Returns the largest size of one statement in bytes."""
        return min(_SIZE, self._server.max_packet - 1024)

    def _executed(self, table: TableName, made: Iterable[bytes]) -> bool:
        """Executes statements with row events. Returns False if one is refused; then none of them has an effect."""
        name = str(table)
        self._pipeline.now(b"SAVEPOINT pidts_events", name)
        try:
            for sql in made:
                self._pipeline.now(sql, name)
        except Unencoded:
            cause = "a value has no encoding"
        except StatementRefused as error:
            cause = error.what
            self._pauses[table] = _PAUSE
        else:
            self._demand_open(table)
            return True
        _log.debug("the target's rows are written as SQL", table=name, cause=cause)
        self._pipeline.now(b"ROLLBACK TO SAVEPOINT pidts_events", name)
        return False

    def _demand_open(self, name: TableName) -> None:
        if not self._pipeline.is_in_transaction:
            raise Halted(
                "target-refused",
                "the server has ended the transaction while it executed row events",
                where=Where(table=str(name)),
                todo="This is a fault of pidts: please report it, with the server's version",
            )


def _indexed(prepared: PreparedTable) -> tuple[str, ...]:
    """Returns the columns in the indexes of the target's table, index by index."""
    names = {column.name.lower(): column.name for column in prepared.table.columns}
    columns = (column.lower() for key in prepared.found.table.keys for column in key.columns)
    return tuple(dict.fromkeys(names[column] for column in columns if column in names))


def _nothing_written(prepared: PreparedTable) -> list[bytes]:
    """Returns statements that write no row, but are refused if the account may not write the table.

    BINLOG itself does not check this. The statements keep the table's definition locked until the transaction ends.
    """
    table = qualified(prepared.table.name)
    names = [identifier(column.name) for column in prepared.written]
    columns, sets = ", ".join(names), ", ".join(f"{name} = VALUES({name})" for name in names)
    insert = f"INSERT INTO {table} ({columns}) SELECT {columns} FROM {table} LIMIT 0"
    if not prepared.table.identity:
        return [insert.encode(), f"DELETE FROM {table} WHERE FALSE".encode()]
    return [f"{insert} ON DUPLICATE KEY UPDATE {sets}".encode()]


def _made(layout: RowLayout, rows: pa.Table, is_new: pa.BooleanArray, size: int) -> Iterator[bytes]:
    """Yields the statements that update the existing rows and insert the new ones."""
    there, new = rows.filter(pc.invert(is_new)), rows.filter(is_new)
    for kind, part in chain(
        ((EventType.UPDATE_ROWS_V1, part) for part in portions(there)),
        ((EventType.WRITE_ROWS_V1, part) for part in portions(new)),
    ):
        yield from encoded(layout, kind, layout.rows(part, updates=kind is EventType.UPDATE_ROWS_V1), size)


def layout(prepared: PreparedTable, text: str) -> RowLayout | None:
    """Returns the layout of a table that is as on the source, otherwise None. `text`: SHOW CREATE TABLE."""
    table, found = prepared.table, prepared.found
    if found.engine != "InnoDB" or found.is_view or _OTHER_WORK.search(_QUOTED.sub("", _JSON_CHECK.sub("", text))):
        return None
    if len(found.table.columns) != len(table.columns) or any(column.generated for column in found.table.columns):
        return None
    places = {column.name: place for place, column in enumerate(found.table.columns)}
    if not _finds_by(found, table.identity) or places.keys() != {c.name for c in table.columns}:
        return None
    ours = [table.column(column.name) for column in found.table.columns]
    if not all(map(_is_same, ours, found.table.columns)):
        return None
    types = [cell_type(column) for column in found.table.columns]
    whole = tuple(each for each in types if each is not None)
    if len(whole) < len(types):
        return None
    return RowLayout(
        table.name,
        tuple(places),
        whole,
        tuple(column.nullable for column in found.table.columns),
        tuple(sorted(places[name] for name in table.identity or places)),
    )


def _finds_by(found: MyTable, identity: tuple[str, ...]) -> bool:
    """Whether the server finds a row by these columns, or, if there are none, by all columns."""
    if not identity:
        return not found.unique and not any(key.unique for key in found.table.keys)
    primary = next((key for key in found.table.keys if key.primary), None)
    return primary is not None and primary.columns == identity


def _is_same(column: Column, found: Column) -> bool:
    """Whether both columns have the same values, and encode them in the same way."""
    return _plain(column.type) == _plain(found.type) and not column.generated


def _plain(kind: ColumnType) -> ColumnType:
    """Returns the type without the properties that do not affect the values' bytes."""
    is_shown_only = kind.is_integer or kind.kind is Kind.YEAR
    return replace(kind, length=None if is_shown_only else kind.length, collation=None)
