"""XA transactions that the relay holds back: kept by name from the entry that prepares to the one that decides.

Their bytes stay where they came in. What is undecided is known from the index alone: each segment's header names it as
of the segment's start, and every entry that changes it says so. So neither a restart nor a reader needs the index of an
earlier segment, and the entry that commits names the place of the rows.
"""

from __future__ import annotations

from pidts.binlog.xa import PreparedGroups
from pidts.model import LogEntry, PreparedExtent

Undecided = PreparedGroups[PreparedExtent]


def settled(undecided: Undecided, entry: LogEntry) -> LogEntry:
    """The entry as it counts, given all before it; an entry that has been settled comes out the same."""
    what, extent = entry.transaction, entry.extent
    if what.xa is None:
        return entry
    place = PreparedExtent(extent.segment, extent.offset, extent.size, what.begin)
    transaction, prepared = undecided.settle(what, place)
    return LogEntry(transaction, extent, prepared)
