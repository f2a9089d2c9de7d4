"""Divides the log into transactions, for the relay's index; it reads only headers and names, never a row.

A transaction begins with its GTID event (or BEGIN, if the server has no GTIDs) and ends with XID, COMMIT or ROLLBACK,
or with its only statement. Events between transactions (rotation, bookkeeping) become an *empty entry* on request. An
event group that only prepares an XA transaction becomes an entry without rows: its changes must not be applied yet. A
later event group commits the transaction or rolls it back, and has only the transaction's name. `pidts.binlog.xa` joins
the two groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from pidts.binlog import refusals
from pidts.binlog.compressed import payload_events
from pidts.binlog.events import Event, EventType
from pidts.binlog.gtid_events import GTID_EVENTS, GtidEvent
from pidts.binlog.rows_event import ROW_EVENTS
from pidts.binlog.statements import Control, Query
from pidts.binlog.table_map import table_name
from pidts.binlog.walk import rotate_target
from pidts.binlog.xa import XaPrepare, XaStatement
from pidts.model.errors import DecodeError, PidtsError, Where
from pidts.model.lsn import Lsn, Position
from pidts.model.table import TableName
from pidts.model.transaction import Transaction, Xa, XaStep

_STATEMENTS = frozenset({EventType.QUERY, EventType.QUERY_COMPRESSED, EventType.EXECUTE_LOAD_QUERY})
_XA_ENDS = {"COMMIT": XaStep.COMMIT, "ROLLBACK": XaStep.ROLLBACK}
_FILE_ENDS = frozenset({EventType.ROTATE, EventType.STOP, EventType.FORMAT_DESCRIPTION})


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """The facts about an ordinary transaction that has begun and not ended."""

    explicit: bool
    row_events: int
    tables: tuple[TableName, ...]


@dataclass(slots=True)
class _OpenTransaction:
    """The transaction that the scanner is reading."""

    begin: Lsn
    gtid: GtidEvent
    explicit: bool = False
    """Whether the transaction began with BEGIN or a GTID that means it, and so ends with COMMIT, ROLLBACK or XID."""
    row_events: int = 0
    tables: dict[TableName, None] = field(default_factory=dict)
    statements: list[tuple[str, str]] = field(default_factory=list)
    xa: Xa | None = None
    """The step of a two-phase XA transaction that ends this transaction; None if it ends in another way."""


class TransactionScanner:
    """Reads every event of one source in log order, and returns each transaction after its last event.

    If a server crashed while it wrote, a log file may end with the beginning of a transaction. This transaction was
    never committed. Its events become part of the next empty entry.
    """

    def __init__(self, change_no: int, prev_lsn: Lsn) -> None:
        self.change_no = change_no
        self.previous = prev_lsn
        """The Lsn of the last transaction or empty entry."""
        self._reached = prev_lsn
        self._gap: Lsn | None = None
        self._open: _OpenTransaction | None = None
        self.timestamp = 0
        """The time at which the source executed the last event, in seconds since 1970 UTC."""
        self._names: dict[bytes, TableName] = {}
        self._skipped = False
        """Whether only `skip_into` has changed the open transaction."""

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction has begun and not ended."""
        return self._open is not None

    @property
    def may_skip(self) -> bool:
        """Whether ordinary events may be skipped from here on."""
        return self._skipped if self._open is not None else self._reached <= self.previous

    def skip_to(self, lsn: Lsn, timestamp: int) -> None:
        """Continues after transactions that other code has found; the arguments describe the last transaction."""
        self.previous = self._reached = lsn
        self._gap = self._open = None
        self.timestamp = timestamp

    def skip_into(self, begin: Lsn, gtid: str, timestamp: int, opened: OpenTransaction) -> None:
        """Continues within a transaction whose events other code has read so far."""
        tables = dict.fromkeys(opened.tables)
        self._open = _OpenTransaction(begin, GtidEvent(gtid), opened.explicit, opened.row_events, tables)
        self.timestamp = timestamp
        self._skipped = True

    def feed(self, event: Event) -> Transaction | None:
        """Returns the transaction that this event completes; None if it completes none."""
        self._skipped = False
        if event.is_artificial:
            if event.type == EventType.ROTATE and self._open is None:
                self._pass_to(Lsn.at(Position(*rotate_target(event.body)), self.change_no))
            return None
        try:
            return self._feed(event)
        except PidtsError as error:
            raise refusals.located(error, f"log {event.log_index}:{event.offset}") from error

    def empty_entry(self) -> Transaction | None:
        """Returns an empty entry for the events since the last transaction that belong to no transaction, or None."""
        if self._open is not None or self._reached <= self.previous:
            return None
        return self._entry(
            self._reached, self._gap or self.previous, GtidEvent(""), _OpenTransaction(self.previous, GtidEvent(""))
        )

    def _feed(self, event: Event) -> Transaction | None:
        end = Lsn(self.change_no, event.log_index, event.end)
        if event.type in _FILE_ENDS:
            self._open = None
        if event.type == EventType.ROTATE:
            end = Lsn.at(Position(*rotate_target(event.body)), self.change_no)
        self.timestamp = event.timestamp or self.timestamp
        if event.type == EventType.TRANSACTION_PAYLOAD:
            complete = False
            for _, inner in payload_events(event):
                if complete or inner.type == EventType.TRANSACTION_PAYLOAD:
                    raise DecodeError("unknown-event", "a compressed transaction contains more than one transaction")
                complete = self._step(inner)
        else:
            complete = self._step(event)
        if complete and self._open is not None:
            done, self._open = self._open, None
            return self._entry(end, done.begin, done.gtid, done)
        if self._open is None:
            self._pass_to(end, self._at(event))
        return None

    def _pass_to(self, end: Lsn, start: Lsn | None = None) -> None:
        if end > self._reached:
            self._gap = self._gap or start
            self._reached = end

    def _entry(self, lsn: Lsn, begin: Lsn, gtid: GtidEvent, found: _OpenTransaction) -> Transaction:
        if lsn <= self.previous:
            raise DecodeError(
                "log-went-back",
                f"the log continues at {lsn}, which is not after the place that was read before, {self.previous}",
                where=Where(position=f"log {lsn.log_index}:{lsn.offset}"),
            )
        statements = [] if gtid.start_alter or gtid.rollback_alter else found.statements
        transaction = Transaction(
            lsn=lsn,
            prev_lsn=self.previous,
            begin=begin,
            gtid=gtid.gtid,
            timestamp=self.timestamp,
            row_events=found.row_events,
            tables=tuple(found.tables),
            ddl=_script(statements) or None,
            ddl_schema=statements[0][0] if statements else "",
            xa=found.xa,
        )
        if found.xa is not None:
            transaction = held_back(transaction, found.xa)
        self.previous = self._reached = lsn
        self._gap = None
        return transaction

    def _step(self, event: Event) -> bool:
        """Adds one event; returns True if it ends its transaction."""
        kind = event.type
        if kind in GTID_EVENTS:
            if self._open is not None:
                raise DecodeError("unfinished-transaction", "a transaction begins before the previous one has ended")
            gtid = GtidEvent.parse(event)
            self._begin(event, gtid, explicit=kind == EventType.MARIADB_GTID and not gtid.standalone)
        elif kind in ROW_EVENTS:
            self._now(event).row_events += 1
        elif kind == EventType.TABLE_MAP:
            self._now(event).tables[self._table(event)] = None
        elif kind in _STATEMENTS:
            return self._statement(event, Query.parse(event))
        elif kind == EventType.XID:
            self._now(event)
            return True
        elif kind == EventType.XA_PREPARE:
            self._prepare(event)
            return True
        elif kind == EventType.INCIDENT:
            raise refusals.incident(event)
        elif not event.may_be_ignored:
            raise refusals.unknown_event(event)
        return False

    def _statement(self, event: Event, query: Query) -> bool:
        match query.control:
            case Control.BEGIN:
                self._now(event).explicit = True
                return False
            case Control.COMMIT | Control.ROLLBACK:
                self._now(event)
                return True
            case Control.SAVEPOINT | Control.ROLLBACK_TO | Control.RELEASE:
                self._now(event)
                return False
            case Control.XA:
                return self._xa(event, query.sql)
            case Control.COMMENT:
                return False
        now = self._now(event)
        now.statements.append((query.schema, query.sql))
        return not now.explicit and not opens_transaction(query.sql)

    def _prepare(self, event: Event) -> None:
        now, prepare = self._now(event), XaPrepare.parse(event)
        if not prepare.one_phase:
            now.xa = Xa(step=XaStep.PREPARE, xid=prepare.xid, at=self._at(event))

    def _xa(self, event: Event, sql: str) -> bool:
        """Handles an XA statement; returns True if it ends its group of events.

        `XA START` has the meaning of BEGIN. A later `XA COMMIT` or `XA ROLLBACK` is a transaction without rows.
        """
        now, statement = self._now(event), XaStatement.parse(sql)
        if statement.verb == "START":
            now.explicit = True
        step = _XA_ENDS.get(statement.verb)
        if step is not None and not now.row_events:
            now.xa = Xa(step=step, xid=statement.xid, at=self._at(event))
        return step is not None

    def _at(self, event: Event) -> Lsn:
        return Lsn(self.change_no, event.log_index, event.offset)

    def _now(self, event: Event) -> _OpenTransaction:
        """Returns the open transaction. If none is open, as on a server without GTIDs, the event begins one."""
        return self._open or self._begin(event, GtidEvent(""), explicit=False)

    def _begin(self, event: Event, gtid: GtidEvent, *, explicit: bool) -> _OpenTransaction:
        self._open = _OpenTransaction(self._at(event), gtid, explicit)
        return self._open

    def _table(self, event: Event) -> TableName:
        body = bytes(event.body)
        if body not in self._names:
            self._names[body] = table_name(body)
        return self._names[body]


