"""Compares the rows that a batch changes with the target's rows. Handles rows that differ as the task file demands.

Some targets can compare rows while they write them (`TargetSession.can_expect`). Then no row is read: each change is
sent with the row that the target must have. Other targets can refuse a new row if they have a row with its key
(`TargetSession.refuses_known_keys`). Then the rows of new keys are not read. If the target refuses a change, the
transaction is rolled back and repeated with all rows read. So only a comparison of rows that were read decides which
rows differ and which rows are locked.

Another program may insert a row after the rows were read. A target that refuses known keys does not overwrite this row
either (`ComparisonSettings.inserts`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

import numpy as np
import pyarrow as pa
import structlog

from pidts.apply.locks.already_applied import events_after_made, made_already, note_made
from pidts.apply.locks.divergence import Divergence, compared, is_comparable, is_newer, joined, stored_by
from pidts.apply.locks.early_removals import early_removals, lock_out_other_tasks, note_removals, removed_before
from pidts.apply.locks.foreign_writes import foreign_events
from pidts.apply.locks.held_changes import FindTransactions
from pidts.apply.locks.key_events import KeyEvents
from pidts.apply.locks.key_rows import KeyRows, read_key_rows, read_known_key_rows
from pidts.apply.locks.partial_changes import partial_events, with_partial
from pidts.apply.locks.presence import KnownColumns, Presence, known_columns
from pidts.apply.locks.set_aside import SetAside
from pidts.apply.locks.unique_conflicts import rival_events
from pidts.apply.merge.recorded_tables import has_others
from pidts.apply.port import TargetSession
from pidts.apply.rows.shown_values import shown_row
from pidts.apply.rows.target_rows import has_text
from pidts.model import ChangeBatch, Halted, Lsn, OnDivergence, Op, TableName, Where
from pidts.reduce.key_numbers import Numbers
from pidts.rules import Owners

_log = structlog.get_logger(__name__)

_NONE: Numbers = np.zeros(0, np.int64)
_TODO = (
    "Give the target's row the values that the source's row had before the change. Or, to let the source's values win, "
    "set pidts.on-divergence: overwrite"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonSettings:
    """The choice of the rows that are compared, and the policy for rows that differ."""

    task: str
    source: str
    policy: OnDivergence
    seen_until: Lsn | None
    """The place in the log up to which the target may already have the changes; None if it has none of them."""
    honours: bool
    """Whether the target may have locked rows, even if this run locks no more rows."""
    limit: int
    """How many rows of one table may be locked."""
    find_transactions: FindTransactions
    """Returns the GTID and the time of each held change's transaction."""
    compares: Callable[[ChangeBatch], bool]
    """Whether the rows of a batch are compared with the target's rows."""
    may_share: Callable[[ChangeBatch], bool]
    """Whether other tables may have rows in a batch's target table."""
    owners: Owners
    """The zones that own rows; empty: every zone may write every row."""
    writer: str
    """The zone in which the changes were made."""
    seeks_rivals: bool
    """Whether to look for other rows of the target that have unique values which the batch writes. True after the
    target has refused a row.
    """

    expects: bool
    """Whether the target itself may compare rows of tables without locked rows while it writes them."""

    inserts: bool
    """Whether the target may be asked to refuse a new row if its key exists. Another program may have inserted the key
    after the task has read the rows.
    """

    seeks_removals: bool
    """Whether other tasks, too, insert and delete rows of the target's tables. Such a task may insert a row after this
    task has deleted it, or may have deleted a row before this task inserts it. So deletes that find no row are
    recorded, and these records are read.
    """

    def foreign(self, events: KeyEvents, known: KnownColumns | None) -> Mapping[int, str]:
        """Returns the writes of the zone `writer` to rows that another zone owns, each with the reason."""
        return foreign_events(events, self.owners, self.writer, known) if self.owners else {}


