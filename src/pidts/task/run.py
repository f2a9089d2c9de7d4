"""One run of a task: prechecks, replicator, and attempts from the target's checkpoint for as long as that may help."""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import structlog

from pidts.model import Transient
from pidts.task.attempts import Attempts
from pidts.task.check import require_fit
from pidts.task.config import TaskConfig
from pidts.task.copying import Patterns
from pidts.task.progress import Progress, Summary
from pidts.task.reading import Stopped
from pidts.task.replicator_process import ReplicatorProcess
from pidts.task.tracker import Tracker

_log = structlog.get_logger(__name__)

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0
_SPARK_FAILURES = 5
"""So often in a row without a batch, and it is not going to work. Servers are waited for without end."""


def run_task(
    config: TaskConfig,
    *,
    until_synced: bool,
    stop: threading.Event,
    on_progress: Callable[[Progress], None],
    resync: Patterns = None,
) -> Summary:
    """Run until stopped, or until what the source had at the start is applied and copied.

    `resync` has the rows of these tables put right once more; none named: of all tables.

    A lost connection, a dead worker or a dead query is no end: the next attempt begins at the target's checkpoint. A
    server that does not let us write (a lock, read-only, down) is waited for without end, and the cause is shown. A
    relay that is broken is filled again from the source, once at a place.
    """
    tracker = Tracker(config.name, on_progress)
    tracker.tell("starting", message="checking servers")
    require_fit(config, resync)
    replicator = ReplicatorProcess(config)
    pause, spark_failures = _FIRST_PAUSE, 0
    with ExitStack() as cleanup:
        scratch = Path(tempfile.mkdtemp(prefix=f"pidts-{config.name}-"))
        cleanup.callback(shutil.rmtree, scratch, ignore_errors=True)
        cleanup.callback(replicator.stop)
        run = Attempts(config, replicator, scratch, tracker, stop, resync)
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
