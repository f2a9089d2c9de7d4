"""Sends a past part of the log again (`--rewind-to`), for rows of the target that were damaged or lost since then.

The log after the given place, up to the checkpoint, is read from the source once more. Of its changes, only the *keys*
are used. The keys become records on the target (`pidts.batch.copy.rereads`). Each table of these records is copied
again, but only the rows with these keys (`Phase.REREAD`). The copy writes the row that the source has now. If the
source has no row with the key, the copy removes the target's row.

Two simpler ways do not work:

- Writing the last image of each key in the log, before the task continues. PiDTS would need the structures at each
  place of the log, and all of a row's columns in the log.
- Writing the source's present rows at once, as a repair does. If the task has not applied all of the log yet, the next
  batches would write older values over these rows.

A copy does not have these limits. The batch that writes the rows also contains all log up to the reading of the rows.
So no reader of the target sees an older value after a newer one:

    the target has 4, the source has 7, the log has 5, 6, 7        read: 7        one batch writes 7, not 5 or 6

Some tables are copied again as a whole, since the log does not give the keys of all rows that may be wrong: tables
without a key, tables with a schema change in the range, and tables that the target does not have.

The crash points:

1. While the log is read, and while records are written: the checkpoint does not name a copy yet. So the request is
   lost, and the command has to be repeated. Records without a copy do no harm: the next copy that reads the table's
   recorded keys also reads these keys, which is correct at any time. (If an error ends only the attempt and not the
   run, the next attempt still has the request, and reads the log again.)
2. After the COMMIT that saves the copies' states in the checkpoints: every later run continues the copies, as it
   continues any copy. The request itself is forgotten at this moment, so no attempt repeats it.
3. A run that was replaced wakes up after the new run has written records. The old run may neither write nor remove
   records: it first checks the epoch, in the same transaction.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial

import pyarrow as pa
import structlog

from pidts.apply import TargetSession
from pidts.apply.checkpoint import demand_epoch
from pidts.apply.uncopied_keys import packed
from pidts.batch.side_effects import SideEffects
from pidts.batch.transaction_classifier import TransactionClassifier
from pidts.binlog import Format
from pidts.excerpt.blocks import server_blocks
from pidts.excerpt.cut import DecodeRange, LogCutter, LogSelection, PlacedTransaction, pieces
from pidts.excerpt.range import LogRange, RangeFilter
from pidts.excerpt.rows import decoded
from pidts.excerpt.start_file import begin_of
from pidts.excerpt.store import ServerStore
from pidts.model import (
    ChangeBatch,
    Checkpoint,
    ConfigError,
    DecodeError,
    Halted,
    Lsn,
    Table,
    TableName,
    Transient,
)
from pidts.model.errors import listed, plural
from pidts.plan import Phase, PlanState, RelevanceKind
from pidts.plan.copy.state import MOST_REREADS
from pidts.reduce import with_whole_keys
from pidts.relay import RelayReader
from pidts.relay.folder import Folder
from pidts.relay.refetch import note_repeated
from pidts.source import Session, server_info, source_dialect
from pidts.task.config.task_file import TaskConfig
from pidts.task.run.read_structures import StartStopped, wait_for_relay
from pidts.task.run.replicator_process import ReplicatorProcess
from pidts.task.tables.pending_keys import PendingKeys
from pidts.task.tables.rewind_request import RewindPoint, purged, shown

_log = structlog.get_logger(__name__)

_PART_BYTES = 8 << 20
_MOST_BYTES = 1 << 30
"""The most bytes of one transaction that are read into memory."""
_PENDING_KEYS = 100_000
"""If this number of keys of one table is collected, they are written as records. Equal keys are written once."""
_PENDING_IN_ALL = 1_000_000
"""If this number of keys of all tables together is collected, all of them are written as records."""
_RECORDS_A_COMMIT = 100


@dataclass(slots=True)
class SentAgain:
    """The result of `Rewind.record`."""

    begin: Lsn | None = None
    """The place in the log where the range begins; None if the range has no transactions of the task."""
    keys: Counter[TableName] = field(default_factory=Counter)
    """The number of recorded keys of each table."""
    whole: dict[TableName, str] = field(default_factory=dict)
    """The tables that have to be copied again as a whole, each with the reason."""
    left: dict[TableName, str] = field(default_factory=dict)
    """The tables with changes in the range that are not sent again, each with the reason."""

    def forget_keys_of_whole_tables(self) -> None:
        """Removes the counts of tables that are copied again as a whole."""
        for name in self.whole:
            del self.keys[name]


class Rewind:
    """Reads the keys of a part of the log, and records them."""

    def __init__(
        self,
        config: TaskConfig,
        source: Session,
        target: TargetSession,
        replicator: ReplicatorProcess,
        stop: threading.Event,
        claimed: Checkpoint,
        *,
        most_bytes: int = _MOST_BYTES,
    ) -> None:
        """If a transaction has more than `most_bytes` of log, its tables are copied again as a whole."""
        self._config, self._source, self._target, self._stop = config, source, target, stop
        self._replicator, self._claimed = replicator, claimed
        self._dialect = source_dialect(source)
        # The replicator uses the server id of the task file, and two readers of a log may not have the same id.
        self._server = replace(config.source.server, server_id=None)
        self._records, self._most_bytes = 0, most_bytes

    def record(
        self, point: RewindPoint, reached: Lsn, state: PlanState, tables: Mapping[TableName, Table]
    ) -> SentAgain:
        """Records the keys of changes of `tables` after `point`, up to `reached`, the Lsn of the furthest worker."""
        self._demand_same_server(reached)
        found = SentAgain()
        _log.info("a past range of the log is read again", source=self._config.source.source_id, after=shown(point))
        try:
            parts = self._parts(point, reached, tables, found)
            left = self._left(state, tables)
            pending = PendingKeys(_PENDING_KEYS, _PENDING_IN_ALL)
            for name, keys in self._keys(parts, tables, found):
                if name in left:
                    found.left[name] = left[name]
                    continue
                for full, some in pending.add(name, keys):
                    self._save(full, some, found)
            for name, some in pending.rest():
                self._save(name, some, found)
        except Halted as error:
            if error.code == "xa-not-received":
                what = "the log before the range is needed: an XA transaction was prepared there, and committed later"
                todo = f"Begin earlier, or copy the tables again: {self._config.run_command(' --resync')}"
                where = self._config.source.server.where
                raise ConfigError("rewind-place", what, where=where, todo=todo) from None
            if error.code != "position-lost":
                raise
            raise purged(self._config, error.what) from None
        for name in found.whole.keys() & left.keys():
            found.left[name] = left[name]
            del found.whole[name]
        return found

    def _demand_same_server(self, reached: Lsn) -> None:
        """Raises unless the checkpoint is a position in the log of the server that answers."""
        config = self._config
        with closing(RelayReader(config.relay, config.source.source_id)) as relay:
            wait_for_relay(config, self._replicator, reached, self._stop, relay)
            origin = relay.origin
        if origin is None or origin.server != server_info(self._source).identity:
            what = "the relay does not have the log of the server that answers yet"
            raise Transient("source-moved", what, where=config.source.server.where)
        if origin.change_no != reached.change_no:
            what = "another server has become the source since the checkpoint"
            synced = config.run_command(" --until-synced")
            todo = f"First run the task until it is synced: {synced}. Then repeat this command"
            raise ConfigError("rewind-place", what, where=config.source.server.where, todo=todo)

    def _parts(
        self, point: RewindPoint, reached: Lsn, tables: Mapping[TableName, Table], found: SentAgain
    ) -> list[DecodeRange]:
        """Returns the parts of the log to decode, and adds the tables with schema changes to `found.whole`.

        Rows are decoded with the present structures. So all tables whose structure has changed must be known first.
        """
        side_effects = SideEffects(self._config.allow, self._dialect, lambda: nullcontext(self._source))
        classifier = TransactionClassifier(
            self._config.allow, self._dialect, self._config.rules.events, side_effects=side_effects
        )
        start = replace(point, change_no=0) if isinstance(point, Lsn) else point
        cutter = LogCutter(LogSelection(self._config.allow, self._dialect, statements=False), _PART_BYTES)
        cut = RangeFilter(LogRange(start, replace(reached, change_no=0)))
        parts: list[DecodeRange] = []
        blocks = server_blocks(self._server, begin_of(self._server, start, complete=True))
        for piece, _ in pieces(blocks):
            self._demand_run()
            if cut.takes(piece.transaction):
                if found.begin is None:
                    found.begin = replace(piece.transaction.begin, change_no=reached.change_no)
                self._find_changed(piece, classifier, tables, found)
                parts += cutter.take(piece)
            if cut.ended:
                break
        return [*parts, *cutter.close()]

    def _find_changed(
        self,
        piece: PlacedTransaction,
        classifier: TransactionClassifier,
        tables: Mapping[TableName, Table],
        found: SentAgain,
    ) -> None:
        transaction, store = piece.transaction, ServerStore(self._server)
        relevance = classifier.of_schema_change(transaction, partial(store.statements, piece.span))
        if relevance.kind is RelevanceKind.DDL:
            for name in tables:
                if relevance.touches({name}):
                    found.whole.setdefault(
                        name, f"the range contains a schema change of the table: {(transaction.ddl or '')[:100]}"
                    )

    def _keys(
        self, parts: Sequence[DecodeRange], tables: Mapping[TableName, Table], found: SentAgain
    ) -> Iterator[tuple[TableName, pa.Table]]:
        store = ServerStore(self._server)
        wanted = {name: table for name, table in tables.items() if name not in found.whole}

        def copy_whole(name: TableName, why: str) -> None:
            if wanted.pop(name, None) is not None:
                found.whole[name] = why

        for part in parts:
            self._demand_run()
            if part.span.size > self._most_bytes:
                for name in part.tables:
                    copy_whole(name, "a transaction of the range is too large to be read again")
            if part.tables and wanted.keys().isdisjoint(part.tables):
                continue
            log_format, raw = store.read(part.span)
            for batch in self._decoded(part, log_format, raw, wanted, copy_whole):
                if not batch.table.identity:
                    copy_whole(batch.table.name, "it has no key")
                elif batch.table.name in wanted and len(batch):
                    yield batch.table.name, changed_keys(batch)

    @staticmethod
    def _decoded(
        part: DecodeRange,
        log_format: Format,
        raw: bytes,
        wanted: Mapping[TableName, Table],
        copy_whole: Callable[[TableName, str], None],
    ) -> list[ChangeBatch]:
        """Decodes a part. A table whose rows do not fit its present structure is copied again as a whole."""
        while True:
            try:
                return decoded(part, log_format, raw, wanted)
            except DecodeError as error:
                misfit = [name for name in wanted if str(name) == error.where.table]
                if not misfit:
                    raise
                copy_whole(misfit[0], f"its rows in the range cannot be read: {error.what}")

    def _left(self, state: PlanState, tables: Collection[TableName]) -> dict[TableName, str]:
        """Returns the tables that are not sent again, each with the reason."""
        config, rules = self._config, self._config.rules
        locked = self._target.meta.row_locks.recorded(config.name, config.source.source_id)
        left: dict[TableName, str] = {}
        for name in tables:
            copy = state.copy.get(name)
            if name in state.exceptions:
                left[name] = "it is halted or waits (pidts ddl list TASK)"
            elif rules.target_name(name) in locked:
                left[name] = "it has locked rows: resolve them first (pidts locks list TASK)"
            elif rules.keeps_away(name):
                left[name] = "a filter leaves out inserts or updates of the table"
            elif copy is not None and not copy.done and copy.phase in (Phase.ROWS, Phase.EXTRAS):
                left[name] = "it is being copied"
        return left

    def _save(self, name: TableName, some: Sequence[pa.Table], found: SentAgain) -> None:
        """Writes records of the keys. Each transaction first checks that this run still has the task.

        The records get places before all places of the log, so the copy begins with these records. Each place contains
        the epoch, so a record never overwrites a record of an earlier request.
        """
        config, target, epoch = self._config, self._target, self._claimed.epoch
        keys = _distinct(pa.concat_tables(some))
        texts = [packed(keys.slice(begin, MOST_REREADS)) for begin in range(0, len(keys), MOST_REREADS)]
        for begin in range(0, len(texts), _RECORDS_A_COMMIT):
            self._demand_run()
            target.begin()
            try:
                held = target.meta.checkpoints.lock_places(config.name, config.source.source_id)
                demand_epoch(held, config.name, config.source.source_id, epoch)
                for text in texts[begin : begin + _RECORDS_A_COMMIT]:
                    self._records += 1
                    place = Lsn(0, 0, epoch, self._records)
                    target.meta.rereads.add(config.name, config.source.source_id, name, place, text)
                target.commit()
            except BaseException:
                target.rollback()
                raise
        found.keys[name] += len(keys)

    def _demand_run(self) -> None:
        if self._stop.is_set():
            raise StartStopped


def notes_of(point: RewindPoint, reached: Lsn, found: SentAgain) -> list[str]:
    """Returns the notes of a run about the range that it sends again."""
    since = f"{shown(point)} (Lsn {found.begin})" if isinstance(point, datetime) and found.begin else shown(point)
    if not (found.keys or found.whole or found.left):
        return [f"the log after {since} has no change of the task's tables: nothing is sent again"]
    notes = []
    if found.keys:
        count, tables = plural("row", found.keys.total()), listed(sorted(found.keys))
        notes.append(f"the changes after {since}, up to Lsn {reached}, are sent again: {count} of {tables}")
    notes += [f"{name} is copied again as a whole: {why}" for name, why in sorted(found.whole.items())]
    notes += [f"{name} is not sent again: {why}" for name, why in sorted(found.left.items())]
    return notes


def note_sent_again(config: TaskConfig, reached: Lsn, found: SentAgain) -> None:
    """Notes in the relay that its events of the range are sent again (`is_retry`), and writes a log line."""
    if found.begin is None or not (found.keys or found.whole):
        return
    source = config.source.source_id
    note_repeated(Folder.of(config.relay, source), found.begin, reached)
    _log.info(
        "a past range of the log is sent again",
        source=source,
        after=str(found.begin),
        to=str(reached),
        rows=found.keys.total(),
        tables=len(found.keys),
        whole_tables=len(found.whole),
        left_tables=len(found.left),
        is_retry=True,
    )


def changed_keys(batch: ChangeBatch) -> pa.Table:
    """Returns the keys of all changed rows, before and after the changes; each key once."""
    rows, names = with_whole_keys(batch).rows, batch.table.identity
    sides = []
    for side in ("before", "after"):
        images = rows.column(side)
        columns = images.filter(images.is_valid()).flatten()
        places = [batch.table.arrow.get_field_index(name) for name in names]
        schema = pa.schema([batch.table.arrow.field(place) for place in places])
        sides.append(pa.Table.from_arrays([columns[place] for place in places], schema=schema))
    return _distinct(pa.concat_tables(sides))


def _distinct(keys: pa.Table) -> pa.Table:
    return keys.group_by(keys.column_names).aggregate([]).select(keys.column_names).cast(keys.schema)
