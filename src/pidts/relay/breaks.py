"""Finds the exact place at which a task has to stop because its relay is damaged, in the index or in the events.

The events may be damaged although the index is intact. A damaged event is noticed when it is decoded, in the middle of
a batch. This module then reads the same part of the relay once more, one entry at a time, so that the relay can keep
everything before the damage.

The search begins with the first entry of the segment that contains the task's place. So the search also reads the entry
after which the relay is cut. This entry must be intact, too: the replicator first compares it with the source's log.
"""

from __future__ import annotations

from collections.abc import Iterator

from pidts.binlog import Format, LogWalker, iter_raw, whole_events
from pidts.model import DecodeError, Extent, Lsn, PreparedExtent, Where
from pidts.plan.continuity import Discontinuity
from pidts.relay.reader import RelayReader

_ENOUGH = 1 << 30
"""The search ends after this many intact bytes: a batch found the damage, and no batch is larger."""
_ADVICE = "Look at the disk; then empty this folder and start again from the target's checkpoint"


def first_break(reader: RelayReader, since: Lsn) -> Discontinuity | None:
    """Returns the first damage after `since`, or None if there is none."""
    last, segment = since, 0
    checked = 0
    try:
        last = reader.segment_start(since)
        for entry in reader.entries(last):
            segment = entry.extent.segment
            _check(reader, entry.extent, entry.transaction.begin.offset)
            if entry.prepared is not None and (found := _break_in_prepared(reader, entry.prepared, last)) is not None:
                return found
            last = entry.transaction.lsn
            checked += entry.extent.size
            if checked > _ENOUGH and last > since:
                return None
    except DecodeError as error:
        return _damaged(reader, error, segment, last)
    except Discontinuity as error:
        return error if error.after is not None else error.at(last)
    return None


def _check(reader: RelayReader, extent: Extent, offset: int) -> None:
    walker = LogWalker("", offset, Format.parse(LogWalker().feed(reader.format(extent.segment)).body))
    for raw in _events(reader, extent):
        walker.feed(raw)


def _events(reader: RelayReader, extent: Extent) -> Iterator[memoryview]:
    for piece in whole_events(reader.chunks(extent)):
        yield from iter_raw(piece)


def _break_in_prepared(reader: RelayReader, place: PreparedExtent, last: Lsn) -> Discontinuity | None:
    """Returns the damage in the rows of an XA transaction, with the place at which the relay has to be cut; or None.

    This place is before the segment's entry with the rows, so it may be before `last`, the entry before the commit.
    """
    try:
        _check(reader, place, place.begin.offset)
    except (DecodeError, Discontinuity) as error:
        start = reader.start_of_segment(place.segment)
        for entry in reader.entries(start) if start is not None else ():
            if entry.extent.segment == place.segment and entry.extent.end > place.offset:
                last = min(last, entry.transaction.prev_lsn)
                break
        return _damaged(reader, error, place.segment, last)
    return None


def _damaged(reader: RelayReader, error: DecodeError | Discontinuity, segment: int, after: Lsn) -> Discontinuity:
    folder = reader.folder
    where = Where(source=folder.source_id, position=str(after), file=str(folder.log(segment)))
    what = error.what if isinstance(error, Discontinuity) else f"events after {after} are damaged: {error.what}"
    return Discontinuity("relay-corrupt", what, where=where, todo=_ADVICE)