@dataclass(frozen=True, slots=True)
class WritableChanges:
    """The changes that are written; changes that are set aside are not among them."""

    batches: list[ChangeBatch]
    there: dict[TableName, pa.Table]
    """The target's rows that were compared. The open transaction keeps others from changing them."""
    expecting: set[TableName]
    """Tables whose rows the target compares while it writes: each change is sent with the expected row."""
    inserting: set[TableName]
    """Tables for which the target refuses a new row if a row with its key exists. The rows of the inserted keys were
    not read, or the target had none. Rows of keys that the batch both inserts and deletes were always read.
    """
    differing_rows: dict[TableName, pa.Table]
    """Rows of `there` that the batch changes although they differ from the source's rows."""


def checked(
    session: TargetSession, batches: Sequence[ChangeBatch], presence: Sequence[Presence], settings: ComparisonSettings
) -> WritableChanges:
    """Compares the changes with the target's rows; returns those that are written. May halt at a difference."""
    tables: dict[TableName, list[ChangeBatch]] = {}
    for batch in batches:
        if len(batch):
            tables.setdefault(batch.table.name, []).append(batch)
    locks = settings.policy is OnDivergence.LOCK or settings.honours
    aside = (
        SetAside(session, settings.task, settings.source, tables, settings.limit, settings.find_transactions)
        if locks and tables
        else None
    )
    writable = WritableChanges([], {}, set(), set(), {})
    check = _Check(session, presence, settings, aside)
    for parts in tables.values():
        check.add_writable(parts, writable)
    return writable


class _Unread(Enum):
    """The keys whose rows are not read. If the target has another row of such a key, it refuses the change."""

    NONE = "none"
    NEW = "new"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class _Comparison:
    divergence: Divergence | None = None
    """The rows that differ, whose keys are set aside; None if there are none."""
    made: Numbers = field(default_factory=lambda: _NONE)
    """Between zones, the events whose result the target already had; without events of keys that are set aside."""
    applied: Numbers = field(default_factory=lambda: _NONE)
    """The indexes of the target's rows that already equal the row after the first change of their key."""


