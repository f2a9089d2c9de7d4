"""The two steps of decoding a column: from row images to a list, and from the list to an Arrow array.

A *reader* is made once for each TABLE_MAP event, for the encoding of the column in the log. It gets the bytes of a row
image and a place in them, appends one value to the column's list, and returns the place after the value. A *builder* is
made once per table structure. The values in the list do not depend on the encoding in the log: an int for numbers,
dates (packed, see `temporal`) and decimals (unscaled), bytes for text and bytes.

Readers do not check for the end of the bytes at every step: `data[at]` and `unpack_from` raise by themselves. If a
slice was too short, the returned place is after the end of the bytes: the caller checks this once for each row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from pidts.binlog.wire import Wire
from pidts.model.advice import REJOIN
from pidts.model.errors import DecodeError, Where
from pidts.model.table import Column, TableName

Append = Callable[[Any], None]
Read = Callable[[bytes, int], int]
MakeReader = Callable[[Append], Read]
Build = Callable[[list[Any]], pa.Array]


def fixed(size: int, convert: Callable[[bytes], Any]) -> MakeReader:
    """Returns a function that makes readers for values of fixed size.

    `convert` makes, from the bytes of a value, the item that the reader appends to the column's list.
    """

    def make(append: Append) -> Read:
        def read(data: bytes, at: int) -> int:
            end = at + size
            append(convert(data[at:end]))
            return end

        return read

    return make


def fixed_number(size: int, convert: Callable[[int], Any] = int, *, big: bool = False) -> MakeReader:
    """Returns the same as `fixed`, but `convert` gets the bytes as an unsigned number."""
    order: Literal["big", "little"] = "big" if big else "little"
    return fixed(size, lambda raw: convert(int.from_bytes(raw, order)))


@dataclass(frozen=True, slots=True)
class ImageColumn:
    """A column of an image."""

    bit: int
    """The column's bit in the image's bitmap of NULLs."""
    place: int
    """The column's index among the table's columns."""
    read: Read
    append: Append


def mismatch(table: TableName, column: Column, wire: Wire) -> DecodeError:
    """Returns the error for a column whose type in the log does not fit the known structure."""
    return DecodeError(
        "structure-mismatch",
        f"column {column.name} is {column.type.kind} in the known structure and {wire} in the log",
        where=Where(table=str(table)),
        todo=f"The source has altered the table, and did not log the statement (sql_log_bin=0?): {REJOIN}",
    )
