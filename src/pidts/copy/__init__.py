"""Reads the existing rows of tables for the full copy, while applications write to the source.

`ranges` divides a table into chunks. `chunk` reads one chunk, or rows by their keys. `snapshot` reads a consistent
snapshot of a whole table.
"""

from pidts.copy.chunk import Chunk, read_keys, read_range
from pidts.copy.ranges import Range, highest, ranges
from pidts.copy.snapshot import read_snapshot
