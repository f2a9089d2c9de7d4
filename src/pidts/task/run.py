"""One run of a task: prechecks, replicator, claim, stream; and again from the claim where trying again may help."""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

import structlog

from pidts.apply import ApplyRules, TargetSession
from pidts.batch.context import JobContext, watched_by
from pidts.batch.meaning import Meaning
from pidts.batch.workers import Workers
from pidts.model import Halted, Lsn, PidtsError, Transient
from pidts.plan import Limits
from pidts.relay import RelayReader
from pidts.relay.needs import TaskMark
from pidts.relay.retention import PurgeLimits, release
from pidts.source import Session as SourceSession
from pidts.source import connect, position
from pidts.spark.failures import restored
from pidts.spark.session import Session, build_session, forget_session, is_alive
from pidts.spark.stream import BatchDone, TaskStream
from pidts.task.check import require_fit
from pidts.task.compose import source_config, target_of
from pidts.task.config import TaskConfig
from pidts.task.progress import Progress, Stage, Summary
from pidts.task.relay_cure import RelayCure
from pidts.task.replicator_process import ReplicatorProcess
from pidts.task.start import Begin, Stopped, begin, wait_for_relay
from pidts.task.tracker import Tracker

_log = structlog.get_logger(__name__)

_TELL_SECONDS = 0.2
_PURGE_SECONDS = 10.0
"""So often, relay segments that the target's checkpoint has passed are removed."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0
_SPARK_FAILURES = 5
"""So often in a row without a batch, and it is not going to work. Servers are waited for without end."""


def run_task(
    config: TaskConfig, *, until_synced: bool, stop: threading.Event, on_progress: Callable[[Progress], None]
) -> Summary:
    """Run until stopped, or until what the source had at the start is applied and copied.

    A lost connection, a dead worker or a dead query is no end: the next attempt begins at the target's checkpoint. A
    server that does not let us write (a lock, read-only, down) is waited for without end, and the cause is shown. A
    relay that is broken is filled again from the source, once at a place.
    """
    tracker = Tracker(config.name, on_progress)
    tracker.tell("starting", message="checking servers")
    require_fit(config)
    replicator = ReplicatorProcess(config)
    pause, spark_failures = _FIRST_PAUSE, 0
    with ExitStack() as cleanup:
        scratch = Path(tempfile.mkdtemp(prefix=f"pidts-{config.name}-"))
        cleanup.callback(shutil.rmtree, scratch, ignore_errors=True)
        cleanup.callback(replicator.stop)
        run = _Run(config, replicator, scratch, tracker, stop)
        cleanup.callback(run.close)
        while True:
            batches = tracker.batches
            try:
                if run.is_over(until_synced=until_synced or config.mode == "full"):
                    break
            except Stopped:
                break
            except Transient as error:
                progress = tracker.batches > batches
                pause = _FIRST_PAUSE if progress else min(pause * 2, _LONGEST_PAUSE)
                spark_failures = 0 if progress else spark_failures + error.code.startswith("spark-")
                if spark_failures > _SPARK_FAILURES:
                    raise
                _log.warning(
                    "paused, going on from the target's checkpoint", code=error.code, cause=str(error), pause=pause
                )
                tracker.paused(error, pause)
                if stop.wait(pause):
                    break
    return tracker.summary(synced=run.reached_goal)


class _Run:
    """What lives as long as the run: Spark's session, the goal, the number of the attempt."""

    def __init__(
        self, config: TaskConfig, replicator: ReplicatorProcess, scratch: Path, tracker: Tracker, stop: threading.Event
    ) -> None:
        self._config, self._replicator, self._scratch = config, replicator, scratch
        self._tracker, self._stop = tracker, stop
        self._spark: Session | None = None
        self._goal: Lsn | None = None
        self._cure = RelayCure(config)
        self._applied: Lsn | None = None
        """What is on the target, as far as this run has seen."""
        self._attempt = 0
        self.reached_goal = False

    def is_over(self, *, until_synced: bool) -> bool:
        """One attempt; False where the relay was broken and is being filled again, so that another one follows."""
        try:
            self._attempt_once(until_synced=until_synced)
        except Halted as error:
            self._tracker.refetching(self._cure(error, self._applied), self._cure.refetches)
            return False
        return True

    def _attempt_once(self, *, until_synced: bool) -> None:
        """From the claim to the goal, a stop or a failure."""
        config = self._config
        self._attempt += 1
        scratch = self._scratch / str(self._attempt)
        scratch.mkdir()
        with closing(connect(source_config(config))) as source, closing(target_of(config).connect()) as target:
            mark = TaskMark(config.relay, config.source.source_id, config.name, config.relay_keep)
            begun = self._begin(source, target, mark)
            with closing(RelayReader(config.relay, config.source.source_id)) as relay:
                _, state, _ = Workers.claimed(begun.checkpoints)
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
                self._tracker.resumed(state, first.gtid, first.position)
                spark = self._session()
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
                        rules=ApplyRules(
                            source=config.source.source_id,
                            version_column=config.version_column,
                            safe=config.safe_mode,
                            safe_until=begun.safe_until,
                        ),
                        watched=watched_by(target, begun.structures.values(), config.workers),
                    ),
                    checkpoints=begun.checkpoints,
                    meaning=Meaning(config.allow, begun.dialect),
                    limits=Limits(chunk_rows=config.chunk_rows),
                    direct_rows=config.direct_rows,
                    goal=self._goal,
                    scratch=scratch,
                    on_batch=self._committed,
                )
                with self._losing_spark_is_transient(), closing(stream):
                    stream.start()
                    self._watch(stream, relay, mark)
                with suppress(Transient):
                    # While the task is stopped others purge the relay by this.
                    mark.move(stream.state.needs)

    def _begin(self, source: SourceSession, target: TargetSession, mark: TaskMark) -> Begin:
        """Nobody who shares the relay purges it before this task knows where it stands."""
        mark.begin()
        try:
            return begin(self._config, source, target, self._replicator, self._stop)
        except Transient:
            raise
        except Exception:
            mark.withdraw()
            raise

    def _committed(self, done: BatchDone) -> None:
        self._applied = done.plan.end.needs
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
            self._tracker.tell(stage, caught_up=received is not None and state.needs >= received)
            if self._goal is not None and not state.copying and state.needs >= self._goal:
                self.reached_goal = True
                return
            if time.monotonic() >= purge_at:
                self._purge(mark, state.needs)
                purge_at = time.monotonic() + _PURGE_SECONDS
            if self._stop.wait(_TELL_SECONDS):
                return

    def _purge(self, mark: TaskMark, applied: Lsn) -> None:
        """Behind all tasks that share the relay. A disk that has no room for the mark is no reason not to make some."""
        with suppress(Transient):
            mark.move(applied)
        config = self._config
        release(config.relay, config.source.source_id, PurgeLimits(checkpoints={config.name: applied}))

    def _session(self) -> Session:
        if self._spark is None:
            self._tracker.tell("starting", message="starting Spark")
            config = self._config
            self._spark = build_session(
                config.name, config.spark_master, self._scratch, config.relay / "spark.log", config.spark_conf
            )
        return self._spark

    @contextmanager
    def _losing_spark_is_transient(self) -> Iterator[None]:
        """A killed JVM takes its session along, and calls into it fail in many ways; the next attempt has another."""
        try:
            yield
        except Exception as error:
            alive = self._spark is not None and is_alive(self._spark)
            if not alive:
                forget_session()
                self._spark = None
            if isinstance(error, PidtsError):
                raise
            if not alive:
                raise Transient("spark-died", "Spark's JVM is gone") from error
            found = restored(error)
            if found is error:
                raise
            raise found from error

    def close(self) -> None:
        """End Spark."""
        if self._spark is not None:
            with suppress(Exception):  # a JVM that was killed cannot be asked to end
                self._spark.stop()
