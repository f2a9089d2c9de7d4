"""Converts ENUM and SET: the log contains numbers, and the table's structure lists the words."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from pidts.binlog.values.image import Build, MakeReader, fixed_number
from pidts.binlog.wire import Wire, WireType
from pidts.model.advice import REJOIN
from pidts.model.errors import DecodeError, Where
from pidts.model.table import Column, TableName
from pidts.model.types import ColumnType, Kind

_ONE_BYTE_LABELS = 255
_SET_BYTES = (0, 1, 2, 3, 4, 8, 8, 8, 8)


def reader(kind: ColumnType, wire: Wire) -> MakeReader | None:
    """Returns the reader of an ENUM or a SET; None if the encoding in the log does not fit the type."""
    if kind.kind is Kind.ENUM and wire.type is WireType.ENUM:
        size = 1 if len(kind.labels) <= _ONE_BYTE_LABELS else 2
    elif kind.kind is Kind.SET and wire.type is WireType.SET and len(kind.labels) <= 64:
        size = _SET_BYTES[(len(kind.labels) + 7) // 8]
    else:
        return None
    return fixed_number(size) if wire.size == size else None


def builder(table: TableName, column: Column) -> Build:
    """Returns a builder that converts numbers to words; each distinct number is converted once."""
    word = _enum_word if column.type.kind is Kind.ENUM else _set_words

    def build(values: list[Any]) -> pa.Array:
        known: dict[int | None, str | None] = {None: None}
        for number in set(values) - {None}:
            try:
                known[number] = word(number, column.type.labels)
            except IndexError:
                raise DecodeError(
                    "structure-mismatch",
                    f"column {column.name} holds number {number}, but only {len(column.type.labels)} labels are known",
                    where=Where(table=str(table)),
                    todo=f"The source has altered the table, and did not log the statement (sql_log_bin=0?): {REJOIN}",
                ) from None
        return pa.array([known[value] for value in values], pa.string())

    return build


def _enum_word(number: int, labels: tuple[str, ...]) -> str:
    """Returns the word; number 0 is the empty text that the server stores for an unknown word."""
    return labels[number - 1] if number else ""


def _set_words(bits: int, labels: tuple[str, ...]) -> str:
    return ",".join(labels[place] for place in range(bits.bit_length()) if bits >> place & 1)
