"""Reads the change events of a log, transaction by transaction."""

from __future__ import annotations

from collections.abc import Callable, Generator

from pidts.binlog.scan import TransactionScanner
from pidts.binlog.walk import LogWalker, iter_raw
from pidts.binlog.xa import PreparedGroups
from pidts.cli.events.decode import Change, changes_of
from pidts.cli.events.group import Group
from pidts.cli.events.structures import Structures
from pidts.excerpt.blocks import LogInput
from pidts.excerpt.range import Cut, LogRange
from pidts.model import Lsn, Transaction, xa_not_received
from pidts.model.transaction import XaStep
from pidts.rules import AllowList


def read_events(
    log: LogInput,
    wanted: LogRange,
    tables: AllowList,
    structures: Structures,
    *,
    zone: int,
    say: Callable[[str], None],
) -> Generator[Change]:
    """Returns all changes of these tables in the range, in log order."""
    change_no = wanted.start.change_no if isinstance(wanted.start, Lsn) else 0
    cut = Cut(wanted)
    open_at = ""
    prepared: PreparedGroups[Group] = PreparedGroups()
    for found in _transactions(log, change_no):
        if isinstance(found, str):
            open_at = found
            continue
        # A prepared transaction changes no structure: servers refuse schema changes in it.
        structures.enter(*found)
        transaction, prepared_rows = prepared.settle(*found)
        if cut.takes(transaction):
            if prepared_rows is None and transaction.xa is not None and transaction.xa.step is XaStep.COMMIT:
                raise xa_not_received(transaction)
            yield from changes_of(transaction, found[1], prepared_rows, structures, wanted, tables, zone)
        if cut.ended:
            return
    if open_at:
        say(f"the log ends inside a transaction, which begins at {open_at} and is left out")


def _transactions(log: LogInput, change_no: int) -> Generator[tuple[Transaction, Group] | str]:
    """Returns each transaction with its raw events; at the end, the place of a transaction without an end, if any."""
    walker = LogWalker()
    scanner: TransactionScanner | None = None
    group: Group | None = None
    for block in log.blocks():
        if block.begins is not None:
            walker = LogWalker(block.begins.file, block.begins.offset)
            scanner = scanner or TransactionScanner(change_no, Lsn.at(block.begins, change_no))
        for raw in iter_raw(block.data):
            file = walker.file
            event = walker.feed(raw)
            scanner = scanner or TransactionScanner(change_no, Lsn(change_no, event.log_index, event.offset))
            if not scanner.in_transaction:
                # As in a relay, a transaction's `prev_lsn` is the end of the event before it. So the first transaction
                # of a range has the same `prev_lsn`, wherever reading began.
                scanner.mark()
            transaction = scanner.feed(event)
            if walker.format is None or event.is_artificial:
                continue
            if scanner.in_transaction or transaction is not None:
                group = group or Group(file, walker.format, change_no)
                group.add(raw, event)
            else:
                group = None
            if transaction is not None and group is not None:
                yield transaction, group
                group = None
    if group is not None:
        yield group.place
