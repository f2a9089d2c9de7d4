"""A schema change that has to be run, and what is told of it where it cannot be yet."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from pidts.batch.context import JobContext
from pidts.batch.ddl import Concerns
from pidts.batch.meaning import Meaning
from pidts.batch.shard_telling import waiting_halt
from pidts.batch.shard_turn import ShardWaits
from pidts.model import DecodeError, Halt, Halted, LogEntry, Lsn, TableName
from pidts.relay import RelayReader


@dataclass(frozen=True, slots=True)
class DueChange:
    """What one thread is about."""

    context: JobContext
    lsn: Lsn
    concerns: Concerns
    filling: Collection[TableName]

    def waiting_halt(self, meaning: Meaning, relay: RelayReader, entry: LogEntry, waits: ShardWaits) -> Halt:
        """It waits for other shards."""
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
        """It fails, and has done so `since`.

        Of all tables, where nobody knows of which; what names none was not refused for the statement's sake.
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
    """The statement that ends there."""
    entry = relay.find(lsn)
    if entry is None or entry.transaction.lsn != lsn:
        raise DecodeError("no-statement", f"the relay has no schema change that ends at {lsn}")
    return entry
