"""The transactions of a log that is not in a relay, and where their events are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pidts.binlog.transactions import Completed
from pidts.binlog.xa import PreparedGroups
from pidts.excerpt.blocks import LogBlock, completed
from pidts.excerpt.cut import Piece
from pidts.excerpt.store import Span
from pidts.model import Lsn, Transaction
from pidts.model.transaction import XaStep, xa_not_received


@dataclass(frozen=True, slots=True)
class _Group:
    span: Span
    file: str
    begin: Lsn


def pieces(blocks: Iterable[LogBlock]) -> Iterator[tuple[Piece, str]]:
    """Yields each piece with its server's version; the rows of a prepared XA transaction come at its commit."""
    undecided: PreparedGroups[_Group] = PreparedGroups()
    for found, block, version in completed(blocks, 0):
        for transaction, group in _each(found, block):
            settled, rows = undecided.settle(transaction, group)
            if rows is None and transaction.xa is not None and transaction.xa.step is XaStep.COMMIT:
                raise xa_not_received(transaction)
            if not settled.is_mark:
                here = rows or group
                yield Piece(settled, here.file, here.begin, here.span, is_commit=rows is not None), version


def _each(found: Completed, block: LogBlock) -> Iterator[tuple[Transaction, _Group]]:
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
        yield transaction, _Group(span, found.file, first)
        begin = found.base + end
