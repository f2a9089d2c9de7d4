"""Turns a batch's changes into net changes to write: completes images, compares versions, reduces, applies safe mode.

The changes are prepared inside the open transaction, after the worker's checkpoint is locked. Rows that the target has
at this time do not change before the batch is written. If another writer inserts a row meanwhile, the batch overwrites
it. The target's rows are read only in four cases: images are partial; there is a version column; a filter may have left
out a row; rows are compared.

While the full copy of a table is not complete, rows of the target may be ahead of the log (`pidts.plan.copy.state`).
Then every row that the log changes is removed before it is written. If rows are still ahead after the batch, rows with
a unique value of a written row are removed, too. In a table under repair, it is not known which rows the target has.
Rows that collide are removed, and no version on the target counts as newer than the copied version.

A filter may have left out an earlier change. Then, too, the target's row may differ from the row that the source had
before a change:

    u is unique    UPDATE 2: u 1 -> 2, left out    UPDATE 2: v = 9    INSERT (1, u=1): row 2 must be removed before

Crash points: in the transaction of the rows, this module also writes tombstones, locks, keys that may have moved, and
keys to read again. A crash before the COMMIT leaves none of these and no rows, and the next attempt reads again. A
crash after the COMMIT leaves all of them.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import structlog

from pidts.apply.apply_rules import ApplyRules
from pidts.apply.locks.check import ComparisonSettings, WritableChanges, checked
from pidts.apply.locks.presence import Presence
from pidts.apply.locks.zone_notes import record_left_out
from pidts.apply.merge.align import aligned, own_columns
from pidts.apply.merge.extra_columns import has_more_columns, wider_tables
from pidts.apply.merge.interleave import by_table, one_log
from pidts.apply.merge.moved_rows import LaggingTables, without_moved
from pidts.apply.merge.recorded_tables import identifies_own_rows, removes_extra_rows
from pidts.apply.port import TargetSession
from pidts.apply.rows.convergence import Convergence
from pidts.apply.rows.filtered_updates import without_kept_away
from pidts.apply.rows.partial_images import KEEP_KEYS, ImageCompletion
from pidts.apply.rows.target_rows import narrowed, target_rows
from pidts.apply.rows.version_guard import GuardedBatch, VersionGuard
from pidts.apply.uncopied_keys import ahead, foreign, records, unread
from pidts.model import (
    ChangeBatch,
    Halted,
    LoggedChanges,
    Lsn,
    OnDivergence,
    Op,
    Table,
    TableName,
    Transient,
    Where,
    image_column,
)
from pidts.model.zone_notes import notes_and_rows
from pidts.plan import CopyMode, CopyState
from pidts.reduce import Counts, NetChange, net_changes
from pidts.reduce.column_presence import column_presence
from pidts.reduce.identity import FEW, identities
from pidts.reduce.key_numbers import Mask, Numbers, chunkless, key_numbers, merged, to_mask
from pidts.shards.structures import names_of

_LOGGED = pa.array([int(Op.INSERT), int(Op.UPDATE), int(Op.DELETE)], pa.int8())
"""The operations in the log; all other operations come from a copy or a repair."""

_log = structlog.get_logger(__name__)


def prepared(
    session: TargetSession,
    batches: Sequence[ChangeBatch],
    rules: ApplyRules,
    copying: Mapping[TableName, CopyState] | None = None,
    lagging: LaggingTables | None = None,
    copied: Collection[TableName] = (),
    from_zone: str = "",
) -> list[NetChange]:
    """Returns the net changes to write to the target for these changes, which are in log order.

    `copying` has the source's tables whose full copy is not done, `copied` those whose copy ends with this batch.
    `lagging` has the target's tables with a member at an earlier place of the log (`pidts.apply.merge.moved_rows`).
    `from_zone` is the other zone that the changes come from.
    """
    unfinished = copying or {}
    session.schema.read_ahead(batch.table for batch in batches if len(batch))
    if lagging is None and not unfinished and not copied and _are_plain(batches, rules):
        watched = {batch.table.name: session.schema.collision_columns(batch.table) for batch in batches if len(batch)}
        return net_changes(batches, watched)
    notes, batches = notes_and_rows(batches)
    record_left_out(session, rules.task, rules.source, notes)
    source_columns = own_columns(batches)
    batches = aligned(batches)
    copies = _target_tables(unfinished, batches)
    absent, batches = _split_absent(batches)
    if lagging is not None:
        lagging = replace(lagging, replaces_spelling=bool(copies) or _is_safe(batches, rules))
        batches = without_moved(session, batches, lagging, rules.merged)
    if rules.task and absent:
        # Since the repair began, other tables may have got the same target table. The repaired table's source does
        # not have their rows.
        absent = [one for one in absent if _is_alone(session, one, rules, unfinished)]
    watched = {
        batch.table.name: session.schema.collision_columns(batch.table) for batch in [*absent, *batches] if len(batch)
    }
    images = _full_images(session, batches, absent, rules, watched, unfinished, copied)
    safe = _is_safe(batches, rules)
    is_plain = not safe and not absent
    comparing_rules = rules if is_plain else replace(rules, expects=False, inserts=False)
    unlocked = _without_locked(session, images, comparing_rules, unfinished, copied, from_zone)
    whole = [*absent, *unlocked.batches]
    filtered = {batch.table.name for batch in batches if rules.filters.drops(batch.origin)}
    coming = [batch for batch in whole if rules.may_share(batch)]
    wider = wider_tables(session, coming, rules.task, rules.merged, source_columns)
    reduced = net_changes(
        whole,
        watched,
        {*copies, *filtered},
        rules.merged,
        wider,
        source_columns,
        unlocked.expecting,
        unlocked.inserting,
    )
    origins = _sole_origins(whole, rules.merged)
    changes = _finished(
        session, rules, reduced, images.verdicts, unlocked.differing_rows, watched, copies, origins, safe=safe
    )
    changes = _with_rows_there(changes, unlocked.there)
    return _with_log(changes, images.logged, rules) if rules.keeps_changes else changes


def _sole_origins(batches: Sequence[ChangeBatch], merged: Collection[TableName]) -> dict[TableName, TableName]:
    """Returns the source table of each merged target table that gets the changes of only one source table."""
    origins: dict[TableName, set[TableName]] = {}
    for batch in batches:
        if len(batch) and batch.table.name in merged:
            origins.setdefault(batch.table.name, set()).add(batch.origin)
    return {name: next(iter(found)) for name, found in origins.items() if len(found) == 1}


def _finished(
    session: TargetSession,
    rules: ApplyRules,
    reduced: Sequence[NetChange],
    verdicts: Mapping[TableName, list[GuardedBatch]],
    unlocked_rows: Mapping[TableName, pa.Table],
    watched: Mapping[TableName, Collection[str]],
    copies: Mapping[TableName, CopyState],
    origins: Mapping[TableName, TableName],
    *,
    safe: bool,
) -> list[NetChange]:
    """Adds to the net changes what depends on the rows of the target.

    - Safe mode.
    - The counts and rows of the version guard's verdicts. If all changes of a table were ignored, a change without rows
      has their count.
    - Deletes of rows that may differ from the rows which the reduction assumes. `unlocked_rows` has the target's rows
      that differ and are changed nevertheless.
    """
    changes: list[NetChange] = []
    left = dict(verdicts)
    for change in reduced:
        name = change.table.name
        guarded = left.pop(name, [])
        differing_rows = [verdict.present for verdict in guarded if verdict.irregular and verdict.present is not None]
        differing_rows += [unlocked_rows[name]] if name in unlocked_rows else []
        changes_of_table = [one for one in reduced if one.table.name == name] if differing_rows else []
        written = _with_deletes_of_other_versions(change, changes_of_table, watched[name], differing_rows)
        if rules.converges:
            written = _with_defaults(session, written, guarded)
        gives_way = safe or (name in copies and copies[name].ahead) or _is_repaired(copies, name)
        origin = origins.get(name)
        if gives_way or guarded or origin is not None:
            counts = _with_stale(change.counts, guarded)
            changes += _changes_for_the_log(change.table, guarded)
            written = replace(written, safe=change.safe or gives_way, counts=counts, origin=origin)
        changes.append(written)
    for guarded in left.values():
        changes += _changes_for_the_log(guarded[0].batch.table, guarded)
    changes += (_empty_change(guarded) for guarded in left.values() if any(verdict.stale for verdict in guarded))
    return changes


def _are_plain(batches: Sequence[ChangeBatch], rules: ApplyRules) -> bool:
    """Whether these changes have only to be reduced, as most small batches.

    For small batches, the other steps of `prepared` take as long as the reduction. Large batches take all steps.
    """
    structures: dict[TableName, Table] = {}
    for batch in batches:
        if len(batch) > FEW or batch.is_partial or not rules.is_plain(batch):
            return False
        if structures.setdefault(batch.table.name, batch.table) is not batch.table:
            return False
        if Op.ABSENT in batch.rows.column("op").to_pylist():
            return False
    return True


@dataclass(frozen=True, slots=True)
class _FullImages:
    """The changes of a batch with full images, without those that are not applied."""

    batches: list[ChangeBatch]
    verdicts: dict[TableName, list[GuardedBatch]]
    presence: list[Presence]
    """For changes that are compared with the target, the columns that the log has."""
    waiting: list[tuple[ChangeBatch, ImageCompletion]]
    """Partial changes of tables with locked rows, with the completion of their images. The images are completed after
    the comparison with the target: a change that is set aside needs no row of the target.
    """
    logged: list[ChangeBatch]
    """All changes, including changes that are not applied. A value that is neither in the log nor needed is NULL."""


def _full_images(
    session: TargetSession,
    batches: Sequence[ChangeBatch],
    absent: Sequence[ChangeBatch],
    rules: ApplyRules,
    watched: Mapping[TableName, Collection[str]],
    unfinished: Mapping[TableName, CopyState],
    copied: Collection[TableName],
) -> _FullImages:
    copies = _target_tables(unfinished, [*absent, *batches])
    whole: list[ChangeBatch] = []
    presence: list[Presence] = []
    waiting: list[tuple[ChangeBatch, ImageCompletion]] = []
    logged: list[ChangeBatch] = []
    verdicts: dict[TableName, list[GuardedBatch]] = {}
    together = _joined_by_table(batches, rules)
    parts_of = Counter(batch.origin for batch in together)
    for logs in _guarded_together(together, rules):
        table = logs[0].table
        guarded = rules.guards(table)
        completions = []
        images = []
        for batch in logs:
            if batch.is_partial and _is_repaired(copies, table.name) and not rules.can_record(batch, unfinished):
                _check_moves(batch)
            alone = parts_of[batch.origin] == 1
            completion = _completion(session, batch, rules, watched[table.name], unfinished, is_alone=alone)
            completions.append(completion)
            images.append(_completed(session, batch, completion))
            if batch.is_partial and rules.looks_at(batch):
                presence.append(Presence(batch.rows.column("lsn"), column_presence(batch)))
        logged += images
        full = images[0]
        if guarded and any(map(len, images)):
            full, known_before = _interleaved(logs, images)
            read = _keys_read_by_repair(full, absent, repaired=_is_repaired(copies, table.name))
            verdict = _guarded(session, full, rules, known_before, read)
            verdicts.setdefault(table.name, []).append(verdict)
            full = verdict.batch
        for batch, completion in zip(logs, completions, strict=True):
            # The guard has decided before: changes that it ignores need no row.
            if (
                completion is not None
                and _is_looked_at(batch, rules, unfinished, copied)
                and not rules.keeps_away(batch)
            ):
                waiting.append((batch, completion))
            elif completion is not None:
                full = _with_rows(session, full, batch, completion, rules, unfinished)
        if any(map(rules.keeps_away, logs)):
            is_copied = any(batch.origin in unfinished for batch in logs)
            full = without_kept_away(session, full, copying=is_copied, seen_until=rules.safe_until)
        whole += [full] if len(logs) == 1 else by_table(full, images)
    return _FullImages(whole, verdicts, presence, waiting, logged)


def _is_looked_at(
    batch: ChangeBatch, rules: ApplyRules, unfinished: Collection[TableName], copied: Collection[TableName]
) -> bool:
    """Whether rows are compared with the target's rows, or may be locked. While a table is copied, neither happens."""
    return rules.looks_at(batch) and batch.origin not in unfinished and batch.origin not in copied


