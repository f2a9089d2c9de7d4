"""Finds the transactions of a log, and cuts the log into parts that can be decoded independently.

A log part consists of whole transactions of one file. One set of structures describes all of its rows, so a log part
ends at each relevant schema change. Long unwanted parts are not read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from pidts.binlog import Query
from pidts.binlog.transactions import CompletedTransactions
from pidts.binlog.xa import PreparedEventGroups
from pidts.excerpt.blocks import LogBlock, completed
from pidts.excerpt.statements import concerning, shown_statements
from pidts.excerpt.store import Span
from pidts.model import Lsn, TableName, Transaction
from pidts.model.transaction import XaStep, xa_not_received
from pidts.rules import AllowList
from pidts.schema import Dialect, IgnoredStatement, SequenceChange, Statement, StatementDml, TruncateTable
from pidts.schema.affected_tables import understood
from pidts.schema.evolve.known_structures import KnownStructures

_GAP = 256 << 10
"""A log part ends before unwanted events if they have at least this many bytes."""
_NOTHING = KnownStructures(complete=False)


@dataclass(frozen=True, slots=True)
class PlacedTransaction:
    """A transaction, with the place of its events."""

    transaction: Transaction
    file: str
    """The source's log file that contains the transaction's rows."""
    begin: Lsn
    """The Lsn of the first byte of the transaction's rows."""
    span: Span
    is_commit: bool
    """Whether the span has the events that prepared an XA transaction, and `transaction` is the later commit of it."""


@dataclass(frozen=True, slots=True)
class DecodeRange:
    """A part of the log that is decoded at once, by one process."""

    span: Span
    file: str
    begin: Lsn
    end: Lsn
    structures_at: Lsn
    """The structures of the tables include all schema changes up to this place in the log."""
    tables: tuple[TableName, ...]
    """The tables of the transactions in the range. Rows of other tables are ignored: for example, the rows of a
    prepared XA transaction belong to its later commit, or to no transaction if it is rolled back.
    """
    history: KnownStructures = _NOTHING
    """The structures of the tables that have rows in this range."""
    has_statements: bool = False
    commit: Transaction | None = None
    """The commit, if the log part is a prepared XA transaction."""


@dataclass(frozen=True, slots=True)
class LogSelection:
    """The tables and statements that a query reads from the log."""

    allow: AllowList
    dialect: Dialect
    statements: bool
    """Whether schema changes are rows of the data frame."""

    def rows(self, transaction: Transaction) -> bool:
        """Whether the transaction may have rows of a wanted table."""
        return transaction.row_events > 0 and (not transaction.tables or _any(self.allow, transaction.tables))

    def takes(self, transaction: Transaction) -> bool:
        """Whether the transaction has to be read.

        A transaction has to be read in three cases: it may have wanted rows; its statement is shown as a row; its
        statement changed rows without row events. The last case is an error.
        """
        if transaction.ddl is None:
            return self.rows(transaction)
        found = concerning(transaction.ddl, transaction.ddl_schema, self.dialect, self.allow)
        return self.rows(transaction) or any(self.statements or isinstance(each, StatementDml) for each in found)

    def shown(self, query: Query, lsn: Lsn) -> list[Statement]:
        """Returns the statements of a QUERY event that the user asks to see."""
        found = shown_statements(query, lsn, self.dialect, self.allow)
        return found if self.statements else []


