"""The layout of memory that compiled and plain code share: numbers of eight bytes at fixed offsets."""

from __future__ import annotations

# Each column of one form is described by a row of eight numbers.
PROGRAM = 64
CODE = 0
"""The code for reading its values, one of those below."""
WIRE = 8
"""The bytes of a value, or of its length."""
CELL = 16
"""The bytes of a value in its Arrow array; 0 if values vary in size."""
A, B, C = 24, 32, 40
"""Other parameters of the code."""
PASSED_OVER = -1
"""The cell size of a skipped column, to which nothing is written."""

# A program that skips columns refers to another one, which reads all, and to its steps: their number for an image with
# NULLs (one per column) and without (several neighbours in one), then the steps one after the other.
FULL = 48
"""The address of the other program, in the first row; 0 if this one reads all columns itself."""
STEPS = 56
"""The address of two addresses, in the first row.

They are those of the steps that read some columns, and of the steps that read none.
"""
LOOKING, PASSING = 0, 8
LEAD, STEP_KIND, STEP_SIZE, STEP_COLUMN = range(0, 32, 8)
"""A step skips this many bytes, and then does what its kind says."""
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
"""The address of its validity bits, which are all ones before anything is written."""
CELLS = 8
"""The address of its values, or of the ends of its values (32 bits each, the first is 0)."""
TEXT = 16
"""The address of the bytes of values that vary in size, and the room there."""
ROOM = 24

# One table: the number of its rows, and their place.
ROWS = 0
CAPACITY = 8
WIDTH = 16
BEFORE_FILLED = 24
"""The row up to which the before images are written; images missing after it are NULL."""
AFTER_FILLED = 32
BEFORE = 40
"""The address of the columns of the before images."""
AFTER = 48
LSNS = 56
OPS = 64
SIZE = 72
"""The bytes of images so far."""
SCRATCH = 80
"""The address of memory for unfinished JSON containers."""
PLAIN = 88
"""1 if plain code has taken over."""
NUMBER = 96
TOUCHED = 104
"""The number of the last transaction with rows of the table, and the number of rows before it."""
MARK = 112
UNWANTED = 120
"""A bit for each operation whose rows are not read."""
# For tables whose columns are not all read at once:
ASKED = 128
"""A bit for each operation for which some columns are read first."""
ENDS = 136
"""The address of each row's end in the images of its event (32 bits each)."""
EVENTS = 144
"""The address of the row events from which the rows come, and their number."""
EVENT_COUNT = 152
TABLE = 160

# A row event whose rows are not read completely: its images, the place of the first row in them, that row's number, the
# arguments of `read_rows` for the images, and the program that reads all columns.
DATA, BEGIN, FIRST, OP, PRESENT, BITMAPS, READ_BY = range(0, 56, 8)
EVENT = 56

# A call's input, its progress, and what it needs.
AT = 0
"""The offset of the next row in the images; for rows that are read again, the offset of their event."""
DONE = 8
"""The number of rows read, including skipped ones."""
SIDE = 16
PLACE = 24
NEEDED = 32
HELP = 40
"""The address of documents whose text plain code has made: their address, the text's address and size."""
HELPS = 48
PREFIX = 56
"""The first sixteen bytes of the rows' Lsns."""
JSON_CODE = 72
"""Addresses of the functions that write documents and identifiers."""
IDENTIFIER_CODE = 80
CALL = 88

# The results of a call.
FINE = 0
TORN, BAD_VALUE, TOO_MUCH = -1, -2, -3
MORE_ROWS, MORE_TEXT, WANTS_HELP = -10, -11, -12

LSN = 20
END = 4
FRAME = 48
DEPTH = 100
"""The highest depth of nested JSON."""
