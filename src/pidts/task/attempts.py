"""Attempts to carry a part of a task on, one after the other: each from the claim to the goal, a stop or a failure.

What ends an attempt and begins another:

- a break in the relay, which is being filled again (`relay_cure`);
- a table that the log speaks of and the task does not know: the next attempt lets it join (`membership`);
- a change of the task file that can be taken over (`takeover`);
- rows of one table that the target refuses: the next attempt leaves that table where it is (`halting`);
- a log that is lost, where the user has asked to have all tables copied once more.
"""

from __future__ import annotations

import shutil
import threading
import time
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import structlog

from pidts.apply import ApplyRules, TargetSession
from pidts.batch.context import JobContext, watched_by
from pidts.batch.meaning import Meaning
from pidts.batch.shard_groups import ShardGroups
from pidts.batch.workers import Workers
from pidts.model import Halted, Lsn, Transient
from pidts.plan import Limits, PlanState
from pidts.relay import RelayReader
from pidts.relay.needs import TaskMark
from pidts.relay.retention import PurgeLimits, release
from pidts.source import Session as SourceSession
from pidts.source import connect, position
from pidts.spark.stream import BatchDone, TaskStream
from pidts.task.compose import source_config, target_of
from pidts.task.config import TaskConfig
from pidts.task.copying import Patterns
from pidts.task.goals import Goals
from pidts.task.halting import Halting
from pidts.task.lost import as_loss, explained, last_moved, loses_log
from pidts.task.membership import Wanted
from pidts.task.orders import has_failed
from pidts.task.progress import Stage
from pidts.task.reading import wait_for_relay
from pidts.task.relay_cure import RelayCure
from pidts.task.replicator_process import ReplicatorProcess
from pidts.task.shard_start import ShardAhead
from pidts.task.shared_spark import SharedSpark
from pidts.task.start import Begin, begin
from pidts.task.takeover import Takeover
from pidts.task.tracker import Tracker

_log = structlog.get_logger(__name__)

_TELL_SECONDS = 0.2
_PURGE_SECONDS = 10.0
"""So often, relay segments that the target's checkpoint has passed are removed."""
_UNKNOWN = frozenset({"structure-unknown", "ddl-does-not-fit"})
"""Codes of errors that a table which joins the task may put an end to."""


@dataclass(frozen=True, slots=True)
class Shared:
    """What all parts of a run have in common."""

    spark: SharedSpark
    goals: Goals
    takeover: Takeover
    shards: ShardGroups


