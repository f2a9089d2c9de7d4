"""From the changes of a batch to what is written: completed, guarded, reduced, and marked safe where that is asked for.

Asked inside the open transaction, after the worker's checkpoint is locked: what the target holds now is what it holds
when the rows are written, as far as the rows exist; a row that another writer inserts in between is overwritten. Unless
images are told in part, there is a version column, or a filter keeps rows away, nothing is read.

Of a table whose full copy is not done the target may hold rows as they are only later in the log, see
`pidts.plan.copying`: then every row that the log changes is removed before it is written, and where a batch does not
bring the log as far as such rows are, those that have a unique value of a written row give way. Of a table that is
repaired nobody knows what the target holds: its rows give way, and no version there is newer than what was copied.
Where a filter drops changes, the target has not what the source had before a change either:

    u is unique    UPDATE 2: u 1 -> 2, dropped    UPDATE 2: v = 9    INSERT (1, u=1)        row 2 must go before 1 comes

What holds when it breaks off: nothing is written here but tombstones and keys that may have moved, and they belong to
the transaction of their rows. A crash before the COMMIT leaves neither, one behind it both, and the next attempt asks
anew.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import structlog

from pidts.apply.align import aligned, own_columns
from pidts.apply.complete import Completion, told_columns
from pidts.apply.guard import Guard, Verdict
from pidts.apply.kept_away import without_kept_away
from pidts.apply.keys import Mask, chunkless, key_numbers, merged, to_mask
from pidts.apply.moved import Uneven, without_moved
from pidts.apply.one_log import by_table, one_log
from pidts.apply.port import TargetSession
from pidts.apply.residents import has_others, tells_apart
from pidts.apply.target_rows import narrowed, target_rows
from pidts.apply.versions import can_be_version
from pidts.apply.wider import wider_tables
from pidts.model import ChangeBatch, Halted, Lsn, Op, Table, TableName, Where
from pidts.plan import CopyState, Way
from pidts.reduce import Counts, NetChange, net_changes
from pidts.reduce.identity import identities
from pidts.rules import Rules

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyRules:
    """What a task asks of its writing; the same for a whole run."""

    task: str = ""
    source: str = ""
    """Whose log the changes come from: its Lsns can be compared with each other."""
    version_column: str = ""
    safe: bool = False
    safe_until: Lsn | None = None
    """Changes up to here may have been applied before the task began."""
    merged: frozenset[TableName] = frozenset()
    """Tables of the target that are made of several of the source's."""
    beside: bool = False
    """Whether the task has other sources, too, whose tables may land where this one's do."""
    filters: Rules = field(default_factory=Rules)
    """What the task leaves out of the changes: the target's rows of such tables need not be what the source had."""

    def may_share(self, batch: ChangeBatch) -> bool:
        """Whether rows of other tables, also of some that are gone, may be where this table's are."""
        is_merged = batch.table.name in self.merged
        return is_merged or bool(self.task and (self.beside or self.filters.routes.may_leave_rows(batch.origin)))

    def keeps_away(self, batch: ChangeBatch) -> bool:
        """Whether an update of this table may be of a row that the target is not to have."""
        return not self.safe and self.filters.keeps_away(batch.origin)