def _with_rows(
    session: TargetSession,
    images: ChangeBatch,
    batch: ChangeBatch,
    completion: ImageCompletion,
    rules: ApplyRules,
    unfinished: Mapping[TableName, CopyState],
) -> ChangeBatch:
    """Completes images from the target's rows. If a row is missing, leaves the row to the copy, or halts."""
    written = completion.written(
        images,
        is_unread=unread(unfinished.get(batch.origin), same_keys=not rules.maps_key(batch)),
        can_record=rules.can_record(batch, unfinished),
        filtered=rules.filters.drops(batch.origin),
        seen_until=rules.safe_until,
    )
    for lsn, keys in records(*completion.unread_keys()):
        session.meta.rereads.add(rules.task, rules.source, batch.origin, lsn, keys)
    return written


def _without_locked(
    session: TargetSession,
    images: _FullImages,
    rules: ApplyRules,
    unfinished: Mapping[TableName, CopyState],
    copied: Collection[TableName],
    from_zone: str,
) -> WritableChanges:
    """Returns the changes without those of locked rows. Compares rows if the task does, but none that are `copied`."""
    compared = [batch for batch in images.batches if _is_looked_at(batch, rules, unfinished, copied)]
    if not compared:
        return WritableChanges(images.batches, {}, set(), set(), {})
    settings = ComparisonSettings(
        task=rules.task,
        source=rules.source,
        policy=OnDivergence.LOCK if rules.owners else rules.on_divergence,
        honours=rules.has_locks,
        limit=rules.lock_limit,
        find_transactions=rules.find_transactions,
        seen_until=rules.safe_until,
        compares=rules.compares,
        may_share=rules.may_share,
        owners=rules.owners and rules.owners.moved(session.meta.range_owners.read()),
        writer=from_zone or rules.zone,
        seeks_rivals=rules.seeks_rivals,
        expects=rules.may_expect(compared) and len(compared) == len(images.batches),
        inserts=rules.may_insert(compared),
        seeks_removals=bool(rules.zone) and not rules.owners and rules.on_divergence is OnDivergence.LOCK,
    )
    others = [batch for batch in images.batches if not any(batch is one for one in compared)]
    tables = list(dict.fromkeys(batch.table.name for batch in images.batches))
    unlocked = checked(session, compared, images.presence, settings)
    written = [*others, *unlocked.batches]
    for batch, completion in images.waiting:
        mine = batch.table.name
        written = [
            _with_rows(session, one, batch, completion, rules, unfinished) if one.table.name == mine else one
            for one in written
        ]
    inserting = set(unlocked.inserting) - {batch.table.name for batch in others}
    return replace(
        unlocked, batches=sorted(written, key=lambda batch: tables.index(batch.table.name)), inserting=inserting
    )


