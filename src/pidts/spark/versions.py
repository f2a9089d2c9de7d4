"""Hides the differences between the supported versions of Spark, 4.0 to 4.3."""

from __future__ import annotations

from collections.abc import Iterable

import pyspark
from pyspark import accumulators
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everyone writes it

VERSION = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
ADMITS = VERSION >= (4, 2)
"""Whether Spark passes its current offset and its read limit to a streaming source in Python."""

_BITS = 0xFFFFFFFF
_STREAMING = "org.apache.spark.sql.execution.streaming"
FILE_MANAGER = (
    f"{_STREAMING}.checkpointing.FileSystemBasedCheckpointFileManager"
    if VERSION >= (4, 1)
    else f"{_STREAMING}.FileSystemBasedCheckpointFileManager"
)
"""The class that writes a query's checkpoints without starting processes."""


def accumulator_servers() -> Iterable[type]:
    """Returns the classes of the servers that receive Spark's accumulators in this process."""
    names = ("AccumulatorTCPServer", "AccumulatorUnixServer", "AccumulatorServer")
    return [found for name in names if (found := getattr(accumulators, name, None)) is not None]


def dealt(rows: DataFrame, count: int, column: str) -> DataFrame:
    """Repartitions the rows by a column with the numbers 0 to `count` - 1: each number gets its own partition."""
    return rows.repartitionById(count, F.col(column)) if VERSION >= (4, 1) else dealt_by_hash(rows, count, column)


def dealt_by_hash(rows: DataFrame, count: int, column: str) -> DataFrame:
    """Does the same as `dealt` if Spark partitions only by hash: replaces each number by a number with a suitable hash.

    With the hashes of the numbers themselves, 0 and 1 would share one of two partitions.
    """
    keys: dict[int, int] = {}
    key = 0
    while len(keys) < count:
        keys.setdefault(_hash(key) % count, key)
        key += 1
    of_number = F.array(*(F.lit(keys[number]) for number in range(count)))
    return rows.repartition(count, F.element_at(of_number, F.col(column) + 1))


def _hash(value: int) -> int:
    """Returns Spark's hash of an integer: Murmur3 of its 4 bytes."""
    mixed = _turned(value * 0xCC9E2D51, 15) * 0x1B873593
    found = _turned(42 ^ (mixed & _BITS), 13) * 5 + 0xE6546B64
    found = (found & _BITS) ^ 4
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        found = (found ^ (found >> shift)) * factor & _BITS
    return found - (1 << 32) if found >> 31 else found


def _turned(value: int, bits: int) -> int:
    value &= _BITS
    return (value << bits | value >> (32 - bits)) & _BITS
