"""Full copy: rows that are already there, read while the log goes on.

`ranges` cuts a table into chunks, `chunk` reads one of them or rows by their keys, `snapshot` reads a whole table as of
one moment.
"""

from pidts.copy.chunk import Chunk, find, read_keys, read_range
from pidts.copy.ranges import Range, highest, ranges
from pidts.copy.snapshot import Snapshot, read_snapshot

__all__ = [
    "Chunk",
    "Range",
    "Snapshot",
    "find",
    "highest",
    "ranges",
    "read_keys",
    "read_range",
    "read_snapshot",
]
