"""Finds an earlier beginning for a relay that lacks rows, because XA transactions were prepared before it began.

An example: a relay is lost while an XA transaction is prepared. The new relay begins at the task's checkpoint. So this
relay has the COMMIT, which has no rows, and lacks the rows, which are earlier in the log. If the source still has the
rows, the relay can be emptied and can begin before the rows.

This is safe:

- The task continues at the same place. Lsns are places in the source's log, so the entries of the new relay have the
  same Lsns, and the task does not read the entries up to its place.
- None of these rows is on the target. A transaction's rows are applied at its COMMIT, and the task is before the first
  COMMIT that lacks rows.
- The source also has the log after these rows, since a server purges its oldest files first. `begin_before_rows` checks
  that the source has the relay's log. If this log came from several servers, the relay is kept.
"""

from __future__ import annotations

import threading
from contextlib import closing, suppress

from pidts.model import Halted, Lsn
from pidts.plan.continuity import Discontinuity
from pidts.relay import RelayReader
from pidts.replicate.proof import end_of_same_log
from pidts.replicate.resume import AppliedPlace
from pidts.source import SourceConfig, connect, server_info
from pidts.source.prepared_xa import begin_of_prepared


def begin_before_rows(
    source: SourceConfig, reader: RelayReader, applied: Lsn, stop: threading.Event
) -> AppliedPlace | None:
    """Returns where a new relay has to begin, so that it has the rows that the present relay lacks.

    The present relay has COMMITs after `applied` whose rows are before its beginning. The new relay begins before the
    rows of the first such COMMIT, and before the rows of all later ones that the source still has. Returns None if the
    source lacks the rows of the first such COMMIT, or does not have the relay's log.
    """
    first, origin = reader.first, reader.origin
    if first is None or origin is None or not first.change_no == applied.change_no == origin.change_no:
        return None
    xids = list[str]()
    with suppress(Discontinuity):  # A new relay is not damaged.
        for entry in reader.entries(applied):
            if entry.lacks_rows and entry.transaction.xa is not None:
                xids.append(entry.transaction.xa.xid)
    if not xids or not _has_log(source, reader):
        return None
    with closing(connect(source)) as session:
        if server_info(session).identity != origin.server:
            return None
        begin, missing = begin_of_prepared(source, session, xids, first.position(origin.log_base), stop)
    if begin is None or xids[0] in missing:
        return None
    return AppliedPlace(Lsn.at(begin, first.change_no), str(begin), "")


def _has_log(source: SourceConfig, reader: RelayReader) -> bool:
    try:
        return end_of_same_log(source, reader) is not None
    except Halted:
        return False