def _with_rows_there(changes: Sequence[NetChange], there: Mapping[TableName, pa.Table]) -> list[NetChange]:
    """Adds the target's rows, which the transaction has read and locked, to the changes.

    If a table has several net changes, they get no rows, since the first of them may modify the rows.
    """
    times = Counter(change.table.name for change in changes)
    return [
        replace(change, there=rows)
        if (rows := there.get(change.table.name)) is not None
        and times[change.table.name] == 1
        and rows.schema.equals(change.table.arrow)
        else change
        for change in changes
    ]


def _target_tables(
    copying: Mapping[TableName, CopyState], batches: Iterable[ChangeBatch]
) -> dict[TableName, CopyState]:
    """Returns the progress of each copy, keyed by the target's table names.

    If several members of a merged table are copied, the result has only one of these copies: preferably a repair, and
    else a copy whose rows may be ahead of the log.
    """
    found = [(batch.table.name, copying[batch.origin]) for batch in batches if batch.origin in copying]
    return dict(sorted(found, key=lambda one: (one[1].mode is CopyMode.REPAIR, one[1].ahead)))


def _guarded_together(batches: Iterable[ChangeBatch], rules: ApplyRules) -> list[list[ChangeBatch]]:
    """Returns one group of changes for each source table, but a single group for all members of a guarded merged table.

    A row may move between these members, so their changes belong together.
    """
    together: dict[TableName, list[ChangeBatch]] = {}
    found = []
    for batch in batches:
        if batch.table.name in rules.merged and rules.guards(batch.table):
            together.setdefault(batch.table.name, []).append(batch)
        else:
            found.append([batch])
    return [*found, *together.values()]