def prepared(
    session: TargetSession,
    batches: Sequence[ChangeBatch],
    rules: ApplyRules,
    copying: Mapping[TableName, CopyState] | None = None,
    uneven: Uneven | None = None,
) -> list[NetChange]:
    """What these changes, in log order, write to the target.

    `copying` has the source's tables whose full copy is not done, `uneven` the target's tables of which one is behind.
    """
    unfinished = copying or {}
    own = own_columns(batches)
    batches = aligned(batches)
    copies = _landed(unfinished, batches)
    absent, batches = _parted(batches)
    if uneven is not None:
        batches = without_moved(session, batches, uneven, rules.merged)
    if rules.task and absent:
        # A table that was alone when its repair began may have company by now, whose rows its source has not.
        absent = [one for one in absent if _is_alone(session, one, rules, unfinished)]
    whole = list(absent)
    verdicts: dict[TableName, list[Verdict]] = {}
    watched = {batch.table.name: session.watched(batch.table) for batch in [*absent, *batches] if len(batch)}
    for logs in _guarded_together(_joined(batches, rules), rules):
        table = logs[0].table
        guarded = is_guarded(table, rules.version_column)
        completions = []
        images = []
        for batch in logs:
            if batch.is_partial and _is_repaired(copies, table.name):
                _check_moves(batch)
            completions.append(_completion(session, batch, rules if guarded else None, watched[table.name]))
            images.append(_images(session, batch, completions[-1]))
        full = images[0]
        if guarded and any(map(len, images)):
            full, told = _one(logs, images)
            read = _read(full, absent, repaired=_is_repaired(copies, table.name))
            verdict = _guarded(session, full, rules, told, read)
            verdicts.setdefault(table.name, []).append(verdict)
            full = verdict.batch
        for batch, completion in zip(logs, completions, strict=True):
            # Not before the guard: what it sets aside needs no row.
            if completion is not None:
                full = completion.written(
                    full,
                    copying=batch.origin in unfinished,
                    filtered=rules.filters.drops(batch.origin),
                    seen_until=rules.safe_until,
                )
        if any(map(rules.keeps_away, logs)):
            is_copied = any(batch.origin in unfinished for batch in logs)
            full = without_kept_away(session, full, copying=is_copied, seen_until=rules.safe_until)
        whole += [full] if len(logs) == 1 else by_table(full, images)
    safe = _is_safe(batches, rules)
    changes = []
    origins: dict[TableName, set[TableName]] = {}
    for batch in whole:
        if len(batch):
            origins.setdefault(batch.table.name, set()).add(batch.origin)
    filtered = {batch.table.name for batch in batches if rules.filters.drops(batch.origin)}
    coming = [batch for batch in whole if rules.may_share(batch)]
    wider = wider_tables(session, coming, rules.task, rules.merged, own)
    reduced = net_changes(whole, watched, {*copies, *filtered}, rules.merged, wider, own)
    for change in reduced:
        name = change.table.name
        found = verdicts.pop(name, [])
        together = [one for one in reduced if one.table.name == name] if found else []
        written = _with_present(change, together, watched[name], found)
        gives_way = safe or (name in copies and copies[name].ahead) or _is_repaired(copies, name)
        of = origins.get(name, set()) if name in rules.merged else set()
        origin = next(iter(of)) if len(of) == 1 else None
        counts = _counted(change.counts, found)
        changes.append(replace(written, safe=change.safe or gives_way, counts=counts, origin=origin))
    empty = (_nothing(found) for found in verdicts.values() if any(verdict.stale for verdict in found))
    return [*changes, *empty]


def _landed(copying: Mapping[TableName, CopyState], batches: Iterable[ChangeBatch]) -> dict[TableName, CopyState]:
    """Copies by the target's names; of several tables that become one, the one that asks for the most care."""
    found = [(batch.table.name, copying[batch.origin]) for batch in batches if batch.origin in copying]
    return dict(sorted(found, key=lambda one: (one[1].way is Way.REPAIR, one[1].ahead)))


def _guarded_together(batches: Iterable[ChangeBatch], rules: ApplyRules) -> list[list[ChangeBatch]]:
    """Each by itself, but for those of tables that become one under a guard: between them a row may move."""
    together: dict[TableName, list[ChangeBatch]] = {}
    found = []
    for batch in batches:
        if batch.table.name in rules.merged and is_guarded(batch.table, rules.version_column):
            together.setdefault(batch.table.name, []).append(batch)
        else:
            found.append([batch])
    return [*found, *together.values()]


def _one(logs: Sequence[ChangeBatch], images: Sequence[ChangeBatch]) -> tuple[ChangeBatch, Mask | None]:
    """All images as one batch, and which columns of the before images the logs have told."""
    told = [told_columns(batch) if batch.is_partial else None for batch in logs]
    if len(logs) == 1:
        return images[0], None if told[0] is None else told[0].before
    return one_log(images, [None if one is None else (one.before, one.after) for one in told])


