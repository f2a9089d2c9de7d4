"""The layout of the memory that compiled and plain code share: numbers of eight bytes at fixed offsets."""

from __future__ import annotations

# What stands for one column of one form: a row of eight numbers.
PROGRAM = 64
CODE = 0
"""The code that reads its values, one of those below."""
WIRE = 8
"""Bytes of a value, or of its length."""
CELL = 16
"""Bytes of a value in its Arrow array; 0 where values vary in size."""
A, B, C = 24, 32, 40
"""Whatever else the code needs."""
PASSED_OVER = -1
"""The cell of a column that nothing is written to."""

# A program that passes over columns knows another, which reads all, and its steps: how many there are for an image with
# NULLs (one a column) and without (neighbours in one), then one after the other.
FULL = 48
"""The address of the other program, in the first row; 0 where this one reads all itself."""
STEPS = 56
"""The address of two addresses, in the first row.

They are of the steps that look at some columns and of those that look at none.
"""
LOOKING, PASSING = 0, 8
LEAD, STEP_KIND, STEP_SIZE, STEP_COLUMN = range(0, 32, 8)
"""A step passes over so many bytes, and then does what its kind says."""
STEP = 32
LOOK, PASS, PASS_BEHIND_SIZE = range(3)

BYTES1, BYTES2, BYTES4, BYTES8, INT24, UINT24, YEAR, BITS, WORD4, WORD8, DECIMAL18, DECIMAL = range(1, 13)
FIRST_TEMPORAL = 32
DATE, TIME2, DATETIME2, TIMESTAMP2 = range(32, 36)
OLD_TIME, OLD_DATETIME, OLD_TIMESTAMP, FRACTION_TIME, FRACTION_DATETIME, FRACTION_TIMESTAMP = range(36, 42)
FIRST_VARYING = 64
PREFIXED, PADDED, JSON, UUID, INET4, INET6 = range(64, 70)

# The memory of one column of one side of a table.
COLUMN = 32
VALID = 0
"""Address of its validity bits, all ones where nothing has been written."""
CELLS = 8
"""Address of its values, or of the ends of its values (32 bits each, the first is 0)."""
TEXT = 16
"""Address of the bytes of values that vary in size, and how many there is room for."""
ROOM = 24

# One table: how many rows it has, where they are.
ROWS = 0
CAPACITY = 8
WIDTH = 16
BEFORE_FILLED = 24
"""The row up to which the before images are written; what is missing after it is NULL."""
AFTER_FILLED = 32
BEFORE = 40
"""Address of the columns of the before images."""
AFTER = 48
LSNS = 56
OPS = 64
SIZE = 72
"""Bytes of images so far."""
SCRATCH = 80
"""Address of memory for unfinished JSON containers."""
PLAIN = 88
"""1 where plain code has taken over."""
NUMBER = 96
TOUCHED = 104
"""The number of the last transaction that has rows of the table, and how many rows there were before it."""
MARK = 112
UNWANTED = 120
"""A bit for each op whose rows are not even read."""
# Of tables whose columns are not all read at once:
ASKED = 128
"""A bit for each op of which some columns are read at first."""
ENDS = 136
"""Address of where each row ends in the images of its event (32 bits each)."""
EVENTS = 144
"""Address of the row events that the rows come from, and how many they are."""
EVENT_COUNT = 152
TABLE = 160

# A row event whose rows are not read whole: its images, where in them the first row begins, that row's number, what
# `read_rows` was given for the images, and the program that reads them whole.
DATA, BEGIN, FIRST, OP, PRESENT, BITMAPS, READ_BY = range(0, 56, 8)
EVENT = 56

# What a call was asked, how far it came, and what it needs.
AT = 0
"""The offset of the next row in the images; for rows that are read again, the offset of their event."""
DONE = 8
"""Rows read, those passed over included."""
SIDE = 16
PLACE = 24
NEEDED = 32
HELP = 40
"""Address of documents whose text plain code has made: their address, the text's address and size."""
HELPS = 48
PREFIX = 56
"""The first sixteen bytes of the rows' Lsns."""
JSON_CODE = 72
"""Addresses of the functions that write documents and identifiers."""
IDENTIFIER_CODE = 80
CALL = 88

# How a call ended.
FINE = 0
TORN, BAD_VALUE, TOO_MUCH = -1, -2, -3
MORE_ROWS, MORE_TEXT, WANTS_HELP = -10, -11, -12

LSN = 20
END = 4
FRAME = 48
DEPTH = 100
"""The depth up to which JSON may be nested."""