def _interleaved(logs: Sequence[ChangeBatch], images: Sequence[ChangeBatch]) -> tuple[ChangeBatch, Mask | None]:
    """Returns all `images` as one batch, and which columns of the before images are in `logs`."""
    presence = [column_presence(batch) if batch.is_partial else None for batch in logs]
    if len(logs) == 1:
        return images[0], None if presence[0] is None else presence[0].before
    return one_log(images, [None if one is None else (one.before, one.after) for one in presence])


def _split_absent(batches: Sequence[ChangeBatch]) -> tuple[list[ChangeBatch], list[ChangeBatch]]:
    """Returns two lists: keys that a repair has not found on the source, and changes with images."""
    absent, others = [], []
    for batch in batches:
        if len(batch) <= FEW and Op.ABSENT not in batch.rows.column("op").to_pylist():
            others.append(batch)
            continue
        gone = batch.rows.column("op").to_numpy() == Op.ABSENT
        if gone.any():
            absent.append(replace(batch, rows=batch.rows.filter(pa.array(gone))))
            others.append(replace(batch, rows=batch.rows.filter(pa.array(~gone))))
        else:
            others.append(batch)
    return absent, others


def _is_alone(
    session: TargetSession, absent: ChangeBatch, rules: ApplyRules, copying: Mapping[TableName, CopyState]
) -> bool:
    """Whether, in this transaction, rows with these keys can only belong to this source table."""
    copy = copying.get(absent.origin)
    if copy is not None and copy.mode is CopyMode.OWN:
        return identifies_own_rows(session, rules.filters, rules.task, rules.source, absent.origin)
    return removes_extra_rows(session, absent.table.name, rules.task, rules.source, rules.into_zone)