class LogCutter:
    """Joins the transactions of a log, in order, into log parts. `resolved` adds the structures later."""

    def __init__(self, wanted: LogSelection, size: int) -> None:
        self.changes: list[Transaction] = []
        """The transactions that may have changed structures."""
        self._wanted, self._size = wanted, size
        self._first: PlacedTransaction | None = None
        self._last: PlacedTransaction | None = None
        self._structures_at = Lsn(0, 0, 0)
        self._has_statements = False
        self._tables: dict[TableName, None] = {}

    def take(self, piece: PlacedTransaction) -> Iterator[DecodeRange]:
        """Yields the log parts that this piece completes."""
        transaction = piece.transaction
        changes = transaction.ddl is not None and self._may_change(transaction)
        # The rows of a CREATE TABLE ... SELECT have the structure that the same statement makes.
        makes_rows = changes and transaction.row_events > 0
        if self._wanted.takes(transaction):
            if makes_rows or piece.is_commit:
                yield from self.close()
            yield from self._extend(piece, transaction.lsn if makes_rows else transaction.begin)
        if changes or piece.is_commit:
            yield from self.close()
        if changes:
            self.changes.append(transaction)

    def pass_by(self, piece: PlacedTransaction) -> None:
        """Handles a transaction outside the range: only its schema changes matter."""
        if piece.transaction.ddl is not None and self._may_change(piece.transaction):
            self.changes.append(piece.transaction)

    def close(self) -> Iterator[DecodeRange]:
        """Ends the open log part, and yields it; yields nothing if no log part is open."""
        first, last = self._first, self._last
        if first is not None and last is not None:
            yield DecodeRange(
                first.span.upto(last.span),
                first.file,
                first.begin,
                last.transaction.lsn,
                structures_at=self._structures_at,
                tables=tuple(self._tables),
                has_statements=self._has_statements,
                commit=first.transaction if first.is_commit else None,
            )
        self._first, self._last, self._tables, self._has_statements = None, None, {}, False

    def _may_change(self, transaction: Transaction) -> bool:
        found = understood(transaction.ddl or "", transaction.ddl_schema, self._wanted.dialect)
        return not all(
            isinstance(statement, IgnoredStatement | StatementDml | TruncateTable)
            and not isinstance(statement, SequenceChange)
            for statement in found
        )

    def _extend(self, piece: PlacedTransaction, structures_at: Lsn) -> Iterator[DecodeRange]:
        transaction, span, first, last = piece.transaction, piece.span, self._first, self._last
        if first is not None and last is not None:
            begin = first.span
            if (
                begin.container != span.container
                or span.offset - last.span.end > _GAP
                or span.end - begin.offset > self._size
            ):
                yield from self.close()
        if self._first is None:
            self._first, self._structures_at = piece, structures_at
        self._last = piece
        self._has_statements = self._has_statements or transaction.ddl is not None
        for table in transaction.tables:
            self._tables[table] = None


@lru_cache(maxsize=4096)
def _any(allow: AllowList, tables: tuple[TableName, ...]) -> bool:
    return any(map(allow, tables))


def resolved(
    log_parts: Iterable[DecodeRange], changes: Iterable[Transaction], history: KnownStructures, dialect: Dialect
) -> Iterator[DecodeRange]:
    """Yields the log parts, each with its structures.

    `history` contains the structures before all log parts, and `changes` are the schema changes after `history`.
    """
    ahead = deque(changes)
    for log_part in log_parts:
        while ahead and ahead[0].lsn <= log_part.structures_at:
            history = history.after(ahead.popleft(), dialect)
        tables = {name: history.tables[name] for name in log_part.tables if name in history.tables}
        sequences = history.sequences.intersection(log_part.tables)
        known = replace(history, tables=tables, charsets={}, turns=(), sequences=sequences)
        yield replace(log_part, history=known)


@dataclass(frozen=True, slots=True)
class _EventGroup:
    span: Span
    file: str
    begin: Lsn


def pieces(blocks: Iterable[LogBlock]) -> Iterator[tuple[PlacedTransaction, str]]:
    """Yields each transaction with its server's version, the rows of a prepared XA transaction at its commit."""
    undecided: PreparedEventGroups[_EventGroup] = PreparedEventGroups()
    for found, block, version in completed(blocks, 0):
        for transaction, group in _each(found, block):
            settled, rows = undecided.settle(transaction, group)
            if rows is None and transaction.xa is not None and transaction.xa.step is XaStep.COMMIT:
                raise xa_not_received(transaction)
            if not settled.is_empty:
                here = rows or group
                yield PlacedTransaction(settled, here.file, here.begin, here.span, is_commit=rows is not None), version


def _each(found: CompletedTransactions, block: LogBlock) -> Iterator[tuple[Transaction, _EventGroup]]:
    what, begin = found.what, found.begin
    if isinstance(what, Transaction):
        ends: list[int] = [found.end - found.base]
        transactions: Iterable[Transaction] = (what,)
    else:
        ends, transactions = what.block_ends, what.transactions()
    for transaction, end in zip(transactions, ends, strict=True):
        first = transaction.begin
        if block.container:
            span = Span(block.container, block.offset + begin - found.base, found.base + end - begin)
        else:
            span = Span(found.file, first.offset, transaction.lsn.offset - first.offset)
        yield transaction, _EventGroup(span, found.file, first)
        begin = found.base + end