@dataclass(frozen=True, slots=True)
class _Check:
    """The comparison of a batch's changes with the target's rows."""

    session: TargetSession
    presence: Sequence[Presence]
    settings: ComparisonSettings
    aside: SetAside | None
    """The changes that are set aside; None if no row is locked."""

    def add_writable(self, parts: Sequence[ChangeBatch], writable: WritableChanges) -> None:
        """Compares one table's changes with the target's rows, and adds those that may be written to `writable`."""
        settings, aside = self.settings, self.aside
        alike = all(part.table.arrow == parts[0].table.arrow for part in parts)
        if not alike or not all(map(is_comparable, parts)):
            _demand_own(parts, settings)
            writable.batches.extend(parts)
            return
        batch = joined(parts)
        name = batch.table.name
        judges = settings.compares(batch) or bool(settings.owners)
        honours = aside is not None and aside.has_locks(name)
        if not judges and not honours:
            writable.batches.append(batch)
            return
        known = self._known(batch)
        unread = self._unread(batch) if known is None and not honours else _Unread.NONE
        if unread is not _Unread.NONE:
            writable.batches.append(batch)
            (writable.expecting if unread is _Unread.ALL else writable.inserting).add(name)
            return
        key_rows = read_key_rows(self.session, batch)
        judged = self._judged(key_rows) if judges else _Comparison()
        if settings.seeks_removals and settings.compares(batch):
            key_rows, judged = self._with_records(key_rows, judged, known)
        if aside is not None and (judged.divergence is not None or honours) and has_text(batch.table):
            key_rows, judged = self._with_equal_keys(aside, key_rows, judged, judges=judges)
        found, changed = judged.divergence, judged.applied
        if settings.policy is not OnDivergence.LOCK:
            self._report_unlocked(found, batch, known)
            changed = np.union1d(changed, key_rows.at[found.keys]) if found is not None else changed
            found = None
        writable.batches.append(batch if aside is None else aside.free_changes(key_rows, found, known))
        if self._may_insert(key_rows, found):
            writable.inserting.add(name)
        writable.there[name] = key_rows.rows
        if len(changed := changed[changed >= 0]):
            writable.differing_rows[name] = key_rows.rows.take(pa.array(changed))

    def _unread(self, batch: ChangeBatch) -> _Unread:
        """Returns the keys whose rows are not read.

        NEW means: only the rows of new keys are not read. The result is NEW only if all rows that the batch changes or
        deletes equal the source's rows; these rows are read here.
        """
        if not self._may_expect(batch):
            return _Unread.NONE
        if self.session.can_expect(batch.table):
            return _Unread.ALL
        if not self.session.refuses_known_keys(batch.table):
            return _Unread.NONE
        if (batch.rows.column("op").to_numpy() == Op.INSERT).all():
            return _Unread.NEW
        judged = self._judged(read_known_key_rows(self.session, batch))
        return _Unread.NEW if judged.divergence is None and not len(judged.applied) else _Unread.NONE

    def _may_expect(self, batch: ChangeBatch) -> bool:
        """Whether the target itself may compare these changes with its rows, while it writes them.

        False if owners, deletes of other tasks or unique values also decide, or if the target may already have the
        changes.
        """
        settings = self.settings
        if not settings.expects or not settings.compares(batch) or settings.may_share(batch):
            return False
        if settings.owners or settings.seeks_rivals or settings.seeks_removals:
            return False
        return bool(is_newer(batch, np.arange(len(batch)), settings.seen_until).all())

    def _may_insert(self, key_rows: KeyRows, found: Divergence | None) -> bool:
        """Whether the target may be asked to refuse new rows of the batch if it already has rows with their keys.

        False if the target is known to have one of these rows: it would refuse the batch each time. A key that is set
        aside (`found`) may have a row, since its changes are not written. But if the row differs only at a later event
        of the key, the events before that one are written.
        """
        batch, settings, aside = key_rows.events.batch, self.settings, self.aside
        if not settings.inserts or not settings.compares(batch) or settings.may_share(batch):
            return False
        if not self.session.refuses_known_keys(batch.table):
            return False
        has_row = key_rows.events.comes & (key_rows.at >= 0)
        if found is not None:
            has_row[found.keys] &= found.begins > key_rows.events.first[found.keys]
        events = key_rows.events.first[has_row]
        return not len(events if aside is None else aside.free_events(key_rows, events))

    def _with_records(
        self, key_rows: KeyRows, judged: _Comparison, known: KnownColumns | None
    ) -> tuple[KeyRows, _Comparison]:
        """Records deletes that found no row, and changes that were already made, for other tasks between zones.

        Returns the rows and the result of the comparison. Other tasks may write until they are locked out. So after
        that, the rows are read and compared again.
        """
        if not (len(judged.made) or len(early_removals(key_rows, known))):
            return key_rows, judged
        session, find_transactions = self.session, self.settings.find_transactions
        task, source = self.settings.task, self.settings.source
        if has_others := lock_out_other_tasks(session, task, source):
            key_rows = read_key_rows(session, key_rows.events.batch)
            judged = self._judged(key_rows)
            if len(removals := early_removals(key_rows, known)):
                note_removals(session, task, source, key_rows, removals, find_transactions)
        if len(judged.made):
            note_made(session, task, source, key_rows, judged.made, known, find_transactions, has_others=has_others)
        return key_rows, judged

    def _with_equal_keys(
        self, aside: SetAside, key_rows: KeyRows, judged: _Comparison, *, judges: bool
    ) -> tuple[KeyRows, _Comparison]:
        """Joins keys that the target treats as equal to each other or to keys of locks, and compares the rows again.

        Returns the rows and the result. After keys were joined, further keys may have to be locked, and further keys
        may be equal to these. So this repeats until no key is joined any more. `judges`: whether rows are compared.
        """
        while True:
            more = aside.with_locked_keys(
                key_rows, judged.divergence if self.settings.policy is OnDivergence.LOCK else None
            )
            if more.events.keys.equals(key_rows.events.keys):
                return key_rows, judged
            key_rows, judged = more, self._judged(more) if judges else _Comparison()

    def _report_unlocked(self, found: Divergence | None, batch: ChangeBatch, known: KnownColumns | None) -> None:
        if found is not None and self.aside is not None:
            found = self.aside.without_locked(found)
        if found is not None:
            _report(found, batch, known, self.settings)

    def _judged(self, key_rows: KeyRows) -> _Comparison:
        session, settings, aside = self.session, self.settings, self.aside
        batch = key_rows.events.batch
        known = self._known(batch)
        compares = settings.compares(batch)
        foreign = settings.foreign(key_rows.events, known)
        if settings.seeks_rivals:
            foreign = {**rival_events(session, key_rows), **foreign}
        seeks = settings.seeks_removals and compares and aside is not None
        following: Mapping[int, str] = {}
        if seeks and aside is not None and aside.knows_removals:
            following = events_after_made(session, settings.task, key_rows, known, settings.find_transactions)
            foreign = {
                **removed_before(session, settings.task, settings.source, key_rows, settings.find_transactions),
                **foreign,
            }

        partial = partial_events(key_rows.events, known) if seeks and known is not None else {}

        def found(until: Lsn | None, *, compares: bool) -> _Comparison:
            if not compares and not foreign:
                return _Comparison()
            there = compared(session, key_rows, self.presence, until, compares=compares)
            applied = key_rows.at[there.made & (key_rows.at >= 0)]
            if not seeks or aside is None or not compares:
                return _Comparison(there.divergence(foreign), applied=applied)
            own = made_already(there, until, known, stored_by(session, batch.table), settings.task)
            asked = {**following, **partial}
            late = (
                dict(zip(asked, is_newer(batch, key_rows.events.change[list(asked)], until), strict=True))
                if asked
                else {}
            )
            reasons = {**own.set_aside, **{event: why for event, why in asked.items() if late[event]}, **foreign}
            made = aside.free_events(key_rows, np.setdiff1d(own.events, list(partial)))
            return _Comparison(there.divergence(reasons), made, applied)

        first = found(settings.seen_until, compares=compares)
        if first.divergence is None and not len(first.made):
            return first
        if settings.may_share(batch) and has_others(session, batch.table.name, settings.task, settings.source):
            return found(settings.seen_until, compares=False)
        repaired = session.meta.safe_range.read(settings.task, settings.source)
        if repaired is None or (settings.seen_until is not None and repaired <= settings.seen_until):
            return first
        return found(repaired, compares=compares)

    def _known(self, batch: ChangeBatch) -> KnownColumns | None:
        """Returns which columns of each change the log has; None if it has all columns of all changes."""
        known = known_columns(batch, self.presence)
        if known is None or not (self.settings.seeks_removals and self.settings.compares(batch)):
            return known
        return with_partial(batch, known)


