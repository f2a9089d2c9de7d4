"""Decides which segments may be purged: all tasks have applied them, they are old enough, and they are not the last.

A dry run and a purge use the same decision. A purge has these steps, under the lock of the needs:

1. It writes the tables' structures at the first remaining segment.
2. It removes segments, oldest first.
3. It removes stored structures of earlier places.

If a purge is interrupted, the next purge finds the same segments to remove, or fewer.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

import structlog

from pidts.model import Halted, Lsn, Transient, Where
from pidts.relay.folder import Folder, Segment, list_segments, purge
from pidts.relay.structures import StoredStructures, drop_old_structures, store_structures, structures_before_purge
from pidts.relay.task_needs import needs_locked, read_needs, refused

_logger: structlog.stdlib.BoundLogger = structlog.get_logger("pidts.relay")


@dataclass(frozen=True, slots=True)
class Release:
    """The segments that a purge removes or would remove, and the remaining ones."""

    gone: tuple[Segment, ...]
    kept: tuple[Segment, ...]
    needed_from: Lsn | None
    """The place from which the slowest task needs the log; None if a task needs the whole log or no task is known."""
    held_by: tuple[str, ...]
    """The reasons why the first remaining segment stays: the tasks that need it, its age, or a limit."""


@dataclass(frozen=True, slots=True)
class PurgeLimits:
    """Limits of a purge, in addition to the recorded needs of tasks (`pidts.relay.task_needs`)."""

    before: Lsn | None = None
    """The place up to which the operator wants to purge at most; None: no limit."""
    keep_seconds: int = 0
    checkpoints: Mapping[str, Lsn] = field(default_factory=dict)
    """Checkpoints that were just read from targets. They replace the recorded needs of these tasks, which may be older.
    """
    nobody_needs_it: bool = False
    """Whether the operator says that no task needs the log. If False, a relay without a known task is not purged."""


def release(relay: Path | str, source_id: str, limits: PurgeLimits, *, dry_run: bool = False) -> Release:
    """Purges the relay, unless `dry_run`. Returns what the purge removes or would remove."""
    folder = Folder.of(relay, source_id)
    with nullcontext() if dry_run else needs_locked(folder):
        listed = list_segments(relay, source_id)
        decided = _decide(folder, listed, limits)
        if dry_run or not decided.gone:
            return decided
        start = decided.kept[0].start
        moved = _moved(relay, source_id, start)
        stored = moved is None or _is_stored(folder, moved)
        removed = {segment.number for segment in purge(relay, source_id, start)}
        if moved is not None and not stored and not _is_stored(folder, moved):
            _logger.warning(
                "the purge does not store the tables' structures at the relay's new beginning",
                source=source_id,
                code="relay-full",
            )
        drop_old_structures(relay, source_id)
    return replace(decided, gone=tuple(segment for segment in decided.gone if segment.number in removed))


def _decide(folder: Folder, listed: list[Segment], limits: PurgeLimits) -> Release:
    needs = read_needs(folder)
    lsns = {need.task: need.lsn for need in needs} | dict(limits.checkpoints)
    keep_seconds = max([limits.keep_seconds, *(need.keep_seconds for need in needs)])
    places = [lsn for lsn in lsns.values() if lsn is not None]
    needed_from = min(places) if len(places) == len(lsns) and places else None
    if limits.before is not None and needed_from is not None and limits.before > needed_from:
        raise still_needed(folder, limits.before, {task: lsn for task, lsn in lsns.items() if lsn == needed_from})
    unknown = not lsns and not limits.nobody_needs_it
    young_since = time.time() - keep_seconds
    gone: list[Segment] = []
    held_by: tuple[str, ...] = ("the last segment always stays",)
    for segment, following in pairwise(listed):
        reasons = [f"task {task}" for task, lsn in sorted(lsns.items()) if lsn is None or lsn < following.start]
        if unknown:
            reasons.append("no task has recorded what it needs")
        if limits.before is not None and following.start > limits.before:
            reasons.append(f"it contains log after {limits.before}")
        if keep_seconds and _received_at(folder, segment) > young_since:
            reasons.append(f"received less than {keep_seconds} s ago")
        if reasons:
            held_by = tuple(reasons)
            break
        gone.append(segment)
    return Release(tuple(gone), tuple(listed[len(gone) :]), needed_from, held_by)


def still_needed(folder: Folder, before: Lsn, tasks: Mapping[str, Lsn | None]) -> Halted:
    """Returns the error for a `--before` that would remove log which a task still needs."""
    task, lsn = next(iter(tasks.items()))
    what = f"task {task} still needs the log after {lsn}, so the log cannot be removed up to {before}"
    todo = (
        "Leave out --before: then only unneeded log is removed. If the task no longer exists, run: pidts relay forget "
        "TASK"
    )
    return Halted("relay-still-needed", what, where=Where(source=folder.source_id, file=str(folder.path)), todo=todo)


def _moved(relay: Path | str, source_id: str, start: Lsn) -> StoredStructures | None:
    """Returns the structures to store for `start`, the place at which the relay begins after the purge.

    Returns None if there are no structures to store, or if they are damaged: then they are read from the source again.
    """
    try:
        return structures_before_purge(relay, source_id, start)
    except Halted as error:
        _logger.warning(
            "the purge does not store the tables' structures at the relay's new beginning",
            source=source_id,
            code=error.code,
            what=error.what,
        )
        return None


def _is_stored(folder: Folder, moved: StoredStructures) -> bool:
    """Stores the structures; returns False if the disk is full. The purge then makes room for them."""
    try:
        store_structures(folder, moved)
    except OSError as error:
        refusal = refused(folder, error)
        if not isinstance(refusal, Transient):
            raise refusal from error
        return False
    return True


def _received_at(folder: Folder, segment: Segment) -> float:
    """Returns when the last entry of a segment was received, by this machine's clock."""
    try:
        return folder.index(segment.number).stat().st_mtime
    except FileNotFoundError:  # purged meanwhile
        return 0.0
