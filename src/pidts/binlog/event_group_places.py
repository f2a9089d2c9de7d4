"""Numbers the events of an event group that has prepared an XA transaction.

The Lsns of the transaction's rows have the position of its commit, and differ only in their row number. An event's
first row gets the number of bytes from the group's first event to this event. So the row numbers follow from the log
alone, whichever tables are decoded.

Two rows never have the same number, since no event has more rows than bytes. The exception is an event that MariaDB has
compressed: 1,000 rows of one byte each may take 60 bytes of the log. If the next event began with number 60, its rows
would have the Lsns of other rows, and would be sorted before them. So the numbers after a compressed event begin after
all numbers that its rows could have.
"""

from __future__ import annotations

from pidts.binlog.events import Event
from pidts.binlog.rows_event import inflated_size

LARGEST = 2**32
"""The largest count of numbers in one group: an Lsn has 32 bits for the number of a row."""


class EventGroupPlaces:
    """Numbers the events of one event group. The caller passes all of them, in log order."""

    __slots__ = ("end", "first")

    def __init__(self, first: int | None = None, end: int = 0) -> None:
        self.first = first
        """The byte of the log file at which the group's first event begins; None before this event."""
        self.end = end
        """The number after the numbers of all events so far."""

    def of(self, event: Event) -> int:
        """Returns the number of the event's first row."""
        if self.first is None:
            self.first = event.offset
        place = max(event.offset - self.first, self.end)
        if not event.is_artificial:
            self.end = place + max(event.size, inflated_size(event))
        return place