def _script(statements: Sequence[tuple[str, str]]) -> str:
    """Joins a transaction's statements, with USE before each statement that has another database than the last one."""
    texts: list[str] = []
    schema = statements[0][0] if statements else ""
    for used, sql in statements:
        if used and used != schema:
            texts.append("USE `{}`".format(used.replace("`", "``")))
            schema = used
        texts.append(sql)
    # A statement may end with a comment, which only a line break ends.
    return ";\n".join([*(f"{sql}\n" if "--" in sql or "#" in sql else sql for sql in texts[:-1]), *texts[-1:]])


def held_back(transaction: Transaction, xa: Xa) -> Transaction:
    """Returns a transaction with its XA step.

    For a PREPARE, the number of row events, the tables and the statements move into the step: they take effect at the
    COMMIT.
    """
    if xa.step is XaStep.PREPARE:
        xa = replace(
            xa,
            row_events=transaction.row_events,
            tables=transaction.tables,
            ddl=transaction.ddl,
            ddl_schema=transaction.ddl_schema,
        )
        transaction = replace(transaction, row_events=0, tables=(), ddl=None, ddl_schema="")
    return replace(transaction, xa=xa)


def opens_transaction(sql: str) -> bool:
    """Whether this is MySQL's `CREATE TABLE ... START TRANSACTION`, which is followed by the rows of its SELECT."""
    return sql.rstrip().rstrip(";").rstrip().upper().endswith("START TRANSACTION")
