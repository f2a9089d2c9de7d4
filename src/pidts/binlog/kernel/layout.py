"""The layout of the memory that compiled and plain code share: numbers of eight bytes at fixed offsets."""

from __future__ import annotations

# A decoding program has six numbers for each column, which say how the column's values are read.
PROGRAM = 48
CODE = 0
"""One of the codes below."""
WIRE = 8
"""The number of bytes that a value, or the length before it, has in the log."""
CELL = 16
"""The number of bytes that a value has in its Arrow array; 0 if values vary in size."""
A, B, C = 24, 32, 40
"""Parameters of the code."""
BYTES1, BYTES2, BYTES4, BYTES8, INT24, UINT24, YEAR, BITS, WORD4, WORD8, DECIMAL18, DECIMAL = range(1, 13)
FIRST_TEMPORAL = 32
DATE, TIME2, DATETIME2, TIMESTAMP2 = range(32, 36)
OLD_TIME, OLD_DATETIME, OLD_TIMESTAMP, FRACTION_TIME, FRACTION_DATETIME, FRACTION_TIMESTAMP = range(36, 42)
FIRST_VARYING = 64
PREFIXED, PADDED, JSON, UUID, INET4, INET6 = range(64, 70)

# The memory of one column of the before images or of the after images.
COLUMN = 32
VALID = 0
"""The address of the column's validity bits, which are all 1 before anything is written."""
CELLS = 8
"""The address of the column's values, or of the ends of its values (32 bits each, the first is 0)."""
TEXT = 16
"""The address of the bytes of values that vary in size, and the number of bytes that fit there."""
ROOM = 24

# The state of one table: the number of its rows, the number of rows for which there is room, and the columns'
# addresses.
ROWS = 0
CAPACITY = 8
WIDTH = 16
BEFORE_FILLED = 24
"""The row after the last row with a before image. The rows from there up to `ROWS` are inserts: they get NULL later."""
AFTER_FILLED = 32
BEFORE = 40
"""The address of the columns of the before images."""
AFTER = 48
LSNS = 56
OPS = 64
SIZE = 72
"""The size in bytes of all images so far."""
SCRATCH = 80
"""The address of memory for unfinished JSON containers."""
PLAIN = 88
"""1 if plain code reads all further rows of the table."""
NUMBER = 96
TOUCHED = 104
"""The sequence number of the last transaction with rows of the table, and the count of rows before this transaction."""
ROWS_BEFORE = 112
UNWANTED = 120
"""Bits by operation: bit n is set if rows with operation n are not read."""
PRESENCES = 128
"""The address of an array with the 32-bit number of each row's column presence; see `pidts.binlog.kernel.presence`."""
IS_PARTIAL = 136
"""1 if the image of some row lacks columns."""
KNOWN_PRESENCES = 144
"""The address of the slots for known presences, and the number of slots minus 1."""
PRESENCE_MASK = 152
PRESENCE_SCRATCH = 160
"""The address of memory for the bitmaps of one event."""
TABLE = 168

# The slot of a known presence: the address and the size of its bitmaps (0: the slot is free), its number, and the
# argument `bitmaps` of `read_rows`.
KEY, KEY_SIZE, PRESENCE_NUMBER, NULL_BYTES = range(0, 32, 8)
PRESENCE_SLOT = 32

# A call's input, its progress, and what it needs to continue.
AT = 0
"""The offset of the next row in the images."""
DONE = 8
"""The number of rows read, including skipped ones."""
SIDE = 16
PLACE = 24
NEEDED = 32
HELP = 40
"""The address of entries, one for each JSON document whose text plain code has made. An entry has the address of the
document, and the address and the size of the text.
"""
HELPS = 48
PREFIX = 56
"""The first sixteen bytes of the rows' Lsns."""
JSON_CODE = 72
"""The address of the function that writes JSON documents; at `IDENTIFIER_CODE`, the function for identifiers."""
IDENTIFIER_CODE = 80
PRESENCE = 88
"""The number of the column presence of the event's images."""
CALL = 96

# The results of a call.
FINE = 0
TORN, BAD_VALUE, TOO_MUCH = -1, -2, -3
MORE_ROWS, MORE_TEXT, WANTS_HELP = -10, -11, -12

LSN = 20
FRAME = 48
DEPTH = 100
"""The highest depth of nested JSON."""
