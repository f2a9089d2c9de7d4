"""Finds the place of a batch's end in the source's log, and checks that the relay has the log of the checkpoints.

Suppose that the relay is lost and the source is reset (RESET MASTER). Another task, or a relay server, then fills the
relay with the new log. A task that continued at its checkpoint's place would leave out changes of the new log. So the
log file in each checkpoint is compared with the file of the same name in the relay: when a run begins, and again at the
place where each batch begins.

The points at which a run may be interrupted, and what holds there:

1. Before or after a comparison: nothing was written, and the next run compares again.
2. The relay does not have the checkpoint's place yet, for example because tables wait at an earlier place: nothing is
   compared at the start. A batch that moves the checkpoint begins at this place, so the relay then has the next entry.
3. Between the comparison at the start and a batch, the relay is emptied and filled again: the next batch compares
   before it writes.
4. During a commit: the position and the log file are in one row, so they belong together.

No comparison is possible in three cases: the checkpoint has no log file, the relay has purged this file, or the relay
got this part of the log from another server. Then the run continues.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pidts.batch.workers import stored_with
from pidts.model import Checkpoint, LogFile, LogPlace, Lsn, Position, Where
from pidts.replicate.resume import log_made_anew


class _Relay(Protocol):
    def position(self, lsn: Lsn) -> Position | None: ...

    def log_file(self, lsn: Lsn) -> LogFile | None: ...


def demand_same_log(relay: _Relay, checkpoints: Sequence[Checkpoint]) -> None:
    """Raises if the relay has another log than the one whose changes the target has (`source-went-back`)."""
    for one in checkpoints:
        _demand_same_file([one], relay.log_file(stored_with(one).lsn))


def end_of_batch(relay: _Relay, checkpoints: Sequence[Checkpoint], begin: Lsn, end: Lsn) -> LogPlace:
    """Returns the place at which a batch ends. Raises as `demand_same_log` does, for the place at which it begins.

    If the batch has no log, its log file is not known.
    """
    _demand_same_file(checkpoints, relay.log_file(begin))
    return LogPlace(str(relay.position(end) or ""), relay.log_file(end) if end != begin else None)


def _demand_same_file(checkpoints: Sequence[Checkpoint], there: LogFile | None) -> None:
    if there is None:
        return
    for one in checkpoints:
        if one.log_file is not None and one.log_file.is_made_anew(there):
            raise log_made_anew(one.log_file, there, Where(source=one.source), holder="the relay")
