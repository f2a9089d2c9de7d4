"""Determines which merged tables have lagging members in a batch, and when the record of their moved keys is removed.

A merged table is *lagging* while one of its source tables is held at an earlier place on any worker
(`pidts.apply.merge.moved_rows`). A merged table is also lagging, for the rest of a batch, if a transaction with changes
of the table does not fit into memory and is cut into parts. Then an INSERT ... SELECT and the DELETE that follows may
be in two parts.

Each commit of a lagging table updates the record of moved keys; commits of other tables do not. So the record must be
empty before a table becomes lagging again: otherwise an old entry would count although its key has moved again.
`forget_moves` removes the record:

1. The record is removed after a batch if no worker then has a lagging member of the table. All workers have committed
   then, and the next batch has not begun.
2. Crash between that batch and the removal: each run begins with the removal, if its workers are at one place, at the
   end of a transaction.
3. Crash between two workers' commits of that batch: the workers are at different places. Until they are at the same
   place again, the next run removes nothing and treats all merged tables as lagging. Then step 1 follows.
4. A replaced run may come late to the removal. Each removal locks a checkpoint and compares the epoch. If the next run
   has already claimed the task, the replaced run is refused. If not, the next run's claim waits until the removal is
   committed.

The record of moved keys is not needed if the target's key separates the members' rows, or if no table is routed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from contextlib import closing
from functools import partial
from itertools import count
from typing import TypeAlias

from pidts.apply import ApplyRules, LaggingTables, Retry
from pidts.apply.checkpoint import fenced
from pidts.batch.context import JobContext
from pidts.batch.workers import Commit, KnownPlaces
from pidts.model import Checkpoint, Position, TableName, Transient
from pidts.plan import Places
from pidts.rules import Rules, merged

Sleep: TypeAlias = Callable[[float], None]
PlacesOf: TypeAlias = Callable[[Checkpoint], Places]
"""Returns the places that a checkpoint describes."""


def lagging_in(rules: ApplyRules, commit: Commit, worker: int, cut: Collection[TableName] = ()) -> LaggingTables | None:
    """Returns the lagging tables in one worker's commit; None if there are none.

    `cut` are source tables with changes in a cut transaction. This transaction may give a key to one of them and take
    it away again. Meanwhile a source table without changes may have a row with this key.
    """
    if not rules.task or not rules.filters.routes.rules:
        return None
    filters = rules.filters
    parted = merged(filters, cut) | rules.merged.intersection(map(filters.target_name, cut))
    parted -= filters.keyed
    noted = lagging_targets(filters, commit.places, (*commit.before, *commit.after)) | parted
    if _are_at_different_places(commit.before):
        noted |= rules.merged - filters.keyed
    if not noted:
        return None
    before, after = (commit.places(one[worker]) for one in (commit.before, commit.after))
    # The members that move in this batch include members that are held from now on. The changes of all of them are
    # applied before the changes of members that are not held.
    moving = map(filters.target_name, after.moved_since(before))
    return LaggingTables(rules.task, rules.source, noted, frozenset(moving) & noted | parted)


def lagging_targets(rules: Rules, places: PlacesOf, checkpoints: Iterable[Checkpoint]) -> frozenset[TableName]:
    """Returns the merged tables of which a member is held at an earlier place."""
    if not rules.routes.rules:
        return frozenset()
    texts = {(one.lsn, one.copy): one for one in checkpoints if one.copy}
    found = (places(one).targets(rules.routes, rules.target_name) for one in texts.values())
    return frozenset[TableName]().union(*found) - rules.keyed


class MovedKeysCleanup:
    """Removes the record of moved keys when it is no longer needed; for one run."""

    def __init__(self, context: JobContext, checkpoints: Collection[Checkpoint], sleep: Sleep) -> None:
        self._is_due, self._sleep = True, sleep
        self._forget(context, checkpoints, KnownPlaces().of)

    def batch_done(self, context: JobContext, commit: Commit, *, cut: bool) -> None:
        """Notes that all workers have committed; `cut`: a transaction may have been cut into parts."""
        before, after = (lagging_targets(context.rules, commit.places, one) for one in (commit.before, commit.after))
        self._is_due = self._is_due or cut or not before <= after
        if self._is_due:
            self._forget(context, commit.after, commit.places)

    def _forget(self, context: JobContext, checkpoints: Collection[Checkpoint], places: PlacesOf) -> None:
        """Removes the record, unless a worker still needs it.

        A worker that has committed only a part of a transaction needs the entries for the other parts. If workers are
        at different places, the batch that brings them together adds entries, and the record is removed after it.
        """
        if not context.rules.routes.rules or _are_at_different_places(checkpoints):
            return
        if all(map(_is_between_transactions, checkpoints)):
            lagging = lagging_targets(context.rules, places, checkpoints)
            _patiently(partial(forget_moves, context, lagging), self._sleep)
            self._is_due = False


def forget_moves(context: JobContext, lagging: Collection[TableName]) -> None:
    """Removes the record of the moved keys of all merged tables except these."""
    source = context.source.source_id
    with closing(context.target.connect()) as session:
        left = set(session.meta.moves.target_tables(context.task, source)).difference(lagging)
        if not left:
            return
        session.begin()
        stored = session.meta.checkpoints.lock(context.task, source, 0)
        if stored.epoch != context.epoch:
            raise fenced(stored, context.epoch)
        for target_table in sorted(left):
            session.meta.moves.forget(context.task, source, target_table)
        session.commit()


def _patiently(work: Callable[[], None], sleep: Sleep) -> None:
    retry = Retry()
    for attempt in count(1):
        try:
            work()
        except Transient:
            if attempt == retry.attempts:
                raise
            sleep(retry.pause(attempt))
        else:
            return


def _are_at_different_places(checkpoints: Collection[Checkpoint]) -> bool:
    """Whether some workers have committed a batch, and others have not."""
    return len({(one.lsn, one.copy) for one in checkpoints}) > 1


def _is_between_transactions(checkpoint: Checkpoint) -> bool:
    if not checkpoint.position:
        return True
    place, lsn = Position.parse(checkpoint.position), checkpoint.lsn
    return (lsn.log_index, lsn.offset, lsn.row) == (place.log_index, place.offset, 0)
