"""Finds the place of a batch's end in the source's log, and checks that the relay has the log of the checkpoints.

A task fills a lost relay from its own checkpoint on. So each other task of this relay has to compare the relay's log
with its checkpoints.

Suppose that the relay is lost and the source is reset (RESET MASTER). Another task, or a relay server, then fills the
relay with the new log. A task that continued at its checkpoint's place would leave out changes of the new log. So the
log file in each checkpoint is compared with the file of the same name in the relay: when a run begins, and again at the
place where each batch begins. A relay that is empty, or ends before the checkpoints, may never get this file. So the
source's log is compared, too, before the run waits for this relay.

Or suppose that the relay is lost and the source is replaced by another server. The first task that starts fills the
relay by GTID, from its checkpoint on, and the number of replacements in the Lsns grows. So all Lsns of the new log are
after the places of all tasks. A task, or a worker, that is further than the first task would apply the changes between
the two places again. A task that is less far finds that the relay begins after its place (`relay-purged`). The two
servers may also have the same number: if the new server's log has the same GTIDs at the first task's place, or if a
relay server has begun anew. Then the relay must have the checkpoint's GTIDs at the checkpoint's place.

A run may be interrupted at these points:

1. Before or after a comparison: nothing was written, and the next run compares again.
2. The relay does not have the checkpoint's place yet, for example because tables wait at an earlier place: nothing is
   compared at the start. A batch that moves the checkpoint begins at this place, so the relay then has the next entry.
3. Between the comparison at the start and a batch, the relay is emptied and filled again: the next batch compares
   before it writes. The relay's reader notices it even if somebody has removed the relay's folder under a running task
   (`relay.refetch`). The reader returns no entries of another server that begin before the place where it continues.
4. The run has compared the source's log, and then the source is reset while the run waits for a relay that ends before
   the checkpoint: the wait ends with an error, and the next attempt compares again.
5. During a commit: the position and the log file are in one row, so they belong together.

Log files cannot be compared in two cases: the checkpoint has no log file, or the relay has purged this file. Without a
log file, the relay must have the checkpoint's GTIDs before the checkpoint's place. Otherwise the run continues.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pidts.batch.workers import stored_with
from pidts.model import Checkpoint, LogFile, LogPlace, Lsn, Position, Where
from pidts.relay import Origin
from pidts.replicate import AppliedPlace
from pidts.replicate.resume import demand_same_place, log_made_anew


class _Relay(Protocol):
    @property
    def origin(self) -> Origin | None: ...

    @property
    def received(self) -> Lsn | None: ...

    def position(self, lsn: Lsn) -> Position | None: ...

    def log_file(self, lsn: Lsn) -> LogFile | None: ...

    def gtid_set(self, at: Lsn) -> str | None: ...

    def demand_place(self, lsn: Lsn) -> None: ...


def demand_same_log(relay: _Relay, checkpoints: Sequence[Checkpoint]) -> None:
    """Raises if the relay has another log than the one whose changes the target has.

    The error is `source-went-back` if the same server has made its log anew, and `other-source` for another server.
    """
    for one in checkpoints:
        place = stored_with(one).lsn
        for lsn in {place, one.lsn}:
            relay.demand_place(lsn)
        _demand_same_file(relay, [one], place)


def place_to_prove(relay: _Relay, checkpoints: Sequence[Checkpoint]) -> AppliedPlace | None:
    """Returns the place of the last checkpoint if the relay should reach this place later; otherwise None.

    A relay should reach the place if it is empty, or ends before the place and was received from the checkpoint's
    server. The caller proves that the source's log has the place (`demand_checkpoint_in_log`): if the log does not have
    it, the relay never reaches it.
    """
    last = max(checkpoints, key=lambda one: stored_with(one).lsn)
    lsn, file, origin, received = stored_with(last).lsn, last.log_file, relay.origin, relay.received
    if file is None or (received is not None and received >= lsn):
        return None
    is_same = origin is None or (origin.server, origin.change_no) == (file.server, lsn.change_no)
    return AppliedPlace(lsn, last.position, last.gtid, file) if is_same else None


def end_of_batch(relay: _Relay, checkpoints: Sequence[Checkpoint], begin: Lsn, end: Lsn) -> LogPlace:
    """Returns the place at which a batch ends; its log file is not known if the batch has no log.

    Raises as `demand_same_log` does, for the place at which the batch begins.
    """
    _demand_same_file(relay, checkpoints, begin)
    return LogPlace(str(relay.position(end) or ""), relay.log_file(end) if end != begin else None)


def _demand_same_file(relay: _Relay, checkpoints: Sequence[Checkpoint], at: Lsn) -> None:
    there = relay.log_file(at)
    if there is None:
        return
    for one in checkpoints:
        known = one.log_file
        if known is not None and known.server == there.server and not known.is_another(there):
            continue  # the usual case, decided without the copy's text, which may be long
        place, where = stored_with(one).lsn, Where(source=one.source)
        if place.change_no != at.change_no:
            continue
        if known is not None and known.is_made_anew(there):
            raise log_made_anew(known, there, where, holder="the relay")
        if known is None or known.server != there.server:
            demand_same_place(known, one.gtid, there, relay.gtid_set(place), where)
