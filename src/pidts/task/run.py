"""One run of a task: prechecks, then all its parts side by side in one process, over one Spark session.

A part is one source: a replicator of its own, and attempts from the target's checkpoint for as long as that may help,
in a thread of its own. What troubles one source keeps no other waiting. What ends one part for good ends the run: the
others stop at a transaction's end, as they do when the user stops it.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import structlog

from pidts.batch.shard_groups import ShardGroups
from pidts.model import Transient
from pidts.task.attempts import Attempts, Shared
from pidts.task.check_parts import require_parts_fit
from pidts.task.combined import Board, summed_up
from pidts.task.config import TaskConfig
from pidts.task.copying import Patterns
from pidts.task.goals import Goals
from pidts.task.progress import Progress, Summary
from pidts.task.reading import Stopped
from pidts.task.replicator_process import ReplicatorProcess
from pidts.task.resync import resync_of
from pidts.task.shard_checks import counts_apart
from pidts.task.shared_spark import SharedSpark
from pidts.task.side_by_side import side_by_side
from pidts.task.takeover import Takeover
from pidts.task.tracker import Tracker

_log = structlog.get_logger(__name__)

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0
_SPARK_FAILURES = 5
"""So often in a row without a batch, and it is not going to work. Servers are waited for without end."""


def run_task(
    parts: Sequence[TaskConfig],
    *,
    until_synced: bool,
    stop: threading.Event,
    on_progress: Callable[[Progress], None],
    resync: Patterns = None,
) -> Summary:
    """Run until stopped, or until what the sources had at the start is applied and copied.

    `resync` has the rows of these tables put right once more; none named: of all tables.

    A lost connection, a dead worker or a dead query is no end: the next attempt begins at the target's checkpoint. A
    server that does not let us write (a lock, read-only, down) is waited for without end, and the cause is shown. A
    relay that is broken is filled again from the source, once at a place.
    """
    board, name = Board(on_progress), parts[0].name
    trackers = [Tracker(name, part.source.source_id, board.of(part.source.source_id)) for part in parts]
    for tracker in trackers:
        tracker.tell("starting", message="checking servers")
    wanted = resync_of(parts, resync)
    require_parts_fit(parts, wanted)
    with ExitStack() as cleanup:
        scratch = Path(tempfile.mkdtemp(prefix=f"pidts-{name}-"))
        cleanup.callback(shutil.rmtree, scratch, ignore_errors=True)
        spark = SharedSpark(parts[0], scratch)
        cleanup.callback(spark.close)

        def note(text: str) -> None:
            for tracker in trackers:
                tracker.note(text)

        rules = {part.source.source_id: part.rules for part in parts}
        shards = ShardGroups(parts[0].shard_mode, rules, rules, counts_apart=counts_apart(parts[0]))
        shared = Shared(spark, Goals(len(parts), lambda: shards.moves), Takeover(parts, note, shards), shards)
        works = {}
        for number, (part, tracker) in enumerate(zip(parts, trackers, strict=True)):
            own, source = scratch / str(number), part.source.source_id
            own.mkdir()
            ends = until_synced or part.mode == "full"
            works[source] = partial(_carry_on, part, tracker, shared, own, wanted[source], until_synced=ends)
        side_by_side(works, stop)
    return summed_up([tracker.summary(synced=shared.goals.is_over) for tracker in trackers])


def _carry_on(
    config: TaskConfig,
    tracker: Tracker,
    shared: Shared,
    scratch: Path,
    resync: Patterns,
    stop: threading.Event,
    *,
    until_synced: bool,
) -> None:
    """One part, one attempt after the other."""
    replicator = ReplicatorProcess(config)
    pause, spark_failures = _FIRST_PAUSE, 0
    try:
        run = Attempts(config, replicator, scratch, tracker, shared, stop, resync)
        while True:
            batches = tracker.batches
            try:
                if run.is_over(until_synced=until_synced):
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
                    "paused, going on from the target's checkpoint",
                    source=config.source.source_id,
                    code=error.code,
                    cause=str(error),
                    pause=pause,
                )
                tracker.paused(error, pause)
                if stop.wait(pause):
                    break
    finally:
        replicator.stop()
