"""A schema change that has to be run, and the halt that reports it where it cannot run yet."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from pidts.batch.context import JobContext
from pidts.batch.relevance import Meaning
from pidts.ddl.runner import Concerns
from pidts.ddl.shards.admission import ShardWaits
from pidts.ddl.shards.halt_messages import waiting_halt
from pidts.model import DecodeError, Halt, Halted, LogEntry, Lsn, TableName
from pidts.relay import RelayReader


@dataclass(frozen=True, slots=True)
class DueChange:
    """The schema change that one thread makes."""

    context: JobContext
    lsn: Lsn
    concerns: Concerns
    filling: Collection[TableName]

    def waiting_halt(self, meaning: Meaning, relay: RelayReader, entry: LogEntry, waits: ShardWaits) -> Halt:
        """Returns the halt that says that the change waits for other shards."""
        arrival = waits.arrival
        tables = [arrival.member.table] if arrival is not None else meaning(entry).tables or ()
        return waiting_halt(
            waits.wait,
            lsn=self.lsn,
            tables=tuple(sorted(filter(self.concerns, tables))),
            position=str(relay.position(self.lsn) or ""),
            statement=entry.transaction.ddl or "",
            arrival=arrival,
            agreed=waits.agreed,
        )

    def halt(self, meaning: Meaning, relay: RelayReader, entry: LogEntry, error: Halted, since: float) -> Halt:
        """Returns the halt that says that the change fails, and has done so `since`.

        The halt is one of all tables where the statement's tables are not known. It is also one of all tables where the
        error names no table: then the statement was not the reason.
        """
        tables = meaning(entry).tables if error.where.table else None
        return Halt.of(
            error,
            tuple(sorted(filter(self.concerns, tables or ()))),
            self.lsn,
            position=str(relay.position(self.lsn) or ""),
            statement=entry.transaction.ddl or "",
            since=since,
        )


def found_in(relay: RelayReader, lsn: Lsn) -> LogEntry:
    """Returns the statement that ends at this place."""
    entry = relay.find(lsn)
    if entry is None or entry.transaction.lsn != lsn:
        raise DecodeError("no-statement", f"the relay has no schema change that ends at {lsn}")
    return entry
