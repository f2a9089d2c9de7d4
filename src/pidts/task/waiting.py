"""How much of the log is kept in the relay for tables that wait.

The relay's index tells it, with no look at the rows: which transactions changed a table, when, and how long they are.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

from pidts.apply import TargetSession
from pidts.model import Checkpoint, Halt, LogEntry, Lsn, PidtsError, TableName
from pidts.plan import PlanState
from pidts.relay import RelayReader
from pidts.relay.survey import measure
from pidts.task.config import TaskConfig

_LOOK_SECONDS = 2.0
"""A reader at night does not wait for a number to be exact."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """What lies behind a place of the log, of some tables."""

    transactions: int = 0
    """Of these tables."""
    own_bytes: int = 0
    """Of these transactions, other tables' rows in them included."""
    log_bytes: int = 0
    """Of all that the relay keeps from there on."""
    since: int = 0
    """When the first of these transactions was executed, in seconds since 1970 UTC; 0: there is none."""
    is_whole: bool = True
    """False: there are more, which were not counted."""

    def and_one(self, entry: LogEntry) -> Backlog:
        """With one transaction more."""
        return replace(
            self,
            transactions=self.transactions + 1,
            own_bytes=self.own_bytes + entry.extent.size,
            since=self.since or entry.transaction.timestamp,
        )

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "transactions": self.transactions,
            "own_bytes": self.own_bytes,
            "log_bytes": self.log_bytes,
            "since": self.since or None,
            "is_whole": self.is_whole,
        }


@dataclass(frozen=True, slots=True)
class Held:
    """Tables of one source that are behind the others."""

    source: str
    tables: dict[TableName, Lsn]
    log_bytes: int
    """Of log that the relay keeps for them alone; 0 where that is not known."""
    is_known: bool = True
    """False: the relay is on another machine, or cannot be read."""

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        tables = {str(name): str(lsn) for name, lsn in sorted(self.tables.items())}
        return {"source": self.source, "tables": tables, "log_bytes": self.log_bytes if self.is_known else None}


def backlogs(config: TaskConfig, places: Sequence[tuple[Collection[TableName], Lsn]]) -> list[Backlog | None]:
    """Of each: its tables, and the place where they stand. None where the relay is not here, or cannot be read.

    All are counted on one way through the index: a table of the target may have hundreds of shards.
    """
    found = [Backlog() for _ in places]
    if not places:
        return []
    concerned: dict[TableName, list[int]] = {}
    for number, (tables, _) in enumerate(places):
        for name in tables:
            concerned.setdefault(name, []).append(number)
    try:
        behind = measure(config.relay, config.source.source_id)
        with closing(RelayReader(config.relay, config.source.source_id)) as relay:
            if relay.received is None:
                return [None] * len(places)
            deadline = time.monotonic() + _LOOK_SECONDS
            for entry in relay.entries(min(after for _, after in places)):
                transaction = entry.transaction
                if transaction.ddl:
                    continue
                for number in {number for name in transaction.tables for number in concerned.get(name, ())}:
                    if transaction.lsn > places[number][1]:
                        found[number] = found[number].and_one(entry)
                if time.monotonic() > deadline:
                    found = [replace(one, is_whole=False) for one in found]
                    break
    except PidtsError:
        return [None] * len(places)
    return [replace(one, log_bytes=behind(after)) for one, (_, after) in zip(found, places, strict=True)]


def held_on(target: TargetSession, config: TaskConfig) -> Held:
    """As this target has it on record."""
    source = config.source.source_id
    rows = list(target.checkpoints(config.name, source))
    return held_by(config, rows, target.halts.halts(config.name, source) if rows else ())


def held_by(config: TaskConfig, checkpoints: Iterable[Checkpoint], halts: Iterable[Halt] = ()) -> Held:
    """As the checkpoints tell it: of every worker, the table's earliest place.

    A table whose change waits, or fails, is no exception there before anything else has gone on: the `halts` name it.
    """
    tables: dict[TableName, Lsn] = {}
    places = []
    for row in checkpoints:
        state = PlanState.from_checkpoint(row.lsn, row.copy)
        places.append(state.lsn)
        for name, at in state.exceptions.items():
            tables[name] = min(at, tables.get(name, at))
    changes = [halt for halt in halts if halt.statement]
    for halt in changes:
        if places and halt.lsn > min(places):
            tables = {**dict.fromkeys(halt.tables, min(places)), **tables}
    kept = _kept(config, tables, {halt.lsn for halt in changes}, min(places)) if tables else 0
    return Held(config.source.source_id, tables, kept or 0, is_known=kept is not None)


def _kept(config: TaskConfig, tables: Mapping[TableName, Lsn], changes: Collection[Lsn], applied: Lsn) -> int | None:
    """Log from the earliest place on. None where the relay is not here, or broken: its own check says so.

    What lies behind the checkpoint is held, too, as far as nobody else has anything there: it moves over that only when
    there is something to apply.
    """
    try:
        behind = measure(config.relay, config.source.source_id)
        with closing(RelayReader(config.relay, config.source.source_id)) as relay:
            if relay.received is None:
                return None
            for entry in relay.entries(applied, joined=True):
                transaction = entry.transaction
                is_change = transaction.ddl is not None and transaction.lsn in changes
                is_rows = transaction.ddl is None and bool(transaction.tables)
                waits = is_rows and all(name in tables for name in transaction.tables if config.allow(name))
                if not (is_change or waits or transaction.is_mark):
                    break
                applied = transaction.lsn
            return max(0, behind(min(tables.values())) - behind(applied))
    except PidtsError:
        return None