def _is_repaired(copies: Mapping[TableName, CopyState], name: TableName) -> bool:
    return name in copies and copies[name].mode is CopyMode.REPAIR


def _keys_read_by_repair(batch: ChangeBatch, absent: Sequence[ChangeBatch], *, repaired: bool) -> pa.Table | None:
    """Returns the keys whose rows a repair has read from the source; None if the table is not `repaired`."""
    if not repaired:
        return None
    names = list(batch.table.identity)
    copied = batch.rows.filter(pc.equal(batch.rows.column("op"), int(Op.COPY))).column("after")
    images = [copied, *(part.rows.column("before") for part in absent if part.table.name == batch.table.name)]
    schema = pa.schema([batch.table.arrow.field(name) for name in names])
    return pa.concat_tables(
        pa.Table.from_arrays([image_column(image, image.type.get_field_index(name)) for name in names], schema=schema)
        for image in images
    )


def _with_log(changes: Sequence[NetChange], batches: Sequence[ChangeBatch], rules: ApplyRules) -> list[NetChange]:
    """Adds the log's changes of a table to its first net change. A table without a net change gets an empty one."""
    logged: dict[TableName, list[LoggedChanges]] = {}
    for batch in batches:
        mine = replace(batch, rows=batch.rows.filter(pc.is_in(batch.rows.column("op"), value_set=_LOGGED)))
        if not len(mine):
            continue
        transactions = rules.find_transactions(list(map(Lsn.from_bytes, mine.rows.column("lsn").to_pylist())))
        if not all(one.time for one in transactions):
            raise Transient(
                "relay-cut-back", "changes were read from the relay, but the relay does not have their times any more"
            )
        logged.setdefault(batch.table.name, []).append(LoggedChanges(rules.task, rules.source, mine, transactions))
    with_logged = []
    for change in changes:
        parts_of_table = logged.pop(change.table.name, None)
        with_logged.append(change if parts_of_table is None else replace(change, logged=tuple(parts_of_table)))
    for parts in logged.values():
        table = parts[0].batch.table
        rows = table.arrow.empty_table()
        with_logged.append(NetChange(table, rows.select(list(table.identity)), rows, Counts(), logged=tuple(parts)))
    return with_logged


