"""One run of a task: the prechecks, then all its parts at the same time, in one process with one Spark session.

A part is one source, with its own replicator and its own thread. The thread makes attempts, each from the target's
checkpoint, as long as another attempt may help. An error of one source does not delay the other sources. If a part
cannot continue at all, its error ends the run. The other parts then stop at the end of a transaction, as they do when
the user stops the run.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

from pidts.ddl.shards.coordinator import ShardGroups
from pidts.forked import Forker
from pidts.model import PidtsError, ServerDown, Transient
from pidts.owned_folder import owned_folder
from pidts.relay.permissions import private_files
from pidts.task.checks.all_sources import require_all_sources_fit
from pidts.task.checks.channel import demand_tables
from pidts.task.checks.shards import ignores_key_overlap
from pidts.task.config.task_file import TaskConfig
from pidts.task.operate.log_loss import advised_without_copy
from pidts.task.operate.pause import PauseFile
from pidts.task.operate.progress import Progress
from pidts.task.operate.run_end import remembered_end
from pidts.task.operate.sole_run import sole_run
from pidts.task.run.absent_servers import wait_for_servers
from pidts.task.run.alerts import Alerts, alerting, watched
from pidts.task.run.attempt.pause_log import PauseLog
from pidts.task.run.attempts import Attempts, SharedByParts
from pidts.task.run.config_reload import ConfigReload
from pidts.task.run.cutover_under_way import demand_startable
from pidts.task.run.goal import RunCompletion
from pidts.task.run.read_structures import StartStopped
from pidts.task.run.replicator_process import NoReplicator, ReplicatorProcess
from pidts.task.run.shared_spark import SharedSpark
from pidts.task.run.tracker import CombinedProgress, Tracker, combined
from pidts.task.tables.copy_start import Patterns, resync_of
from pidts.task.tables.rewind_request import RewindPoint, rewinds_of
from pidts.task.threads_per_source import side_by_side

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0
_SPARK_FAILURES = 5
"""After more than this number of successive failures of Spark, without a completed job, the run ends. (If a server
fails, the run waits without end.)
"""


def run_task(
    parts: Sequence[TaskConfig],
    *,
    until_synced: bool,
    stop: threading.Event,
    on_progress: Callable[[Progress], None],
    resync: Patterns = None,
    rewind: str = "",
    receives: bool = True,
    replicators: Forker | None = None,
) -> Progress:
    """Runs a task until it is stopped.

    - `until_synced`: the run ends when the target has all changes that the sources had at the start.
    - `resync` selects tables whose rows are copied again and repaired; an empty selection means all tables.
    - `rewind` is the place or the time after which the log is sent again (`pidts.task.run.rewind`); empty for no log.
    - `receives`: this machine receives the log, from the source or from the relay server that the task file names.
      Otherwise another machine writes the relay, on a file system that both share.
    - `replicators` forks the replicators. Without it, each replicator is a new program.

    The run waits for a server that does not answer at the start, even if the task has never begun. A lost connection, a
    dead worker or a dead query does not end the run: the next attempt begins at the target's checkpoint. If the target
    does not accept writes (a lock, read-only, down), the run waits without end and shows the cause. If the relay is
    damaged, the source sends that part of its log again, once for each place.
    """
    if resync is not None or rewind:
        option = "--rewind-to" if resync is None else "--resync"
        reason = "it has changes and no rows, so there is nothing to copy again"
        demand_tables(parts[0], option, reason, f"Run it without {option}")
    name = parts[0].name
    alerts = Alerts(parts[0].relay, name, parts[0].path)
    pauses = PauseFile(parts[0])
    shows = watched(alerts, on_progress)

    def take(progress: Progress) -> None:
        pauses.store({one.source: one.pause for one in progress.sources if one.pause is not None})
        shows(progress)

    board = CombinedProgress(take)
    trackers = [Tracker(name, part.source.source_id, board.of(part.source.source_id)) for part in parts]
    for tracker in trackers:
        tracker.begins()
    wanted, rewinds = resync_of(parts, resync), rewinds_of([part.source.source_id for part in parts], rewind)
    demand_startable(parts[0])
    down: ServerDown | None = None
    try:
        require_all_sources_fit(parts, wanted)
    except ServerDown as error:
        down = error
    except PidtsError:
        if parts[0].alerts is not None or parts[0].relay.exists():
            with (
                suppress(PidtsError),
                sole_run(parts[0]),
                remembered_end(parts[0]),
                alerting(alerts, parts[0].alerts),
            ):
                raise
        raise
    with ExitStack() as cleanup:
        cleanup.enter_context(sole_run(parts[0]))  # after the checks: a first run that fails in them leaves no file
        epochs = cleanup.enter_context(remembered_end(parts[0]))
        cleanup.enter_context(alerting(alerts, parts[0].alerts))
        cleanup.enter_context(pauses)
        cleanup.enter_context(private_files())
        if down is not None and not wait_for_servers(parts, trackers, wanted, down, stop):
            return combined([tracker.summary(synced=False) for tracker in trackers])
        scratch = cleanup.enter_context(owned_folder(name))
        spark = SharedSpark(parts[0], scratch)
        cleanup.callback(spark.close)

        def note(text: str) -> None:
            for tracker in trackers:
                tracker.note(text)

        rules = {part.source.source_id: part.rules for part in parts}
        shards = ShardGroups(parts[0].shard_mode, rules, rules, counts_apart=ignores_key_overlap(parts[0]))
        shared = SharedByParts(
            spark,
            RunCompletion(len(parts), lambda: shards.moves),
            ConfigReload(parts, note, shards),
            shards,
            alerts,
            epochs,
        )
        works = {}
        for number, (part, tracker) in enumerate(zip(parts, trackers, strict=True)):
            own, source = scratch / str(number), part.source.source_id
            own.mkdir()
            ends = until_synced or part.mode == "full"
            receives_it = receives or part.relay_from is not None
            replicator = ReplicatorProcess(part, forker=replicators) if receives_it else NoReplicator(part)
            works[source] = partial(
                _carry_on,
                part,
                replicator,
                tracker,
                shared,
                own,
                wanted[source],
                rewind=rewinds[source],
                until_synced=ends,
            )
        side_by_side(works, stop)
    return combined([tracker.summary(synced=shared.completion.is_over) for tracker in trackers])


def _carry_on(
    config: TaskConfig,
    replicator: ReplicatorProcess,
    tracker: Tracker,
    shared: SharedByParts,
    scratch: Path,
    resync: Patterns,
    stop: threading.Event,
    *,
    rewind: RewindPoint | None,
    until_synced: bool,
) -> None:
    pause, spark_failures, log = _FIRST_PAUSE, 0, PauseLog(config.source.source_id)
    run = Attempts(config, replicator, scratch, tracker, shared, stop, resync, rewind)
    try:
        while True:
            batches, spark_jobs = tracker.batches, run.spark_jobs
            try:
                # An attempt may end because another attempt has to follow at once. A stop must still end the loop.
                with advised_without_copy(config):
                    if run.attempt(until_synced=until_synced) or stop.is_set():
                        break
            except StartStopped:
                break
            except Transient as error:
                progress = tracker.batches > batches
                pause = _FIRST_PAUSE if progress else min(pause * 2, _LONGEST_PAUSE)
                # The driver applies batches without Spark. So only completed jobs show that Spark works.
                spark_failures = 0 if run.spark_jobs > spark_jobs else spark_failures
                spark_failures += error.code.startswith("spark-")
                if spark_failures > _SPARK_FAILURES:
                    raise
                log.paused(error, pause, has_progressed=progress)
                tracker.paused(error, pause)
                if stop.wait(pause):
                    break
    finally:
        replicator.stop()