def _parted(batches: Sequence[ChangeBatch]) -> tuple[list[ChangeBatch], list[ChangeBatch]]:
    """Keys that a repair has not found on the source, and what has images."""
    absent, others = [], []
    for batch in batches:
        gone = pc.equal(batch.rows.column("op"), int(Op.ABSENT))
        if pc.any(gone).as_py():
            absent.append(replace(batch, rows=batch.rows.filter(gone)))
            others.append(replace(batch, rows=batch.rows.filter(pc.invert(gone))))
        else:
            others.append(batch)
    return absent, others


def _is_alone(
    session: TargetSession, absent: ChangeBatch, rules: ApplyRules, copying: Mapping[TableName, CopyState]
) -> bool:
    """Whether these keys are one table's only, as of this transaction."""
    copy = copying.get(absent.origin)
    if copy is not None and copy.way is Way.OWN:
        return tells_apart(session, rules.filters, rules.task, rules.source, absent.origin)
    return not has_others(session, absent.table.name, rules.task, rules.source)


def _is_repaired(copies: Mapping[TableName, CopyState], name: TableName) -> bool:
    return name in copies and copies[name].way is Way.REPAIR


def _read(batch: ChangeBatch, absent: Sequence[ChangeBatch], *, repaired: bool) -> pa.Table | None:
    """The keys of which a repair has read what the source has."""
    if not repaired:
        return None
    names = list(batch.table.identity)
    copied = batch.rows.filter(pc.equal(batch.rows.column("op"), int(Op.COPY))).column("after")
    images = [copied, *(part.rows.column("before") for part in absent if part.table.name == batch.table.name)]
    schema = pa.schema([batch.table.arrow.field(name) for name in names])
    return pa.concat_tables(
        pa.Table.from_arrays(
            [pc.struct_field(image, [image.type.get_field_index(name)]) for name in names], schema=schema
        )
        for image in images
    )


def _counted(counts: Counts, verdicts: Sequence[Verdict]) -> Counts:
    return counts + Counts(stale=sum(verdict.stale for verdict in verdicts))


def _nothing(verdicts: Sequence[Verdict]) -> NetChange:
    """A table of whose changes none is left: only the count."""
    table = verdicts[0].batch.table
    rows = table.arrow.empty_table()
    return NetChange(table, rows.select(list(table.identity)), rows, _counted(Counts(), verdicts))


def is_guarded(table: Table, version_column: str) -> bool:
    """Whether the table has a version column that can be one, and a key by which rows are found."""
    names = table.arrow.names
    return bool(
        version_column and table.identity and version_column in names and can_be_version(table.column(version_column))
    )


def _joined(batches: Sequence[ChangeBatch], rules: ApplyRules) -> list[ChangeBatch]:
    """All changes of a table as one batch, where they must be looked at together."""
    groups: dict[tuple[TableName, TableName | None], list[ChangeBatch]] = {}
    for batch in batches:
        if len(batch):
            groups.setdefault((batch.table.name, batch.upstream), []).append(batch)
    joined = []
    for parts in groups.values():
        first = parts[0]
        together = any(part.is_partial for part in parts) or is_guarded(first.table, rules.version_column)
        together = together or rules.keeps_away(first)
        alike = all(part.table.arrow == first.table.arrow for part in parts)
        if len(parts) > 1 and together and alike:
            rows = pa.concat_batches([part.rows for part in parts])
            joined.append(ChangeBatch(first.table, rows, first.upstream))
        else:
            joined += parts
    return joined


def _completion(
    session: TargetSession, batch: ChangeBatch, guard: ApplyRules | None, watched: Collection[str]
) -> Completion | None:
    if not batch.is_partial:
        return None
    needed = set(watched)
    if guard is not None:
        needed.add(guard.version_column)
        _check_versions(batch, guard.version_column)
    computed = _computed(session, batch.table)
    return Completion(batch, needed - computed, computed)


def _images(session: TargetSession, batch: ChangeBatch, completion: Completion | None) -> ChangeBatch:
    if completion is None:
        return batch
    keys, none = completion.keys, batch.table.arrow.empty_table()
    return completion.images(session.read_rows(batch.table, keys=keys, lock=True) if keys.num_rows else none)


def _computed(session: TargetSession, table: Table) -> set[str]:
    """Columns that are generated on the target."""
    if not any(column.generated for column in table.columns):
        return set()
    there = session.structure(table.name)
    return {column.name for column in there.columns if column.generated} if there else set()


