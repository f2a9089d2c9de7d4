"""The backlog of blocked and waiting tables: the log that the relay keeps for them, and their next schema changes.

The relay's index is enough to find the backlog, without reading rows: the index records the tables, the time and the
length of each transaction.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pidts.apply import TargetSession
from pidts.batch.transaction_classifier import TransactionClassifier
from pidts.model import Checkpoint, Halt, LogEntry, Lsn, PidtsError, TableName
from pidts.plan import CopyState, PlanState, RelevanceKind, WaitingTableSearch
from pidts.relay import RelayReader
from pidts.relay.receive_times import ReceiveTimes
from pidts.relay.survey import measure
from pidts.schema import Dialect
from pidts.task.config.task_file import TaskConfig

_COUNT_SECONDS = 2.0
"""Counting stops after this time: for an operator, a quick answer is worth more than an exact number."""
_ALL_SECONDS = 5.0
"""The time of a count for all sources of a task. With 300 sources, two seconds for each would be ten minutes."""


class CountingTime:
    """Divides the time of a count among a task's sources. Later sources get the time that earlier ones did not use."""

    def __init__(self, sources: int, now: Callable[[], float] = time.monotonic) -> None:
        """`now` returns the seconds of a clock that is never set back."""
        self._left, self._now = sources, now
        self._end = now() + _ALL_SECONDS

    def next(self) -> float:
        """Returns the seconds for the next source."""
        seconds = max(0.0, self._end - self._now()) / max(1, self._left)
        self._left -= 1
        return min(_COUNT_SECONDS, seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """The log of some tables after a position."""

    transactions: int = 0
    """The number of transactions that changed the tables."""
    own_bytes: int = 0
    """The size of the transactions that changed the tables, including the rows of other tables in them."""
    log_bytes: int = 0
    """The size of the whole log that the relay keeps from the position on."""
    since: int = 0
    """The time of the first transaction that changed the tables, in seconds since 1970 UTC; 0 if there is none."""
    is_whole: bool = True
    """False if counting stopped early: there may be more transactions."""

    def plus(self, entry: LogEntry) -> Backlog:
        """Returns this backlog with one more transaction."""
        return replace(
            self,
            transactions=self.transactions + 1,
            own_bytes=self.own_bytes + entry.extent.size,
            since=self.since or entry.transaction.timestamp,
        )

    def to_json(self) -> dict[str, Any]:
        """Returns plain values for JSON."""
        return {
            "transactions": self.transactions,
            "own_bytes": self.own_bytes,
            "log_bytes": self.log_bytes,
            "since": self.since or None,
            "is_whole": self.is_whole,
        }


@dataclass(frozen=True, slots=True)
class NextSchemaChange:
    """The first schema change of a table after the table's refused row."""

    lsn: Lsn
    position: str
    """The log file and byte of the schema change; empty if the relay does not know it."""
    statement: str
    further: int = 0
    """The number of schema changes of the table that follow this one in the relay."""
    is_whole: bool = True
    """False if counting stopped early: more schema changes may follow."""

    def to_json(self) -> dict[str, Any]:
        """Returns plain values for JSON."""
        return {
            "lsn": str(self.lsn),
            "position": self.position,
            "statement": self.statement,
            "further": self.further,
            "is_whole": self.is_whole,
        }


@dataclass(frozen=True, slots=True)
class HeldTablesOfSource:
    """The tables of one source that stay at an earlier Lsn than its other tables."""

    source: str
    tables: dict[TableName, Lsn]
    log_bytes: int
    """The size of the log that the relay keeps only for the waiting tables; 0 if it is not known."""
    is_known: bool = True
    """False if the relay is on another machine, or cannot be read."""
    since: float = 0.0
    """When the source committed the oldest change that waits, in seconds since 1970; 0 if none waits or it is unknown.
    """

    @property
    def lag_seconds(self) -> float | None:
        """The age of the oldest change that waits; None if no change waits or its age is not known."""
        return max(0.0, time.time() - self.since) if self.since else None

    def to_json(self) -> dict[str, Any]:
        """Returns plain values for JSON."""
        tables = {str(name): str(lsn) for name, lsn in sorted(self.tables.items())}
        return {
            "source": self.source,
            "tables": tables,
            "log_bytes": self.log_bytes if self.is_known else None,
            "lag_seconds": None if self.lag_seconds is None else round(self.lag_seconds, 3),
        }


def backlogs(
    config: TaskConfig,
    places: Sequence[tuple[Collection[TableName], Lsn]],
    *,
    seconds: float = _COUNT_SECONDS,
) -> list[Backlog | None]:
    """Returns the backlog of each entry of `places`: tables, with the Lsn at which they stop.

    All backlogs are None if the relay is on another machine, or cannot be read. One pass through the index counts all
    backlogs, because a target table may have hundreds of shards.
    """
    found = [Backlog() for _ in places]
    if not places:
        return []
    concerned: dict[TableName, list[int]] = {}
    for number, (tables, _) in enumerate(places):
        for name in tables:
            concerned.setdefault(name, []).append(number)
    try:
        bytes_after = measure(config.relay, config.source.source_id)
        with closing(RelayReader(config.relay, config.source.source_id)) as relay:
            if relay.received is None:
                return [None] * len(places)
            deadline = time.monotonic() + seconds
            for entry in relay.entries(min(after for _, after in places)):
                transaction = entry.transaction
                if transaction.ddl:
                    continue
                for number in {number for name in transaction.tables for number in concerned.get(name, ())}:
                    if transaction.lsn > places[number][1]:
                        found[number] = found[number].plus(entry)
                if time.monotonic() > deadline:
                    found = [replace(one, is_whole=False) for one in found]
                    break
    except PidtsError:
        return [None] * len(places)
    return [replace(one, log_bytes=bytes_after(after)) for one, (_, after) in zip(found, places, strict=True)]


def next_schema_changes(
    config: TaskConfig,
    places: Sequence[tuple[Collection[TableName], Lsn]],
    is_done: Callable[[Lsn], bool],
    *,
    seconds: float = _COUNT_SECONDS,
) -> list[NextSchemaChange | None]:
    """Returns, for each entry of `places`, the first schema change of its tables after its Lsn; None if none is found.

    Schema changes that the target already has (`is_done`) are left out. Later schema changes are only counted. The
    search ends after `seconds`. The search finds nothing if this machine cannot read the relay.
    """
    found: list[NextSchemaChange | None] = [None] * len(places)
    if not places:
        return found
    classifier = TransactionClassifier(config.allow, Dialect(), config.rules.events)
    with suppress(PidtsError), closing(RelayReader(config.relay, config.source.source_id)) as relay:
        received = relay.received
        deadline = time.monotonic() + seconds

        def is_over() -> bool:
            return time.monotonic() > deadline

        last = min(after for _, after in places)
        for transaction in relay.schema_changes(last, received, is_over) if received else ():
            if not transaction.ddl or transaction.lsn <= last:  # a relay may have an entry twice
                continue
            last = transaction.lsn
            relevance = classifier.of_schema_change(transaction)
            meant = [
                number
                for number, (tables, after) in enumerate(places)
                if transaction.lsn > after and relevance.touches(tables)
            ]
            if relevance.kind is not RelevanceKind.DDL or not meant or is_done(transaction.lsn):
                continue
            position = str(relay.position(transaction.lsn) or "")
            change = NextSchemaChange(transaction.lsn, position, transaction.ddl)
            for number in meant:
                first = found[number]
                found[number] = change if first is None else replace(first, further=first.further + 1)
        if is_over():
            return [one and replace(one, is_whole=False) for one in found]
    return found


def load_held_tables(
    target: TargetSession, config: TaskConfig, *, seconds: float = _COUNT_SECONDS
) -> HeldTablesOfSource:
    """Reads the target's checkpoints and halts, and returns the waiting tables of a source."""
    source = config.source.source_id
    rows = list(target.meta.checkpoints.read(config.name, source))
    return held_tables(config, rows, target.meta.halts.read(config.name, source) if rows else (), seconds=seconds)


def held_tables(
    config: TaskConfig,
    checkpoints: Iterable[Checkpoint],
    halts: Iterable[Halt] = (),
    *,
    seconds: float = _COUNT_SECONDS,
) -> HeldTablesOfSource:
    """Returns the waiting tables of a source: for each table, its earliest Lsn in any worker's checkpoint.

    When a table halts, the checkpoints do not show this before another table is past the halt's Lsn. Until then, only
    `halts` name the table. The time of the oldest change is not known if its search takes longer than `seconds`.
    """
    tables: dict[TableName, Lsn] = {}
    copy: dict[TableName, CopyState] = {}
    places = []
    for row in checkpoints:
        state = PlanState.from_checkpoint(row.lsn, row.copy)
        places.append(state.lsn)
        copy |= state.copy
        for name, at in state.exceptions.items():
            tables[name] = min(at, tables.get(name, at))
    halts = list(halts)
    if places:
        applied = min(places)
        for halt in halts:
            if halt.lsn > applied or (halt.lsn == applied and not halt.statement):
                tables = {**dict.fromkeys(halt.tables, applied), **tables}
    changes = {halt.lsn for halt in halts if halt.statement}
    size = _held_log_bytes(config, tables, changes, min(places)) if tables else 0
    since = _oldest_change(config, tables, copy, seconds) if tables and size is not None else 0.0
    return HeldTablesOfSource(config.source.source_id, tables, size or 0, is_known=size is not None, since=since)


def task_classifier(config: TaskConfig) -> TransactionClassifier:
    """Returns a classifier that finds a relay's transactions with changes for the task, without asking the source."""
    return TransactionClassifier(
        config.allow, Dialect(), config.rules.events, config.marks_in, frozenset(config.zones.forwards)
    )


def _oldest_change(
    config: TaskConfig, tables: Mapping[TableName, Lsn], copy: Mapping[TableName, CopyState], seconds: float
) -> float:
    """Returns when the source committed the oldest change of these tables that the target lacks; 0 if none is found.

    Changes before the place from which a copied table gets changes (`CopyState.since`) do not count. The time comes
    from the relay, so it is the same during a run, after a restart, and while no run is active.
    """
    search, deadline = WaitingTableSearch(task_classifier(config)), time.monotonic() + seconds
    try:
        with closing(RelayReader(config.relay, config.source.source_id)) as relay:
            received, log = relay.received, partial(relay.entries, joined=True)
            while received is not None and time.monotonic() < deadline:
                entry = search.first(tables, copy, log, received)
                if entry is not None:
                    with closing(ReceiveTimes(relay.folder)) as times:
                        return times.committed_at(entry)
                if search.clear is None or search.clear >= received:
                    break
    except PidtsError:
        pass
    return 0.0


def _held_log_bytes(
    config: TaskConfig, tables: Mapping[TableName, Lsn], changes: Collection[Lsn], applied: Lsn
) -> int | None:
    """Returns the size of the log that only waiting tables need; None if the relay cannot be read here.

    This log begins at the earliest Lsn of a waiting table. It ends before the first change of another table after the
    checkpoint. It does not end at the checkpoint: if only changes of waiting tables follow, the checkpoint does not
    move.
    """
    try:
        bytes_after = measure(config.relay, config.source.source_id)
        with closing(RelayReader(config.relay, config.source.source_id)) as relay:
            if relay.received is None:
                return None
            for entry in relay.entries(applied, joined=True):
                transaction = entry.transaction
                is_change = transaction.ddl is not None and transaction.lsn in changes
                is_rows = transaction.ddl is None and bool(transaction.tables)
                waits = is_rows and all(name in tables for name in transaction.tables if config.allow(name))
                if not (is_change or waits or transaction.is_empty):
                    break
                applied = transaction.lsn
            return max(0, bytes_after(min(tables.values())) - bytes_after(applied))
    except PidtsError:
        return None
