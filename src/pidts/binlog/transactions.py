"""Reads the transactions of a log that comes in blocks: many ordinary transactions at a time, all others one by one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pidts.binlog.machine_code import compiled
from pidts.binlog.scan import TransactionScanner
from pidts.binlog.walk import LogWalker, event_at
from pidts.model.lsn import Lsn, Position
from pidts.model.transaction import Transaction

if TYPE_CHECKING:
    from pidts.binlog.blocks.scan import BlockScan, OrdinaryEvents

_NO_LIMIT = 1 << 62


@dataclass(frozen=True, slots=True)
class CompletedTransactions:
    """The transactions that a part of a block completes."""

    what: OrdinaryEvents | Transaction
    """One transaction, or ordinary events with at least one transaction. They are valid until the next item is read."""
    base: int
    """The place of the block's first byte among all bytes read."""
    begin: int
    """The place of the first byte of the (first) transaction."""
    end: int
    """The place of the first byte after the (last) transaction."""
    file: str


class TransactionReader:
    """Reads the transactions after a place in a log.

    The reader returns no empty entries, but a transaction's `prev_lsn` may be the Lsn of an empty entry. So a
    transaction's `prev_lsn` does not depend on where the reading began.
    """

    def __init__(self, walker: LogWalker, scanner: TransactionScanner) -> None:
        self._walker, self._scanner = walker, scanner
        self._blocks = _block_scan(walker, scanner)
        self._passed = self._begin = 0

    @classmethod
    def at(cls, begins: Position, change_no: int) -> TransactionReader:
        """Returns a reader at a position in a log."""
        scanner = TransactionScanner(change_no, Lsn.at(begins, change_no))
        return cls(LogWalker(begins.file, begins.offset), scanner)

    @property
    def version(self) -> str:
        """Returns the version of the server that writes the log; empty until its format is known."""
        return self._walker.format.server_version if self._walker.format else ""

    def move_to(self, begins: Position) -> None:
        """Continues at the beginning of the next log file."""
        self._walker = LogWalker(begins.file, begins.offset)
        self._blocks = _block_scan(self._walker, self._scanner)

    def read(self, block: bytes | memoryview) -> Iterator[CompletedTransactions]:
        """Yields the transactions that the next block of whole events completes."""
        view, at, base, scanner = memoryview(block), 0, self._passed, self._scanner
        while at < len(view):
            if not scanner.in_transaction:
                scanner.empty_entry()
                self._begin = base + at
            begin, file = self._begin, self._walker.file
            if self._blocks is not None and (run := self._blocks.run(view, at, _NO_LIMIT)) is not None:
                at = run.end
                self._passed = base + at
                if len(run.lines):
                    self._begin = base + run.block_ends[-1]
                    yield CompletedTransactions(run, base, begin, self._begin, file)
                continue
            raw = event_at(view, at)
            transaction = scanner.feed(self._walker.feed(raw))
            at += len(raw)
            self._passed = base + at
            if transaction is not None:
                yield CompletedTransactions(transaction, base, begin, self._passed, file)


def _block_scan(walker: LogWalker, scanner: TransactionScanner) -> BlockScan | None:
    if not compiled():
        return None
    from pidts.binlog.blocks.scan import BlockScan  # loads the compiler

    return BlockScan(walker, scanner)