def _with_stale(counts: Counts, verdicts: Sequence[GuardedBatch]) -> Counts:
    return counts + Counts(stale=sum(verdict.stale for verdict in verdicts))


def _changes_for_the_log(table: Table, verdicts: Sequence[GuardedBatch]) -> list[NetChange]:
    """Returns the change that writes rows which are then removed, so that the target's log has these rows."""
    answered = [verdict.answered for verdict in verdicts if verdict.answered is not None and verdict.answered.num_rows]
    rows = [verdict.shown for verdict in verdicts if verdict.shown is not None and verdict.shown.num_rows] + answered
    if not rows:
        return []
    keys, nothing = list(table.identity), table.arrow.empty_table()
    changes = [NetChange(table, nothing.select(keys), pa.concat_tables(rows).combine_chunks(), Counts())]
    if answered:
        changes.append(NetChange(table, pa.concat_tables(answered).select(keys).combine_chunks(), nothing, Counts()))
    return changes


def _empty_change(verdicts: Sequence[GuardedBatch]) -> NetChange:
    """Returns a change without rows, which carries the counts of a table that has no other change."""
    table = verdicts[0].batch.table
    rows = table.arrow.empty_table()
    return NetChange(table, rows.select(list(table.identity)), rows, _with_stale(Counts(), verdicts))


def _joined_by_table(batches: Sequence[ChangeBatch], rules: ApplyRules) -> list[ChangeBatch]:
    """Joins the changes of a table that have to be considered together."""
    groups: dict[tuple[TableName, TableName | None], list[ChangeBatch]] = {}
    for batch in batches:
        if len(batch):
            groups.setdefault((batch.table.name, batch.upstream), []).append(batch)
    joined = []
    for parts in groups.values():
        first = parts[0]
        together = any(part.is_partial for part in parts) or rules.guards(first.table)
        together = together or rules.keeps_away(first)
        alike = all(part.table.arrow == first.table.arrow for part in parts)
        if len(parts) > 1 and together and alike:
            rows = pa.concat_batches([part.rows for part in parts])
            joined.append(ChangeBatch(first.table, rows, first.upstream))
        else:
            joined += parts
    return joined


def _completion(
    session: TargetSession,
    batch: ChangeBatch,
    rules: ApplyRules,
    watched: Collection[str],
    copying: Mapping[TableName, CopyState],
    *,
    is_alone: bool,
) -> ImageCompletion | None:
    """Returns the completion of images that lack columns, if any. `is_alone`: `batch` has all changes of the table."""
    if not batch.is_partial:
        return None
    needed = set(watched)
    if rules.guards(batch.table):
        needed.add(rules.version_column)
        _check_versions(batch, rules.version_column)
    computed = _computed(session, batch.table)
    copy, same_keys = copying.get(batch.origin), not rules.maps_key(batch)
    all_changes = is_alone and not rules.filters.drops(batch.origin)
    is_new = copy is not None and copy.mode is CopyMode.NEW
    return ImageCompletion(
        batch,
        needed - computed,
        computed,
        read_early=is_new and batch.table.name not in rules.merged,
        is_ahead=ahead(copy, same_keys=same_keys, all_changes=all_changes),
        is_foreign=foreign(copy, same_keys=same_keys) if rules.can_record(batch, copying) else None,
        is_loaded=is_new,
    )


