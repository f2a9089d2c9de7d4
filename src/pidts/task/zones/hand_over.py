"""Lets direct tasks take over the changes that reach a zone through its seed. All zones stay in use.

When a zone joins a mesh, only one zone feeds it at first: its *seed*. The seed's task copies the seed's rows, and
forwards the changes that other zones' tasks carry to the seed. So all changes reach the new zone in the order of one
log. Later, a direct task from every other zone takes over. This task has to begin exactly where the seed's task ends:

    it begins earlier    a change that came through the seed arrives again, over a later change of another zone
    it begins later      the changes between the two places never arrive

The seed's meta tables contain this place: the task from zone `b` to the seed saves its checkpoint in the transaction of
its rows. While that checkpoint is locked, the seed's log gets no change of zone `b`. So all changes of `b`
that have reached the seed are in the seed's log, before the log's current end. All other changes of `b` are after the
checkpoint. So the command does these steps:

1. Wait until the seed's task has carried the seed's log up to its current end. So the locks of step 2 last only a short
   time.
2. Lock the checkpoints of all tasks whose changes are handed over, and read the end of the seed's log. These tasks
   wait, and begin no schema change, while the locks last. The command is refused if such a task has begun a schema
   change after its checkpoint: the direct task would run the change again.
3. Wait until the seed's task has carried the log up to this end.
4. Claim the seed's task: its run, which forwards the other zones' changes, commits nothing any more.
5. Claim the direct tasks, with the checkpoints and the structures of the locked tasks.
6. Record in one transaction the zones whose changes the seed's task forwards from now on. This step decides, and fails
   if another run has claimed the seed's task after step 4.
7. Release the locks.

Wherever the command dies, no change is lost or arrives twice, since every start reads these records:

    before step 5    at most the run of the seed's task has ended. It starts again as before
    in 5, before 6   a direct task does not start, since the seed's task carries the same changes. The seed's task may
                     continue as before. The next run of the command begins anew, and records new places for the
                     direct tasks
    after 6          the seed's task starts only without these changes, and the direct tasks begin at their places
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Protocol

from pidts.apply import TargetSession
from pidts.apply.claim import claim_workers, demand_all_workers
from pidts.model import Checkpoint, Lsn, PrecheckFailed, SourceTablesKey, Transient, Where, epoch_before_first
from pidts.model.zone import ZONE_NOTE
from pidts.plan import PlanState
from pidts.task.checks.task_records import FORWARDS, TARGET_ZONE, forwarded_zones

_TODO = "Wait until the tasks are syncing (pidts status TASK), then repeat the command"


@dataclass(frozen=True, slots=True)
class TaskNames:
    """The names of a task in the meta tables of its target."""

    task: str
    source: str
    workers: int = 1


@dataclass(frozen=True, slots=True)
class JoinedZone:
    """A zone that has joined, and the tasks by which changes reach it: through the seed, and directly."""

    zone: str
    """The new zone."""
    seed: TaskNames
    """The task from the seed to the new zone."""
    into_seed: Mapping[str, TaskNames]
    """For each zone that is handed over, the task that carries its changes to the seed."""
    direct: Mapping[str, TaskNames]
    """For each zone that is handed over, the task that will carry its changes to the new zone."""


class SeedLog(Protocol):
    """The log of the seed, and the place up to which the seed's task has carried this log."""

    def end(self) -> Lsn:
        """Returns the current end of the log."""

    def await_carried(self, end: Lsn) -> None:
        """Waits until the new zone has the seed's log up to this place; raises if that does not happen."""

    def has_begun_change(self, session: TargetSession, task: TaskNames, after: Lsn) -> bool:
        """Whether a task has begun a schema change of the seed after this place; `session` is connected to the seed."""