def _check_versions(batch: ChangeBatch, version_column: str) -> None:
    """The target's own version in place of what the log left out would let every old event pass."""
    told = told_columns(batch)
    lacks = told.has_before & ~told.before[:, batch.table.arrow.get_field_index(version_column)]
    if lacks.any():
        lsn = Lsn.from_bytes(batch.rows.column("lsn")[int(np.argmax(lacks))].as_py())
        raise Halted(
            "partial-row-image",
            f"a change does not tell the {version_column} that its row had, which the version guard needs",
            where=Where(table=str(batch.table.name), position=str(lsn)),
            todo="Run SET GLOBAL binlog_row_image=FULL on the source and let its sessions reconnect, or take "
            "pidts.version-column out of the task",
        )


def _check_moves(batch: ChangeBatch) -> None:
    """A row that may be wrong must not move, with what the log does not tell of it, to where the repair has been."""
    told = told_columns(batch)
    plain = np.array([not column.generated for column in batch.table.columns])
    short = told.has_before & told.has_after & ~told.after[:, plain].all(axis=1)
    moved = short & to_mask(identities(batch).moved)
    if moved.any():
        lsn = Lsn.from_bytes(batch.rows.column("lsn")[int(np.argmax(moved))].as_py())
        raise Halted(
            "partial-row-image",
            "a row that is told in part gets another key while its table is being repaired",
            where=Where(table=str(batch.table.name), position=str(lsn)),
            todo="Run SET GLOBAL binlog_row_image=FULL on the source, let its sessions reconnect, and resync again",
        )


def _guarded(
    session: TargetSession, batch: ChangeBatch, rules: ApplyRules, told: Mask | None, read: pa.Table | None
) -> Verdict:
    """Reads keys and versions of all rows concerned, and in full only the rows of ties.

    Under the keys of `read` it makes no difference what the target has.
    """
    table, name = batch.table, batch.table.name
    guard = Guard(batch, rules.version_column, rules.source, told)
    rows, at = target_rows(session, narrowed(table, (rules.version_column,)), guard.keys)
    known = np.zeros(len(at), np.bool_) if read is None else _among(guard.keys, read)
    at = np.where(known, -1, at)
    absent = np.nonzero((at < 0) & ~known)[0]
    tombs = []
    if len(absent):
        by_text = dict(zip(texts := guard.texts(absent), absent.tolist(), strict=True))
        tombs = [(by_text[tomb.key], tomb) for tomb in session.tombstones(name, texts)]
    guard.look(rows[rules.version_column].combine_chunks(), at, tombs)
    tied = guard.tied
    whole, places = table.arrow.empty_table(), np.full(guard.keys.num_rows, -1)
    if len(tied):
        whole, found = target_rows(session, table, guard.keys.take(pa.array(tied)))
        places[tied] = found
    verdict = guard.decide(whole, places)
    if verdict.tombstones:
        session.bury(name, verdict.tombstones)
    if verdict.stale:
        _log.info("older changes set aside", table=str(name), changes=verdict.stale)
    return replace(verdict, present=guard.keys.filter(pa.array(at >= 0)))


def _with_present(
    change: NetChange, together: Sequence[NetChange], watched: Collection[str], verdicts: Sequence[Verdict]
) -> NetChange:
    """Remove first what is overwritten, where the rows there are not those that the reduction assumes.

    It tells by the first change of a row which unique values the target has, see `pidts.reduce.net_changes`; after some
    changes were set aside that is not so. The change removes for all that are written `together`.
    """
    names = list(change.table.identity)
    unique = bool(watched) or any(one.table.secondary_unique for one in together)
    irregular = [verdict for verdict in verdicts if verdict.irregular]
    if not irregular or not unique:
        return change
    written = pa.concat_tables([one.upserts.select(names) for one in together])
    present = pa.concat_tables([verdict.present for verdict in irregular if verdict.present is not None])
    again = written.filter(pa.array(_among(written, present)))
    deletes = pa.concat_tables([change.deletes, again]).group_by(names, use_threads=False).aggregate([])
    return replace(change, deletes=deletes.sort_by([(name, "ascending") for name in names]).combine_chunks())


def _among(keys: pa.Table, others: pa.Table) -> Mask:
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