class Attempts:
    """What lives as long as the run: the goal, the number of the attempt, what has halted."""

    def __init__(
        self,
        config: TaskConfig,
        replicator: ReplicatorProcess,
        scratch: Path,
        tracker: Tracker,
        shared: Shared,
        stop: threading.Event,
        resync: Patterns,
    ) -> None:
        self._config, self._replicator, self._scratch = config, replicator, scratch
        self._tracker, self._shared, self._stop = tracker, shared, stop
        self._goal: Lsn | None = None
        self._cure = RelayCure(config)
        self._applied: Lsn | None = None
        """What is on the target, as far as this run has seen."""
        self._moved_at = last_moved(config)
        self._attempt = 0
        self._starts_over = resync == ()
        """Whether a log that is lost may be left for a new position."""
        self._wanted = Wanted(resync)
        self._asked: Halted | None = None
        """What the next attempt shall put an end to by having tables join."""
        self._answered: set[tuple[str, str, str]] = set()
        self._halting = Halting(config.name, config.source.source_id)
        self._is_asked_again = False
        """Whether an operator wants another attempt, since what was refused may be taken now."""

    def is_over(self, *, until_synced: bool) -> bool:
        """One attempt; False where another one has to follow at once."""
        before, self._is_asked_again = self._config, False
        try:
            self._attempt_once(until_synced=until_synced)
        except Halted as error:
            self._has_arrived(arrived=False)
            self._answer(error)
            return False
        except Exception:
            self._has_arrived(arrived=False)
            raise
        return self._shared.goals.is_over or (self._config is before and not self._is_asked_again)

    def _answer(self, error: Halted) -> None:
        """See to it that the next attempt fares better; raise what a person has to decide."""
        place = _place(error)
        if self._halting.takes(error):
            return
        if not self._is_final(error):
            self._answered.add(place)
            self._asked = error
            if error.code == "structure-unknown":
                self._wanted = replace(self._wanted, unknown=self._wanted.unknown | {error.where.table})
            self._wanted = replace(self._wanted, looks=True)
            _log.info("the log speaks of a table that the task does not know", code=error.code, table=place[1])
            return
        if error.code in _UNKNOWN and place in self._answered:
            raise error
        try:
            self._tracker.refetching(self._cure(error, self._applied), self._cure.refetches)
        except Halted as final:
            if not (self._starts_over and loses_log(final)):
                several = len(self._shared.takeover.parts) > 1
                raise explained(self._config, final, self._moved_at, is_one_of_several=several) from error
            self._starts_over = False
            self._wanted = replace(self._wanted, resync=(), lost=as_loss(final))
            _log.warning("the log is lost, a new position is taken", code=final.code, what=final.what)

    def _is_final(self, error: Halted) -> bool:
        """Whether it is of no use to look for tables that may join the task."""
        may_join = error.code in _UNKNOWN and error.where.table and self._config.mode != "incremental"
        return not may_join or _place(error) in self._answered

    def _attempt_once(self, *, until_synced: bool) -> None:
        """From the claim to the goal, a stop or a failure."""
        config = self._config
        self._attempt += 1
        scratch = self._scratch / str(self._attempt)
        scratch.mkdir()
        with closing(connect(source_config(config))) as source, closing(target_of(config).connect()) as target:
            mark = TaskMark(config.relay, config.source.source_id, config.name, config.relay_keep)
            begun = self._begin(source, target, mark)
            self._told(begun)
            _, state, _ = Workers.claimed(begun.checkpoints)
            self._halting.begins(target, config.rules, state, begun.structures, begun.checkpoints[0].epoch)
            with closing(RelayReader(config.relay, config.source.source_id)) as relay:
                slowest = self._applied = state.needs
                mark.move(slowest)
                wait_for_relay(config, self._replicator, slowest, self._stop, relay)
                # The source may have been replaced after the checkpoint; positions are its successor's then.
                change_no = relay.origin.change_no if relay.origin else slowest.change_no
                if until_synced and (self._goal is None or self._goal.change_no != change_no):
                    self._goal = Lsn.at(position(source)[0], change_no)
                staging = config.relay / config.source.source_id / "chunks" / config.name
                shutil.rmtree(staging, ignore_errors=True)
                first = begun.checkpoints[0]
                copied = begun.structures if config.mode != "incremental" else ()
                self._tracker.resumed(state, first.gtid, first.position, copied)
                spark = self._shared.spark.session(lambda: self._tracker.tell("starting", message="starting Spark"))
                stream = TaskStream(
                    spark=spark,
                    context=JobContext(
                        task=config.name,
                        source=source_config(config),
                        relay=config.relay,
                        staging=staging / str(first.epoch),
                        target=target_of(config),
                        workers=config.workers,
                        epoch=first.epoch,
                        change_no=change_no,
                        structures=begun.structures,
                        dialect=begun.dialect,
                        clock_is_utc=begun.clock_is_utc,
                        charsets=begun.charsets,
                        split_rows=config.split_transactions,
                        rules=begun.rules,
                        writing=ApplyRules(
                            source=config.source.source_id,
                            version_column=config.version_column,
                            safe=config.safe_mode,
                            safe_until=begun.safe_until,
                            beside=len(self._shared.shards.roster.sources) > 1,
                            filters=begun.rules,
                        ),
                        watched=watched_by(target, map(begun.rules.landed, begun.structures.values()), config.workers),
                        copy_threads=config.copy_threads,
                        copy_rate=config.copy_rate,
                    ),
                    checkpoints=begun.checkpoints,
                    meaning=Meaning(config.allow, begun.dialect, config.rules.events),
                    limits=Limits(
                        row_events=config.batch_rows,
                        bytes=config.batch_bytes,
                        chunk_rows=config.chunk_rows,
                        threads=config.copy_threads,
                        follows=config.mode != "full",
                        rate=config.copy_rate or None,
                    ),
                    direct_rows=config.direct_rows,
                    goal=self._goal,
                    scratch=scratch,
                    on_batch=self._committed,
                    halted=self._halting.rows,
                    told=self._halting.told,
                    halts_alone=self._is_final,
                    shards=self._shared.shards,
                )
                self._halting.runs(stream, relay, self._shared.shards)
                with self._shared.spark.losing_is_transient(spark), closing(stream):
                    stream.start()
                    self._watch(stream, relay, mark)
                    if self._stop.is_set():
                        stream.leave()
                with suppress(Transient):
                    # While the task is stopped others purge the relay by this.
                    mark.move(stream.state.needs)

    def _begin(self, source: SourceSession, target: TargetSession, mark: TaskMark) -> Begin:
        """Nobody who shares the relay purges it before this task knows where it stands."""
        mark.begin()
        own = self._config.source.source_id
        beside = [part for part in self._shared.takeover.parts if part.source.source_id != own]
        self._shared.shards.stand_aside(own, aside=False)
        try:
            return begin(self._config, source, target, self._replicator, self._stop, self._wanted, beside)
        except ShardAhead:
            self._shared.shards.stand_aside(own, aside=True)
            raise
        except Transient:
            raise
        except Exception:
            mark.withdraw()
            raise

    def _told(self, begun: Begin) -> None:
        """What was asked of the start is done, and on the target's record."""
        asked, self._asked, self._wanted = self._asked, None, Wanted()
        for note in begun.notes:
            _log.info(note)
        if begun.notes:
            self._tracker.note("; ".join(begun.notes))
        if asked is not None and not begun.joined and asked.code != "ddl-does-not-fit":
            raise asked

    def _committed(self, done: BatchDone) -> None:
        self._applied, self._moved_at = done.plan.end.needs, time.time()
        self._cure.applied()
        self._tracker.batch(done)

    def _watch(self, stream: TaskStream, relay: RelayReader, mark: TaskMark) -> None:
        purge_at = time.monotonic() + _PURGE_SECONDS
        while True:
            failure = stream.failure()
            if failure is not None:
                raise failure
            self._replicator.watch()
            state = stream.state
            received = relay.received
            stage: Stage = "copy" if state.copying else "sync"
            self._tracker.halted(stream.halts)
            self._halting.goes_on(target_of(self._config))
            rests = self._halting.rests(stream, relay)
            self._tracker.tell(stage, caught_up=rests or (received is not None and state.needs >= received))
            if self._has_arrived(arrived=self._is_goal(state, received, rests=rests)):
                return
            if time.monotonic() >= purge_at:
                self._purge(mark, state.needs)
                purge_at = time.monotonic() + _PURGE_SECONDS
            changed = self._shared.takeover.look(self._config, halted=any(map(has_failed, stream.halts)))
            if changed is not None:
                self._config = changed
                self._halting.forget()
                return
            if self._halting.is_lifted(target_of(self._config)):
                self._is_asked_again = True
                return
            if self._stop.wait(_TELL_SECONDS):
                return

    def _has_arrived(self, *, arrived: bool) -> bool:
        """Whether the run is over with that."""
        return self._shared.goals.found(self._config.source.source_id, arrived=arrived)

    def _is_goal(self, state: PlanState, received: Lsn | None, *, rests: bool) -> bool:
        """What waits for an operator keeps nobody waiting who waits for all the rest."""
        if self._goal is None:
            return False
        if rests and received is not None and received >= self._goal:
            return True
        return not state.copying and state.needs >= self._goal

    def _purge(self, mark: TaskMark, applied: Lsn) -> None:
        """Behind all tasks that share the relay. A disk that has no room for the mark is no reason not to make some."""
        with suppress(Transient):
            mark.move(applied)
        config = self._config
        release(config.relay, config.source.source_id, PurgeLimits(checkpoints={config.name: applied}))


def _place(error: Halted) -> tuple[str, str, str]:
    return error.code, error.where.table, error.where.position