def _completed(session: TargetSession, batch: ChangeBatch, completion: ImageCompletion | None) -> ChangeBatch:
    if completion is None:
        return batch
    keys, none = completion.keys, batch.table.arrow.empty_table()
    return completion.images(session.read_rows(batch.table, keys=keys, lock=True) if keys.num_rows else none)


def _computed(session: TargetSession, table: Table) -> set[str]:
    """Returns the columns that are generated on the target."""
    if not any(column.generated for column in table.columns):
        return set()
    there = session.schema.structure(table.name)
    return {column.name for column in there.columns if column.generated} if there else set()


def _check_versions(batch: ChangeBatch, version_column: str) -> None:
    """Halts if a before image lacks the version column.

    If the version of the target's row were taken instead, events older than this row would be applied.
    """
    presence = column_presence(batch)
    lacks = presence.has_before & ~presence.before[:, batch.table.arrow.get_field_index(version_column)]
    if lacks.any():
        lsn = Lsn.from_bytes(batch.rows.column("lsn")[int(np.argmax(lacks))].as_py())
        raise Halted(
            "partial-row-image",
            f"the before image of a change does not have {version_column}, which the version guard needs",
            where=Where(table=str(batch.table.name), position=str(lsn)),
            todo="Run SET GLOBAL binlog_row_image=FULL on the source and let its sessions reconnect, or "
            "remove pidts.version-column from the task",
        )


def _check_moves(batch: ChangeBatch) -> None:
    """Halts if the log has only a part of an update that gives a row another key: its values are not certain."""
    presence = column_presence(batch)
    plain = np.array([not column.generated for column in batch.table.columns])
    short = presence.has_before & presence.has_after & ~presence.after[:, plain].all(axis=1)
    moved = short & to_mask(identities(batch).moved)
    if moved.any():
        lsn = Lsn.from_bytes(batch.rows.column("lsn")[int(np.argmax(moved))].as_py())
        raise Halted(
            "partial-row-image",
            "the log has only a part of a row whose key changes while its table is being repaired",
            where=Where(table=str(batch.table.name), position=str(lsn)),
            todo=KEEP_KEYS.format(table=shlex.quote(str(batch.origin))),
        )


def _guarded(
    session: TargetSession, batch: ChangeBatch, rules: ApplyRules, known_before: Mask | None, read: pa.Table | None
) -> GuardedBatch:
    """Returns the changes that the version guard does not ignore, with the rows and tombstones that they need.

    `read` has the keys that a repair has read from the source: the target's rows and tombstones of them do not count.
    """
    table, name = batch.table, batch.table.name
    made = Convergence if rules.converges else VersionGuard
    guard = made(batch, rules.version_column, rules.source, known_before)
    versions, at, whole, places = _versions(session, table, rules.version_column, guard)
    known = np.zeros(len(at), np.bool_) if read is None else _are_among(guard.keys, read)
    at = np.where(known, -1, at)
    absent = np.nonzero((at < 0) & ~known)[0]
    tombstones = []
    if len(absent):
        by_text = dict(zip(texts := guard.texts(absent).to_pylist(), absent.tolist(), strict=True))
        tombstones = [(by_text[tombstone.key], tombstone) for tombstone in session.meta.tombstones.read(name, texts)]
    guard.look(versions, at, tombstones)
    tied = guard.tied
    tied = tied[places[tied] < 0]
    if len(tied):
        more, found = target_rows(session, table, guard.keys.take(pa.array(tied)))
        places[tied] = np.where(found < 0, -1, found + whole.num_rows)
        whole = pa.concat_tables([whole, more])
    verdict = guard.decide(whole, places)
    if verdict.tombstones:
        session.meta.tombstones.write(name, verdict.tombstones)
    if verdict.stale:
        _log.info("changes with older versions are left out", table=str(name), changes=verdict.stale)
    return replace(verdict, present=guard.keys.filter(pa.array(at >= 0)))