def _demand_own(parts: Sequence[ChangeBatch], settings: ComparisonSettings) -> None:
    """Halts a table whose rows cannot be set aside, unless the zone that writes to it is the table's only owner."""
    table = parts[0].table
    if settings.owners and settings.owners.sole(table.name) != settings.writer:
        lsn = Lsn.from_bytes(parts[0].rows.column("lsn")[0].as_py())
        raise Halted(
            "foreign-write",
            f"zone {settings.writer} has written to this table, and is not its only owner. The table has no key, so "
            "these changes cannot be set aside",
            where=Where(table=str(table.name), position=str(lsn)),
            todo="Look at the rows that this zone has written. Give the table a primary key in all zones, or one owner "
            "(pidts.owners) and let only programs of that zone write to it",
        )


def _report(found: Divergence, batch: ChangeBatch, known: KnownColumns | None, settings: ComparisonSettings) -> None:
    table, key = str(batch.table.name), shown_row(found.events.keys.take(pa.array(found.keys[:1])))
    if settings.policy is OnDivergence.HALT:
        rows = f"{len(found.keys)} rows differ from the source: " if len(found.keys) > 1 else ""
        where = Where(table=table, key=key, position=str(found.lsn(0)))
        values = found.values(0, known)
        raise Halted("row-diverged", f"{rows}{found.why(0)}", where=where, todo=_TODO, values=values)
    _log.warning(
        "rows of the target differ from the source and are overwritten",
        table=table,
        rows=len(found.keys),
        key=key,
        why=found.why(0),
        lsn=str(found.lsn(0)),
    )
