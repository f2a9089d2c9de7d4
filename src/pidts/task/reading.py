"""The structures of a source's tables at a place of its log, read while the source goes on. Nothing is locked.

The position is read, the structures, and the position again; the relay then tells whether the log between the two has a
schema change of these tables. If it has, it is all read again, from the later position on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

import structlog

from pidts.batch.meaning import Meaning
from pidts.batch.online import online_of
from pidts.model import Lsn, PidtsError, Position, Shadow, Table, TableName, Where
from pidts.plan import WorkKind
from pidts.relay import RelayReader
from pidts.schema.online_ddl import Role
from pidts.source import Session, position, read_structures, source_dialect
from pidts.task.config import TaskConfig
from pidts.task.replicator_process import ReplicatorProcess

_log = structlog.get_logger(__name__)

_RELAY_SECONDS = 60.0


class Stopped(Exception):
    """The user asked to stop before the task was under way."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What was read, and where it holds: from `lsn` up to `end`."""

    lsn: Lsn
    end: Lsn
    gtids: str
    position: Position
    structures: Mapping[TableName, Table]
    shadows: Mapping[TableName, Shadow]
    """Online schema changes that were under way: what was done to these tables before is not known."""


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads structures for one task, whose replicator runs."""

    config: TaskConfig
    source: Session
    replicator: ReplicatorProcess
    stop: threading.Event

    def read(
        self,
        relay: RelayReader,
        lsn: Lsn,
        place: Position,
        gtids: str,
        *,
        on_change: Callable[[Lsn], None] = lambda _: None,
        only: Collection[TableName] | None = None,
    ) -> Reading:
        """From `lsn` on, which has this position and GTID set on the source.

        `on_change` hears of a schema change in between, and may refuse it; `only` says of which tables one counts.
        """
        allow = self.config.allow
        while True:
            found = read_structures(self.source, lambda name: allow(name) or self._is_shadow(name))
            after, gtids_after = position(self.source)
            end = Lsn.at(after, lsn.change_no)
            wait_for_relay(self.config, self.replicator, end, self.stop, relay)
            changed = next(self._schema_changes(relay, lsn, end, only), None)
            if changed is None:
                start = relay.position(lsn) or place
                # A busy server's own answer may lack the last few transactions; the log's lacks none.
                structures = {name: table for name, table in found.items() if allow(name)}
                shadows = {
                    name: Shadow(table, complete=False) for name, table in found.items() if name not in structures
                }
                return Reading(lsn, end, relay.gtid_set(lsn) or gtids, start, structures, shadows)
            on_change(changed)
            _log.info("a table changed while structures were read, reading again", at=str(changed))
            lsn, place, gtids = end, after, gtids_after

    def _is_shadow(self, name: TableName) -> bool:
        online = online_of(self.config.allow)
        return online.role(name) is Role.SHADOW and any(map(self.config.allow, online.reals(name) or ()))

    def _schema_changes(
        self, relay: RelayReader, after: Lsn, to: Lsn, only: Collection[TableName] | None
    ) -> Iterator[Lsn]:
        meaning = Meaning(self.config.allow, source_dialect(self.source))
        for entry in relay.entries(after):
            if entry.transaction.lsn > to:
                return
            work = meaning(entry)
            if work.kind is WorkKind.DDL and (only is None or work.tables is None or work.tables.intersection(only)):
                yield entry.transaction.lsn


def wait_for_relay(
    config: TaskConfig, replicator: ReplicatorProcess, lsn: Lsn | None, stop: threading.Event, relay: RelayReader
) -> None:
    """Until the relay has everything up to `lsn` (None: until it has begun)."""
    deadline = time.monotonic() + _RELAY_SECONDS
    last, size = None, _bytes(relay)
    while True:
        received = relay.received
        if received is not None and (lsn is None or received >= lsn):
            return
        if relay.damage is not None:
            raise relay.damage
        if received != last:
            last, deadline = received, time.monotonic() + _RELAY_SECONDS
        replicator.watch()
        if stop.wait(0.02):
            raise Stopped
        if time.monotonic() > deadline:
            if (now := _bytes(relay)) != size:  # a transaction may be longer than what is received in a minute
                size, deadline = now, time.monotonic() + _RELAY_SECONDS
                continue
            raise PidtsError(
                "relay-stuck",
                f"the relay has received nothing for {_RELAY_SECONDS:.0f} seconds",
                where=Where(source=config.source.source_id),
                todo=f"See {config.relay / config.source.source_id / 'replicator.log'}",
            )


def _bytes(relay: RelayReader) -> int:
    """Of the segment that is being written, whole transactions or not."""
    numbers = relay.folder.numbers()
    return relay.folder.log(numbers[-1]).stat().st_size if numbers else 0


def change_no(relay: RelayReader) -> int:
    """How often the source was replaced, as the relay's last entry has it."""
    received = relay.received
    return received.change_no if received else 0
