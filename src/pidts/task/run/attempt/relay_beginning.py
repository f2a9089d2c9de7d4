"""Begins a relay, or empties it and begins it at another place.

A relay lacks the rows of XA transactions that were prepared before its beginning (`xa-not-received`). If the source
still has these rows, the relay is emptied and begins before them. The crash points:

1. Before the relay is emptied: nothing has changed. The next run finds the same error, and repeats all steps.
2. After the relay is emptied, before the new relay has begun: the next run begins the empty relay at the target's
   checkpoint. So the relay lacks the same rows again, as in 1.
3. After the new relay has begun: the task continues at its checkpoint.
4. The source purges the rows' log before the new relay has begun: the replicator ends with `position-lost`. Without the
   rows, the task could not have continued either.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing, suppress

import structlog

from pidts.model import Checkpoint, Halted, Lsn, Position
from pidts.plan.continuity import Discontinuity
from pidts.relay import RelayReader
from pidts.relay.lock import RELAY_IN_USE, empty_relay
from pidts.replicate.earlier_begin import begin_before_rows
from pidts.source import Session
from pidts.source.prepared_xa import begin_with_prepared
from pidts.task.config.task_file import TaskConfig
from pidts.task.operate.log_loss import LACKS_ROWS, other_tasks
from pidts.task.run.read_structures import StartStopped, wait_for_relay
from pidts.task.run.replicator_process import NoReplicator, ReplicatorProcess

_log = structlog.get_logger(__name__)


def begin_of_relay(config: TaskConfig, source: Session, place: Position, stop: threading.Event) -> Position:
    """Returns the position at which a new relay has to begin to have all rows of a task that begins at `place`.

    A follower's relay always begins at `place`: the relay server chooses the beginning of its own relay.
    """
    if config.relay_from is not None:
        return place
    begin = begin_with_prepared(config.source.server, source, place, stop)
    if stop.is_set():
        raise StartStopped
    return begin


def is_relay_empty(config: TaskConfig) -> bool:
    """Whether a relay has to begin. A damaged relay has begun: its replicator reports the damage."""
    with suppress(Discontinuity), closing(RelayReader(config.relay, config.source.source_id)) as relay:
        return relay.first is None
    return False


class EarlierBeginning:
    """Lets the relay of a run begin before the rows that it lacks, once for each COMMIT of an XA transaction."""

    def __init__(self, replicator: ReplicatorProcess, stop: threading.Event) -> None:
        self._replicator, self._stop = replicator, stop
        self._tried: set[str] = set()

    def answers(self, config: TaskConfig, error: Halted, applied: Lsn | None, show_step: Callable[[str], None]) -> bool:
        """Returns whether the relay now has the missing rows. `applied`: the place up to which the target has the log.

        Returns False if the source no longer has the rows, or if this run may not empty the relay: another process or
        machine receives the log, or other tasks use the relay. `show_step` receives a text about each step.
        """
        source_id, commit = config.source.source_id, error.where.position
        if error.code != LACKS_ROWS or applied is None or commit in self._tried:
            return False
        if config.relay_from is not None or isinstance(self._replicator, NoReplicator) or other_tasks(config):
            return False
        show_step("searching the source's log for the rows of XA transactions that the relay lacks")
        _log.info("the source's log is searched for rows that the relay lacks", source=source_id, cause=error.what)
        with closing(RelayReader(config.relay, source_id)) as relay:
            place = begin_before_rows(config.source.server, relay, applied, self._stop)
            if place is None or not self._empties(config):
                return False
            _log.warning("the relay begins anew, before the rows that it lacks", what=error.what, begin=place.position)
            self._replicator.resume_at = Checkpoint(
                task=config.name, source=source_id, worker=0, lsn=place.lsn, position=place.position
            )
            self._replicator.start()
            wait_for_relay(config, self._replicator, None, self._stop, relay, show_step=show_step)
        self._tried.add(commit)
        return True

    def _empties(self, config: TaskConfig) -> bool:
        """Empties the relay, unless a process such as `pidts replicate` writes it. Returns whether it is empty."""
        source_id = config.source.source_id
        self._replicator.stop()
        try:
            empty_relay(config.relay, source_id)
        except Halted as error:
            if error.code != RELAY_IN_USE:
                raise
            _log.warning(
                "the relay does not begin anew, since another process writes it", source=source_id, cause=error.what
            )
            self._replicator.start()
            return False
        return True