class HandOver:
    """One run of `pidts zones hand-over`."""

    def __init__(
        self,
        joined: JoinedZone,
        seed: Callable[[], TargetSession],
        target: Callable[[], TargetSession],
        log: SeedLog,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`seed` and `target` connect to the meta tables of the seed, and of the new zone."""
        self._joined, self._connect_seed, self._connect, self._log, self._say = joined, seed, target, log, say

    @property
    def seed_task(self) -> str:
        """The name of the seed's task, for messages."""
        return f"task {self._joined.seed.task}"

    def run(self) -> tuple[str, ...]:
        """Lets the direct tasks take over. Returns the zones whose changes are handed over now, if any."""
        with closing(self._connect_seed()) as seed, closing(self._connect()) as target:
            seed.meta.prepare()
            target.meta.prepare()
            carried = self._carried_on(target)
            zones = tuple(sorted(carried & self._joined.direct.keys()))
            if not zones:
                return ()
            self._demand_no_locks(seed, target, zones)
            self._log.await_carried(self._log.end())
            seed.begin()
            try:
                found = {zone: self._place(seed, zone) for zone in zones}
                self._demand_no_locks(seed, target, zones)
                self._say(f"for a moment, the seed gets no changes of zones {', '.join(zones)}")
                self._log.await_carried(self._log.end())
                claimed = self._claim_seed(target)
                for zone, place in found.items():
                    self._begin(seed, target, zone, place)
                self._decide(target, claimed, carried, zones)
            finally:
                seed.rollback()
        return zones

    def _carried_on(self, target: TargetSession) -> frozenset[str]:
        place = (self._joined.seed.task, SourceTablesKey(self._joined.seed.source))
        note = target.meta.notes.read(*place, FORWARDS)
        return forwarded_zones(note, self._joined.seed.task, self._joined.seed.source)

    def _demand_no_locks(self, seed: TargetSession, target: TargetSession, zones: tuple[str, ...]) -> None:
        """Raises if a row is locked, since no task would carry the held change.

        For example, the seed has locked a row with a change of zone b, and an operator resolves it after the hand-over.
        The resolved row is marked as a change of b, so the seed's task skips it. The direct task does not carry the
        change either, because it begins after the change.
        """
        asked = [(seed, self._joined.into_seed[zone]) for zone in zones] + [(target, self._joined.seed)]
        for session, one in asked:
            if locked := session.meta.row_locks.recorded(one.task, one.source):
                names = ", ".join(str(name) for name in sorted(locked))
                what = f"task {one.task} has locked rows ({names}), and their held changes would be lost"
                raise self._refused(what, "Resolve the locked rows (pidts locks list TASK), then repeat the command")

    def _place(self, seed: TargetSession, zone: str) -> Checkpoint:
        """Locks the checkpoint of the task from `zone` to the seed until the transaction ends, and returns it."""
        one = self._joined.into_seed[zone]
        rows = seed.meta.checkpoints.lock_shared(one.task, one.source)
        if not rows:
            raise self._refused(f"task {one.task} has not begun", _TODO)
        states = [PlanState.from_checkpoint(row.lsn, row.copy) for row in rows]
        if any(state.held or state.copying for state in states):
            raise self._refused(f"task {one.task} is still copying, or has tables that wait at an earlier place", _TODO)
        if any(row.altered for row in rows) or len({row.lsn for row in rows}) > 1:
            raise self._refused(f"the workers of task {one.task} are at different places in the log", _TODO)
        if self._log.has_begun_change(seed, one, rows[0].lsn):
            raise self._refused(f"a schema change of task {one.task} is under way", _TODO)
        return rows[0]

    def _claim_seed(self, target: TargetSession) -> Sequence[Checkpoint]:
        one = self._joined.seed
        stored = target.meta.checkpoints.read(one.task, one.source)
        if not stored:
            raise self._refused(f"task {one.task} has not begun", _TODO)
        demand_all_workers(target, one.task, one.source, stored)
        states = [PlanState.from_checkpoint(row.lsn, row.copy) for row in stored]
        if any(state.held or state.copying for state in states):
            raise self._refused(f"task {one.task} is still copying, or has tables that wait at an earlier place", _TODO)
        return claim_workers(target, one.task, one.source, len(stored), stored[0])

    def _begin(self, seed: TargetSession, target: TargetSession, zone: str, place: Checkpoint) -> None:
        """Claims a direct task, and records the place where it begins and its tables' structures at that place."""
        one, other = self._joined.direct[zone], self._joined.into_seed[zone]
        stored = target.meta.checkpoints.read(one.task, one.source)
        if any(row.batch for row in stored):
            what = f"task {one.task} has begun, and the seed's task also forwards changes of zone {zone}"
            raise self._refused(what, "Remove the records of one of these tasks (pidts check TASK names them)")
        start = replace(place, task=one.task, source=one.source, worker=0, batch=0, epoch=epoch_before_first(), copy="")
        claimed = claim_workers(target, one.task, one.source, one.workers, start)
        tables = seed.meta.structures.load(other.task, SourceTablesKey(other.source))
        shadows = seed.meta.shadows.load(other.task, other.source)
        target.begin()
        try:
            known = target.meta.structures.load(one.task, SourceTablesKey(one.source))
            target.meta.structures.save(
                one.task, SourceTablesKey(one.source), place.lsn, {**dict.fromkeys(known), **tables}
            )
            target.meta.shadows.replace(one.task, one.source, shadows)
            for row in claimed:
                target.meta.checkpoints.lock(row.task, row.source, row.worker)
                target.meta.checkpoints.save(replace(start, worker=row.worker, epoch=row.epoch))
            target.commit()
        except BaseException:
            target.rollback()
            raise

    def _decide(
        self, target: TargetSession, claimed: Sequence[Checkpoint], carried: frozenset[str], zones: tuple[str, ...]
    ) -> None:
        seed = self._joined.seed
        target.begin()
        try:
            _demand_claim(target, claimed)
            for zone in zones:
                place = (self._joined.direct[zone].task, SourceTablesKey(self._joined.direct[zone].source))
                target.meta.notes.write(*place, ZONE_NOTE, zone)
                target.meta.notes.write(*place, TARGET_ZONE, self._joined.zone)
                target.meta.notes.write(*place, FORWARDS, "[]")
            left = json.dumps(sorted(carried - set(zones)))
            target.meta.notes.write(seed.task, SourceTablesKey(seed.source), FORWARDS, left)
            target.commit()
        except BaseException:
            target.rollback()
            raise

    def _refused(self, what: str, todo: str) -> PrecheckFailed:
        return PrecheckFailed("zone-not-handed-over", what, where=Where(), todo=todo)


def _demand_claim(target: TargetSession, claimed: Sequence[Checkpoint]) -> None:
    """Locks the checkpoints; raises if another run has claimed the task meanwhile."""
    for row in claimed:
        if target.meta.checkpoints.lock(row.task, row.source, row.worker).epoch != row.epoch:
            what = f"a run of task {row.task} has started meanwhile"
            raise Transient("zone-not-handed-over", what, todo="Repeat the command")