def _versions(
    session: TargetSession, table: Table, version_column: str, guard: VersionGuard
) -> tuple[pa.Array, Numbers, pa.Table, Numbers]:
    """Reads and locks the target's rows with the guard's keys, whole rows only for keys that are likely to need them.

    Returns the versions, and for each key the index of its version, or -1; then the whole rows, and for each key the
    index of its row, or -1.
    """
    at, places = np.full(guard.keys.num_rows, -1), np.full(guard.keys.num_rows, -1)
    is_whole = np.zeros(guard.keys.num_rows, np.bool_)
    is_whole[guard.likely_tied] = True
    whole = table.arrow.empty_table()
    versions: list[pa.Array] = []
    for one, mine in ((table, is_whole), (narrowed(table, (version_column,)), ~is_whole)):
        if not mine.any():
            continue
        rows, found = target_rows(session, one, guard.keys.filter(pa.array(mine)))
        at[mine] = np.where(found < 0, -1, found + sum(len(part) for part in versions))
        versions += chunkless(rows, [version_column])
        if one is table:
            whole, places[mine] = rows, found
    none = pa.array([], table.column(version_column).type.arrow)
    return pa.concat_arrays([none, *versions]), at, whole, places


def _with_deletes_of_other_versions(
    change: NetChange, together: Sequence[NetChange], watched: Collection[str], differing_rows: Sequence[pa.Table]
) -> NetChange:
    """Adds a delete of each overwritten row that may differ from the row that the reduction assumes.

    The reduction infers the target's unique values from the first change of a row, see `pidts.reduce.net_changes`.
    These values are wrong if some changes were not applied, or if a change is already in the target's row. The deletes
    are for all changes that are written `together`.
    """
    names = list(change.table.identity)
    unique = bool(watched) or any(one.table.secondary_unique for one in together)
    if not differing_rows or not unique:
        return change
    written = pa.concat_tables([one.upserts.select(names) for one in together])
    present = pa.concat_tables([rows.select(names) for rows in differing_rows])
    return _removing(change, written.filter(pa.array(_are_among(written, present))))


def _with_defaults(session: TargetSession, change: NetChange, guarded: Sequence[GuardedBatch]) -> NetChange:
    """Adds a delete of each overwritten row if the target's zone has columns that the change lacks.

    A program of the target's zone has added these columns. When the schema change arrives in the source's zone, the
    later row gets the columns' defaults there. Without the delete, the row would keep its values in the target's zone:

        a adds column c and makes row 1 (c = 9);  b makes row 2, without c      a has row 2 (c = 9), b has row 2

    The guard has read these rows in this transaction, so no other session alters the table before its end.
    """
    names = list(change.table.identity)
    present = [verdict.present.select(names) for verdict in guarded if verdict.present is not None]
    written = change.upserts.select(names)
    if not present or not written.num_rows:
        return change
    again = written.filter(pa.array(_are_among(written, pa.concat_tables(present))))
    if not again.num_rows or not has_more_columns(session, change.table.name, [names_of(change.table)]):
        return change
    return _removing(change, again)


def _removing(change: NetChange, rows: pa.Table) -> NetChange:
    """Returns the change, which now removes rows with these keys before it writes rows."""
    names = list(change.table.identity)
    deletes = pa.concat_tables([change.deletes, rows]).group_by(names, use_threads=False).aggregate([])
    deletes = deletes.sort_by([(name, "ascending") for name in names]).combine_chunks()
    return replace(change, deletes=deletes, likely_new=None)


def _are_among(keys: pa.Table, others: pa.Table) -> Mask:
    names = keys.column_names
    numbers = key_numbers(merged([chunkless(keys, names), chunkless(others, names)]))
    return np.isin(numbers[: keys.num_rows], numbers[keys.num_rows :])


def _is_safe(batches: Sequence[ChangeBatch], rules: ApplyRules) -> bool:
    if rules.safe or rules.safe_until is None:
        return rules.safe
    until = pa.scalar(rules.safe_until.to_bytes(), pa.binary())
    for batch in batches:
        logged = batch.rows.filter(pc.not_equal(batch.rows.column("op"), int(Op.COPY)))
        if logged.num_rows and pc.less_equal(logged.column("lsn")[:1].cast(pa.binary()), until)[0].as_py():
            return True
    return False
