"""Tracks prepared XA transactions by name, from the entry that prepares to the one that commits or rolls back.

Their events stay where they were received. The index alone tells which are undecided: each segment's header names them
as of its start, and every entry that changes this says so. So neither a restart nor a reader needs the index of an
earlier segment, and the entry that commits names the place of the rows.
"""

from __future__ import annotations

from pidts.binlog.xa import PreparedGroups
from pidts.model import LogEntry, PreparedExtent

Undecided = PreparedGroups[PreparedExtent]


def settled(undecided: Undecided, entry: LogEntry) -> LogEntry:
    """Returns the entry with the place of its prepared rows. A settled entry is returned unchanged."""
    what, extent = entry.transaction, entry.extent
    if what.xa is None:
        return entry
    place = PreparedExtent(extent.segment, extent.offset, extent.size, what.begin)
    transaction, prepared = undecided.settle(what, place)
    return LogEntry(transaction, extent, prepared)
